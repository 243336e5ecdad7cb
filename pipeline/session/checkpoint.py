"""Checkpoint: the whole state of a run as arrays, written so that a kill at any moment leaves a
good one behind.

A checkpoint is a folder `step-<8 digits>` with state.npz and manifest.json (sha256 of the state and
of itself, the step, and what the run was made from). It is written under a temporary name, flushed
to the disk, and renamed; the two newest that are whole are kept. One that is saved again stands as
`step-<8 digits>.replaced`, where it is still found, until the new one is in its place.
"""

import fcntl
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import CheckpointError, reading, writing
from pipeline.storage.checksums import opened, read, sealed, sha256, sync

KEPT = 2
# Nothing else in the folder is taken for a checkpoint: not "step-00000002 (copy)", and no file.
NAME = re.compile(r"step-(\d{8,})(\.replaced)?")
UNFINISHED = ".writing-"
# The folders that this process writes into, as (device, inode): a rename keeps them.
_OURS: set[tuple[int, int]] = set()


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: `arrays` by name, and what was saved beside them in `details` (JSON);
    what is wrong with newer ones.
    """

    step: int
    arrays: Mapping[str, np.ndarray]
    details: Mapping[str, Any]
    passed_over: tuple[str, ...] = ()


def save(
    folder: Path, step: int, arrays: Mapping[str, np.ndarray], details: Mapping[str, Any]
) -> Path:
    """Write a checkpoint and return its folder; all but this one and the newest other that is whole
    are removed afterwards.

    A kill or a loss of power at any moment leaves this one or the newest before it; once it has
    returned, this one.

    Raises:
        CheckpointError: if another process writes into the folder.
        DiskError: if it cannot be written; the earlier checkpoints are still there.
    """
    target = folder / f"step-{step:08d}"
    with writer(folder), writing(target):
        for orphan in folder.glob(
            f"{UNFINISHED}*"
        ):  # of a save that was killed: as large as a checkpoint
            shutil.rmtree(orphan, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder))
        try:
            state = fresh / "state.npz"
            with state.open("wb") as file:
                # np.savez leaves its archive open when the disk is full, and Python then complains
                # of it on its own.
                with zipfile.ZipFile(file, "w") as archive:
                    for index, array in enumerate(arrays.values()):
                        with archive.open(f"{index:05d}.npy", "w", force_zip64=True) as part:
                            np.lib.format.write_array(part, array, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
            manifest = {
                "step": step,
                "names": list(arrays),
                "sha256": sha256(state),
                "details": dict(details),
            }
            with (fresh / "manifest.json").open("wb") as text:
                text.write(sealed(manifest))
                text.flush()
                os.fsync(text.fileno())
            sync(fresh)  # the names of the two; else the rename may outlive them
            if target.exists():
                aside = target.with_name(f"{target.name}.replaced")
                shutil.rmtree(aside, ignore_errors=True)
                target.rename(aside)
            fresh.rename(target)
            sync(folder)  # before anything older is removed
            sync(folder.parent)  # whoever made the folder, and however long ago
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        _prune(folder, target)
    return target


def latest(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint that is whole, or None if the folder holds none at all.

    Raises:
        CheckpointError: if there are some and none is whole: to begin again in silence would lose
            the run.
    """
    problems: list[str] = []
    for path in _newest_first(folder):
        try:
            return replace(_load(path), passed_over=tuple(problems))
        except Exception as error:  # a torn file makes json, zipfile and numpy raise a dozen kinds
            problems.append(f"{path.name}: {type(error).__name__}: {error}")
    if problems:
        raise CheckpointError(
            f"{folder} holds {len(problems)} checkpoints and none is whole: {'; '.join(problems)}.\n"
            "Expected at least one. Restore the folder, or begin again with --fresh (which sets these aside)."
        )
    return None


@contextmanager
def writer(folder: Path) -> Iterator[None]:
    """Let no other process save into the folder, which is made if need be, until the context ends;
    in one process it may be nested.

    The lock is the system's and ends with the process, however that ends. A file system without
    locks keeps nobody out.

    Raises:
        CheckpointError: if another process does.
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
                f"{folder} is written by {_holder(status.st_ino)}; expected one run at a time.\n"
                "Wait until it has ended, or end it; or choose another --output."
            ) from error
        except OSError:
            pass  # no locks here
        _OURS.add(place)
        try:
            yield
        finally:
            _OURS.discard(place)
            with suppress(OSError):
                fcntl.flock(
                    descriptor, fcntl.LOCK_UN
                )  # closing would not do while a child holds a copy
    finally:
        os.close(descriptor)


def set_aside(folder: Path, records: Sequence[Path] = ()) -> None:
    """Move the folder, and with it what else the run wrote, to the first free
    `<name>-set-aside-<n>`: nothing is deleted.
    """
    with writing(folder):
        there = [path for path in records if path.exists()]
        if not there and not (folder.is_dir() and any(folder.iterdir())):
            return
        number = next(
            n
            for n in range(1, 10_000)
            if not folder.with_name(f"{folder.name}-set-aside-{n}").exists()
        )
        target = folder.with_name(f"{folder.name}-set-aside-{number}")
        if folder.is_dir():
            with writer(folder):  # not from under another run
                folder.rename(target)
        else:
            target.mkdir()
        for path in there:
            path.rename(target / path.name)


def _verified(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint that is whole; raise whatever a torn one makes of it."""
    manifest = opened(read(path / "manifest.json"))
    found, named = sha256(path / "state.npz"), NAME.fullmatch(path.name)
    if found != manifest["sha256"]:
        raise ValueError(f"state.npz has sha256 {found[:12]}…, expected {manifest['sha256'][:12]}…")
    if named is None or manifest["step"] != int(named[1]):
        raise ValueError(f"it holds step {manifest['step']}")
    return manifest


def _load(path: Path) -> Checkpoint:
    manifest = _verified(path)
    with np.load(path / "state.npz", allow_pickle=False) as archive:
        arrays = {name: archive[f"{index:05d}"] for index, name in enumerate(manifest["names"])}
    strange = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if strange:  # numpy gives the bytes of a member that is none
        raise ValueError(f"state.npz holds {strange[0]!r}, which is no array")
    return Checkpoint(manifest["step"], arrays, dict(manifest["details"]))


def _prune(folder: Path, newest: Path) -> None:
    """Remove all but the checkpoint just written and the newest others that are whole: a torn one
    is nothing to fall back on.
    """
    kept = [newest]
    for path in _newest_first(folder):
        if path == newest:
            continue
        if len(kept) < KEPT and path.name != f"{newest.name}.replaced":
            try:
                _verified(path)
            except Exception:  # as in `latest`
                shutil.rmtree(path, ignore_errors=True)
            else:
                kept.append(path)
        else:
            shutil.rmtree(path, ignore_errors=True)


def _newest_first(folder: Path) -> list[Path]:
    with reading(folder, CheckpointError, "Restore the folder, or choose another --output."):
        if not folder.is_dir():
            return []
        found = [(NAME.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir()]
    # Of one step the newer first: the one without ".replaced".
    order = [(int(name[1]), name[2] is None, path) for name, path in found if name]
    return [path for _, _, path in sorted(order, reverse=True)]


def _holder(inode: int) -> str:
    """Return who holds the lock on a folder, as far as Linux tells: not on another machine, nor out
    of a container.
    """
    try:
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        number = next(
            int(line[4]) for line in held if line[1] == "FLOCK" and line[5].endswith(f":{inode}")
        )
        words = (
            Path(f"/proc/{number}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .split()
        )
    except (OSError, ValueError, LookupError, StopIteration):
        return "another process"
    return f"process {number} ({' '.join(words)[:200]})"
