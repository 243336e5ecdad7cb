"""List and verify checkpoint folders, which are named `step-<8 digits>`.

A checkpoint contains state.npz and a sealed manifest.json with the step, the SHA-256 of state.npz,
and details of the run.
"""

import re
from pathlib import Path
from typing import Any

from formats.checksums import opened, sha256

STATE, MANIFEST = "state.npz", "manifest.json"
# Other names, such as "step-00000002 (copy)", are not checkpoints.
NAME = re.compile(r"step-(\d{8,})")


def newest_first(folder: Path) -> list[Path]:
    """Return all checkpoint folders, complete or not, or [] if `folder` does not exist."""
    if not folder.is_dir():
        return []
    named = [path for path in folder.iterdir() if NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(named, key=lambda path: int(path.name.removeprefix("step-")), reverse=True)


def verified(path: Path) -> dict[str, Any]:
    """Verify a checkpoint, and return its manifest.

    Raises:
        Exception: if the checkpoint is incomplete or corrupt. The type varies.
    """
    manifest = opened((path / MANIFEST).read_bytes())
    found, expected = sha256(path / STATE), manifest["sha256"]
    if found != expected:
        raise ValueError(f"{STATE} has sha256 {found[:12]}…, expected {expected[:12]}…")
    if manifest["step"] != int(path.name.removeprefix("step-")):
        raise ValueError(f"it contains step {manifest['step']}")
    return manifest
