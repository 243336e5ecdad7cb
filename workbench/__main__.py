"""python -m workbench inspect|plan|images|report|soup|scale-check|bench|bench-report: commands for
your own machine.
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

IMAGES = "competition folder (default: CIFAR-100 if Keras can download it, otherwise random noise)"
MEMBER = "path to a member's config outside pipeline/configs/ (repeatable)"
EXAMPLES = """  python -m workbench inspect data/leaves --write leaves --page leaves.html
  python -m workbench plan --config cifar100_wrn --for tpu-v5e-8,gpu-t4x2
  python -m workbench images --config leaves
  python -m workbench report --output out
  python -m workbench soup out-1 out-2 out-3 --input data/digits --output soup
  python -m workbench scale-check --config digits_sgd --input data/digits --output check
  python -m workbench scale-check --sweep --config digits --input data/digits --output sweep
  python -m workbench bench --config cifar100_wrn --batch 256,1024 --output bench
  python -m workbench bench-report bench-on-tpu bench-on-gpu --output page
"""


def main(arguments: list[str] | None = None) -> int:
    commands = Commands("python -m workbench", str(__doc__), EXAMPLES)
    inspected = commands.add("inspect", _inspect)
    inspected.add_argument("input", type=Path, help=FOLDER)
    planned = commands.add("plan", _plan, "--config")
    planned.add_argument("--largest", action="store_true", help=LARGEST)
    images = commands.add("images", _images)
    images.add_argument("--config", action=Once, help=f"{CONFIG} (default: list the environments)")
    images.add_argument("--table", action="store_true", help="look up networks in a table")
    report = commands.add("report", _report)
    report.add_argument(
        "--output", required=True, type=Path, help="output folder of a run; report.html goes there"
    )
    report.add_argument("--title", help=TITLE)
    run = ("--config", "--input", "--output")
    soup = commands.add("soup", _soup, *run[1:])
    soup.add_argument("runs", nargs="+", type=Path, help="output folders of training runs")
    soup.add_argument("--config", action="append", default=[], help=MEMBER)
    checked = commands.add("scale-check", _scale_check, *run, resumes=True)
    checked.add_argument("--batch", type=int, help=BASE)
    checked.add_argument("--sweep", action="store_true", help=SWEEP)
    bench = commands.add("bench", _bench, "--config", resumes=True)
    bench.add_argument("--input", type=Path, help=IMAGES)
    bench.add_argument("--output", required=True, type=Path, help="folder for the cells' files")
    for parser, options in ((inspected, INSPECT), (planned, PLAN), (bench, BENCH)):
        for option, words in options.items():
            parser.add_argument(f"--{option}", default="", help=words)
    page = commands.add("bench-report", _bench_report)
    page.add_argument("runs", nargs="*", type=Path, help="output folders of the bench command")
    page.add_argument("--output", required=True, type=Path, help="folder for the page and its plot")
    page.add_argument(
        "--pattern", type=int, default=0, choices=range(1, 9), help="pattern to compare"
    )
    page.add_argument("--accuracy", type=float, default=0.5, help="target accuracy (default: 0.5)")
    return commands.main(arguments)


def _soup(options: argparse.Namespace) -> dict[str, Any]:
    """Average the weights of several runs of one architecture and write OUT/artifact."""
    backend.choose("jax")
    for name in options.config:
        config_module.load(name)
    refuse_missing_input(options.input)
    from workbench import soup

    return soup.make(options.runs, options.input, options.output, show)


def _scale_check(options: argparse.Namespace) -> dict[str, Any]:
    """Check learning rate scaling with nine runs, or sweep five learning rates. If the check fails,
    the exit code is 1.
    """
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
    if sweep and batch is not None:
        raise ConfigError(
            f"--sweep --batch {batch}: a sweep uses the config's batch size.\nRemove --batch."
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
    """Create environments with the library versions of Kaggle's two images, and check that both
    build the same model.
    """
    from workbench import image_environments

    def said(line: str) -> None:
        sys.stderr.write(f"{line}\n")  # use a single call, because two threads write

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
    """Write an HTML report on a complete or partial training run."""
    from workbench.report import report

    path = report.write(options.output, title=options.title)
    if not options.json:
        print(path)
    return {"report": str(path)}


def _inspect(options: argparse.Namespace) -> dict[str, Any]:
    """Describe a competition folder and propose a config."""
    refuse_missing_input(options.input)
    return inspect_command.run(options.input, _given(options, INSPECT), print)


def _bench(options: argparse.Namespace) -> dict[str, Any]:
    """Benchmark training on this machine's devices against Keras' fit."""
    if options.input is not None:
        refuse_missing_input(options.input)
    backend.choose("jax")
    from workbench.benchmark import command

    config = config_module.load(options.config)
    asked = command.read(config, _given(options, BENCH))
    command.use_cores(asked)
    return command.run(config, options.input, options.output, asked, show)


def _bench_report(options: argparse.Namespace) -> dict[str, Any]:
    """Write an HTML page that compares bench runs with the 2018 benchmark."""
    backend.choose("jax")
    from workbench.benchmark import page

    return page.write(
        options.runs, options.output, show, pattern=options.pattern, accuracy=options.accuracy
    )


def _plan(options: argparse.Namespace) -> dict[str, Any]:
    """Estimate a run's memory, time and quota on each runtime."""
    backend.choose("jax")
    # Compilation can take minutes and does not check for Python interrupts.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    said = print if not options.json else lambda line: print(line, file=sys.stderr)
    config, given = config_module.load(options.config), _given(options, PLAN)
    return plan_command.run(config, given, said, largest=options.largest)


def _given(options: argparse.Namespace, names: Iterable[str]) -> dict[str, str]:
    return {name: getattr(options, name) for name in names}


if __name__ == "__main__":
    sys.exit(main())
