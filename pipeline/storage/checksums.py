"""Seal: a manifest that says what it says and nothing else, the sha256 of files, and names that
survive a loss of power.
"""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SEAL = "manifest_sha256"


def sha256(path: Path) -> str:
    """Return the file's sha256 as 64 hex digits.

    Raises:
        OSError: if it cannot be read, or is a pipe or a device, at which a reader may wait for
            ever.
    """
    _regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(path: Path) -> bytes:
    """Return the file's bytes. Raises OSError as `sha256` does."""
    _regular(path)
    return path.read_bytes()


def _regular(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "It is a pipe or a device, and no file", str(path))


def sealed(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as the bytes of its file, with the sha256 of the rest of it inside: nothing
    else says the same.

    >>> sealed({"b": 1, "a": 2}) == sealed({"a": 2, "b": 1, "manifest_sha256": "of an older text"})
    True
    """
    # Once through JSON: a number as a key is sorted as a number before, and as a text after.
    plain = json.loads(json.dumps({key: value for key, value in manifest.items() if key != SEAL}))
    plain[SEAL] = hashlib.sha256(_text(plain)).hexdigest()
    return _text(plain)


def opened(content: bytes) -> dict[str, Any]:
    """Return the manifest in the bytes that `sealed` gave.

    Raises:
        ValueError: if these are other bytes, be it by a space.
    """
    manifest = json.loads(content)
    if not isinstance(manifest, dict) or SEAL not in manifest:
        raise ValueError(
            f"it lacks {SEAL}: an older version of this project wrote it, or it was changed"
        )
    if sealed(manifest) != content:
        raise ValueError(f"{SEAL} does not stand for it: it was changed after it was written")
    return manifest


def sync(folder: Path) -> None:
    """Make the names in a folder survive a loss of power; the fsync of a file does not do that for
    its name.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode()
