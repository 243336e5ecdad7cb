"""Record a run's provenance (commit, bundle and versions), and list its output files."""

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
        machine_shape: Kaggle's name for the requested machine. It is an empty string for a CPU, and
            None if the code runs from a checkout.
        session_seconds: duration of a shortened session, or None for the usual one.
        git_commit: 40 hex digits, or None outside of a git checkout.
        bundle_sha256: hash of the bundle with the code, or None for a checkout.
        expect: what the bundle pins, which is an artifact for inference (run_id, weights_sha256), a
            checkpoint to resume training from (run_id, step, checkpoint, checkpoint_sha256, files),
            or nothing.
        options: command-line options of a benchmark.
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
    """Write outputs.json, the list of a run's output files, and return its path.

    The list has the form {"files": {name: {"sha256", "size"}}} and is used by `invoke pull` to
    verify the files. The notebook is left out because it is still being written. The status of a
    training run, "complete" or "partial", is added to the list.
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
    try:
        return Provenance(
            git_commit=_git("rev-parse", "HEAD"), git_dirty=bool(_git("status", "--porcelain"))
        )
    except (OSError, subprocess.CalledProcessError):
        return Provenance()  # git or the checkout is missing


def _git(*words: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(PACKAGE), *words]
    shown = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)  # noqa: S603
    return shown.strip()


def code() -> str:
    """Return a sha256 hash of the package files that affect training results."""
    files = sorted(path for pattern in DECIDING for path in PACKAGE.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def versions_line() -> str:
    """Return a log line with the versions, which `invoke doctor` compares with constraints/."""
    return f"Versions: {json.dumps(versions())}"


def versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in LIBRARIES:  # some cannot be installed together
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
