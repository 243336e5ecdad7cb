"""Preview: what a push would change and cost, shown before anything is spent.

Reads  a bundle, the current version of its kernel, the journal's runs, the quota
Gives  a `Preview`, or a refusal of what cannot work
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.bundle.bundle import Bundle
from deploy.client.client import ASKED, SOURCES, Kaggle
from deploy.client.responses import Quota, Source
from deploy.errors import Denied, NoQuota, Refused, RelayError
from deploy.journal import DONE, Journal

WRITES = "%%writefile "
RUNNING = ("QUEUED", "RUNNING")
SESSIONS = {"TPU": 1, "GPU": 2}  # at a time, by Kaggle's limits
LOOK_BACK = 10  # pushes of which it is asked whether they still run


@dataclass(frozen=True)
class Preview:
    """What a push would do.

    Attributes:
        handle: the kernel. version: the current one; 0 before the first.
        changes: {name: "new", "gone" or "+3 -1" lines} by the names of the modules, and "notebook"
            for the rest of the code; {name: "this; was that"} for a setting, and for the "artifact"
            that an inference accepts.
        accelerator: "TPU" or "GPU". hours_left: of it, this week; None where Kaggle does not say.
        active: the runs of ours that have not ended, as far as the journal knows.
    """

    handle: str
    version: int
    changes: Mapping[str, str]
    accelerator: str
    hours_left: float | None
    active: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return it as lines for a person."""
        left = (
            "unknown"
            if self.hours_left is None
            else f"{self.hours_left:.1f} hours are left this week"
        )
        told = [
            f"push        {self.handle}, version {self.version + 1}",
            f"{self.accelerator} quota   {left}",
        ]
        told += [f"active      {run}" for run in self.active]
        if self.version and not self.changes:
            told.append(f"changes     none since version {self.version}")
        for name, change in self.changes.items() if self.version else ():
            told.append(f"changes     {name}  {change}")
        return told


def look(kaggle: Kaggle, bundle: Bundle, journal: Journal) -> Preview:
    """Return what pushing the bundle would do.

    Raises:
        NoQuota: if no time is left this week, or as many sessions as Kaggle allows are active:
            there is no call to stop one.
    """
    accelerator = "TPU" if bundle.metadata["enable_tpu"] else "GPU"
    try:
        quota = kaggle.quota()
    except (Denied, Refused):
        quota = Quota(None, None)  # a token without that right may push all the same
    seconds = quota.tpu_seconds if accelerator == "TPU" else quota.gpu_seconds
    current = kaggle.get_kernel(bundle.handle)
    changes: dict[str, str] = {}
    if current is not None:
        ours = bundle.notebook.read_text(encoding="utf-8")
        changes = {
            **_artifact(current.text, ours, bundle, journal),
            **_settings(current, bundle),
            **_changes(current.text, ours),
        }
    preview = Preview(
        bundle.handle,
        current.version if current else 0,
        changes,
        accelerator,
        None if seconds is None else seconds / 3600,
        _active(kaggle, journal, accelerator),
    )
    if seconds is not None and seconds <= 0:
        raise NoQuota(
            f"No {accelerator} time is left this week; {bundle.handle} needs some.\nTry again when Kaggle renews it: invoke status"
        )
    if len(preview.active) >= SESSIONS[accelerator]:
        raise NoQuota(
            f"{', '.join(preview.active)} still {'runs' if len(preview.active) == 1 else 'run'}; Kaggle allows {SESSIONS[accelerator]}"
            f" {accelerator} session{'s' if SESSIONS[accelerator] > 1 else ''} at a time.\n"
            f"Wait for its end: invoke watch --run {preview.active[0]}"
        )
    return preview


def _active(kaggle: Kaggle, journal: Journal, accelerator: str) -> tuple[str, ...]:
    """Return our runs on this accelerator that have not ended; no call of Kaggle lists them."""
    found = []
    for entry in journal.recent("pushes", LOOK_BACK, outcome=DONE):
        if (
            not entry["version"]
            or entry["status"] == "COMPLETE"
            or ("tpu" in entry["kernel"]) != (accelerator == "TPU")
        ):
            continue
        try:
            status = kaggle.kernel_status(entry["handle"], entry["version"]).name
        except RelayError:
            continue  # somebody else's by now, or gone: it cannot be counted
        if status in RUNNING:
            found.append(f"{entry['handle']}/{entry['version']}")
    return tuple(dict.fromkeys(found))


def _artifact(before: str, after: str, bundle: Bundle, journal: Journal) -> dict[str, str]:
    """Return which artifact would be accepted and which was, where they differ, with the dataset
    version that we made of each; of a
    training, the checkpoint that it goes on from.
    """
    datasets = bundle.metadata.get("dataset_sources") or [""]

    def told(text: str) -> str:
        expect = _identity(text).get("expect")
        if not isinstance(expect, dict) or not expect:
            return "none"
        if "step" in expect:
            return f"step {expect['step']} of {expect.get('run_id')}"
        made = journal.last(
            "publishes", handle=datasets[0], run_id=str(expect.get("run_id")), outcome=DONE
        )
        version = f" in {made['handle']} version {made['version']}" if made else ""
        return f"{expect.get('run_id')}, weights {str(expect.get('weights_sha256'))[:12]}{version}"

    was, now = told(before), told(after)
    name = "artifact" if bundle.kernel.startswith("infer") else "goes on from"
    return {name: f"{now}; was {was}"} if was != now else {}


def _settings(current: Source, bundle: Bundle) -> dict[str, str]:
    """Return what the notebook would be given otherwise than now, as far as Kaggle tells."""
    told = {}
    for name in ASKED:
        was, now = current.asks.get(name), bundle.metadata.get(name)
        if was not in (None, "") and was != now:
            told[name] = f"{now}; was {was}"
    for name in SOURCES:
        was, now = set(current.asks.get(name) or ()), set(bundle.metadata.get(name) or ())
        if was != now:
            told[name] = (
                f"{', '.join(sorted(now)) or 'none'}; was {', '.join(sorted(was)) or 'none'}"
            )
    return told


def _identity(text: str) -> dict[str, Any]:
    """Return what a bundle says of itself; nothing where it is none of ours."""
    try:
        cells = json.loads(text)["cells"]
        sources = ("".join(cell["source"]) for cell in cells)
        head = f"{WRITES}bundle.json\n"
        return dict(
            json.loads(next(text.removeprefix(head) for text in sources if text.startswith(head)))
        )
    except (ValueError, TypeError, KeyError, StopIteration, RecursionError):
        return {}


def _changes(before: str, after: str) -> dict[str, str]:
    """Return what differs between the sources of two bundles, by name."""
    old, new = _parts(before), _parts(after)
    told = {}
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            told[name] = "new" if name in new else "gone"
        elif old[name] != new[name]:
            lines = list(difflib.ndiff(old[name].splitlines(), new[name].splitlines()))
            added, gone = (sum(line.startswith(sign) for line in lines) for sign in ("+ ", "- "))
            told[name] = f"+{added} -{gone}"
    return told


def _parts(text: str) -> dict[str, str]:
    """Return {module or "notebook": source} of a bundle; all of it as "notebook" where it is none
    of ours.
    """
    try:
        cells = json.loads(text)["cells"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (ValueError, TypeError, KeyError, RecursionError):
        return {"notebook": text}
    parts, rest = {}, []
    for source in sources[1:]:  # the first tells commit and hash, which always differ
        if source.startswith(WRITES):
            name, _, body = source.removeprefix(WRITES).partition("\n")
            parts[name] = body
        else:
            rest.append(source)
    parts.pop("bundle.json", None)
    return {**parts, "notebook": "\n".join(rest)}
