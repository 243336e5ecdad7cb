"""Compute SHA-256 checksums, and read and write sealed manifests.

A sealed manifest is a JSON object that contains its own SHA-256, so that any change is detected.
"""

import errno
import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SEAL = "manifest_sha256"
# Format version of artifacts, checkpoints and all other sealed files. Increase it when their
# contents change, or when a seed produces different batches, augmentation or dropout, because a
# run must not change when it is resumed.
FORMAT = 1


def sha256(path: Path) -> str:
    """Return a file's SHA-256 as 64 hex digits.

    Raises:
        OSError: if the file cannot be read, or if it is a pipe or a device. Reading these could
            block.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_entry(path: Path) -> dict[str, Any]:
    """Return a file's entry in a manifest, {"sha256", "size"}."""
    return {"sha256": sha256(path), "size": path.stat().st_size}


def sealed(manifest: Mapping[str, Any]) -> bytes:
    """Return the contents of a manifest file, with `format` and `manifest_sha256` added.

    >>> sealed({"b": 1, "a": 2}) == sealed({"a": 2, "b": 1, "manifest_sha256": "of an older text"})
    True
    """
    # Convert via JSON, because numeric keys are sorted differently from strings.
    plain = json.loads(json.dumps({**manifest, "format": FORMAT}))
    plain.pop(SEAL, None)
    plain[SEAL] = hashlib.sha256(_text(plain)).hexdigest()
    return _text(plain)


def opened(content: bytes) -> dict[str, Any]:
    """Parse a manifest written by `sealed`, and raise `ValueError` if it has been changed since."""
    manifest = json.loads(content)
    if not isinstance(manifest, dict) or SEAL not in manifest:
        raise ValueError(f"{SEAL} is missing, so it was changed or not written by this project")
    if (found := manifest.get("format")) != FORMAT:
        raise ValueError(
            f"its format is {found}, but this version of the project reads {FORMAT}: use the commit"
            " that wrote it (see git_commit in an artifact's manifest)"
        )
    if sealed(manifest) != content:
        raise ValueError(f"{SEAL} does not match, so it was changed after it was written")
    return manifest


def _text(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode()
