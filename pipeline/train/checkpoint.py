"""The whole state of a run as arrays, saved so that a kill at any moment leaves a valid checkpoint.

A checkpoint (`formats.checkpoint_folder`) is written like an artifact (`formats.sealed_folder`);
the newest two valid ones are kept. `Saver` decides how often, by the cost. The next session starts
with the files of the last one (`restore`), which the bundle's `expect` pins.
"""

import fcntl
import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from formats import atomic_file, npz, sealed_folder
from formats.checkpoint_folder import STATE, newest_first, verified
from formats.errors import writing
from pipeline.errors import CheckpointError, reading
from pipeline.runtime import mounts

PUSH_AGAIN = "Push again:\ninvoke push-train"
# Writing takes this share of the time at most. Least time is lost at an interval of sqrt(2 x cost x
# time between failures) (Young 1974); we assume a failure in each Kaggle session of 9 hours.
SHARE, FAILURE_SECONDS = 0.02, 9 * 3600.0
# The first comes soon: its cost is unknown, and a run that fails early should leave one.
FIRST_SECONDS = 20.0
# Assumed until the first is written.
SLOWEST_BYTES_PER_SECOND = 50e6


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint.

    Attributes:
        step: the step after which it was saved.
        arrays: by name.
        details: other values (JSON).
        skipped: the problem of each newer checkpoint.
    """

    step: int
    arrays: Mapping[str, np.ndarray]
    details: Mapping[str, Any]
    skipped: tuple[str, ...] = ()


def save(
    folder: Path, step: int, arrays: Mapping[str, np.ndarray], details: Mapping[str, Any]
) -> Path:
    """Write a checkpoint, remove all others but the newest valid one, and return its folder.

    A kill or a power failure leaves this checkpoint or the newest before it; after the return, this
    one. The run must hold the folder (`writer`).

    Args:
        folder: of the checkpoints; it is created if missing.
        step: the number of steps done.
        arrays: by name.
        details: other values (JSON).

    Raises:
        DiskError: if it cannot be written; earlier checkpoints remain.
    """
    target = folder / f"step-{step:08d}"
    state = npz.to_bytes({f"{n:05d}": array for n, array in enumerate(arrays.values())})
    manifest = {
        "step": step,
        "names": list(arrays),
        "sha256": hashlib.sha256(state).hexdigest(),
        "details": dict(details),
    }
    with writing(target):
        folder.mkdir(parents=True, exist_ok=True)
        for orphan in folder.glob(".step-*"):  # of an interrupted save
            shutil.rmtree(orphan, ignore_errors=True)
        sealed_folder.write(target, {STATE: state}, manifest)
        atomic_file.sync_folder(folder.parent)  # the folder may be new
        others = [path for path in newest_first(folder) if path != target]
        fallback = next((path for path in others if isinstance(_verified(path), dict)), None)
        for path in others:
            if path != fallback:
                shutil.rmtree(path, ignore_errors=True)
    return target


def latest(folder: Path) -> Checkpoint | None:
    """Return the newest valid checkpoint, or None if the folder holds none at all.

    Raises:
        CheckpointError: if none of them is valid: starting over silently would lose the run.
    """
    problems: list[str] = []
    for path in newest_first(folder):
        manifest = _verified(path)
        if isinstance(manifest, dict):
            members = npz.read(path / STATE)
            arrays = {name: members[f"{n:05d}"] for n, name in enumerate(manifest["names"])}
            return Checkpoint(manifest["step"], arrays, manifest["details"], tuple(problems))
        problems.append(manifest)
    if problems:
        raise CheckpointError(
            f"Of {len(problems)} checkpoints in {folder} none is valid: {'; '.join(problems)}.\n"
            "Expected one. Restore the folder, or start over with --fresh (which sets these aside)."
        )
    return None


def _verified(path: Path) -> dict[str, Any] | str:
    """Return the manifest of a valid checkpoint, or its problem as text."""
    try:
        return verified(path)
    except Exception as error:  # a corrupt file makes json and the system raise several kinds
        return f"{path.name}: {type(error).__name__}: {error}"


@contextmanager
def writer(folder: Path) -> Iterator[None]:
    """Lock the folder against other runs; it is created if missing.

    The system releases the lock when the process ends. A file system without locks has none.

    Raises:
        CheckpointError: if another run holds the folder.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                f"{folder} is used by another process; expected one run at a time.\n"
                "Wait for its end, end it, or choose another --output."
            ) from error
        except OSError:
            pass  # no locks here
        yield
    finally:
        os.close(descriptor)


def restore(
    expect: Mapping[str, Any], inputs: Path, output: Path, *, show: Callable[[str], None] = print
) -> None:
    """Copy the files of an earlier session into `output`, where `training.train` finds them.

    Each file must have the sha256 of the bundle. If `output` already has a checkpoint (the cell ran
    twice), nothing is copied.

    Args:
        expect: {"run_id", "step", "checkpoint", "files": {name: sha256}} of the bundle; empty for a
            new run.
        inputs: /kaggle/input.
        output: the working folder.
        show: takes each line of text.

    Raises:
        CheckpointError: if something else is mounted; the message names it.
        DiskError: if a file cannot be written.
    """
    if not expect or any(output.glob("**/checkpoints/step-*")):
        show("Nothing to restore: a new run, or the working folder already holds checkpoints.")
        return
    for name, source in mounts.previous(inputs, expect).items():
        with reading(source, CheckpointError, PUSH_AGAIN):
            content = source.read_bytes()
        digest, expected = hashlib.sha256(content).hexdigest(), expect["files"][name]
        if digest != expected:
            raise CheckpointError(
                f"{source} has sha256 {digest[:12]}…; the bundle expects {expected[:12]}….\n"
                f"It is from a different run, or it was changed. {PUSH_AGAIN}"
            )
        atomic_file.write(output / name, content)
    show(
        f"Resuming from step {expect['step']} of run {expect['run_id']}: "
        f"{len(expect['files'])} files, checksums verified."
    )


def set_aside(folder: Path, records: Sequence[Path] = ()) -> None:
    """Move the checkpoints to the first free `<name>-set-aside-<n>`; nothing is deleted.

    Args:
        folder: of the checkpoints.
        records: other files of the run; they move to the same place.

    Raises:
        CheckpointError: if another run holds the folder.
    """
    with writer(folder), writing(folder):
        there = [path for path in (*folder.iterdir(), *records) if path.exists()]
        if there:
            names = (f"{folder.name}-set-aside-{number}" for number in count(1))
            target = next(path for path in map(folder.with_name, names) if not path.exists())
            target.mkdir()
            for path in there:
                path.rename(target / path.name)


class Saver:
    """Measures the cost of checkpoints, and decides when the next one is due.

    Args:
        given: least seconds between two checkpoints; None: they follow from the measured cost.
        size: approximate bytes of a checkpoint.

    Attributes:
        costs: seconds that each checkpoint took.
    """

    def __init__(self, given: float | None, size: int) -> None:
        self._given, self._size = given, size
        self.costs: list[float] = []
        self._last = time.monotonic()

    def interval(self) -> float:
        """Return the seconds from one checkpoint to the next.

        >>> saver = Saver(None, 0)
        >>> first, _ = saver.interval(), saver.costs.append(1.0)
        >>> first, round(saver.interval())
        (20.0, 255)
        """
        if self._given is not None or not self.costs:
            return FIRST_SECONDS if self._given is None else self._given
        cost = max(self.costs)
        return max(cost / SHARE, math.sqrt(2 * cost * FAILURE_SECONDS))

    def reserve(self) -> float:
        """Return the seconds to keep for the last checkpoint: twice the slowest so far."""
        return 2 * max(self.costs, default=self._size / SLOWEST_BYTES_PER_SECOND)

    def due(self) -> bool:
        """Return whether it is time for the next checkpoint."""
        return time.monotonic() - self._last >= self.interval()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Measure the time that saving takes."""
        started = time.monotonic()
        yield
        self._last = time.monotonic()
        self.costs.append(self._last - started)
