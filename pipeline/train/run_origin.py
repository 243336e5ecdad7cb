"""Run origin: what a run is made from, compared with what a checkpoint was made from.

An origin has "config", "data" and "batches" (their version), which must stay the same, and
"precision", "devices" and "code", which may change with a message.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config.compatibility import changes
from pipeline.errors import CheckpointError
from pipeline.train.checkpoint import Checkpoint

# Of the session that began the run; later sessions may have others.
FIRST = ("precision", "devices", "code")
START_OVER = "start over with --fresh (which sets the old checkpoints aside)."


@dataclass(frozen=True)
class Earlier:
    """What a checkpoint says of the run that wrote it.

    Attributes:
        origin: the origin of this session, with the `FIRST` of the session that began the run.
        run_id, metrics, best: as the loop had them.
        seconds: of training until then.
    """

    origin: dict[str, Any]
    run_id: str
    metrics: dict[str, float]
    best: dict[str, Any]
    seconds: float


def earlier(found: Checkpoint, folder: Path, origin: dict[str, Any]) -> Earlier:
    """Return what the checkpoint says of its run, which has to be the run of `origin`.

    Raises:
        CheckpointError: if it is of another program, config or data.
    """
    try:
        theirs, details = found.details["origin"], found.details
        first = {name: theirs.get(name, origin[name]) for name in FIRST if name in origin}
        read = Earlier(
            {**origin, **first},
            str(details["run_id"]),
            dict(details["metrics"]),
            dict(details["best"]),
            float(details.get("seconds", 0.0)),
        )
        changed, ours = changes(theirs["config"], origin["config"]), origin["config"].get("name")
        name = theirs["config"].get("name", ours)
        versions = [int(one.get("batches", 1)) for one in (theirs, origin)]
        if theirs["data"] != origin["data"]:
            changed.append("the inputs or labels, or which of them validate")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{folder} holds step {found.step} of no run of this project:"
            f" {type(error).__name__}: {error}.\n"
            "Expected what `train` writes. Choose another --output, or start over with --fresh."
        ) from error
    if name != ours:
        raise CheckpointError(
            f"{folder} holds step {found.step} of the config {name!r}, and this is {ours!r};"
            " expected a folder of its own.\n"
            f"Choose another --output, or {START_OVER}"
        )
    if versions[0] != versions[1]:
        raise CheckpointError(
            f"{folder} holds step {found.step} of a run whose batches were made in way"
            f" {versions[0]}; this code makes them in way {versions[1]}, by other random numbers.\n"
            f"Finish that run with the commit that began it, or {START_OVER}"
        )
    if changed:
        raise CheckpointError(
            f"{folder} holds step {found.step} of another run; changed since:"
            f" {'; '.join(changed)}.\n"
            f"Undo the change to resume, choose another --output, or {START_OVER}"
        )
    return read


def refuse_differing(names: Sequence[str], found: Checkpoint, folder: Path) -> None:
    """Raise CheckpointError if these arrays of the state differ from the checkpoint's."""
    if names:
        raise CheckpointError(
            f"{folder} holds step {found.step} of a different model or optimizer, for example in"
            f" {', '.join(names[:3])}.\n"
            "Use the code that began the run, or start over with --fresh."
        )


def refuse_other_metric(
    best: dict[str, Any], metric: str, target: str, found: Checkpoint, folder: Path
) -> None:
    """Raise CheckpointError if the best epoch of a run was chosen by another metric.

    Args:
        best: as the loop keeps it; one that names no metric is of a run that compared the accuracy,
            or without one the loss.
        metric: by which this run compares epochs.
    """
    accuracy = "accuracy" if target in ("classes", "ordinal") else "the validation loss"
    theirs = best.get("metric", accuracy)
    if theirs != metric:
        raise CheckpointError(
            f"{folder} holds step {found.step} of a run whose best epoch was chosen by {theirs};"
            f" this one would choose by {metric}.\n"
            f"Finish it with the metric and the commit that began it, or {START_OVER}"
        )


def differences(first: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each way in which this session differs from the one that began the run."""
    if first.get("code") != now.get("code"):
        yield (
            "Warning: the code in pipeline/ is not the one that the run began with;"
            " two ways of training may be mixed."
        )
    if any(first[name] != now[name] for name in ("precision", "devices")):
        yield (
            f"The run resumes in {now['precision']} on {now['devices']};"
            f" it began in {first['precision']} on {first['devices']}"
        )
