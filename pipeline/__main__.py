"""python -m pipeline describe|check|train|ensemble|infer|scale-check|report|inspect|plan|bench:
what notebooks do, on any machine that has the data.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline import config as config_module
from pipeline.bench import bench_command
from pipeline.errors import ConfigError, PipelineError
from pipeline.inspection import inspect_command
from pipeline.inspection.inspect_command import OPTIONS
from pipeline.plan import plan_command
from pipeline.runtime import backend, devices, processes
from pipeline.session import progress_log

EXAMPLES = """examples:
  python -m localkaggle export digits data/digits
  python -m pipeline describe --config digits --json
  python -m pipeline check --config leaves
  python -m pipeline train --config digits --input data/digits --output out
  python -m pipeline ensemble out-1 out-2 out-3 --output mean
  python -m pipeline infer --config digits --input data/digits --artifact out/artifact --output out
  python -m pipeline scale-check --config digits_sgd --input data/digits --output check
  python -m pipeline report --output out
  python -m pipeline inspect data/leaves --write leaves --page leaves.html
  python -m pipeline plan --config cifar100_wrn --for tpu-v5e-8,gpu-t4x2
  python -m pipeline bench --config cifar100_wrn --batch 256,1024 --output bench
  python -m pipeline bench-report bench-on-tpu bench-on-gpu --output page
"""

IMAGES = 50_000  # as CIFAR-10 and CIFAR-100 have: `describe` counts steps with it by default


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code (docs/design.md)."""
    options = _parse(arguments)
    try:
        result = options.command(options)
    except PipelineError as error:
        return _fail(f"Error: {error}", error.exit_code, options)
    except KeyboardInterrupt:
        resumes = options.command in (_train, _scale_check, _bench)
        more = "resumes from what was saved" if resumes else "begins again"
        return _fail(f"Interrupted. The same command {more}.", 130, options)
    if options.json:
        print(json.dumps(result))
    return int(result.get("exit_code", 0))


def _fail(message: str, code: int, options: argparse.Namespace) -> int:
    print(message, file=sys.stderr)
    if options.json:
        print(json.dumps({"error": message.removeprefix("Error: "), "exit_code": code}))
    processes.leave(code)
    return code


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--json", action="store_true", help="end with one JSON object on the last line"
    )
    config = argparse.ArgumentParser(add_help=False, parents=[common])
    file = "a name in pipeline/configs/, or the path of a .py file of the same form"
    config.add_argument("--config", required=True, action="append", help=file)
    run = argparse.ArgumentParser(add_help=False, parents=[config])
    folder = "the competition folder, as Kaggle mounts it"
    run.add_argument("--input", required=True, type=Path, help=folder)
    run.add_argument("--output", required=True, type=Path, help="where to write")

    parser = argparse.ArgumentParser(
        "python -m pipeline",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = "describe|check|train|ensemble|infer|scale-check|report|inspect|plan|bench"
    commands = parser.add_subparsers(required=True, metavar=names)

    def add(
        name: str, command: Callable[..., Any], summary: str, parent: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        example = next(
            line.strip() for line in EXAMPLES.splitlines() if f"pipeline {name} " in line
        )
        added = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=f"example:\n  {example}",
            parents=[parent],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(command=command)
        return added

    describe = add("describe", _describe, "print parameters, shapes and learning rate", config)
    describe.add_argument(
        "--images", type=int, help=f"training rows to count steps with (default: {IMAGES})"
    )
    artifact = "of a training with this config: shows its score beside the floor"
    describe.add_argument("--artifact", type=Path, help=artifact)
    add("check", _check, "check a config's own functions with JAX and TensorFlow", config)
    train = add("train", _train, "train, or resume training, and write OUT/artifact", run)
    train.add_argument("--max-steps", type=int, help="stop after this step, with status partial")
    several = "of several that train one model, each with its own part of a batch (docs/hosts.md)"
    train.add_argument("--processes", type=int, help=f"number {several}")
    train.add_argument("--process-id", type=int, help="of this one, from 0 on")
    train.add_argument("--coordinator", default="", help="HOST:PORT of the process with id 0")
    train.add_argument(
        "--fresh", action="store_true", help="set old checkpoints and history aside; begin again"
    )
    ensemble = "find weights for the models of several runs, and write OUT/ensemble.json"
    mean = add("ensemble", _ensemble, ensemble, common)
    mean.add_argument("runs", nargs="+", type=Path, help="the output folders of trainings")
    mean.add_argument("--output", required=True, type=Path, help="where to write")
    mean.add_argument("--seed", type=int, default=0, help="of the choice between equal ones")
    own = "of a member that is no name in pipeline/configs/; repeat for others"
    mean.add_argument("--config", action="append", default=[], help=own)
    infer = add("infer", _infer, "predict the test set and write OUT/submission.csv", run)
    folder_of = "the folder with manifest.json; repeat for the members of an ensemble"
    infer.add_argument("--artifact", action="append", default=[], type=Path, help=folder_of)
    weights = "ensemble.json: the members and their weights; without --artifact, where they were"
    infer.add_argument("--ensemble", type=Path, help=weights)
    infer.epilog = f"{infer.epilog}\n\nRepeat --config for members whose own code is given by path."
    precision = "auto, float32 or mixed_float16 (default: infer_precision of the config)"
    infer.add_argument("--precision", default="", help=precision)
    scale = "check the scaled learning rate, in nine runs; exit 1 if it does not hold"
    add("scale-check", _scale_check, scale, run).add_argument(
        "--batch", type=int, help="rows per step to scale from; default: the config's base_batch"
    )
    report = add("report", _report, "write one page of a training, complete or not", common)
    report.add_argument(
        "--output", required=True, type=Path, help="of the training; gets report.html"
    )
    report.add_argument("--title", help="of the page; default: the config's name")
    inspect = "describe a competition folder that has no config yet, and propose a config"
    inspected = add("inspect", _inspect, inspect, common)
    inspected.add_argument("input", type=Path, help=folder)
    for option, words in OPTIONS.items():
        inspected.add_argument(f"--{option}", default="", help=words)
    planned = add("plan", _plan, "say what a training takes on each runtime", config)
    for option, words in plan_command.OPTIONS.items():
        planned.add_argument(f"--{option}", default="", help=words)
    planned.add_argument("--largest", action="store_true", help=plan_command.LARGEST)
    benched = add("bench", _bench, "time trainings on these devices, beside Keras' fit", config)
    bench_command.add_options(benched)
    page = "write one page of what any runs of bench measured, beside the benchmark of 2018"
    bench_command.add_report_options(add("bench-report", _bench_report, page, common))
    options = parser.parse_args(arguments)
    if options.command not in (_infer, _ensemble) and "config" in options:
        if len(options.config) > 1:
            parser.error(f"--config {', '.join(options.config)}: expected one. Give it once.")
        (options.config,) = options.config
    return options


def _refuse_missing(option: str, folder: Path, advice: str) -> None:
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a long name
        problem = "is a file" if os.path.lexists(folder) else "there is no such folder"
        raise ConfigError(f"{option} {folder}: {problem}. {advice}")


def refuse_missing_input(folder: Path) -> None:
    """Raise `ConfigError` unless there is such a folder."""
    _refuse_missing(
        "--input",
        folder,
        "Expected a competition folder.\n"
        "Correct the path, or make an embedded competition's:\n"
        "python -m localkaggle export digits DIR",
    )


def _show(line: str) -> None:
    """Print a line at once: progress in words on a terminal, as JSON into a pipe."""
    print(progress_log.readable(line) if sys.stdout.isatty() else line, flush=True)


def _describe(options: argparse.Namespace) -> dict[str, Any]:
    backend.choose("jax", "tensorflow")
    config = config_module.load(options.config)
    images = IMAGES if options.images is None else options.images
    if images < 1:
        raise ConfigError(
            f"--images {images}: expected 1 or more.\n"
            f"Give the number of labelled {config.data.noun}, or omit the option."
        )
    if options.images is None:
        print(
            f"Steps are counted with {images} training {config.data.noun}, an assumption;"
            " --images N sets it.",
            file=sys.stderr,
        )
    from pipeline.models import architectures
    from pipeline.training import learning_rate

    applied = learning_rate.apply(config, images)
    built = architectures.build(config, applied.batchnorm_momentum)
    result = {
        "config": config.name,
        "model": config.model,
        "parameters": architectures.count(built),
        "input": {"shape": [None, *built.input.shape[1:]], "dtype": built.input.dtype},
        "output": {"shape": [None, *built.output.shape[1:]], "dtype": "float32"},
        "images": images,
        "images_assumed": options.images is None,
        "optimizer": applied.to_json(),
        "floor": None if config.floor is None else asdict(config.floor),
    }
    if options.artifact is not None:
        from pipeline import artifact

        result["trained"] = artifact.load(options.artifact).manifest.get("floor")
    if not options.json:
        print(json.dumps(result, indent=2))
    return result


def _check(options: argparse.Namespace) -> dict[str, Any]:
    backend.choose("jax")
    config = config_module.load(options.config)
    if not config.code:
        _show(f"{config.name} has no functions of its own; nothing to check")
        return {"config": config.name, "code": ""}
    from pipeline.training import own_code_check

    own_code_check.check(config, _show)
    return {"config": config.name, "code": config.code}


def _train(options: argparse.Namespace) -> dict[str, Any]:
    backend.choose("jax")  # own code in the config's file may import Keras
    config = config_module.load(options.config)
    if options.max_steps is not None and options.max_steps < 1:
        raise ConfigError(
            f"--max-steps {options.max_steps}: expected 1 or more.\n"
            "Leave it out to train to the end."
        )
    refuse_missing_input(options.input)
    if not backend.use_every_core(config.batch):
        _show(
            f"Warning: a layer outside of functions in {config.name}'s file started JAX when the"
            " file was read, so this CPU is one device.\nMake layers within the model's function."
        )
    processes.join(options.processes, options.process_id, options.coordinator)
    asked = {"--max-steps": options.max_steps, "--fresh": options.fresh}
    edit = "Start each process with the same config and options."
    processes.refuse_differences("the run", config.to_json() | asked, edit)
    from pipeline.figures import training_figures
    from pipeline.training import own_code_check, training

    with processes.folder(options.output) as output:
        trained = training.train(
            config,
            options.input,
            output,
            max_steps=options.max_steps,
            fresh=options.fresh,
            check=own_code_check.check if processes.first() else own_code_check.by_jax,
            show=_show if processes.first() else lambda line: None,
        )
    if trained.manifest is None or not processes.first():
        return {"status": trained.status, "output": str(options.output)}
    pictures = training_figures.of_training(options.output)
    return {
        "status": trained.status,
        "run_id": trained.manifest["run_id"],
        "artifact": str(options.output / "artifact"),
        "metrics": trained.manifest["metrics"],
        "pictures": [str(path) for path in pictures],
    }


def _ensemble(options: argparse.Namespace) -> dict[str, Any]:
    backend.choose("jax", "tensorflow")
    for own in options.config:
        config_module.load(own)
    for folder in options.runs:
        _refuse_missing("RUN", folder, "Expected the output of a complete training.")
    from pipeline.evaluation import ensemble_search

    return ensemble_search.run(options.runs, options.output, seed=options.seed, show=_show)


def _infer(options: argparse.Namespace) -> dict[str, Any]:
    backend.choose("tensorflow", "jax")
    devices.share_memory()
    config, *_ = [config_module.load(name) for name in options.config]
    refuse_missing_input(options.input)
    from pipeline import ensemble
    from pipeline.inference import inference

    folders = ensemble.folders(options.artifact, options.ensemble)
    option, advice = (
        "--artifact",
        (
            "Expected one with manifest.json.\n"
            "Correct the path, or train a model:\n"
            "python -m pipeline train --config C --input DIR --output OUT"
        ),
    )
    if not options.artifact:
        option = f"--ensemble {options.ensemble}: the member in"
        advice = "Move it back, or say where each member is: --ensemble FILE --artifact DIR …"
    for folder in folders:
        _refuse_missing(option, folder, advice)
    members, weights = ensemble.chosen(folders, options.ensemble, config)
    predictions = inference.infer(
        members,
        options.input,
        options.output,
        weights=weights,
        config=config,
        precision=options.precision,
    )
    told = options.output / inference.MEMBERS  # of an ensemble
    return {
        "submission": str(options.output / "submission.csv"),
        "rows": len(predictions.ids),
        "broken": len(predictions.broken),
        "left_out": predictions.left_out,
        "run_id": ", ".join(str(loaded.manifest["run_id"]) for loaded in members),
        **({"members": json.loads(told.read_bytes())} if told.is_file() else {}),
    }


def _scale_check(options: argparse.Namespace) -> dict[str, Any]:
    return scale_check(options.config, options.input, options.output, options.batch)


def scale_check(
    name: str,
    folder: Path,
    output: Path,
    batch: int | None = None,
    show: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Check a config's learning rate (`pipeline.training.scale_check`), draw the result, and return
    it with its exit code.
    """
    backend.choose("jax")
    config = config_module.load(name)
    refuse_missing_input(folder)
    backend.use_every_core(batch or config.optimizer.base_batch)
    from pipeline.figures import training_figures
    from pipeline.training import scale_check as scaling

    checked = scaling.check(config, folder, output, batch=batch, show=show)
    for line in scaling.lines(checked):
        show(line)
    pictures = training_figures.of_scaling(output, show=show)
    return {
        **checked.to_json(),
        "output": str(output),
        "pictures": [str(path) for path in pictures],
        "exit_code": 0 if checked.passed else 1,
    }


def _report(options: argparse.Namespace) -> dict[str, Any]:
    from pipeline.report import report

    path = report.write(options.output, title=options.title)
    if not options.json:
        print(path)
    return {"report": str(path)}


def _inspect(options: argparse.Namespace) -> dict[str, Any]:
    refuse_missing_input(options.input)
    given = {name: getattr(options, name) for name in OPTIONS}
    return inspect_command.run(options.input, given, print)


def _bench(options: argparse.Namespace) -> dict[str, Any]:
    if options.input is not None:
        refuse_missing_input(options.input)
    return bench_command.bench(options, _show)


def _bench_report(options: argparse.Namespace) -> dict[str, Any]:
    return bench_command.report(options, _show)


def _plan(options: argparse.Namespace) -> dict[str, Any]:
    backend.choose("jax")
    # A compiler runs for minutes and never looks whether Python was interrupted.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    given = {name: getattr(options, name) for name in plan_command.OPTIONS}
    said = print if not options.json else lambda line: print(line, file=sys.stderr)
    return plan_command.run(
        config_module.load(options.config), given, said, largest=options.largest
    )


if __name__ == "__main__":
    sys.exit(main())
