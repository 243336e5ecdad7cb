"""The whole state of a run as arrays, saved so that a kill at any moment leaves a good checkpoint.

A checkpoint (`formats.checkpoint_folder`) is written under a temporary name, flushed to the disk,
and renamed; the two newest valid ones are kept. `Saver` writes them while the run continues, as
often as their cost allows.
"""

import fcntl
import math
import os
import shutil
import tempfile
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from formats import npz
from formats.atomic_file import sync_folder, write_synced
from formats.checkpoint_folder import MANIFEST, STATE, newest_first, verified
from formats.checksums import sealed, sha256
from formats.errors import writing
from pipeline.errors import CheckpointError, reading

KEPT = 2
UNFINISHED = ".writing-"
# The folders that this process writes into, as (device, inode): a rename keeps them.
_OURS: set[tuple[int, int]] = set()

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

    Args:
        folder: of the checkpoints; it is made if it does not exist.
        step: the step after which the state is saved.
        arrays: by name.
        details: what else is saved (JSON).

    Raises:
        CheckpointError: if another process writes into the folder.
        DiskError: if it cannot be written; the earlier checkpoints are still there.
    """
    target = folder / f"step-{step:08d}"
    with writer(folder), writing(target):
        if _is_valid(target):
            return target
        for orphan in folder.glob(f"{UNFINISHED}*"):  # of a save that was killed
            shutil.rmtree(orphan, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder))
        try:
            state = fresh / STATE
            with state.open("wb") as file:
                # np.savez leaves its archive open when the disk is full; Python warns of that.
                with zipfile.ZipFile(file, "w") as archive:
                    for index, array in enumerate(arrays.values()):
                        with archive.open(f"{index:05d}.npy", "w", force_zip64=True) as member:
                            np.lib.format.write_array(member, array, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
            manifest = {
                "step": step,
                "names": list(arrays),
                "sha256": sha256(state),
                "details": dict(details),
            }
            write_synced(fresh / MANIFEST, sealed(manifest))
            sync_folder(fresh)  # the names of the two; else the rename may outlive them
            # A run comes to a step again only if what it saved there was not whole.
            shutil.rmtree(target, ignore_errors=True)
            fresh.rename(target)
            sync_folder(folder)  # before anything older is removed
            sync_folder(folder.parent)  # whoever made the folder, and however long ago
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        _prune(folder, target)
    return target


def latest(folder: Path) -> Checkpoint | None:
    """Return the newest valid checkpoint, or None if the folder holds none at all.

    Raises:
        CheckpointError: if there are some and none is valid: to begin again silently would lose the
            run.
    """
    problems: list[str] = []
    with reading(folder, CheckpointError, "Restore the folder, or choose another --output."):
        paths = newest_first(folder)
    for path in paths:
        try:
            return replace(_load(path), skipped=tuple(problems))
        except Exception as error:  # a corrupt file makes json, zipfile, numpy raise a dozen kinds
            problems.append(f"{path.name}: {type(error).__name__}: {error}")
    if problems:
        raise CheckpointError(
            f"{folder} holds {len(problems)} checkpoints and none is valid: "
            f"{'; '.join(problems)}.\n"
            "Expected at least one. Restore the folder, "
            "or begin again with --fresh (it sets these aside)."
        )
    return None


@contextmanager
def writer(folder: Path) -> Iterator[None]:
    """Keep other processes from saving into the folder, which is made if it does not exist.

    In one process it may be nested. The lock is the system's and ends with the process, however
    that ends. On a file system without locks it does nothing.

    Raises:
        CheckpointError: if another process holds the folder.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        status = os.fstat(descriptor)
        place = (status.st_dev, status.st_ino)
        if place in _OURS:
            yield
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                f"{folder} is written by another process; expected one run at a time.\n"
                "Wait for its end, end it, or choose another --output."
            ) from error
        except OSError:
            pass  # no locks here
        _OURS.add(place)
        try:
            yield
        finally:
            _OURS.discard(place)
            with suppress(OSError):  # closing does not unlock while a child holds a copy
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def set_aside(folder: Path, records: Sequence[Path] = ()) -> None:
    """Move the folder to the first free `<name>-set-aside-<n>`: nothing is deleted.

    Args:
        folder: of the checkpoints.
        records: what else the run wrote; it moves into the same folder.
    """
    with writing(folder):
        there = [path for path in records if path.exists()]
        if not there and not (folder.is_dir() and any(folder.iterdir())):
            return
        names = (f"{folder.name}-set-aside-{number}" for number in range(1, 10_000))
        target = next(path for path in map(folder.with_name, names) if not path.exists())
        if folder.is_dir():
            with writer(folder):  # not from under another run
                folder.rename(target)
        else:
            target.mkdir()
        for path in there:
            path.rename(target / path.name)


def _load(path: Path) -> Checkpoint:
    manifest = verified(path)
    members = npz.read(path / STATE)
    arrays = {name: members[f"{index:05d}"] for index, name in enumerate(manifest["names"])}
    return Checkpoint(manifest["step"], arrays, dict(manifest["details"]))


def _prune(folder: Path, newest: Path) -> None:
    """Remove all but the checkpoint just written and the newest other valid ones."""
    kept = 1
    for path in newest_first(folder):
        if path == newest:
            continue
        if kept < KEPT and _is_valid(path):
            kept += 1
        else:
            shutil.rmtree(path, ignore_errors=True)


def _is_valid(path: Path) -> bool:
    try:
        verified(path)
    except Exception:  # as in `latest`
        return False
    return True


def interval(cost: float) -> float:
    """Return the seconds from one checkpoint to the next, if writing one takes `cost`.

    >>> round(interval(1.0)), round(interval(100.0))
    (255, 5000)
    """
    return max(cost / SHARE, math.sqrt(2 * cost * FAILURE_SECONDS))


class Saver:
    """A context with one thread that writes one checkpoint at a time.

    Args:
        seconds: least time between two checkpoints; None: it follows from the measured cost.
        size: approximate bytes of a checkpoint.

    Attributes:
        seconds: that writing has taken so far.
    """

    def __init__(self, seconds: float | None, size: int) -> None:
        self._given, self._size = seconds, size
        self._costs: deque[float] = deque(maxlen=20)
        self._last = time.monotonic()
        self._running: Future[float] | None = None
        self._pool = ThreadPoolExecutor(1, "checkpoints")
        self.seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A process that ends would end the thread in the middle of a write.
        self._pool.shutdown(wait=True)

    def interval(self) -> float:
        """Return the seconds from one checkpoint to the next.

        >>> Saver(None, 0).interval()
        20.0
        """
        if self._given is not None:
            return self._given
        if not self._costs:
            return FIRST_SECONDS
        return interval(max(self._costs))

    def reserve(self) -> float:
        """Return the seconds to keep for the end: three of the slowest checkpoints so far.

        One may be under way and one more follows, each of them slower than any before.
        """
        return 3 * max(self._costs, default=self._size / SLOWEST_BYTES_PER_SECOND)

    def due(self) -> bool:
        """Return whether it is time for the next one; raise what the last one raised."""
        if self._running is not None and not self._running.done():
            return False
        self.wait()
        return time.monotonic() - self._last >= self.interval()

    def save(self, snapshot: float, write: Callable[[], None]) -> None:
        """Start to write a checkpoint while the run continues.

        Args:
            snapshot: seconds that it took to copy the state off the devices.
            write: writes it; `due` or `wait` raises what it raises.
        """

        def timed() -> float:
            started = time.monotonic()
            write()
            return snapshot + time.monotonic() - started

        self.wait()
        self._last = time.monotonic()
        self._running = self._pool.submit(timed)

    def wait(self) -> None:
        """Return when nothing is being written; raise what the last write raised."""
        if self._running is not None:
            running, self._running = self._running, None
            cost = running.result()
            self._costs.append(cost)
            self.seconds += cost
