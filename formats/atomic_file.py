"""Write files atomically: if the process is killed, either the old or the new file remains."""

import os
from pathlib import Path

from formats.errors import writing


def write(path: Path, content: bytes) -> Path:
    """Write a file atomically, creating missing folders, and return its path.

    Raises:
        DiskError: if the file cannot be written. The old file is kept.
    """
    # Always use the same name, so that killed processes leave only one file.
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
    """Write a file in place, not atomically, and flush its contents to the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the file names in a folder to the disk. Calling fsync on the files does not do this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
