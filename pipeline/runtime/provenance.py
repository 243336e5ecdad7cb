"""Provenance: which commit and bundle a run was made from, and with which versions."""

import hashlib
import json
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, reading

OUTPUTS = "outputs.json"
# The packages whose modules decide what a training computes.
DECIDING = tuple(f"pipeline.{name}." for name in ("config", "data", "models", "training"))
LIBRARIES = (
    "keras",
    "jax",
    "jaxlib",
    "tensorflow",
    "tensorflow-cpu",
    "numpy",
    "pandas",
    "pillow",
    "scikit-learn",
)


@dataclass(frozen=True)
class Provenance:
    """Where the code of a run came from.

    Attributes:
        config: the config's name. competition: its slug.
        git_commit: 40 hex digits, or None outside a git checkout; git_dirty: whether the tree had
            changes beside it.
        bundle_sha256: of the bundle that carried the code; None when it was run from a checkout.
        expect: what the bundle was told to look for: to infer, an artifact (run_id,
            weights_sha256); to train, a checkpoint to go on from (run_id, step, checkpoint,
            checkpoint_sha256, files), or nothing.
    """

    config: str | None = None
    competition: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    bundle_sha256: str | None = None
    expect: dict[str, Any] = field(default_factory=dict)


def from_bundle(path: Path) -> Provenance:
    """Return what the bundler wrote into bundle.json.

    Raises:
        ConfigError: if the file is missing or another: the notebook was not made by `invoke build`.
    """
    again = "Push the notebook again, or run `invoke build` and use the file in build/."
    if not path.is_file():
        raise ConfigError(
            f"{path} is missing: this notebook does not carry its package.\n"
            "Push it with `invoke push-train` or `invoke push-infer`, or run `invoke build` and use the file in build/."
        )
    names = ("config", "competition", "git_commit", "git_dirty", "bundle_sha256", "expect")
    with reading(path, ConfigError, again):
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            return Provenance(**{name: value[name] for name in names})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"{path} is not what the bundler writes: {type(error).__name__}: {error}.\nExpected {', '.join(names)}. {again}"
            ) from error


def seal(output: Path, status: str | None = None) -> Path:
    """Write outputs.json, {"files": {name: {"sha256", "size"}}} of all that a run has left, and
    return its path.

    `status`: of a training, "complete" or "partial"; it stands there, too.

    The notebook itself is left out: it is still being written. Whoever pulls the output compares it
    with this list.
    """
    files = {}
    for path in sorted(output.rglob("*")):
        if path.is_file() and path.suffix != ".ipynb" and path.name != OUTPUTS:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[path.relative_to(output).as_posix()] = {
                "sha256": digest,
                "size": path.stat().st_size,
            }
    told = output / OUTPUTS
    value = {"files": files} if status is None else {"status": status, "files": files}
    told.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return told


def from_checkout() -> Provenance:
    """Return the commit of the git checkout that this file lies in, or an empty provenance outside
    one.
    """
    folder = Path(__file__).resolve().parents[1]
    command = ["git", "--no-optional-locks", "-C", str(folder)]
    try:
        commit, status = (
            subprocess.run([*command, *words], capture_output=True, text=True, check=True)  # noqa: S603
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain"))
        )
    except (OSError, subprocess.CalledProcessError):
        return (
            Provenance()
        )  # no git, or no checkout: nothing can be said, and the manifest says null
    return Provenance(git_commit=commit.stdout.strip(), git_dirty=bool(status.stdout.strip()))


def code() -> str:
    """Return a sha256 over the loaded modules that decide what a training computes.

    A bundle holds a part of the package, so only loaded modules count: they are the same ones at
    home and on Kaggle.
    """
    digest = hashlib.sha256()
    for name in sorted(name for name in sys.modules if name.startswith(DECIDING)):
        file = sys.modules[name].__file__
        if file is not None:
            digest.update(name.encode() + b"\0" + hashlib.sha256(Path(file).read_bytes()).digest())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of Python and of every library that computes, as installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # jax and tensorflow come in several packages; one of them is here
    return found
