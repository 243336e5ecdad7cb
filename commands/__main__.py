"""Tasks for maintainers, which are run with python -m commands push-bench|check."""

import shlex
import subprocess
import sys
from pathlib import Path

from invoke.collection import Collection
from invoke.program import Program

from commands import project
from commands.console import ROOT, Result, agreement, show, task
from commands.telling import Telling
from deploy.project import BENCH
from workbench.options import GRID

CPU, TPU = "cpu", "tpu-v5e-8"


@task(
    15,
    options=GRID,
    for_="accelerator: tpu-v5e-8, gpu-t4x2 or cpu (default: tpu-v5e-8)",
    fresh="ignore the results of earlier sessions and measure everything again",
)
def push_bench(
    config: str = "",
    for_: str = TPU,
    again: bool = False,
    fresh: bool = False,
    yes: bool = False,
    **grid: str,
) -> Result:
    """Time as many training runs on Kaggle as the session and quota allow; rerun to resume.

    Example: python -m commands push-bench --config cifar100_wrn --for gpu-t4x2 --epochs 10
    """
    from pipeline import config as configs
    from workbench.benchmark import command, images

    settings = configs.load(config)
    images.require(settings)
    options = {name: value for name, value in grid.items() if value}
    command.read(settings, options)
    how = {"runtime": "" if for_ == CPU else for_, "mounts": images.mounted(settings)}
    ours = project.records(config, **how, options=options)
    return project.push(Telling(agreement(yes)), ours, BENCH, again=again, fresh=fresh)


@task()
def check() -> Result:
    """Run the checks that must pass before a commit: ruff, mypy, pytest and lint-imports.

    Example: python -m commands check
    """
    checks = ("ruff check", "ruff format --check", "mypy", "pytest -q")
    commands = [[sys.executable, "-m", *words.split()] for words in checks]
    commands.append([str(Path(sys.executable).with_name("lint-imports"))])  # no `python -m`
    for command in commands:
        show(shlex.join(command))
        code = subprocess.run(command, cwd=ROOT).returncode  # noqa: S603 - fixed arguments
        if code:
            return {"exit_code": code}
    return {}


if __name__ == "__main__":
    sys.argv[0] = "python -m commands"
    Program(namespace=Collection(push_bench, check), binary=sys.argv[0]).run()
