"""The `inspect`, `plan`, `report` and `scale-check` tasks, which do not require an account."""

import os
import shlex
import signal
from pathlib import Path

from commands.console import ROOT, Result, new_folder, number, show, task
from commands.project import require_embedded, resolved
from commands.telling import Telling
from formats.errors import writing
from workbench.options import BASE, INSPECT, LARGEST, PLAN, SWEEP, TITLE


@task(
    input="path to the competition's folder (default: a new copy of the embedded competition)",
    batch=BASE,
    sweep=SWEEP,
)
def scale_check(config: str = "", input: str = "", batch: str = "", sweep: bool = False) -> Result:
    """Check that the learning rate scales to the config's batch size, or search for a good rate.

    Example: invoke scale-check --config digits_sgd --sweep
    """
    from localkaggle import competitions
    from pipeline import config as configs
    from pipeline.command_line import refuse_missing_input
    from workbench import __main__ as model_side

    folder, slug = new_folder("scale-check"), configs.load(config).competition
    images = int(number("batch", batch, 1, 2**20)) if batch else None
    data = Path(input) if input else folder / "data"
    if input:
        refuse_missing_input(data)
    else:
        require_embedded(slug, f"invoke scale-check --config {shlex.quote(config)}")
        with writing(data):
            competitions.EMBEDDED[slug]().write(data)
    words = ["--config", config, "--input", str(data), "--output", str(folder)]
    words += ["--batch", str(images)] if images else []
    words += ["--sweep"] if sweep else []
    takes = "five training runs with a tenth of the epochs each" if sweep else "nine training runs"
    show(f"This requires {takes}. If it is interrupted, resume it with:")
    show(f"python -m workbench scale-check {shlex.join(words)}")
    result = model_side.scale_check(config, data, folder, images, show, sweep=sweep)
    for path in (result["result"], *result["pictures"]):
        show(f"wrote {path}")
    return result


@task(
    run="the training run, as owner/slug/version, such as ann/digits-train-tpu/3, or as an output"
    " folder, such as out (default: the last training run that was pushed from this machine and"
    " pulled, otherwise the last rehearsal)",
    title=TITLE,
)
def report(run: str = "", config: str = "", title: str = "") -> Result:
    """Write an HTML report on a training run.

    It shows the curves, the scores of each class, the worst examples and the origin of the run.

    Example: invoke report --run out
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # hide TensorFlow's startup messages
    from deploy import output
    from workbench.report import report as model_side

    if run and os.path.isdir(run):  # noqa: PTH112 - Path.is_dir raises for a long name
        folder, name = Path(run), ""
    else:
        folder, name = resolved(config, Telling()).training(run)
    beside = None
    if output.noted(folder):  # do not change a pulled folder, because the next pull compares it
        beside = folder.resolve().with_name(f"{folder.resolve().name}-{model_side.FILE}")
    show(f"Using the training run {f'{name}, ' if name else ''}in {folder}")
    page = model_side.write(folder, title=title or None, page=beside)
    show(f"wrote {page}")
    return {"run": name, "folder": str(folder), "report": str(page)}


@task(options=INSPECT, input="path to the competition's folder, with the same files as on Kaggle")
def inspect(input: str = "", **texts: str) -> Result:
    """Describe the files in a competition folder, and propose a config.

    Example: invoke inspect --input data/leaves --write leaves
    """
    from deploy.errors import UsageError
    from deploy.init import in_address
    from pipeline.command_line import refuse_missing_input
    from workbench.inspect import command as inspect_command

    if not input:
        raise UsageError(
            "--input is missing. Pass the competition's folder:\ninvoke inspect --input DIR"
        )
    given = {name.rstrip("_"): text for name, text in texts.items()}
    given["competition"] = in_address(given["competition"], show)
    refuse_missing_input(Path(input))
    return inspect_command.run(Path(input), given, show)


@task(options=PLAN, largest=LARGEST)
def plan(config: str = "", largest: bool = False, **texts: str) -> Result:
    """Estimate the memory, time, sessions, quota and price of training on each runtime.

    Example: invoke plan --config digits --for all
    """
    from pipeline import config as configs
    from pipeline.runtime import backend
    from workbench.plan import plan_command, probe

    backend.choose("jax")
    # Compilation takes minutes, during which Python cannot handle Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    given = {name.rstrip("_"): text for name, text in texts.items()}
    runs = probe.pulled(ROOT / "runs")
    return plan_command.run(configs.load(config), given, show, largest=largest, runs=runs)
