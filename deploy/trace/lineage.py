"""Origin: from a submission back to the commit, without a gap: what was run, on what, and what came
of it.

Reads  the pulled folders and the journals beside them; asks nobody Gives  one `Link` a step: commit
→ bundle → train run → accelerator → artifact → dataset version → infer run → submission → score

A file is a run's if it has the sha256 that the run itself wrote into outputs.json; where it lies
and what it is called prove nothing.
"""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploy.errors import Unverified, UsageError
from deploy.journal import DONE, Journal
from deploy.kernel import artifact_manifest, output
from deploy.project import Project
from deploy.relay.submit import FILE

UNKNOWN = "not known here"
LOOK_BACK = 100  # entries of the journal


@dataclass(frozen=True)
class Link:
    """One step. `what`: its name. `value`: what is known of it. `proof`: the file or record that
    says so.
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
        submission: in a pulled folder, or any copy of one: it is found by its content.

    Raises:
        UsageError: if the file is missing, or no pulled run wrote it.
        Unverified: if it lies where a run's was pulled to, and is not what the run wrote.
    """
    folder, others = _folder(project, submission)
    told, journal = _read(folder / output.BUNDLE), _journal(project, folder)
    infer = _push(journal, folder, told)
    listed = output.sealed(folder) is not None
    proof = folder / (output.OUTPUTS if listed else FILE)
    value = artifact_manifest.sha256(submission)[:16] + (
        "" if listed else ", by a run that kept no list of what it wrote"
    )
    links = [Link("submission", value, str(proof))]
    links += [
        Link("also written by", output.name_of(other), str(other / output.OUTPUTS))
        for other in others
    ]
    links.append(_score(journal, infer))
    links += _run("infer", infer, told, folder)
    expect = told.get("expect") or {}
    run_id = expect.get("run_id", "")
    published = _published(journal, run_id, infer)
    version = f"{published['handle']}/{published['version']}" if published else UNKNOWN
    links.append(Link("dataset version", version, "journal"))
    links += _training(project, run_id, str(expect.get("weights_sha256", "")))
    return links


def _folder(project: Project, submission: Path) -> tuple[Path, list[Path]]:
    """Return the pulled folder whose submission.csv this is, and those of other runs that wrote an
    equal one.
    """
    if not submission.is_file():
        what = "is a folder" if submission.is_dir() else "is missing"
        raise UsageError(
            f"{submission} {what}; expected the path of a submission.csv.\nCorrect --of."
        )
    here = submission.resolve().parent
    if submission.name == FILE and (here / output.BUNDLE).is_file():
        output.unchanged(submission, here, FILE)
        return here, []
    digest = artifact_manifest.sha256(submission)
    found: dict[tuple[str, str], Path] = {}
    for path in sorted(project.runs.rglob(output.BUNDLE)):
        if _written(path.parent) == digest:
            told = output.noted(path.parent)
            found.setdefault(
                (output.name_of(path.parent), told.server if told else ""), path.parent
            )
    if not found:
        raise UsageError(
            f"{submission} was written by no run that was pulled into {project.runs} (sha256 {digest[:16]}…).\n"
            "Expected a file as a run wrote it; one changed label makes it another. Pull the run that wrote it: invoke pull --run owner/slug/version"
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
        return artifact_manifest.sha256(folder / FILE) if (folder / FILE).is_file() else ""
    return files.get(FILE, ("", 0))[0]


def _journal(project: Project, folder: Path) -> Journal:
    """Return the journal beside the folder, as far as it speaks of the Kaggle that the folder came
    from: a rehearsal has its own.
    """
    beside = folder.parent / project.journal().path.name
    told = output.noted(folder)
    return Journal(
        beside if beside.is_file() else project.journal().path, told.server if told else None
    )


def _score(journal: Journal, infer: dict[str, Any] | None) -> Link:
    if infer is None:
        return Link("score", UNKNOWN, "journal")
    rows = journal.recent(
        "submissions", LOOK_BACK, handle=infer["handle"], kernel_version=infer["version"]
    )
    made = [row for row in rows if row["ref"]]
    scored = next((row for row in made if row["score"] is not None), None)
    if scored is not None:
        return Link("score", str(scored["score"]), f"submission {scored['ref']}")
    return Link("score", UNKNOWN, f"submission {made[0]['ref']}" if made else "journal")


def _published(
    journal: Journal, run_id: str, infer: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return what the artifact was published as when the inference was pushed; an older one may be
    published again later.
    """
    rows = journal.recent("publishes", LOOK_BACK, run_id=run_id, outcome=DONE) if run_id else []
    return next((row for row in rows if infer is None or row["at"] <= infer["at"]), None)


def _training(project: Project, run_id: str, weights: str) -> list[Link]:
    """Return the links of the run that trained, found by the artifact's run id and its weights."""
    for path in sorted(project.runs.rglob(f"{output.ARTIFACT}/{artifact_manifest.NAME}")):
        held, folder = _read(path), path.parent.parent
        if not run_id or (held.get("run_id"), held.get("weights_sha256")) != (run_id, weights):
            continue
        told = _read(folder / output.BUNDLE)
        return [
            Link("artifact", f"{run_id}, weights {weights[:16]}", str(path)),
            Link("accelerator", str(held.get("devices", UNKNOWN)), str(path)),
            *_run("train", _push(_journal(project, folder), folder, told), told, folder),
        ]
    return [Link("artifact", run_id or UNKNOWN, "bundle.json of the inference")]


def _run(which: str, push: dict[str, Any] | None, told: dict[str, Any], folder: Path) -> list[Link]:
    commit = str(told.get("git_commit") or "none") + (
        ", with local changes" if told.get("git_dirty") else ""
    )
    place, noted = str(folder / output.BUNDLE), output.noted(folder)
    if push:
        run = Link(f"{which} run", f"{push['handle']}/{push['version']}", "journal")
    else:
        run = Link(
            f"{which} run",
            noted.run if noted else UNKNOWN,
            str(folder / output.NOTE) if noted else "journal",
        )
    return [
        run,
        Link(f"{which} bundle", str(told.get("bundle_sha256", UNKNOWN)), place),
        Link(f"{which} commit", commit, place),
    ]


def _push(journal: Journal, folder: Path, told: dict[str, Any]) -> dict[str, Any] | None:
    """Return the push of the version that this folder was pulled from; another version may hold the
    same bundle.
    """
    name = re.fullmatch(r"(.+)/(\d+)", output.name_of(folder))
    if name is None or not told.get("bundle_sha256"):
        return None
    rows = journal.recent(
        "pushes", LOOK_BACK, version=int(name[2]), bundle_sha256=told["bundle_sha256"]
    )
    slug, whole = name[1].partition("/")[2], output.noted(folder) is not None
    return next(
        (
            row
            for row in rows
            if row["handle"] == name[1] or (not whole and row["handle"].endswith(f"/{slug}"))
        ),
        None,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}.\nPull the run again.") from error
    return value if isinstance(value, dict) else {}
