"""Facts: what the answers of a smoke test show of Kaggle, beside what this project assumes.

The names are those of the local Kaggle, which can be told to behave so. A fact is left out if the
answers do not show it, or if one of them cannot be read. Seconds are at least those for which it
was seen, by polls.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy import evidence
from deploy.evidence import NOT_THERE, STARTED, Records
from deploy.look import ENDED
from deploy.probe import BEFORE, MARKER
from deploy.raw_answers import calls
from deploy.responses import MALFORMED

UNREAD = "unread"  # in place of a value that cannot be computed


@dataclass(frozen=True)
class Fact:
    """One fact.

    Attributes:
        assumed: what this project assumes.
        step: of the test that shows it.
        see: returns what the answers show; None: nothing.
    """

    assumed: Any
    step: str
    see: Callable[[Records], Any]


@dataclass(frozen=True)
class Row:
    """One fact as a person reads it; `seen` is "" where nothing shows it."""

    fact: str
    assumed: str
    seen: str
    step: str

    def __str__(self) -> str:
        seen = self.seen or f"- ({self.step})"
        note = "  differs" if self.seen and self.seen != self.assumed else ""
        return f"{self.fact:20}{self.assumed:12}{seen}{note}"


def seen(records: Records) -> dict[str, Any]:
    """Return {fact: value} of those that the answers show."""
    found = {name: _shown(fact.see, records) for name, fact in FACTS.items()}
    return {name: value for name, value in found.items() if value not in (None, UNREAD)}


def assumed() -> dict[str, Any]:
    """Return {fact: value} as this project assumes them."""
    return {name: fact.assumed for name, fact in FACTS.items()}


def table(records: Records) -> list[Row]:
    """Return a row for each fact."""
    there = seen(records)
    return [
        Row(name, _in_words(fact.assumed), _in_words(there.get(name)), fact.step)
        for name, fact in FACTS.items()
    ]


def notes(records: Records) -> list[str]:
    """Return what else is worth knowing, and which facts an unreadable answer hides."""
    noted, looks = _shown(_noted, records), {name: fact.see for name, fact in FACTS.items()}
    unread = [name for name, see in looks.items() if _shown(see, records) == UNREAD]
    if noted == UNREAD:
        noted, unread = [], ["notes", *unread]
    return [*noted, *(f"{name}: an answer lacks what would show it" for name in unread)]


def _shown(see: Callable[[Records], Any], records: Records) -> Any:
    """Return what the answers show; UNREAD: Kaggle left something out, or sent something else."""
    try:
        return see(records)
    except MALFORMED:
        return UNREAD


def _noted(records: Records) -> list[str]:
    """Return what the local Kaggle has no name for."""
    found = []
    for push in evidence.pushes(records, "cpu")[-1:]:
        names, line = evidence.listed(records, push), evidence.line(records, push, "files")
        if names and line:
            found.append(f"{len([n for n in names if 'many/' in n])} of {line['many']} small files")
        sources = {
            (evidence.field(record, "blob") or {}).get("source")
            for record in evidence.of_kernel(records, push, "GetKernel")
            if record["code"] == 200
        }
        if sources:
            pushed = push["asked"].get("text")
            echoed = "unchanged" if sources == {pushed} else "changed"
            if pushed:
                found.append(f"the notebook came back {echoed}")
        if versions := evidence.line(records, push, "versions"):
            listed = (f"{name} {version}" for name, version in versions.items() if name != "about")
            found.append(f"a CPU session has {', '.join(listed)}")
    for record in calls(records, "log stream"):
        same = record["answer"].get("same")
        found.append(f"the two forms of a log are {'equal' if same else 'not equal'}")
    for record in calls(records, "token")[-1:]:
        found.append(f"the access token was valid for {record['answer']['left']} s more")
    found += [
        f"{record['step']}: {record['answer']['failed']}" for record in calls(records, "failure")
    ]
    return found


def _in_words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(value) or "none"
    return "none" if value == "" else f"{value:g}" if isinstance(value, float) else str(value)


# How long something lasted


def _status_lasted(records: Records, word: str) -> float | None:
    push = evidence.ran(records, "cpu")
    if push is None or push["call"] == "adopted":  # nobody knows when it was pushed
        return None
    looks = [
        (look["at"], look["until"], seen == word) for look, seen in evidence.statuses(records, push)
    ]
    return evidence.lasted(looks, push["until"])


def _queued(records: Records) -> float | None:
    """Return the seconds from the first answer that it waits to the last."""
    push = evidence.ran(records, "cpu")
    if push is None or push["call"] == "adopted":
        return None
    looks = [look for look, word in evidence.statuses(records, push) if word == "QUEUED"]
    return round(looks[-1]["until"] - push["until"], 1) if looks else 0.0


def _listing_seconds(records: Records) -> float | None:
    push = evidence.ran(records, "cpu")
    if push is None:
        return None
    ended = evidence.began(
        [(look, word == "COMPLETE") for look, word in evidence.statuses(records, push)]
    )
    pages = [
        (record["at"], record["until"], not evidence.field(record, "files"))
        for record in evidence.of_kernel(records, push, "ListKernelSessionOutput")
        if record["code"] == 200 and not record["asked"].get("pageToken")
    ]
    return evidence.lasted(pages, ended) if ended is not None else None


def _ready_seconds(records: Records) -> float | None:
    made = [record for record in calls(records, "CreateDataset") if record["code"] == 200]
    after = calls(records, "CreateDatasetVersion")
    if not made:
        return None
    looks = [
        (record["at"], record["until"], evidence.field(record, "status") != "READY")
        for record in calls(records, "GetDatasetStatus")
        if record["at"] >= made[0]["at"] and (not after or record["until"] <= after[0]["at"])
    ]
    return evidence.lasted(looks, made[0]["until"])


def _mount_seconds(records: Records) -> float | None:
    """Return the seconds from READY to the first push that mounted the version; 0: the first."""
    made = calls(records, "CreateDatasetVersion")
    pushes = evidence.pushes(records, "sources")
    if not made or not pushes:
        return None
    looks = [
        (record, evidence.field(record, "status") == "READY")
        for record in calls(records, "GetDatasetStatus")
        if record["until"] >= made[0]["at"]
    ]
    ready = next((look["at"] for look, so in looks if so), None)
    newest = made[0]["asked"]["body"]["versionNotes"]
    for place, push in enumerate(pushes):
        markers = (evidence.line(records, push, "mounted") or {}).get("markers", {})
        if newest in markers.values():
            late = place and ready is not None
            return round(push["at"] - ready, 1) if late else 0.0
    return None


# One fact each


def _default_execution(records: Records) -> str | None:
    pushes = evidence.pushes(records, "cpu")
    unnamed = [
        push for push in pushes if push["asked"] and not push["asked"].get("kernelExecutionType")
    ]
    if not unnamed:
        return None
    if any(word in STARTED for _, word in evidence.statuses(records, unnamed[0])):
        return "run"
    return "saved" if pushes[-1] is not unnamed[0] else None


def _leading_digit(records: Records) -> bool | None:
    found = [
        record
        for record in calls(records, "SaveKernel", "adopted")
        if record["asked"]["slug"].rpartition("/")[2][:1].isdigit() and record["code"] < 500
    ]
    return any(evidence.field(record, "versionNumber") for record in found) if found else None


def _other_slug(records: Records) -> str | None:
    for push in evidence.pushes(records, "cpu"):
        slug, asked = evidence.address(push)[0], push["asked"]["slug"].rpartition("/")[2]
        return slug.removeprefix(asked) if slug.startswith(asked) else None
    return None


def _prefixes(records: Records) -> bool | None:
    kinds = {"dataset": r"datasets/.*/", "kernel": r"code/.*/", "competition": r"(competitions|c)/"}
    sources = [
        (kind, source)
        for record in calls(records, "GetKernel")
        if record["code"] == 200
        for kind in kinds
        for source in (evidence.field(record, "metadata") or {}).get(f"{kind}DataSources") or ()
    ]
    return any(re.match(kinds[kind], source) for kind, source in sources) if sources else None


def _layout(records: Records) -> str | None:
    """Return where the inputs are: as since 2026, "flat" as before, or in both places."""
    for step in ("cpu", "sources"):
        push = evidence.ran(records, step)
        line = evidence.line(records, push, "input") if push else None
        if push is None or line is None or not push["asked"]:
            continue
        there = {entry for entry, _ in line["entries"]}
        asked = push["asked"]
        sources = [
            *(("competitions", slug) for slug in asked.get("competitionDataSources") or ()),
            *(("datasets", handle) for handle in asked.get("datasetDataSources") or ()),
            *(("notebooks", handle) for handle in asked.get("kernelDataSources") or ()),
        ]
        new = any(f"{kind}/{name}" in there for kind, name in sources)
        flat = any(name.rpartition("/")[2] in there for _, name in sources)
        if new or flat:
            return "both" if new and flat else "2026" if new else "flat"
    return None


def _internet(records: Records) -> bool | None:
    push = evidence.ran(records, "cpu")
    line = evidence.line(records, push, "internet") if push else None
    return bool(line["reached"]) if line else None


def _is_listed(name: str) -> Callable[[Records], bool | None]:
    def see(records: Records) -> bool | None:
        push = evidence.ran(records, "cpu")
        names = evidence.listed(records, push) if push else set()
        return name in names if names else None

    return see


def _rewritten(records: Records) -> list[str] | None:
    push = evidence.ran(records, "cpu")
    line = evidence.line(records, push, "files") if push else None
    got = [record["answer"] for record in calls(records, "downloaded") if record["step"] == "cpu"]
    if line is None or not got:
        return None
    return sorted({each["name"] for each in got if line["files"][each["name"]] != each["sha256"]})


def _own_output(records: Records) -> bool | None:
    push = evidence.ran(records, "sources")
    if push is None:
        return None
    slug = evidence.address(push)[0]
    if any(
        source.endswith(f"/{slug}") for source in evidence.field(push, "invalidKernelSources") or ()
    ):
        return False
    line = evidence.line(records, push, "mounted")
    return any(f"{slug}/{MARKER}" in path for path in line["markers"]) if line else None


def _killed_output(records: Records) -> bool | None:
    push = evidence.ran(records, "killed")
    if push is None or evidence.statuses(records, push)[-1][1] not in ENDED[1:]:
        return None
    if not evidence.of_kernel(records, push, "ListKernelSessionOutput"):
        return None
    return BEFORE in evidence.listed(records, push)


def _verified(records: Records) -> bool | None:
    # Of more than one that ran, since no TPU keeps the second from running, one is waited for.
    lines = (evidence.line(records, push, "tpu") for push in evidence.pushes(records, "tpu"))
    line = next(filter(None, lines), None)
    return line["first"].get("platform") == "tpu" or bool(line["simulated"]) if line else None


def _refused_push(records: Records) -> str | None:
    refused = [
        record
        for record in calls(records, "SaveKernel")
        if record["step"] == "tpu" and not evidence.field(record, "versionNumber")
    ]
    looks = [
        record
        for record in calls(records, "GetKernel")
        if record["step"] == "tpu"
        and any(
            record["at"] >= push["at"]
            and record["asked"]["kernelSlug"] == push["asked"]["slug"].rpartition("/")[2]
            for push in refused
        )
    ]
    if not looks:
        return None
    if any(record["code"] >= 500 for record in looks):
        return "shell"
    ran = evidence.pushes(records, "tpu")
    versions = {
        (record["asked"]["kernelSlug"], evidence.field(record, "metadata")["currentVersionNumber"])
        for record in looks
        if record["code"] == 200
    }
    ours = {(evidence.address(push)[0], evidence.field(push, "versionNumber")) for push in ran}
    return "source" if versions - ours else "nothing"


def _reserves(records: Records) -> bool | None:
    asked = [
        evidence.field(record, "tpuQuota") or {}
        for record in calls(records, "GetAcceleratorQuotaStatistics")
        if record["step"] == "tpu"
    ]
    said = [quota.get("timeReserved", "0s") for quota in asked]
    return any(float(text.rstrip("s") or 0) > 0 for text in said) if said else None


def _gpus(records: Records) -> int | None:
    push = evidence.ran(records, "gpu")
    line = evidence.line(records, push, "gpu") if push else None
    return line["count"] if line else None


def _scores(records: Records) -> bool | None:
    complete = [
        record
        for record in calls(records, "GetSubmission")
        if evidence.word(record) == "COMPLETE" and record["code"] == 200
    ]
    return bool(evidence.field(complete[-1], "publicScore")) if complete else None


FACTS: dict[str, Fact] = {
    "leading_digit": Fact(True, "cpu", _leading_digit),
    "other_slug": Fact("", "cpu", _other_slug),
    "default_execution": Fact("run", "cpu", _default_execution),
    "new_script_seconds": Fact(0.0, "cpu", lambda records: _status_lasted(records, "NEW_SCRIPT")),
    "versions_seconds": Fact(0.0, "cpu", lambda records: _status_lasted(records, NOT_THERE)),
    "queue_seconds": Fact(0.3, "cpu", _queued),
    "prefixes": Fact(False, "cpu", _prefixes),
    "layout": Fact("2026", "cpu", _layout),
    "internet": Fact(True, "cpu", _internet),
    "listing_seconds": Fact(0.0, "cpu", _listing_seconds),
    "hidden_files": Fact(True, "cpu", _is_listed(".hidden")),
    "empty_files": Fact(True, "cpu", _is_listed("empty.txt")),
    "rewritten": Fact([], "cpu", _rewritten),
    "ready_seconds": Fact(1.0, "dataset", _ready_seconds),
    "mount_seconds": Fact(0.0, "sources", _mount_seconds),
    "own_output": Fact(True, "sources", _own_output),
    "killed_output": Fact(True, "killed", _killed_output),
    "verified": Fact(True, "tpu", _verified),
    "refused_push": Fact("nothing", "tpu", _refused_push),
    "reserves": Fact(False, "tpu", _reserves),
    "gpus": Fact(2, "gpu", _gpus),
    "scores": Fact(True, "submit", _scores),
}
