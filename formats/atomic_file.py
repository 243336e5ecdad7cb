"""Atomic writes: a file is new or as before, whenever the process dies."""

import os
from pathlib import Path

from formats.errors import writing


def write(path: Path, content: bytes) -> Path:
    """Write a file by one rename, and return its path. A kill never leaves a partial file. The
    folder is created if it does not exist.

    Raises:
        DiskError: if it cannot be written; an older file is kept.
    """
    # Always the same name, so that repeated kills leave only one such file.
    temporary = path.with_name(f".{path.name}-writing")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_synced(temporary, content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return path


def write_synced(path: Path, content: bytes) -> None:
    """Write a file in place, and return when its bytes are on the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power loss; fsync of a file covers its bytes only."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
