"""Where a submission came from, step by step back to the commit.

Reads  the pulled folders and the journals beside them; asks nobody
Gives  one `Link` a step: submission → score → infer run → dataset version → artifact → accelerator
→ train run → bundle → commit

A file is a run's if it has the sha256 that the run itself wrote into outputs.json. Its place and
its name prove nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import output
from deploy.errors import Unverified, UsageError
from deploy.journal import PUBLISH, PUSH, SUBMIT, Journal, Request, State
from deploy.output import ARTIFACT, BUNDLE, OUTPUTS, SUBMISSION
from deploy.records import Records, run_of
from formats import checksums
from formats.sealed_folder import MANIFEST

UNKNOWN, JOURNAL = "not known here", "journal"
GOLDEN, MEMBERS = "golden.json", "members.json"  # as inference writes them


@dataclass(frozen=True)
class Link:
    """One step.

    Attributes:
        what: its name. value: what is known of it. proof: the file or record that says so.
    """

    what: str
    value: str
    proof: str


@dataclass(frozen=True)
class Pulled:
    """A pulled folder.

    Attributes:
        bundle: that wrote it, as its bundle.json describes it.
        journal: with the entries of the Kaggle that it was pulled from.
        push: that made its run; None: the journal has none.
    """

    folder: Path
    bundle: Mapping[str, Any]
    journal: Journal
    push: Request | None


def trace(ours: Records, submission: Path) -> list[Link]:
    """Return the links behind a submission.csv, from its score back to the commit.

    Args:
        submission: the file in a pulled folder, or any copy of it: its content identifies it.

    Raises:
        UsageError: if the file is missing, or no pulled run wrote it.
        Unverified: if it is in a pulled folder, and is not what that run wrote; or if a file of the
            folders behind it cannot be read.
    """
    folder, *others = _folders(ours, submission)
    infer = _pulled(ours, folder)
    value, proof = checksums.sha256(submission)[:16], folder / OUTPUTS
    if output.sealed(folder) is None:
        value, proof = f"{value}, by a run that kept no list of what it wrote", folder / SUBMISSION
    links = [Link("submission", value, str(proof))]
    links += [Link("also written by", output.name_of(at), str(at / OUTPUTS)) for at in others]
    written = f"{GOLDEN} and {MEMBERS} as inference writes them.\nPull the run again."
    with output.reading(folder, written):
        for golden in _written(folder, GOLDEN):
            near = f"{golden['difference']:.1e} apart, {golden['tolerance']:.1e} allowed"
            whose = f", of {golden['run_id']}" if "run_id" in golden else ""
            value = f"{golden['precision']}, {near}{whose}"
            links.append(Link("golden outputs", value, str(folder / GOLDEN)))
        used = {str(one["run_id"]): float(one["used"]) for one in _written(folder, MEMBERS)}
    links += [_score(infer), *_run("infer", infer)]
    expect = infer.bundle.get("expect") or {}
    for member in expect.get("members") or [expect]:
        run_id, weights = str(member.get("run_id", "")), str(member.get("weights_sha256", ""))
        if "members" in expect:
            counted = f", counted {used[run_id]:.2f}" if run_id in used else ""
            value = f"{run_id}, weight {member.get('weight'):.2f}{counted}"
            links.append(Link("member", value, str(folder / BUNDLE)))
        links += [_published(infer, run_id), *_training(ours, run_id, weights)]
    return links


def _folders(ours: Records, submission: Path) -> list[Path]:
    """Return the folders of the runs that wrote this; more than one if they wrote the same."""
    if not submission.is_file():
        what = "is a folder" if submission.is_dir() else "is missing"
        raise UsageError(
            f"{submission} {what}; expected the path of a submission.csv.\nCorrect --of."
        )
    here, runs = submission.resolve().parent, ours.project.runs
    if submission.name == SUBMISSION and (here / BUNDLE).is_file():
        output.unchanged(here, SUBMISSION)
        return [here]
    digest = checksums.sha256(submission)
    found: dict[tuple[str, str], Path] = {}
    for folder in sorted(path.parent for path in runs.rglob(BUNDLE)):
        if _submission_of(folder) == digest:
            note = output.noted(folder)
            found.setdefault((output.name_of(folder), note.server if note else ""), folder)
    if not found:
        raise UsageError(
            f"{submission} was written by no run that was pulled into {runs} (sha256"
            f" {digest[:16]}…).\nExpected a file as a run wrote it: one changed label makes it"
            " another file. Pull the run that wrote it:\ninvoke pull --run owner/slug/version"
        )
    return list(found.values())


def _submission_of(folder: Path) -> str:
    """Return the sha256 of the submission.csv that this folder's run wrote; "" if it wrote none."""
    try:
        files = output.sealed(folder)
    except Unverified:
        return ""  # nobody can tell
    if files is None:  # the run kept no list
        return checksums.sha256(folder / SUBMISSION) if (folder / SUBMISSION).is_file() else ""
    return str(files[SUBMISSION]["sha256"]) if SUBMISSION in files else ""


def _pulled(ours: Records, folder: Path) -> Pulled:
    """Return what is known of a pulled folder. A rehearsal has a journal of its own beside it."""
    bundle, note = _read(folder / BUNDLE), output.noted(folder)
    path = ours.project.runs / "journal.sqlite"
    beside = folder.parent / path.name
    journal = Journal(beside if beside.is_file() else path, note.server if note else None)
    name = output.name_of(folder).partition("/")[2]
    # The bundle says whose it is; other versions may hold the same one.
    rows = journal.requests(PUSH, bundle_sha256=bundle.get("bundle_sha256"))
    same = (row for row in rows if str(run_of(row)).partition("/")[2] == name)
    return Pulled(folder, bundle, journal, next(same, None))


def _read(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a pulled folder. Raises `Unverified` without one."""
    with output.reading(path, "a JSON object, as the run wrote it.\nPull the run again."):
        return dict(json.loads(path.read_text(encoding="utf-8")))


def _written(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return a list that the run wrote; [] if it wrote none, as a run by hand."""
    if not (folder / name).is_file():
        return []
    output.unchanged(folder, name)
    return list(json.loads((folder / name).read_text(encoding="utf-8")))


def _score(infer: Pulled) -> Link:
    push, rows = infer.push, []
    if push is not None:
        rows = infer.journal.requests(SUBMIT, handle=push.handle, kernel_version=push.number)
    made = [row for row in rows if row.number]
    scored = [row for row in made if row.score is not None]
    for row in scored or made:  # the newest comes first
        value = UNKNOWN if row.score is None else str(row.score)
        return Link("score", value, f"submission {row.number}")
    return Link("score", UNKNOWN, JOURNAL)


def _published(infer: Pulled, run_id: str) -> Link:
    """Return how the artifact was published before the inference was pushed, not later."""
    for row in infer.journal.requests(PUBLISH, run_id=run_id, state=State.ENDED) if run_id else []:
        if infer.push is None or row.at <= infer.push.at:
            return Link("dataset version", f"{row.handle}/{row.number}", JOURNAL)
    return Link("dataset version", UNKNOWN, JOURNAL)


def _training(ours: Records, run_id: str, weights: str) -> list[Link]:
    """Return the links of the run that trained, found by the artifact's run id and its weights."""
    for path in sorted(ours.project.runs.rglob(f"{ARTIFACT}/{MANIFEST}")):
        manifest = _read(path)
        found = (manifest.get("run_id"), manifest.get("weights_sha256"))
        if not run_id or found != (run_id, weights):
            continue
        links = [Link("artifact", f"{run_id}, weights {weights[:16]}", str(path))]
        if first := manifest.get("init_from"):
            began = f"{first.get('run_id')}, weights {str(first.get('weights_sha256'))[:16]}"
            links.append(Link("began with", began, str(path)))
        links.append(Link("accelerator", str(manifest.get("devices", UNKNOWN)), str(path)))
        return [*links, *_run("train", _pulled(ours, path.parent.parent))]
    return [Link("artifact", run_id or UNKNOWN, f"{BUNDLE} of the inference")]


def _run(which: str, pulled: Pulled) -> list[Link]:
    bundle, place = pulled.bundle, str(pulled.folder / BUNDLE)
    changes = ", with local changes" if bundle.get("git_dirty") else ""
    note = output.noted(pulled.folder)
    run, proof = UNKNOWN, JOURNAL
    if pulled.push is not None:
        run = f"{pulled.push.handle}/{pulled.push.number}"
    elif note is not None:
        run, proof = note.run, str(pulled.folder / output.NOTE)
    return [
        Link(f"{which} run", run, proof),
        Link(f"{which} bundle", str(bundle.get("bundle_sha256", UNKNOWN)), place),
        Link(f"{which} commit", f"{bundle.get('git_commit') or 'none'}{changes}", place),
    ]
