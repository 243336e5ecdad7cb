"""Write and verify folders whose sealed manifest.json contains each file's SHA-256.

A folder is written to a temporary location, flushed to the disk and renamed. If the process is
killed or the power fails, either the old or the new folder remains.
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
    """Write a folder, replacing an existing one, and return its manifest.

    The parent folder must exist. The entry "files": {name: {"sha256", "size"}} is added to the
    manifest.

    An existing folder is first renamed to `.<name>-old`, and deleted at the end. If the process
    fails between the two renames, the next write restores the existing folder.

    Raises:
        DiskError: if the folder cannot be written. An existing one is kept.
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
        for leftover in (fresh, old):  # from a killed write
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            fresh.mkdir()
            for name, each in {**files, MANIFEST: content}.items():
                write_synced(fresh / name, each)
            sync_folder(fresh)
            if folder.is_dir():
                folder.rename(old)
            fresh.rename(folder)  # fails if there is a file with this name
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return opened(content)


def verify(path: Path, entry: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless a file exists and matches its manifest entry."""
    if not path.is_file():
        raise ValueError(f"{path.name} is missing, but {MANIFEST} lists it")
    actual = file_entry(path)
    if actual != entry:
        raise ValueError(
            f"{path.name} does not match {MANIFEST}: it has {actual['size']} bytes, sha256"
            f" {actual['sha256'][:12]}…; expected {entry['size']} bytes,"
            f" {str(entry['sha256'])[:12]}…"
        )
