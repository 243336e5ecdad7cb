"""Folders with a sealed manifest.json that has the sha256 of each file.

A folder is written next to its place, flushed to the disk and renamed. So a kill or a power loss
leaves the older folder or the new one, and a changed byte is noticed.
"""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from formats.atomic_file import sync_folder, write_synced
from formats.checksums import file_entry, opened, sealed
from formats.errors import writing

MANIFEST = "manifest.json"


def write(folder: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Write a folder in place of an older one, and return its manifest.

    An older folder is renamed to `.<name>-old` first and removed last. After a failure between the
    two renames, the next write restores it.

    Args:
        folder: where; its parent exists.
        files: content by name.
        manifest: JSON values; "files": {name: {"sha256", "size"}} is added.

    Raises:
        DiskError: if it cannot be written; an older folder is kept.
    """
    entries = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for name, content in files.items()
    }
    content = sealed({**manifest, "files": entries})
    fresh, old = (folder.with_name(f".{folder.name}-{which}") for which in ("new", "old"))
    with writing(folder):
        if old.exists() and not folder.exists():
            old.rename(folder)
        for leftover in (fresh, old):  # of a write that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            fresh.mkdir()
            for name, each in {**files, MANIFEST: content}.items():
                write_synced(fresh / name, each)
            sync_folder(fresh)
            if folder.is_dir():
                folder.rename(old)
            fresh.rename(folder)  # fails if a file is in its place
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return opened(content)


def verify(path: Path, entry: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless a file exists with the {"sha256", "size"} of its entry."""
    if not path.is_file():
        raise ValueError(f"{path.name} is missing; {MANIFEST} lists it")
    actual = file_entry(path)
    if actual != entry:
        raise ValueError(
            f"{path.name} has other bytes than {MANIFEST} says: {actual['size']} bytes, sha256"
            f" {actual['sha256'][:12]}…; expected {entry['size']} bytes,"
            f" {str(entry['sha256'])[:12]}…"
        )
