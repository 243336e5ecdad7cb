"""Collect the training runs in `runs/`, along with their scores on Kaggle or in rehearsals.

This reads the output folders of pulled runs, rehearsals and local training runs, and the journals
next to them. The results use the field names of `workbench.experiments`. An inference run connects
a submission to a training run: it expected the weights of that training run, and wrote a file with
the same SHA-256 as the submitted file.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from deploy import auth, output, runs
from deploy.journal import SUBMIT, Journal, Request
from deploy.output import ARTIFACT, BUNDLE, OUTPUTS, SUBMISSION
from deploy.project import REHEARSAL
from formats.errors import KnownError
from formats.sealed_folder import MANIFEST

JOURNAL = "journal.sqlite"


def found(folder: Path, show: Callable[[str], None]) -> dict[Path, dict[str, Any]]:
    """Return details of all training runs in `runs/`, keyed by output folder.

    A run may have several folders, for example if a pull moved one aside. The first one is used.
    """
    every = dict[str, tuple[Path, dict[str, Any]]]()
    for home in (folder, *sorted(path.parent for path in folder.glob(f"*/{JOURNAL}"))):
        try:
            by_age = sorted(_scored(home), key=lambda scored: scored[0].id)
            scored = {weights: row for row, weights in by_age}
        except KnownError as error:
            show(f"Warning: could not read scores from {home}: {str(error).splitlines()[0]}")
            scored = {}
        for path in sorted(home.glob(f"*/{ARTIFACT}/{MANIFEST}")):
            manifest = output.json_object(path)
            given = scored.get(str(manifest.get("weights_sha256")))
            known = _known(path.parents[1], given, dry_run=home != folder)
            every.setdefault(str(manifest.get("run_id")), (path.parents[1], known))
    return dict(every.values())


def _known(folder: Path, scored: Request | None, *, dry_run: bool) -> dict[str, Any]:
    note = output.noted(folder)
    if note is None:  # trained locally
        return {}
    handle, _, version = note.run.rpartition("/")
    if note.server != auth.SITE:
        rehearsal = output.json_object(folder.parent / REHEARSAL)
        place = "dry run" if dry_run else f"rehearsed v{version}"
        given = (
            {"hidden": scored.score, "hidden_error": rehearsal.get("score_error")} if scored else {}
        )
        return {"run": note.run, "place": place, **given}
    kind = runs.accelerator(handle, output.of_bundle(folder, "machine_shape"))
    given = {"public": scored.score, "private": scored.private} if scored else {}
    # Do not write "TPU v3", because that is the name of a TPU generation.
    return {"run": note.run, "place": f"{kind} #{version}", "accelerator": kind, **given}


def _scored(home: Path) -> Iterator[tuple[Request, str]]:
    for path in home.glob(f"*/{BUNDLE}"):
        note, expect = output.noted(path.parent), output.json_object(path).get("expect") or {}
        files = output.json_object(path.parent / OUTPUTS).get("files") or {}
        is_there = SUBMISSION in files and (home / JOURNAL).is_file()
        if note and "weights_sha256" in expect and is_there:
            run = runs.parse(note.run)
            where = {"handle": run.handle, "kernel_version": run.version}
            rows = Journal(home / JOURNAL, note.server).requests(SUBMIT, **where)
            # Commands that follow a submission send no file, but store the same number.
            sent = {row.number for row in rows if row.sha256 == files[SUBMISSION]["sha256"]}
            for row in rows:
                if row.number in sent and (row.score, row.private) != (None, None):
                    yield row, expect["weights_sha256"]
