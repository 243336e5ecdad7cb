"""Tasks of this machine: inspection, reports and checks. None of them needs an account or
spends anything.
"""

import os
import shlex
import signal
import sys
from pathlib import Path

from commands import push_plan
from commands.console import ROOT, Result, number, show, task
from commands.project import embedded, resolved
from commands.telling import Telling


@task(
    input="the competition's folder; default: a new copy of the embedded one",
    batch="rows a step to scale from; default: the config's base_batch",
)
def scale_check(config: str = "", input: str = "", batch: str = "") -> Result:
    """Check whether the learning rate holds that is scaled for the config's batch.

    Example: invoke scale-check --config digits_sgd
    """
    import time

    from pipeline import config as configs
    from pipeline.command_line import refuse_missing_input
    from workbench import __main__ as model_side

    folder = ROOT / "runs" / f"scale-check-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    slug = configs.load(config).competition
    images = int(number("batch", batch, 1, 2**20)) if batch else None
    again = f"invoke scale-check --config {shlex.quote(config)}"
    data = Path(input) if input else embedded(slug, folder / "data", again)
    refuse_missing_input(data)  # before it is said how to resume
    words = ["--config", config, "--input", str(data), "--output", str(folder)]
    words += ["--batch", str(images)] if images else []
    show("This takes nine trainings. If it is interrupted, resume it with:")
    show(f"python -m workbench scale-check {shlex.join(words)}")
    result = model_side.scale_check(config, data, folder, images, show)
    for path in (folder / "scaling.json", *result["pictures"]):
        show(f"wrote {path}")
    return result


@task(
    run="owner/slug/version, as ann/digits-train-tpu/3, or a folder that a training wrote,"
    " as out; default: the last training that was pushed from here and pulled; without a push,"
    " that of the last rehearsal",
    title="title of the page; default: the config's name",
)
def report(run: str = "", config: str = "", title: str = "") -> Result:
    """Write one HTML page of a training: curves, classes, worst examples, provenance.

    Example: invoke report --run out
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its start-up chatter hides our messages
    from deploy import output
    from workbench.report import report as model_side

    if run and os.path.isdir(run):  # noqa: PTH112 - Path.is_dir raises for a long name
        folder, name = Path(run), ""
    else:
        folder, name = resolved(config, Telling()).training(run)
    beside = None
    if output.noted(folder):  # a pulled folder stays as it is: the next pull compares it
        beside = folder.resolve().with_name(f"{folder.resolve().name}-{model_side.FILE}")
    show(f"The training {name + ', ' if name else ''}in {folder}")
    page = model_side.write(folder, title=title or None, page=beside)
    show(f"wrote {page}")
    return {"run": name, "folder": str(folder), "report": str(page)}


@task(
    input="the competition's folder, as Kaggle mounts it",
    write="name of the new config, which goes to pipeline/configs/, or path of a .py file;"
    " default: print the config",
    page="HTML file to write, with what was found in words and pictures",
    competition="the last part of its address on Kaggle, or the address; default: the"
    " folder's name, if it can be one",
    sample="path in the folder of the sample submission, if inspect does not find it",
    train="path in the folder of the table with the labels, or of the class folders, if"
    " inspect does not find it",
    test="path in the folder of the table of the test set, if inspect does not find it",
    label="the column to predict, if inspect does not find it; commas between several",
    metric="the competition's metric, in which the baseline is measured; with --write and a"
    " config that exists, its metric and baseline are renewed, and nothing else",
    for_="the machine that trains: tpu-v5e-8 or cpu, for which networks are timed here;"
    " default: tpu-v5e-8",
    budget="how long the training may take, as 2h, 8m or 90s; default: 2h, for a CPU 8m",
)
def inspect(
    input: str = "",
    write: str = "",
    page: str = "",
    competition: str = "",
    sample: str = "",
    train: str = "",
    test: str = "",
    label: str = "",
    metric: str = "",
    for_: str = "",
    budget: str = "",
) -> Result:
    """Show what a competition folder holds, and propose a config.

    Example: invoke inspect --input data/leaves --write leaves
    """
    from deploy.errors import UsageError
    from deploy.init import in_address
    from pipeline.command_line import refuse_missing_input
    from workbench.inspect import inspect_command

    if not input:
        raise UsageError(
            "--input is missing; expected the competition's folder.\ninvoke inspect --input DIR"
        )
    options = {
        "write": write,
        "page": page,
        "competition": in_address(competition, show),
        "sample": sample,
        "train": train,
        "test": test,
        "label": label,
        "metric": metric,
        "for": for_,
        "budget": budget,
    }
    refuse_missing_input(Path(input))
    return inspect_command.run(Path(input), options, show)


@task(
    for_="runtimes, with commas between; all shows their names; default: tpu-v5e-8,gpu-t4x2",
    input="the competition's folder, whose labelled rows are counted",
    images="labelled images or rows, in place of those in --input",
    probe="output folders of earlier trainings, whose speed counts; default: those in runs/",
    output="the output folder of a training, whose report compares it with the plan",
    page="HTML file to write, with the table and a picture",
    largest="search for the largest batch that a TPU takes: three compilations",
)
def plan(
    config: str = "",
    for_: str = "",
    input: str = "",
    images: str = "",
    probe: str = "",
    output: str = "",
    page: str = "",
    largest: bool = False,
) -> Result:
    """Say what a training takes on each runtime: memory, time, sessions, quota and price.

    Example: invoke plan --config digits --for all
    """
    from pipeline import config as configs
    from pipeline.runtime import backend
    from workbench.plan import plan_command, speed_records

    backend.choose("jax")
    # A compiler runs for minutes and never looks whether Python was interrupted.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    given = {"for": for_, "input": input, "images": images, "probe": probe, "output": output,
             "page": page}  # fmt: skip
    seen = speed_records.pulled(ROOT / "runs")
    settings, left = configs.load(config), push_plan.hours_left()
    made = plan_command.run(settings, given, show, largest=largest, seen=seen, left=left)
    if input or images:
        push_plan.keep_images(config, made)
    return made


@task()
def check() -> Result:
    """Run what must pass before a commit: ruff, mypy, pytest, lint-imports.

    Example: python -m commands check
    """
    import subprocess
    from importlib.util import find_spec

    from deploy.errors import UsageError

    needed = ("ruff", "mypy", "importlinter", "pytest", "xdist", "hypothesis")
    lacking = [name for name in needed if find_spec(name) is None]
    if lacking:
        raise UsageError(
            f"This Python has no {', '.join(lacking)}; expected what the checks need.\n"
            f"{shlex.quote(sys.executable)} -m pip install -e '.[test]'"
        )
    checks = ("ruff check", "ruff format --check", "mypy", "pytest -q")
    commands = [[sys.executable, "-m", *words.split()] for words in checks]
    commands.append([str(Path(sys.executable).with_name("lint-imports"))])  # it has no `python -m`
    for command in commands:
        show(shlex.join(command))
        code = subprocess.run(command, cwd=ROOT).returncode  # noqa: S603 - our own words
        if code:
            return {"exit_code": code}
    return {}
