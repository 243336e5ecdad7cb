"""The sha256 of files, and sealed manifests.

A sealed manifest is JSON that has its own sha256 in `manifest_sha256`, so an edit is noticed.
"""

import errno
import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SEAL = "manifest_sha256"
# The format of artifacts, checkpoints and all other sealed files. It goes up when their content
# changes, and when a seed draws different batches, augmentation or dropout, since a run must not
# change midway.
FORMAT = 1


def sha256(path: Path) -> str:
    """Return the file's sha256 as 64 hex digits.

    Raises:
        OSError: if it cannot be read, or is a pipe or a device, where a read may never end.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_entry(path: Path) -> dict[str, Any]:
    """Return {"sha256", "size"} of a file, as in manifests. Raises as `sha256` does."""
    return {"sha256": sha256(path), "size": path.stat().st_size}


def sealed(manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest's file, with `format` and `manifest_sha256` added.

    >>> sealed({"b": 1, "a": 2}) == sealed({"a": 2, "b": 1, "manifest_sha256": "of an older text"})
    True
    """
    # Through JSON once, since a number as a key sorts differently from its text.
    plain = json.loads(json.dumps({**manifest, "format": FORMAT}))
    plain.pop(SEAL, None)
    plain[SEAL] = hashlib.sha256(_text(plain)).hexdigest()
    return _text(plain)


def opened(content: bytes) -> dict[str, Any]:
    """Return the manifest in the bytes that `sealed` returned.

    Raises:
        ValueError: if a byte differs.
    """
    manifest = json.loads(content)
    if not isinstance(manifest, dict) or SEAL not in manifest:
        raise ValueError(f"it lacks {SEAL}: something else wrote it, or it was changed")
    if (found := manifest.get("format")) != FORMAT:
        raise ValueError(
            f"its format is {found}, and this version of the project reads {FORMAT}: use the commit"
            " that wrote it (git_commit, in an artifact's manifest)"
        )
    if sealed(manifest) != content:
        raise ValueError(f"{SEAL} does not match: it was changed after it was written")
    return manifest


def _text(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode()
