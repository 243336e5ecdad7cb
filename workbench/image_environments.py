"""Virtual environments with the library versions of Kaggle's two images.

Each environment is created once from the pinned versions of an image, in
~/.cache/kaggle-relay/images or in the folder named by RELAY_IMAGES. They are used by
`workbench.image_check`, and by rehearsals with `invoke dry-run --tpu-python … --gpu-python …`.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

from formats.errors import writing
from pipeline.errors import PipelineError

ROOT = Path(__file__).resolve().parents[1]
# The packages that build models. If the current Python has these versions, it is used instead.
DECIDING = {"keras": "Keras", "keras-hub": "KerasHub", "jax": "JAX"}
# KerasHub's dependencies, without TensorFlow's GPU build (2 GB), which pip would also install.
HUB, NEEDS = "keras-hub", ("kagglehub", "regex", "sentencepiece", "tokenizers")
GIGABYTES = 2.3  # disk space per environment, measured 2026-11-28

Show = Callable[[str], None]


@dataclass(frozen=True)
class Image:
    """One of Kaggle's images, whose pinned versions are in a file in constraints/."""

    name: str
    backend: str
    constraints: str

    @cached_property
    def pins(self) -> str:
        return (ROOT / "constraints" / self.constraints).read_text(encoding="utf-8")

    @cached_property
    def versions(self) -> dict[str, str]:
        pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)", self.pins, re.MULTILINE))
        return {package: pinned[package] for package in DECIDING}

    @property
    def in_words(self) -> str:
        told = (f"{DECIDING[package]} {version}" for package, version in self.versions.items())
        return f"{self.name} ({', '.join(told)})"

    @property
    def folder(self) -> Path:
        """The environment's path, which contains a hash of everything that is installed in it."""
        cache = os.environ.get("RELAY_IMAGES") or "~/.cache/kaggle-relay/images"
        parts = [self.pins, *_dependencies(), *NEEDS, *map(str, sys.version_info[:2])]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        return ROOT / Path(cache).expanduser() / f"{Path(self.constraints).stem}-{digest}"

    @property
    def python(self) -> Path | None:
        if all(_installed(package) == version for package, version in self.versions.items()):
            return Path(sys.executable)
        made = self.folder / "bin/python"
        return made if made.is_file() else None


TPU = Image("TPU image", "jax", "tpu-image.txt")
# Some older packages have no wheels for Python 3.13. The versions in `DECIDING` are the same.
NEWER = sys.version_info >= (3, 13)
GPU = Image("GPU image", "tensorflow", f"gpu-image{'-2026-08' * NEWER}.txt")
IMAGES = (TPU, GPU)


class NotMade(PipelineError):
    """An environment could not be created."""


def missing() -> list[Image]:
    return [image for image in IMAGES if image.python is None]


def make(show: Show) -> None:
    """Create the missing environments in parallel.

    Raises:
        NotMade: if pip fails, for example because there is no network.
    """
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda image: _make(image, show), missing()))


def _make(image: Image, show: Show) -> None:
    began, folder = time.monotonic(), image.folder
    making, pins = folder.with_name(f".{folder.name}"), ROOT / "constraints" / image.constraints
    install = [sys.executable, "-m", "pip", "--python", str(making / "bin/python"), "install"]
    install += ["-q", "--no-input", "--no-compile", "-c", str(pins)]
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # wait if another process is creating it
            if image.python is not None:
                return
            show(f"Creating an environment for the {image.in_words} in {folder} ({GIGABYTES} GB)")
            shutil.rmtree(making, ignore_errors=True)
            try:
                _run([sys.executable, "-m", "venv", "--without-pip", str(making)], image)
                _run([*install, *_dependencies(), *NEEDS], image)
                _run([*install, "--no-deps", HUB], image)
                making.rename(folder)
            finally:
                shutil.rmtree(making, ignore_errors=True)
    took = time.monotonic() - began
    show(f"Created the environment for the {image.name} in {took:.0f} seconds")


def _run(command: list[str], image: Image) -> None:
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603 - no user input
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        why = (said or done.stderr.splitlines() or ["no message"])[-1]
        raise NotMade(
            f"The environment for the {image.name} could not be created: {why[:300]}\nThis requires"
            " pip and the package index. To create it yourself:\npython -m workbench images"
        )


def _dependencies() -> list[str]:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(told["project"]["dependencies"])


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
