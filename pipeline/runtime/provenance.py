"""Where a run comes from: its commit, its bundle, its versions; and the list of what it wrote."""

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
    """Where the code of a run comes from.

    Attributes:
        config: the config's name.
        machine_shape: Kaggle's name of the machine that the bundle asks for, "" of a CPU; None when
            run from a checkout.
        session_seconds: of a session that is shorter than others; None: it is not.
        git_commit: 40 hex digits, or None outside a git checkout.
        git_dirty: whether the tree had uncommitted changes.
        bundle_sha256: of the bundle that carried the code; None when run from a checkout.
        expect: what the bundle pins: for inference an artifact (run_id, weights_sha256), for
            training a checkpoint to resume from (run_id, step, checkpoint, checkpoint_sha256,
            files), or nothing.
        options: with which a benchmark was pushed, as its command takes them.
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
    """Return what the bundler wrote into bundle.json; raise `ConfigError` for any other file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        names = {field.name for field in fields(Provenance)} & value.keys() | {"bundle_sha256"}
        return Provenance(**{name: value[name] for name in names})
    except (OSError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not what the bundler writes: {type(error).__name__}: {error}.\n"
            "Push the notebook with `invoke push-train` or `invoke push-infer`, or run `invoke"
            " build` and use the file in build/."
        ) from error


def seal(output: Path, status: str | None = None) -> Path:
    """Write outputs.json, the list of a run's files, and return its path.

    The list is {"files": {name: {"sha256", "size"}}}; `invoke pull` compares what it gets with it.
    The notebook is left out, since it is still being written.

    Args:
        output: the folder of the run.
        status: of a training, "complete" or "partial"; it is written, too.
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
        return Provenance()  # no git, or no checkout: the manifest says null


def _git(*words: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(PACKAGE), *words]
    shown = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)  # noqa: S603
    return shown.strip()


def code() -> str:
    """Return a sha256 over the files of the package that decide what a training computes."""
    files = sorted(path for pattern in DECIDING for path in PACKAGE.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def versions_line() -> str:
    """Return the line of a run's log whose versions `invoke doctor` compares with constraints/."""
    return f"Versions: {json.dumps(versions())}"


def versions() -> dict[str, str]:
    """Return the installed versions of Python and of every library that computes."""
    versions = {"python": platform.python_version()}
    for package in LIBRARIES:  # jax and tensorflow come in several packages; one of them is here
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
