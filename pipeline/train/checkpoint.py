"""The whole state of a run as arrays, saved so that a kill at any moment leaves a good checkpoint.

A checkpoint (`formats.checkpoint_folder`) is written as an artifact is (`formats.sealed_folder`),
and the newest two valid ones are kept. `Saver` has one written as often as its cost allows. The
next session begins with the files of the last one (`restore`), which the bundle's `expect` pins.
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
# Writing may take this share of the time at most. Young 1974: the least is lost at sqrt(2 x cost x
# time between failures); a Kaggle session is assumed to fail once in its 9 hours.
SHARE, FAILURE_SECONDS = 0.02, 9 * 3600.0
# The first comes soon: its cost is not known before, and a run that fails early should leave one.
FIRST_SECONDS = 20.0
# Until one was written: the slowest disk that we allow for.
SLOWEST_BYTES_PER_SECOND = 50e6


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint.

    Attributes:
        step: the step after which it was saved.
        arrays: by name.
        details: what was saved beside them (JSON).
        skipped: what is wrong with each newer checkpoint.
    """

    step: int
    arrays: Mapping[str, np.ndarray]
    details: Mapping[str, Any]
    skipped: tuple[str, ...] = ()


def save(
    folder: Path, step: int, arrays: Mapping[str, np.ndarray], details: Mapping[str, Any]
) -> Path:
    """Write a checkpoint, remove all others but the newest valid one, and return its folder.

    A kill or a loss of power leaves this one or the newest before it; after the return, this one.
    A run holds the folder meanwhile (`writer`).

    Args:
        folder: of the checkpoints; it is made if it does not exist.
        step: the step after which the state is saved.
        arrays: by name.
        details: what else is saved (JSON).

    Raises:
        DiskError: if it cannot be written; the earlier checkpoints are still there.
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
        for orphan in folder.glob(".step-*"):  # of a save that was killed
            shutil.rmtree(orphan, ignore_errors=True)
        sealed_folder.write(target, {STATE: state}, manifest)
        atomic_file.sync_folder(folder.parent)  # whoever made the folder, and however long ago
        others = [path for path in newest_first(folder) if path != target]
        fallback = next((path for path in others if isinstance(_verified(path), dict)), None)
        for path in others:
            if path != fallback:
                shutil.rmtree(path, ignore_errors=True)
    return target


def latest(folder: Path) -> Checkpoint | None:
    """Return the newest valid checkpoint, or None if the folder holds none at all.

    Raises:
        CheckpointError: if there are some and none is valid: to begin again silently would lose the
            run.
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
            "Expected one. Restore the folder, or begin again with --fresh (it sets these aside)."
        )
    return None


def _verified(path: Path) -> dict[str, Any] | str:
    """Return the manifest of a whole checkpoint, or what is wrong with it."""
    try:
        return verified(path)
    except Exception as error:  # a corrupt file makes json and the system raise several kinds
        return f"{path.name}: {type(error).__name__}: {error}"


@contextmanager
def writer(folder: Path) -> Iterator[None]:
    """Keep other runs from saving into the folder, which is made if it does not exist.

    The lock is the system's and ends with the process, however that ends. On a file system without
    locks it does nothing.

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
                f"{folder} is written by another process; expected one run at a time.\n"
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

    Each file must have the sha256 that the bundle carries. If `output` already has a checkpoint
    (the cell was run twice), nothing is copied.

    Args:
        expect: {"run_id", "step", "checkpoint", "files": {name: sha256}} of the bundle; empty for a
            run that starts.
        inputs: /kaggle/input.
        output: the working folder.
        show: takes each line of text.

    Raises:
        CheckpointError: if something else is mounted; the message names it.
        DiskError: if a file cannot be written.
    """
    if not expect or any(output.glob("**/checkpoints/step-*")):
        show("No earlier session is expected, or the working folder already holds checkpoints.")
        return
    for name, source in mounts.previous(inputs, expect).items():
        with reading(source, CheckpointError, PUSH_AGAIN):
            content = source.read_bytes()
        digest, expected = hashlib.sha256(content).hexdigest(), expect["files"][name]
        if digest != expected:
            raise CheckpointError(
                f"{source} has sha256 {digest[:12]}…; the bundle expects {expected[:12]}….\n"
                f"It is from a different run, or was changed. {PUSH_AGAIN}"
            )
        atomic_file.write(output / name, content)
    show(
        f"Resuming from step {expect['step']} of run {expect['run_id']}: "
        f"{len(expect['files'])} files, checksums verified."
    )


def set_aside(folder: Path, records: Sequence[Path] = ()) -> None:
    """Move the folder to the first free `<name>-set-aside-<n>`: nothing is deleted.

    Args:
        folder: of the checkpoints.
        records: what else the run wrote; it moves into the same folder.

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


def interval(cost: float) -> float:
    """Return the seconds from one checkpoint to the next, if writing one takes `cost`.

    >>> round(interval(1.0)), round(interval(100.0))
    (255, 5000)
    """
    return max(cost / SHARE, math.sqrt(2 * cost * FAILURE_SECONDS))


class Saver:
    """Times what saves checkpoints, and says when the next one is due.

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

        >>> Saver(None, 0).interval()
        20.0
        """
        found = interval(max(self.costs)) if self.costs else FIRST_SECONDS
        return found if self._given is None else self._given

    def reserve(self) -> float:
        """Return the seconds to keep for the last one: twice those of the slowest so far."""
        return 2 * max(self.costs, default=self._size / SLOWEST_BYTES_PER_SECOND)

    def due(self) -> bool:
        """Return whether it is time for the next one."""
        return time.monotonic() - self._last >= self.interval()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Measure what saving takes."""
        started = time.monotonic()
        yield
        self._last = time.monotonic()
        self.costs.append(self._last - started)
