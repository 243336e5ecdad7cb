"""A fresh clone and a fresh virtual environment, set up by the commands of the README."""

import os
import re
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

from proofs.shared.results_table import Show


@dataclass(frozen=True)
class Done:
    """How a command ended. `seconds`: wall clock; `busy`: of processors, its children included."""

    code: int
    output: str
    seconds: float
    busy: float = 0.0


def readme_commands(root: Path) -> list[str]:
    """Return the README's shell blocks of one line: first the main job, then the tests."""
    text = (root / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [block.strip() for block in blocks if len(block.strip().splitlines()) == 1]


@dataclass(frozen=True)
class Checkout:
    """A copy of the project, and the folder of its environment's programs."""

    root: Path
    programs: Path

    def run(self, command: str, *, log: Path, timeout_seconds: float = 3600) -> Done:
        """Run a shell command as a user would: this environment is active, and settings of the
        outer one for Kaggle, XLA and JAX are not.
        """
        outer = ("KAGGLE", "XLA", "JAX")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
        path = f"{self.programs}:{os.environ['PATH']}"
        began, before = time.monotonic(), os.times()
        with log.open("w") as file:
            done = subprocess.run(  # noqa: S602 - the README's own lines are shell
                command,
                shell=True,
                executable="/bin/bash",
                cwd=self.root,
                env={**kept, "PATH": path, "VIRTUAL_ENV": str(self.programs.parent)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=timeout_seconds,
            )
        seconds, after = time.monotonic() - began, os.times()
        busy = sum(after[2:4]) - sum(before[2:4])
        return Done(done.returncode, log.read_text(errors="replace"), seconds, busy)


def current(root: Path) -> Checkout:
    """Return this checkout and this process's environment."""
    return Checkout(root, Path(sys.executable).parent)


def clone(root: Path, folder: Path) -> Path:
    """Clone what is committed into `folder`, which must not exist, and return it."""
    subprocess.run(
        ["git", "clone", "--quiet", "--no-hardlinks", str(root), str(folder)], check=True
    )
    return folder


def fresh(root: Path, folder: Path, show: Show, *, above: bool = False) -> Checkout:
    """Clone what is committed into `folder`, which need not exist, and make an environment there.

    Args:
        above: the new environment also has the packages of this process's. What is installed into
            it comes before them.
    """
    show(f"      a fresh clone and a fresh environment in {folder}")
    checkout = clone(root, folder / "kaggle-relay")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    if above:
        (packages,) = folder.glob("venv/lib/python*/site-packages")
        (packages / "beneath.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return Checkout(checkout, folder / "venv" / "bin")
