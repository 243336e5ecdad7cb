"""The provenance of a run: its commit, bundle and versions; and the list of its files."""

import hashlib
import json
import platform
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from formats.checksums import file_entry
from pipeline.errors import ConfigError

OUTPUTS = "outputs.json"
PACKAGE = Path(__file__).resolve().parents[1]
DECIDING = (
    *(f"{name}/*.py" for name in ("config", "data", "augment", "models", "train")),
    *("evaluate/losses.py", "runtime/replicas.py"),
)
LIBRARIES = (
    *("keras", "keras-hub", "jax", "jaxlib", "tensorflow", "tensorflow-cpu", "numpy", "pandas"),
    *("pillow", "scikit-learn", "opencv-python-headless", "opencv-python"),
)


@dataclass(frozen=True)
class Provenance:
    """The origin of a run's code.

    Attributes:
        config: the config's name.
        machine_shape: Kaggle's name of the requested machine, "" for a CPU; None for a checkout.
        session_seconds: of a shortened session; None: the usual length.
        git_commit: 40 hex digits, or None outside a git checkout.
        git_dirty: whether the tree had uncommitted changes.
        bundle_sha256: of the bundle with the code; None for a checkout.
        expect: pinned by the bundle: for inference an artifact (run_id, weights_sha256), for
            training a checkpoint to resume from (run_id, step, checkpoint, checkpoint_sha256,
            files), or nothing.
        options: of a benchmark, as its command takes them.
    """

    config: str | None = None
    machine_shape: str | None = None
    session_seconds: int | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    bundle_sha256: str | None = None
    expect: dict[str, Any] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)


def from_bundle(path: Path) -> Provenance:
    """Read bundle.json; raise `ConfigError` if the bundler did not write it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        names = {field.name for field in fields(Provenance)} & value.keys() | {"bundle_sha256"}
        return Provenance(**{name: value[name] for name in names})
    except (OSError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not a bundle: {type(error).__name__}: {error}.\n"
            "Push the notebook with `invoke push-train` or `invoke push-infer`, or run `invoke"
            " build` and use the file in build/."
        ) from error


def seal(output: Path, status: str | None = None) -> Path:
    """Write outputs.json, the list of a run's files, and return its path.

    The list is {"files": {name: {"sha256", "size"}}}, with which `invoke pull` compares the files.
    It excludes the notebook, which is still being written.

    Args:
        output: the folder of the run.
        status: of a training, "complete" or "partial"; written into the list, too.
    """
    files = {
        path.relative_to(output).as_posix(): file_entry(path)
        for path in sorted(output.rglob("*"))
        if path.is_file() and path.suffix != ".ipynb" and path.name != OUTPUTS
    }
    value = {"files": files} if status is None else {"status": status, "files": files}
    listed = output / OUTPUTS
    listed.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return listed


def from_checkout() -> Provenance:
    """Return the commit of this file's git checkout, or an empty provenance outside one."""
    try:
        return Provenance(
            git_commit=_git("rev-parse", "HEAD"), git_dirty=bool(_git("status", "--porcelain"))
        )
    except (OSError, subprocess.CalledProcessError):
        return Provenance()  # no git, or no checkout


def _git(*words: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(PACKAGE), *words]
    shown = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)  # noqa: S603
    return shown.strip()


def code() -> str:
    """Return a sha256 over the files of the package that determine a training's results."""
    files = sorted(path for pattern in DECIDING for path in PACKAGE.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def versions_line() -> str:
    """Return a line for the log, whose versions `invoke doctor` compares with constraints/."""
    return f"Versions: {json.dumps(versions())}"


def versions() -> dict[str, str]:
    """Return the installed versions of Python and of every library that computes."""
    versions = {"python": platform.python_version()}
    for package in LIBRARIES:  # some are alternatives
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
