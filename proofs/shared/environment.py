"""Environment: a fresh clone and a fresh virtual environment, set up with the README's own words."""

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
    """How a command ended. `seconds`: wall clock."""

    code: int
    output: str
    seconds: float


def readme_commands(root: Path) -> list[str]:
    """Return the README's shell blocks of one line: first the main job, then the tests."""
    blocks = re.findall(
        r"```bash\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    return [block.strip() for block in blocks if len(block.strip().splitlines()) == 1]


@dataclass(frozen=True)
class Checkout:
    """A copy of the project, with the folder of the programs of its environment."""

    root: Path
    programs: Path

    def run(self, command: str, *, log: Path, timeout_seconds: float = 3600) -> Done:
        """Run a shell command as a user would, with this environment active and no configuration of
        the one outside.
        """
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("KAGGLE", "XLA", "JAX"))
        }
        environment |= {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.programs.parent),
        }
        began = time.monotonic()
        with log.open("w") as file:
            done = subprocess.run(  # noqa: S602 - the README's own lines are shell
                command,
                shell=True,
                executable="/bin/bash",
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=timeout_seconds,
            )
        return Done(done.returncode, log.read_text(errors="replace"), time.monotonic() - began)


def current(root: Path) -> Checkout:
    """Return the checkout and the environment that this process runs in."""
    return Checkout(root, Path(sys.executable).parent)


def fresh(
    root: Path, folder: Path, show: Show, python: str = sys.executable, *, above: bool = False
) -> Checkout:
    """Clone what is committed into `folder` and make an environment there.

    Args:
        above: the new environment finds what this process's has, and what is installed into it goes
            before that; else it is empty.
    """
    show(f"      a fresh clone and a fresh environment in {folder}")
    subprocess.run(
        ["git", "clone", "--quiet", "--no-hardlinks", str(root), str(folder / "kaggle-relay")],
        check=True,
    )
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    if above:
        (packages,) = folder.glob("venv/lib/python*/site-packages")
        (packages / "beneath.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return Checkout(folder / "kaggle-relay", folder / "venv" / "bin")
