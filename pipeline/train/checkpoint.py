"""Save the complete state of a run in checkpoints, so that the run can resume after being killed.

The two newest valid checkpoints are kept. `Saver` adapts the interval to the time that saving
takes. The next session copies the previous session's files (`restore`) and verifies them against
the checksums in the bundle's `expect` field.
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
# Maximum fraction of time spent on writing. The optimal interval is sqrt(2 x cost x time between
# failures) (Young 1974), assuming one failure per Kaggle session of 9 hours.
SHARE, FAILURE_SECONDS = 0.02, 9 * 3600.0
# The first checkpoint is written early, to measure its cost and in case the run soon fails.
FIRST_SECONDS = 20.0
# The write speed to assume until the first checkpoint is written.
SLOWEST_BYTES_PER_SECOND = 50e6


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint. `skipped` lists all newer checkpoints and why each one is invalid."""

    step: int
    arrays: Mapping[str, np.ndarray]
    details: Mapping[str, Any]
    skipped: tuple[str, ...] = ()


def save(
    folder: Path, step: int, arrays: Mapping[str, np.ndarray], details: Mapping[str, Any]
) -> Path:
    """Write a checkpoint and return its folder. Older checkpoints are deleted, except for the
    newest valid one.

    If the process is killed or the power fails, either this checkpoint or the previous one is
    intact. Once this function has returned, the new checkpoint is intact. The run must already
    have locked the folder with `writer`. If the checkpoint cannot be written, `DiskError` is raised
    and earlier checkpoints are kept.
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
        for orphan in folder.glob(".step-*"):  # left by an interrupted save
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
    """Return the newest valid checkpoint, or None if the folder has no checkpoints.

    Raises:
        CheckpointError: if all checkpoints are corrupt. Silently starting over would lose the run.
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
            f"None of the {len(problems)} checkpoints in {folder} is valid: "
            f"{'; '.join(problems)}.\n"
            "Restore the folder, or start over with --fresh, which sets these checkpoints aside."
        )
    return None


def _verified(path: Path) -> dict[str, Any] | str:
    try:
        return verified(path)
    except Exception as error:  # corrupt files raise various JSON and OS errors
        return f"{path.name}: {type(error).__name__}: {error}"


@contextmanager
def writer(folder: Path) -> Iterator[None]:
    """Lock the folder so that no other run can use it. A missing folder is created.

    The operating system releases the lock when the process exits. If the file system does not
    support locks, the folder is not protected.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                f"{folder} is in use by another process; only one run at a time can use it.\n"
                "Wait for that process, stop it, or choose another --output."
            ) from error
        except OSError:
            pass  # the file system does not support locks
        yield
    finally:
        os.close(descriptor)


def restore(
    expect: Mapping[str, Any], inputs: Path, output: Path, *, show: Callable[[str], None] = print
) -> None:
    """Copy an earlier session's files to `output`, where `training.train` finds them.

    Nothing is copied if `output` already contains a checkpoint, which happens if the cell runs
    twice. `expect` is described in `mounts.previous`, and is empty for a new run.
    """
    if not expect or any(output.glob("**/checkpoints/step-*")):
        show("Nothing to restore: the run is new, or the working folder already has checkpoints.")
        return
    for name, source in mounts.previous(inputs, expect).items():
        with reading(source, CheckpointError, PUSH_AGAIN):
            content = source.read_bytes()
        digest, expected = hashlib.sha256(content).hexdigest(), expect["files"][name]
        if digest != expected:
            raise CheckpointError(
                f"{source} has sha256 {digest[:12]}…; the bundle expects {expected[:12]}….\n"
                f"It is from a different run or was modified. {PUSH_AGAIN}"
            )
        atomic_file.write(output / name, content)
    show(
        f"Resuming from step {expect['step']} of run {expect['run_id']}. The checksums of "
        f"{len(expect['files'])} files were verified."
    )


def set_aside(folder: Path, records: Sequence[Path] = ()) -> None:
    """Move the checkpoints to a new folder `<name>-set-aside-<n>` instead of deleting them.
    `records` lists other files of the run, which are moved there as well.
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
    """Measures how long checkpoints take, and decides when to save the next one.

    Args:
        given: minimum number of seconds between checkpoints; None to adapt it to the cost.
        size: approximate checkpoint size in bytes.
    """

    def __init__(self, given: float | None, size: int) -> None:
        self._given, self._size = given, size
        self.costs: list[float] = []
        self._last = time.monotonic()

    def interval(self) -> float:
        """Return the seconds between checkpoints.

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
        """Return the seconds to reserve for the last checkpoint: twice the longest time so far."""
        return 2 * max(self.costs, default=self._size / SLOWEST_BYTES_PER_SECOND)

    def due(self) -> bool:
        return time.monotonic() - self._last >= self.interval()

    @contextmanager
    def saving(self) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._last = time.monotonic()
        self.costs.append(self._last - started)
