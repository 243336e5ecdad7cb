"""Results of compilations, kept on this machine by what they follow from.

They lie in ~/.cache/kaggle-relay/plans (or under XDG_CACHE_HOME), a JSON file each, and may be
removed at any time.
"""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from formats import atomic_file
from pipeline.config import Config, custom_code

COMPILERS = ("jax", "jaxlib", "keras", "libtpu")
ROOT = Path(__file__).resolve().parents[2]
# Fields that change no program: how long a run is, and what is done around its steps. What `feed`
# changes, images held on the devices, is said by what is computed.
NOTHING = (
    "name", "competition", "epochs", "seed", "folds", "views", "keep", "patience", "handoff",
    "session_hours", "infer_hours", "progress_seconds", "checkpoint_seconds",
    "baseline", "metric", "feed",
)  # fmt: skip


def found(
    what: str, config: Config, compute: Callable[[], dict[str, Any]], folder: Path | None = None
) -> dict[str, Any]:
    """Return what was computed before of a config, or compute it.

    Args:
        what: is computed, with whatever it follows from beside the config and the code.
        compute: returns numbers for JSON.
        folder: of the files; None: the user's cache.
    """
    place = folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = (place if folder else place / "kaggle-relay" / "plans") / f"{key(what, config)}.json"
    # Whatever is wrong with it, it can be computed again.
    with suppress(OSError, ValueError, TypeError, RecursionError):
        return dict(json.loads(path.read_bytes()))
    numbers = compute()
    with suppress(OSError):  # a disk that is full or read-only costs time, nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(path, (json.dumps(numbers, indent=1) + "\n").encode())
    return numbers


def key(what: str, config: Config) -> str:
    """Return the sha256 of what a compilation follows from: config, code and compilers."""
    fields = {name: value for name, value in config.to_json().items() if name not in NOTHING}
    del fields["data"]["labelled"]  # how many there are changes no program either
    parts = [what, json.dumps(fields, sort_keys=True), custom_code.digest(config), code()]
    parts += map(_version, COMPILERS)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def code() -> str:
    """Return the sha256 of the modules that train and plan."""
    digest = hashlib.sha256()
    for folder in ("formats", "pipeline", "workbench/plan"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "configs" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _version(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"no {name}"
