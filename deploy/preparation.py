"""Preparations: what the next one takes of those before, and whether a training can mount one.

Reads  the journal's pushes, what Kaggle says of their runs, and the names of their files
Gives  a `NextSession`; the kernel whose output a training mounts

Decoded images prove themselves, by the bytes that they were decoded from. So nothing is pinned, and
nothing is downloaded but what a killed session left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from deploy import bundle, continuation, output, saved_progress
from deploy import publish as datasets
from deploy.bundle import Bundle
from deploy.client import Kaggle
from deploy.continuation import REFUSED
from deploy.errors import RunFailed
from deploy.journal import DONE, GONE
from deploy.last_runs import Pushes, Row, run_of, status_of
from deploy.project import PREPARE, TRAIN, Project
from deploy.push_and_watch import Run, Show
from formats import checksums

SESSION_SECONDS = 12 * 3600 - 60  # below Kaggle's cap for a CPU
MARKER = "prepared.json"


@dataclass(frozen=True)
class NextSession:
    """The next session of a preparation.

    Attributes:
        built: its bundle.
        again: push it even if a version holds it: that one did not get to its end.
        carried: a killed run whose images reach it as a dataset.
    """

    built: Bundle
    again: bool
    carried: Run | None = None


def sources(kaggle: Kaggle, pushes: Pushes, *, show: Show, again: bool = False) -> tuple[str, ...]:
    """Return the kernel whose output a training mounts, or "", and then what else may be mounted by
    a run that was pushed before. Without any preparation that is "" alone.

    Args:
        again: as in `status_of`.
    """
    project = pushes.project
    if not project.decoding:
        return ("",)
    handle, rows = _rows(kaggle, pushes)
    refused = pushes.last(kernel=TRAIN, competition=project.competition, outcome=REFUSED)
    for row in rows:
        run, status = run_of(row), status_of(kaggle, row, again=again, show=show)
        if status is None:
            pushes.note(row, outcome=GONE)
        elif not status:
            continue
        elif status == "COMPLETE":  # Kaggle mounts the newest of these
            progress = row["left"] or continuation.progress_of(kaggle, run, show)
            pushes.note(row, left=progress)
            if refused is not None and refused["id"] > row["id"]:
                show(
                    f"{run} is not mounted: Kaggle refused a source of a training since then. To"
                    f" mount it again: {project.command('push-prepare --again')}"
                )
                break
            if row["decoding"] == project.decoding and progress == "complete":
                show(f"The training will take its images from {run}, which has decoded them.")
                return (handle, "")
            why = progress or "without images"
            if progress == "complete":
                why = "of other images, or of another size"
            show(
                f"{run} is not mounted: it is {why}. To prepare: {project.command('push-prepare')}"
            )
            break
        elif status not in continuation.ENDED:
            show(f"{run} is {status}: this training will not wait for it.")
    return ("", handle) if rows else ("",)


def next_session(
    kaggle: Kaggle, pushes: Pushes, *, again: bool, fresh: bool, show: Show
) -> NextSession:
    """Return the next session: what is active or complete already, or what takes its images.

    Args:
        again: decode anew what has changed since the last one.
        fresh: take nothing of an earlier one.
    """
    project, owner = pushes.project, kaggle.username
    handle, rows = _rows(kaggle, pushes)
    dataset = bundle.dataset_handle(owner, project.competition, "prepared")

    def built(outputs: Sequence[str], saved: Sequence[str]) -> Bundle:
        return bundle.build(
            PREPARE,
            config=project.config,
            competition=project.competition,
            owner=owner,
            out=project.builds,
            root=project.root,
            kernels=project.kernels,
            handles={PREPARE: handle},
            more={"kernel_sources": outputs, "dataset_sources": saved},
        )

    if fresh or not rows:
        return NextSession(built([], []), again or fresh)
    last, status = run_of(rows[0]), status_of(kaggle, rows[0], again=again, show=show)
    waits = show if status == "COMPLETE" else None
    progress = continuation.progress_of(kaggle, last, waits) if status else ""
    active = bool(status) and status not in continuation.ENDED
    killed = bool(progress) and not active and status != "COMPLETE"
    if not again and (active or (progress == "complete" and not killed)):
        for outputs in ([], [handle]):
            for saved in ([], [dataset]):
                same = built(outputs, saved)
                if same.sha256 == last.bundle_sha256:
                    return NextSession(same, again=False)
    complete = any(status_of(kaggle, row, again=again) == "COMPLETE" for row in rows)
    if progress:
        way = "a dataset" if killed else "its own output"
        show(f"{last} is {progress}. Taking its images, through {way}; to start over: --fresh")
    made = built([handle] if complete else [], [dataset] if killed else [])
    return NextSession(made, again=True, carried=last if killed else None)


def carry(kaggle: Kaggle, project: Project, run: Run, *, show: Show) -> None:
    """Publish the images of a killed run, whose own output Kaggle does not mount.

    Raises:
        RunFailed: if none of them came with the run's output.
        Others: as `output.pull` and `publish.saved_files` do.
    """
    folder = output.pull(kaggle, run, project.runs, show=show)
    found = [path for path in folder.iterdir() if saved_progress.SHARD.fullmatch(path.name)]
    whole = [path for path in found if path.with_suffix(".npy").is_file()]
    if not whole or not (folder / MARKER).is_file():
        raise RunFailed(
            f"{folder} has {len(whole)} whole shards of images; expected one at least, and"
            f" {MARKER}.\nStart over:\n{project.command('push-prepare --fresh')}"
        )
    paths = [folder / MARKER, *whole, *(path.with_suffix(".npy") for path in whole)]
    files = {path.name: checksums.sha256(path) for path in sorted(paths)}
    handle = bundle.dataset_handle(kaggle.username, project.competition, "prepared")
    details = {"run_id": str(run), "step": len(whole), "weights_sha256": files[MARKER]}
    datasets.saved_files(kaggle, project, folder, files, handle, details, show=show)


def _rows(kaggle: Kaggle, pushes: Pushes) -> tuple[str, list[Row]]:
    """Return the kernel, and its pushes that made a version, newest first."""
    handle = pushes.handle(kaggle.username, PREPARE)
    rows = pushes.matching(handle=handle, outcome=DONE)
    return handle, [row for row in rows if row["version"]]
