"""Trace a submission back to the commit that produced it, step by step.

The steps are submission → score → infer run → dataset version → artifact → train run → bundle →
commit. They are found in pulled folders and the journals next to them, without contacting Kaggle. A
file belongs to a run if its SHA-256 is listed in the run's outputs.json. The file's name and
location are not trusted.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import output
from deploy.errors import Unverified, UsageError
from deploy.journal import PUBLISH, PUSH, SUBMIT, Journal, Request, State
from deploy.output import ARTIFACT, BUNDLE, SUBMISSION
from deploy.records import Records, run_of
from formats import checksums
from formats.sealed_folder import MANIFEST

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Link:
    """A step of the trace."""

    what: str
    value: str


@dataclass(frozen=True)
class Pulled:
    """A pulled folder, the contents of its bundle.json, and the journal of its Kaggle server.

    `push` is the request that created the run, or None if the journal does not contain it.
    """

    folder: Path
    bundle: Mapping[str, Any]
    journal: Journal
    push: Request | None


def trace(ours: Records, submission: Path) -> list[Link]:
    """Trace a submission.csv from its score back to the commit.

    The file can be any copy, because it is identified by its content. If several runs wrote the
    same file, the first folder in alphabetical order is used.

    Raises:
        UsageError: if the file is missing, or was not written by any pulled run.
        Unverified: if the file is in a pulled folder, but differs from the file that the run wrote.
    """
    infer = _pulled(ours, _folder(ours, submission))
    links = [Link("submission", checksums.sha256(submission)[:16]), Link("score", _score(infer))]
    links += _run("infer", infer)
    expect = infer.bundle.get("expect") or {}
    for model in expect.get("members") or [expect]:
        run_id, weights = str(model.get("run_id", "")), str(model.get("weights_sha256", ""))
        links.append(Link("dataset version", _published(infer, run_id)))
        links += _training(ours, run_id, weights)
    return links


def _folder(ours: Records, submission: Path) -> Path:
    if not submission.is_file():
        raise UsageError(
            f"{submission} is not a file; expected the path to a submission.csv.\nCorrect --of."
        )
    here, runs = submission.resolve().parent, ours.project.runs
    if submission.name == SUBMISSION and (here / BUNDLE).is_file():
        output.unchanged(here, SUBMISSION)
        return here
    digest = checksums.sha256(submission)
    for folder in sorted(path.parent for path in runs.rglob(BUNDLE)):
        with suppress(Unverified):  # the run's files are unknown
            files = output.sealed(folder) or {}
            if SUBMISSION in files and files[SUBMISSION]["sha256"] == digest:
                return folder
    raise UsageError(
        f"{submission} (sha256 {digest[:16]}…) was not written by any run in {runs}.\nThe file"
        " must be an unmodified copy of a file that a run wrote. Pull the run that wrote it:\n"
        "invoke pull --run owner/slug/version"
    )


def _pulled(ours: Records, folder: Path) -> Pulled:
    # Rehearsals have their own journal next to the folder.
    bundle, note = output.json_object(folder / BUNDLE), output.noted(folder)
    path = ours.project.runs / "journal.sqlite"
    beside = folder.parent / path.name
    journal = Journal(beside if beside.is_file() else path, note.server if note else None)
    name = output.name_of(folder).partition("/")[2]
    # Other versions may contain the same bundle.
    rows = journal.requests(PUSH, bundle_sha256=bundle.get("bundle_sha256"))
    same = (row for row in rows if str(run_of(row)).partition("/")[2] == name)
    return Pulled(folder, bundle, journal, next(same, None))


def _score(infer: Pulled) -> str:
    if infer.push is None:
        return UNKNOWN
    version = {"handle": infer.push.handle, "kernel_version": infer.push.number}
    scores = [row.score for row in infer.journal.requests(SUBMIT, **version)]  # newest first
    return str(next((score for score in scores if score is not None), UNKNOWN))


def _published(infer: Pulled, run_id: str) -> str:
    for row in infer.journal.requests(PUBLISH, run_id=run_id, state=State.ENDED) if run_id else []:
        if infer.push is None or row.at <= infer.push.at:
            return f"{row.handle}/{row.number}"
    return UNKNOWN


def _training(ours: Records, run_id: str, weights: str) -> list[Link]:
    for path in sorted(ours.project.runs.rglob(f"{ARTIFACT}/{MANIFEST}")):
        manifest = output.json_object(path)
        found = (manifest.get("run_id"), manifest.get("weights_sha256"))
        if run_id and found == (run_id, weights):
            artifact = Link("artifact", f"{run_id}, weights {weights[:16]}")
            return [artifact, *_run("train", _pulled(ours, path.parent.parent))]
    return [Link("artifact", run_id or UNKNOWN)]


def _run(which: str, pulled: Pulled) -> list[Link]:
    bundle, push, note = pulled.bundle, pulled.push, output.noted(pulled.folder)
    run = f"{push.handle}/{push.number}" if push else note.run if note else UNKNOWN
    changes = ", with local changes" if bundle.get("git_dirty") else ""
    return [
        Link(f"{which} run", run),
        Link(f"{which} bundle", str(bundle.get("bundle_sha256", UNKNOWN))),
        Link(f"{which} commit", f"{bundle.get('git_commit') or 'none'}{changes}"),
    ]
