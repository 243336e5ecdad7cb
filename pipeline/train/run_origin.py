"""Run origin: what a run is made from, compared with what a checkpoint was made from.

An origin has "config", "custom_code" (sha256 of its functions), "data" and "batches" (their
version), which must stay the same, and "precision", "devices" and "code", which may change with a
message.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.config.config import changes
from pipeline.errors import CheckpointError
from pipeline.train.checkpoint import Checkpoint

# Of the session that began the run; later sessions may have others.
MAY_CHANGE = ("precision", "devices", "code")
DETAILS = ("run_id", "metrics", "best", "seconds", "init_from", "fitted")
START_OVER = "start over with --fresh (which sets the old checkpoints aside)."


def earlier(found: Checkpoint, folder: Path, origin: dict[str, Any]) -> dict[str, Any]:
    """Return this session's origin, with what may change as it was when the run began.

    Raises:
        CheckpointError: if the checkpoint is of another program, config or data.
    """
    try:
        theirs = found.details["origin"]
        merged = {**origin, **{name: theirs[name] for name in MAY_CHANGE}}
        changed = changes(_settings(theirs), _settings(origin))
        name, versions = theirs["config"]["name"], [theirs["batches"], origin["batches"]]
        if theirs["data"] != origin["data"]:
            changed.append("the inputs or labels, or which of them validate")
        if missing := [name for name in DETAILS if name not in found.details]:
            raise ValueError(f"it lacks {', '.join(missing)}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{folder} holds step {found.step} of no run of this project:"
            f" {type(error).__name__}: {error}.\n"
            "Expected what `train` writes. Choose another --output, or start over with --fresh."
        ) from error
    if name != origin["config"]["name"]:
        raise CheckpointError(
            f"{folder} holds step {found.step} of the config {name!r}, and this is"
            f" {origin['config']['name']!r}; expected a folder of its own.\n"
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
    return merged


def _settings(origin: dict[str, Any]) -> dict[str, Any]:
    return {**origin["config"], "custom_code": origin["custom_code"]}


def refuse_differing(names: Sequence[str], found: Checkpoint, folder: Path) -> None:
    """Raise CheckpointError if these arrays of the state differ from the checkpoint's."""
    if names:
        raise CheckpointError(
            f"{folder} holds step {found.step} of a different model or optimizer, for example in"
            f" {', '.join(names[:3])}.\n"
            "Use the code that began the run, or start over with --fresh."
        )


def refuse_other_metric(theirs: str, ours: str, found: Checkpoint, folder: Path) -> None:
    """Raise CheckpointError if the best epoch of a run was chosen by another metric."""
    if theirs != ours:
        raise CheckpointError(
            f"{folder} holds step {found.step} of a run whose best epoch was chosen by {theirs};"
            f" this one would choose by {ours}.\n"
            f"Finish it with the metric and the commit that began it, or {START_OVER}"
        )


def differences(first: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each way in which this session differs from the one that began the run."""
    if first["code"] != now["code"]:
        yield (
            "Warning: the code in pipeline/ is not the one that the run began with;"
            " two ways of training may be mixed."
        )
    if any(first[name] != now[name] for name in ("precision", "devices")):
        yield (
            f"The run resumes in {now['precision']} on {now['devices']};"
            f" it began in {first['precision']} on {first['devices']}"
        )
