"""python -m workbench inspect|plan|images|report|scale-check|bench|bench-report: commands that only
run at home.
"""

import argparse
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pipeline import config as config_module
from pipeline.command_line import CONFIG, FOLDER, Commands, Once, refuse_missing_input, show
from pipeline.errors import ConfigError
from pipeline.runtime import backend
from workbench.inspect import command as inspect_command
from workbench.options import BASE, BENCH, INSPECT, LARGEST, PLAN, SWEEP, TITLE
from workbench.plan import plan_command

IMAGES = "a competition's folder; default: CIFAR-100 if Keras can download it, else noise"
EXAMPLES = """  python -m workbench inspect data/leaves --write leaves --page leaves.html
  python -m workbench plan --config cifar100_wrn --for tpu-v5e-8,gpu-t4x2
  python -m workbench images --config leaves
  python -m workbench report --output out
  python -m workbench scale-check --config digits_sgd --input data/digits --output check
  python -m workbench scale-check --sweep --config digits --input data/digits --output sweep
  python -m workbench bench --config cifar100_wrn --batch 256,1024 --output bench
  python -m workbench bench-report bench-on-tpu bench-on-gpu --output page
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code (docs/dev/design.md)."""
    commands = Commands("python -m workbench", str(__doc__), EXAMPLES)
    inspected = commands.add("inspect", _inspect)
    inspected.add_argument("input", type=Path, help=FOLDER)
    planned = commands.add("plan", _plan, "--config")
    planned.add_argument("--largest", action="store_true", help=LARGEST)
    images = commands.add("images", _images)
    images.add_argument("--config", action=Once, help=f"{CONFIG}; default: print the environments")
    images.add_argument("--table", action="store_true", help="look it up; build nothing")
    report = commands.add("report", _report)
    report.add_argument(
        "--output", required=True, type=Path, help="output of the training; gets report.html"
    )
    report.add_argument("--title", help=TITLE)
    run = ("--config", "--input", "--output")
    checked = commands.add("scale-check", _scale_check, *run, resumes=True)
    checked.add_argument("--batch", type=int, help=BASE)
    checked.add_argument("--sweep", action="store_true", help=SWEEP)
    bench = commands.add("bench", _bench, "--config", resumes=True)
    bench.add_argument("--input", type=Path, help=IMAGES)
    bench.add_argument("--output", required=True, type=Path, help="gets a file per cell")
    for parser, options in ((inspected, INSPECT), (planned, PLAN), (bench, BENCH)):
        for option, words in options.items():
            parser.add_argument(f"--{option}", default="", help=words)
    page = commands.add("bench-report", _bench_report)
    page.add_argument("runs", nargs="*", type=Path, help="the output folders of bench")
    page.add_argument("--output", required=True, type=Path, help="gets the page and its pictures")
    page.add_argument("--pattern", type=int, default=0, choices=range(1, 9), help="to compare")
    page.add_argument("--accuracy", type=float, default=0.5, help="to reach; default: 0.5")
    return commands.main(arguments)


def _scale_check(options: argparse.Namespace) -> dict[str, Any]:
    """Check the scaled rate in nine runs (exit 1 if it does not hold), or sweep five rates."""
    where = options.input, options.output
    return scale_check(options.config, *where, options.batch, sweep=options.sweep)


def scale_check(
    name: str,
    folder: Path,
    output: Path,
    batch: int | None = None,
    show: Callable[[str], None] = print,
    *,
    sweep: bool = False,
) -> dict[str, Any]:
    """Check a config's learning rate (`workbench.scale_check`) or sweep five rates, draw the
    result, and return it with its exit code.
    """
    if sweep and batch is not None:
        raise ConfigError(
            f"--sweep --batch {batch}: a sweep uses the config's batch.\nLeave --batch out."
        )
    backend.choose("jax")
    config = config_module.load(name)
    refuse_missing_input(folder)
    backend.use_every_core(config.batch if sweep else batch or config.optimizer.base_batch)
    from workbench import scale_check as scaling
    from workbench import scaling_figure

    result: dict[str, Any]
    if sweep:
        tried = scaling.sweep(config, folder, output, show)
        rate, lines = scaling.rate_to_take(tried), scaling.rate_lines(tried, config.batch)
        kept, result, passed = scaling.RATES_RESULT, {"base_rate": rate}, rate is not None
    else:
        result = scaling.check(config, folder, output, batch=batch, show=show)
        kept, passed, lines = scaling.RESULT, result["passed"], scaling.lines(result)
    for line in lines:
        show(line)
    pictures = [str(path) for path in scaling_figure.draw(output / kept, show)]
    files = {"output": str(output), "result": str(output / kept), "pictures": pictures}
    return {**result, **files, "exit_code": 0 if passed else 1}


def _images(options: argparse.Namespace) -> dict[str, Any]:
    """Make an environment for each of Kaggle's images, and compare a config's models in them."""
    from workbench import image_environments

    def said(line: str) -> None:
        sys.stderr.write(f"{line}\n")  # in one call, because two threads write

    if options.config:
        backend.choose("jax")
        from workbench import image_check

        config = config_module.load(options.config)
        if options.table:
            told, seen = image_check.by_table(config), False
        else:
            told, seen = image_check.check(config, options.config, said)
        if not options.json:
            show(told)
        return {"told": told, "seen": seen}
    image_environments.make(said)
    pythons = {image.name: str(image.python) for image in image_environments.IMAGES}
    if not options.json:
        for image in image_environments.IMAGES:
            show(f"{image.in_words}: {image.python}")
        words = [f"--{name[:3].lower()}-python {python}" for name, python in pythons.items()]
        show(f"To rehearse with them:\ninvoke dry-run {' '.join(words)} --config NAME")
    return {"pythons": pythons}


def _report(options: argparse.Namespace) -> dict[str, Any]:
    """Write one page about a training, complete or not."""
    from workbench.report import report

    path = report.write(options.output, title=options.title)
    if not options.json:
        print(path)
    return {"report": str(path)}


def _inspect(options: argparse.Namespace) -> dict[str, Any]:
    """Describe a competition's folder, and propose a config."""
    refuse_missing_input(options.input)
    return inspect_command.run(options.input, _given(options, INSPECT), print)


def _bench(options: argparse.Namespace) -> dict[str, Any]:
    """Time trainings on this machine's devices, beside Keras' fit."""
    if options.input is not None:
        refuse_missing_input(options.input)
    backend.choose("jax")
    from workbench.benchmark import command

    config = config_module.load(options.config)
    asked = command.read(config, _given(options, BENCH))
    command.use_cores(asked)
    return command.run(config, options.input, options.output, asked, show)


def _bench_report(options: argparse.Namespace) -> dict[str, Any]:
    """Write one page about any runs of bench, beside the benchmark of 2018."""
    backend.choose("jax")
    from workbench.benchmark import page

    return page.write(
        options.runs, options.output, show, pattern=options.pattern, accuracy=options.accuracy
    )


def _plan(options: argparse.Namespace) -> dict[str, Any]:
    """Show what a training takes on each runtime."""
    backend.choose("jax")
    # A compiler runs for minutes and never checks whether Python was interrupted.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    said = print if not options.json else lambda line: print(line, file=sys.stderr)
    config, given = config_module.load(options.config), _given(options, PLAN)
    return plan_command.run(config, given, said, largest=options.largest)


def _given(options: argparse.Namespace, names: Iterable[str]) -> dict[str, str]:
    """Return the values of these options; "": the default."""
    return {name: getattr(options, name) for name in names}


if __name__ == "__main__":
    sys.exit(main())
