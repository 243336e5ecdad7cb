"""python -m pipeline describe|train|infer|scale-check|report|inspect: what the notebooks call, and
what else any machine with the data can do.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline import config as config_module
from pipeline.errors import ConfigError, PipelineError

EXAMPLES = """examples:
  python -m localkaggle export digits data/digits
  python -m pipeline describe --config digits --json
  python -m pipeline train --config digits --input data/digits --output out
  python -m pipeline infer --config digits --input data/digits --artifact out/artifact --output out
  python -m pipeline scale-check --config digits_sgd --input data/digits --output check
  python -m pipeline report --output out
  python -m pipeline inspect data/leaves --write leaves --page leaves.html
"""

INSPECT = {
    "write": "name of the new config, which goes to pipeline/configs/, or the path of a .py file; default: the config is printed",
    "page": "an HTML file to write, with what was found in words and pictures",
    "competition": "the last part of its address on Kaggle; default: the folder's name",
    "sample": "the sample submission, where it cannot be told: a path in the folder; also --train and --test, of tables",
    "train": "the table with the labels, where it cannot be told",
    "test": "the table of the test set, where it cannot be told",
    "label": "the column to predict, where it cannot be told; several: with commas between",
}
IMAGES = 50_000  # of CIFAR-10, CIFAR-100: what `describe` counts steps with where it is not told


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code (docs/design.md)."""
    options = _parse(arguments)
    try:
        result = options.command(options)
    except (PipelineError, KeyboardInterrupt) as error:
        code, message = getattr(error, "exit_code", 130), f"Error: {error}"
        if isinstance(error, KeyboardInterrupt):
            more = (
                "goes on from the last checkpoint"
                if options.command in (_train, _scale_check)
                else "begins again"
            )
            message = f"Interrupted. The same command {more}."
        print(message, file=sys.stderr)
        if options.json:
            print(json.dumps({"error": message.removeprefix("Error: "), "exit_code": code}))
        return code
    if options.json:
        print(json.dumps(result))
    return int(result.get("exit_code", 0))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m pipeline",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(
        required=True, metavar="describe|train|infer|scale-check|report|inspect"
    )
    for name, function, summary in (
        ("describe", _describe, "print parameters, shapes and the optimizer's numbers as applied"),
        ("train", _train, "train, or go on training, and write OUT/artifact"),
        ("infer", _infer, "predict the test set and write OUT/submission.csv"),
        (
            "scale-check",
            _scale_check,
            "see whether the rate holds at 8 times the batch: nine runs; exit 1 if it does not",
        ),
        (
            "report",
            _report,
            "write OUT/report.html, one page of what a training left in OUT, be it complete or not",
        ),
        (
            "inspect",
            _inspect,
            "say what is in a competition folder that no config describes yet, and propose a config",
        ),
    ):
        command = commands.add_parser(name, help=summary, description=summary)
        command.set_defaults(command=function)
        command.add_argument(
            "--json", action="store_true", help="end with one JSON object on the last line"
        )
        if name == "report":
            command.add_argument(
                "--output", required=True, type=Path, help="the --output of a training"
            )
            command.add_argument("--title", help="of the page; default: the config's name")
            continue
        if name == "inspect":
            command.add_argument(
                "input", type=Path, help="the competition folder, as Kaggle mounts it"
            )
            for option, words in INSPECT.items():
                command.add_argument(f"--{option}", default="", help=words)
            continue
        command.add_argument(
            "--config",
            required=True,
            help="a name in pipeline/configs/, or the path of a .py file of the same form",
        )
        if name != "describe":
            command.add_argument(
                "--input",
                required=True,
                type=Path,
                help="the competition folder, as Kaggle mounts it",
            )
            command.add_argument("--output", required=True, type=Path, help="where to write")
        if name == "train":
            command.add_argument(
                "--max-steps", type=int, help="stop after this step of the run, with status partial"
            )
            command.add_argument(
                "--fresh",
                action="store_true",
                help="set earlier checkpoints and history aside, and begin again",
            )
        if name == "infer":
            command.add_argument(
                "--artifact", required=True, type=Path, help="the folder with manifest.json"
            )
            command.add_argument(
                "--precision", default="float32", help="float32 (default) or mixed_float16"
            )
        if name == "scale-check":
            command.add_argument(
                "--batch",
                type=int,
                help="images a step to scale from; default: the config's base_batch",
            )
        if name == "describe":
            command.add_argument(
                "--images",
                type=int,
                help=f"training images to count steps with (default: {IMAGES} are assumed)",
            )
    return parser.parse_args(arguments)


def _existing(folder: Path) -> Path:
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a long name
        raise ConfigError(
            f"--input {folder}: there is no such folder. Expected a competition folder.\n"
            "Correct the path, or make the embedded one: python -m localkaggle export digits DIR"
        )
    return folder


def _backend(*allowed: str) -> None:
    """Choose Keras' backend, the first unless the environment chose one; that has to be done before
    Keras is imported.
    """
    chosen = os.environ.get("KERAS_BACKEND") or allowed[0]
    if chosen not in allowed:
        raise ConfigError(
            f"KERAS_BACKEND={chosen} cannot work: this command runs on {' or '.join(allowed)}.\n"
            "Remove the variable (env -u KERAS_BACKEND …), or set it to that."
        )
    os.environ["KERAS_BACKEND"] = chosen
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its start-up chatter hides our messages


def _describe(options: argparse.Namespace) -> dict[str, Any]:
    config = config_module.load(options.config)
    images = IMAGES if options.images is None else options.images
    if images < 1:
        raise ConfigError(
            f"--images {images}: expected 1 or more.\nGive the number of labelled images, or leave it out."
        )
    if options.images is None:
        print(
            f"Steps are counted with {images} training images, which are assumed; --images N gives another number.",
            file=sys.stderr,
        )
    _backend("jax", "tensorflow")
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
    }
    if not options.json:
        print(json.dumps(result, indent=2))
    return result


def _train(options: argparse.Namespace) -> dict[str, Any]:
    config = config_module.load(options.config)
    if options.max_steps is not None and options.max_steps < 1:
        raise ConfigError(
            f"--max-steps {options.max_steps}: expected 1 or more.\nLeave it out to train to the end."
        )
    folder = _existing(options.input)
    _backend("jax")
    from pipeline.figures import training_figures
    from pipeline.training import training

    trained = training.train(
        config, folder, options.output, max_steps=options.max_steps, fresh=options.fresh
    )
    if trained.manifest is None:
        return {"status": trained.status, "output": str(options.output)}
    pictures = training_figures.of_training(options.output)
    return {
        "status": trained.status,
        "run_id": trained.manifest["run_id"],
        "artifact": str(options.output / "artifact"),
        "metrics": trained.manifest["metrics"],
        "pictures": [str(path) for path in pictures],
    }


def _infer(options: argparse.Namespace) -> dict[str, Any]:
    config = config_module.load(options.config)
    folder = _existing(options.input)
    if not os.path.isdir(options.artifact):  # noqa: PTH112 - as above
        raise ConfigError(
            f"--artifact {options.artifact}: there is no such folder. Expected one with manifest.json.\n"
            "Correct the path, or make one: python -m pipeline train --config C --input DIR --output OUT"
        )
    _backend("tensorflow", "jax")
    from pipeline import artifact
    from pipeline.inference import inference

    loaded = artifact.load(options.artifact)
    if loaded.config.name != config.name:
        raise ConfigError(
            f"--config {config.name}: the artifact was trained with {loaded.config.name}.\nGive --config {loaded.config.name}, or another --artifact."
        )
    predictions = inference.infer(
        loaded, folder, options.output, config=config, precision=options.precision
    )
    return {
        "submission": str(options.output / "submission.csv"),
        "rows": len(predictions.ids),
        "broken": len(predictions.broken),
        "left_out": predictions.left_out,
        "run_id": loaded.manifest["run_id"],
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
    """Check a config's rate (`pipeline.training.scale_check`), draw the picture, and return the
    result with its exit code.
    """
    config = config_module.load(name)
    folder = _existing(folder)
    _backend("jax")
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
    return inspect(options.input, {name: getattr(options, name) for name in INSPECT}, print)


def inspect(folder: Path, given: Mapping[str, str], show: Callable[[str], None]) -> dict[str, Any]:
    """Show what is in a competition folder and the config that is proposed, and return both;
    `given`: what `INSPECT` names.
    """
    from pipeline.inspection import config_proposal, inspection, inspection_page
    from pipeline.inspection.tables import Given

    folder = _existing(folder)
    path = config_proposal.place(given["write"]) if given["write"] else None
    if path is not None:
        config_proposal.refuse_taken(path)
    name, competition = config_proposal.names(folder, path, given["competition"])
    labels = tuple(filter(None, given["label"].split(",")))
    found = inspection.inspect(
        folder, Given(given["sample"], given["train"], given["test"], labels)
    )
    proposed = config_proposal.propose(found, name, competition)
    text = config_proposal.text(found, proposed)
    lines, problem = [*found.findings, *proposed.findings], None
    try:
        lines.append(config_proposal.check(proposed, found))
    except PipelineError as error:
        problem = error  # what was found is told all the same
    for line in lines:
        show(f"{line.level:9}{line.about:18}{line.text}")
    if given["page"]:
        show(
            f"wrote {inspection_page.write(found, lines, text, Path(given['page']), problem=str(problem or ''))}"
        )
    if problem is not None:
        raise problem
    if path is None:
        show(f"\n{text}")
    else:
        config_proposal.write(path, text)
        show(
            f"wrote {path}\nNext: python -m pipeline train --config {given['write']} --input {folder} --output out/{Path(given['write']).stem}"
        )
    return {
        "config": name,
        "competition": competition,
        "written": None if path is None else str(path),
        "page": given["page"] or None,
        "proposed": proposed.config.to_json(),
        "findings": [asdict(line) for line in lines],
    }


if __name__ == "__main__":
    sys.exit(main())
