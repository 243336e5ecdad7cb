"""Where a submission came from, step by step back to the commit.

Reads  the pulled folders and the journals beside them; asks nobody
Gives  one `Link` a step: submission → score → infer run → dataset version → artifact → accelerator
→ train run → bundle → commit

A file is a run's if it has the sha256 that the run itself wrote into outputs.json. Its place and
its name prove nothing.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from deploy import artifact_manifest, output
from deploy.errors import Unverified, UsageError
from deploy.journal import DONE, Journal
from deploy.last_runs import EVERY_ROW
from deploy.project import Project
from deploy.submit import FILE
from formats import checksums

UNKNOWN = "not known here"
GOLDEN, MEMBERS = "golden.json", "members.json"  # as inference writes them
Told = TypeVar("Told")


@dataclass(frozen=True)
class Link:
    """One step.

    Attributes:
        what: its name. value: what is known of it. proof: the file or record that says so.
    """

    what: str
    value: str
    proof: str

    def to_json(self) -> dict[str, str]:
        """Return it as what `json.dumps` takes."""
        return asdict(self)


def trace(project: Project, submission: Path) -> list[Link]:
    """Return the links behind a submission.csv, from its score back to the commit.

    Args:
        submission: the file in a pulled folder, or any copy of it: its content identifies it.

    Raises:
        UsageError: if the file is missing, or no pulled run wrote it.
        Unverified: if it is in a pulled folder, and is not what that run wrote.
    """
    folder, others = _folder(project, submission)
    identity, journal = _read(folder / output.BUNDLE), _journal(project, folder)
    infer = _push(journal, folder, identity)
    listed = output.sealed(folder) is not None
    proof = folder / (output.OUTPUTS if listed else FILE)
    value = checksums.sha256(submission)[:16] + (
        "" if listed else ", by a run that kept no list of what it wrote"
    )
    links = [Link("submission", value, str(proof))]
    links += [
        Link("also written by", output.name_of(other), str(other / output.OUTPUTS))
        for other in others
    ]
    links += _golden(folder)
    links.append(_score(journal, infer))
    links += _run("infer", infer, identity, folder)
    expect = identity.get("expect") or {}
    used = _members(folder)
    for one in expect.get("members") or [expect]:
        run_id, weights = str(one.get("run_id", "")), str(one.get("weights_sha256", ""))
        if "members" in expect:
            counted = f", counted {used[run_id]:.2f}" if run_id in used else ""
            value = f"{run_id}, weight {one.get('weight'):.2f}{counted}"
            links.append(Link("member", value, str(folder / output.BUNDLE)))
        published = _published(journal, run_id, infer)
        version = f"{published['handle']}/{published['version']}" if published else UNKNOWN
        links.append(Link("dataset version", version, "journal"))
        links += _training(project, run_id, weights)
    return links


def _folder(project: Project, submission: Path) -> tuple[Path, list[Path]]:
    """Return the folder of the run that wrote this, and those of other runs that wrote the same."""
    if not submission.is_file():
        what = "is a folder" if submission.is_dir() else "is missing"
        raise UsageError(
            f"{submission} {what}; expected the path of a submission.csv.\nCorrect --of."
        )
    here = submission.resolve().parent
    if submission.name == FILE and (here / output.BUNDLE).is_file():
        output.unchanged(submission, here, FILE)
        return here, []
    digest = checksums.sha256(submission)
    found: dict[tuple[str, str], Path] = {}
    for path in sorted(project.runs.rglob(output.BUNDLE)):
        if _written(path.parent) == digest:
            note = output.noted(path.parent)
            run = (output.name_of(path.parent), note.server if note else "")
            found.setdefault(run, path.parent)
    if not found:
        raise UsageError(
            f"{submission} was written by no run that was pulled into {project.runs} (sha256"
            f" {digest[:16]}…).\nExpected a file as a run wrote it: one changed label makes it"
            " another file. Pull the run that wrote it:\ninvoke pull --run owner/slug/version"
        )
    first, *others = found.values()
    return first, others


def _written(folder: Path) -> str:
    """Return the sha256 of the submission.csv that this folder's run wrote; "" if it wrote none."""
    try:
        files = output.sealed(folder)
    except Unverified:
        return ""  # nobody can tell
    if files is None:  # the run kept no list
        return checksums.sha256(folder / FILE) if (folder / FILE).is_file() else ""
    return files.get(FILE, ("", 0))[0]


def _journal(project: Project, folder: Path) -> Journal:
    """Return the journal beside the folder, for the Kaggle that the folder was pulled from.

    A rehearsal has a journal of its own.
    """
    ours = project.journal().path
    beside, note = folder.parent / ours.name, output.noted(folder)
    return Journal(beside if beside.is_file() else ours, note.server if note else None)


def _golden(folder: Path) -> list[Link]:
    """Return how near the run's golden outputs were to those of the training, if it wrote so."""
    told = _written_list(
        folder,
        GOLDEN,
        lambda one: (
            f"{one['precision']}, {one['difference']:.1e} apart, {one['tolerance']:.1e} allowed"
            + (f", of {one['run_id']}" if "run_id" in one else "")
        ),
    )
    return [Link("golden outputs", one, str(folder / GOLDEN)) for one in told]


def _members(folder: Path) -> dict[str, float]:
    """Return what each member of an ensemble counted in a run, by its run id."""
    return dict(
        _written_list(folder, MEMBERS, lambda one: (str(one["run_id"]), float(one["used"])))
    )


def _written_list(folder: Path, name: str, told: Callable[[Any], Told]) -> list[Told]:
    """Return what is told of each entry of a list that the run wrote; [] if it wrote none."""
    path = folder / name
    if not path.is_file():  # of a run by hand, for example
        return []
    output.unchanged(path, folder, name)
    try:
        return [told(one) for one in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise UsageError(f"{path} cannot be read: {error}.\nPull the run again.") from error


def _score(journal: Journal, infer: dict[str, Any] | None) -> Link:
    if infer is None:
        return Link("score", UNKNOWN, "journal")
    rows = journal.recent(
        "submissions", EVERY_ROW, handle=infer["handle"], kernel_version=infer["version"]
    )
    made = [row for row in rows if row["ref"]]
    scored = next((row for row in made if row["score"] is not None), None)
    if scored is not None:
        return Link("score", str(scored["score"]), f"submission {scored['ref']}")
    return Link("score", UNKNOWN, f"submission {made[0]['ref']}" if made else "journal")


def _published(
    journal: Journal, run_id: str, infer: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return how the artifact was published before the inference was pushed, not later."""
    rows = journal.recent("publishes", EVERY_ROW, run_id=run_id, outcome=DONE) if run_id else []
    return next((row for row in rows if infer is None or row["at"] <= infer["at"]), None)


def _training(project: Project, run_id: str, weights: str) -> list[Link]:
    """Return the links of the run that trained, found by the artifact's run id and its weights."""
    for path in sorted(project.runs.rglob(f"{output.ARTIFACT}/{artifact_manifest.NAME}")):
        held, folder = _read(path), path.parent.parent
        if not run_id or (held.get("run_id"), held.get("weights_sha256")) != (run_id, weights):
            continue
        identity = _read(folder / output.BUNDLE)
        first = held.get("init_from") or {}
        began = f"{first.get('run_id')}, weights {str(first.get('weights_sha256'))[:16]}"
        return [
            Link("artifact", f"{run_id}, weights {weights[:16]}", str(path)),
            *([Link("began with", began, str(path))] if first else []),
            Link("accelerator", str(held.get("devices", UNKNOWN)), str(path)),
            *_run("train", _push(_journal(project, folder), folder, identity), identity, folder),
        ]
    return [Link("artifact", run_id or UNKNOWN, "bundle.json of the inference")]


def _run(
    which: str, push: dict[str, Any] | None, identity: dict[str, Any], folder: Path
) -> list[Link]:
    changes = ", with local changes" if identity.get("git_dirty") else ""
    commit = str(identity.get("git_commit") or "none") + changes
    place, note = str(folder / output.BUNDLE), output.noted(folder)
    run, proof = UNKNOWN, "journal"
    if push:
        run = f"{push['handle']}/{push['version']}"
    elif note:
        run, proof = note.run, str(folder / output.NOTE)
    return [
        Link(f"{which} run", run, proof),
        Link(f"{which} bundle", str(identity.get("bundle_sha256", UNKNOWN)), place),
        Link(f"{which} commit", commit, place),
    ]


def _push(journal: Journal, folder: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """Return the push that made the version in this folder; others may hold the same bundle."""
    name, sha256 = (
        re.fullmatch(r"(.+)/(\d+)", output.name_of(folder)),
        identity.get("bundle_sha256"),
    )
    if name is None or not sha256:
        return None
    rows = journal.recent("pushes", EVERY_ROW, version=int(name[2]), bundle_sha256=sha256)
    handle, whole = name[1], output.noted(folder) is not None
    slug = handle.partition("/")[2]
    ours = (
        row
        for row in rows
        if row["handle"] == handle or (not whole and row["handle"].endswith(f"/{slug}"))
    )
    return next(ours, None)


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}.\nPull the run again.") from error
    return value if isinstance(value, dict) else {}
