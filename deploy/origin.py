"""Origin: from a submission back to the commit, without a gap: what was run, on what, and what came of it.

Reads  the pulled folders and the journal; asks nobody
Gives  one `Link` a step: commit → bundle → train run → accelerator → artifact → dataset version → infer run → submission → score
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploy import manifest, output
from deploy.errors import UsageError
from deploy.journal import Journal
from deploy.project import Project

UNKNOWN = "not known here"


@dataclass(frozen=True)
class Link:
    """One step. `what`: its name. `value`: what is known of it. `proof`: the file or record that says so."""

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
    """
    folder = _folder(project, submission)
    told = _read(folder / output.BUNDLE)
    journal = project.journal()
    infer = _push(journal, told.get("bundle_sha256"))
    links = [Link("submission", manifest.sha256(submission)[:16], str(submission))]
    scored = journal.last("submissions", handle=infer["handle"], kernel_version=infer["version"]) if infer else None
    links.append(Link("score", _known(scored, "score"), f"submission {scored['ref']}" if scored else "journal"))
    links += _run("infer", infer, told, folder)
    run_id = (told.get("expect") or {}).get("run_id", "")
    published = journal.last("publishes", run_id=run_id) if run_id else None
    version = f"{published['handle']}/{published['version']}" if published and published["version"] else UNKNOWN
    links.append(Link("dataset version", version, "journal"))
    links += _training(project, journal, run_id)
    return links


def _folder(project: Project, submission: Path) -> Path:
    """Return the pulled folder whose submission.csv this is."""
    if not submission.is_file():
        raise UsageError(f"{submission} is missing; expected a submission.csv.\nCorrect --of.")
    if (submission.parent / output.BUNDLE).is_file():
        return submission.parent
    digest = manifest.sha256(submission)
    for path in sorted(project.runs.rglob("submission.csv")):
        if (path.parent / output.BUNDLE).is_file() and manifest.sha256(path) == digest:
            return path.parent
    raise UsageError(
        f"{submission} was written by no run that was pulled into {project.runs} (sha256 {digest[:16]}…).\n"
        "Pull the run that wrote it: invoke pull --run owner/slug/version"
    )


def _training(project: Project, journal: Journal, run_id: str) -> list[Link]:
    """Return the links of the run that trained, found by the artifact's run id."""
    for path in sorted(project.runs.rglob(f"{output.ARTIFACT}/{manifest.NAME}")):
        held = _read(path)
        if run_id and held.get("run_id") == run_id:
            folder = path.parent.parent
            told = _read(folder / output.BUNDLE)
            artifact = f"{run_id}, weights {str(held.get('weights_sha256', ''))[:16]}"
            return [
                Link("artifact", artifact, str(path)),
                Link("accelerator", str(held.get("devices", UNKNOWN)), str(path)),
                *_run("train", _push(journal, told.get("bundle_sha256")), told, folder),
            ]
    return [Link("artifact", run_id or UNKNOWN, "bundle.json of the inference")]


def _run(which: str, push: dict[str, Any] | None, told: dict[str, Any], folder: Path) -> list[Link]:
    commit = str(told.get("git_commit") or "none") + (", with local changes" if told.get("git_dirty") else "")
    place = str(folder / output.BUNDLE)
    return [
        Link(f"{which} run", f"{push['handle']}/{push['version']}" if push else UNKNOWN, "journal"),
        Link(f"{which} bundle", str(told.get("bundle_sha256", UNKNOWN)), place),
        Link(f"{which} commit", commit, place),
    ]


def _push(journal: Journal, sha256: str | None) -> dict[str, Any] | None:
    return journal.last("pushes", bundle_sha256=sha256) if sha256 else None


def _known(row: dict[str, Any] | None, name: str) -> str:
    return UNKNOWN if row is None or row[name] is None else str(row[name])


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.\nPull the run again.") from error
    return value if isinstance(value, dict) else {}
