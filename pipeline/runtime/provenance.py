"""Where a run comes from: its commit, its bundle, its versions; and the list of what it wrote."""

import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from formats.checksums import file_entry
from pipeline.errors import ConfigError, reading

OUTPUTS = "outputs.json"
# The packages whose modules decide what a training computes.
DECIDING = tuple(
    f"pipeline.{name}"
    for name in ("config.", "data.", "augment.", "models.", "train.", "runtime.replicas")
)
LIBRARIES = (
    *("keras", "keras-hub", "jax", "jaxlib", "tensorflow", "tensorflow-cpu", "numpy", "pandas"),
    *("pillow", "scikit-learn", "opencv-python-headless", "opencv-python"),
)
VERSIONS = "Versions: "  # begins the line that `invoke doctor` finds in a run's log


@dataclass(frozen=True)
class Provenance:
    """Where the code of a run comes from.

    Attributes:
        config: the config's name.
        competition: its slug.
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
    competition: str | None = None
    machine_shape: str | None = None
    session_seconds: int | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    bundle_sha256: str | None = None
    expect: dict[str, Any] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)


def from_bundle(path: Path) -> Provenance:
    """Return what the bundler wrote into bundle.json.

    Raises:
        ConfigError: if the file is missing or another: `invoke build` did not make this notebook.
    """
    if not path.is_file():
        raise ConfigError(
            f"{path} is missing: this notebook does not carry its package.\n"
            "Push it with `invoke push-train` or `invoke push-infer`, "
            "or run `invoke build` and use the file in build/."
        )
    names = ("config", "competition", "git_commit", "git_dirty", "bundle_sha256", "expect")
    optional = ("machine_shape", "session_seconds", "options")
    again = "Push the notebook again, or run `invoke build` and use the file in build/."
    with reading(path, ConfigError, again):
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            more = {name: value[name] for name in optional if name in value}
            return Provenance(**{name: value[name] for name in names}, **more)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"{path} is not what the bundler writes: {type(error).__name__}: {error}.\n"
                f"Expected {', '.join(names)}. {again}"
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
    command = ["git", "--no-optional-locks", "-C", str(Path(__file__).resolve().parent)]
    try:
        commit, status = (
            subprocess.check_output(  # noqa: S603
                [*command, *words], text=True, stderr=subprocess.DEVNULL
            )
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain"))
        )
    except (OSError, subprocess.CalledProcessError):
        return Provenance()  # no git, or no checkout: the manifest says null
    return Provenance(git_commit=commit.strip(), git_dirty=bool(status.strip()))


def code() -> str:
    """Return a sha256 over the loaded modules that decide what a training computes.

    A bundle holds a part of the package. The loaded modules are the same at home and on Kaggle.
    """
    digest = hashlib.sha256()
    for name in sorted(name for name in sys.modules if name.startswith(DECIDING)):
        file = sys.modules[name].__file__
        if file is not None:
            digest.update(name.encode() + b"\0" + hashlib.sha256(Path(file).read_bytes()).digest())
    return digest.hexdigest()


def versions_line() -> str:
    """Return the versions as one line of a run's log, which `invoke doctor` compares with
    constraints/.
    """
    return VERSIONS + json.dumps(versions())


def versions() -> dict[str, str]:
    """Return the installed versions of Python and of every library that computes."""
    # jax and tensorflow come in several packages; one of them is here.
    return {"python": platform.python_version(), **installed(LIBRARIES)}


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    versions = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
