"""Run the steps of the notebooks on any machine that has the data."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from formats import atomic_file
from pipeline import config as config_module
from pipeline.command_line import CONFIG, Commands, refuse_missing, refuse_missing_input, show
from pipeline.config import custom_code
from pipeline.errors import ConfigError
from pipeline.runtime import backend, devices, processes

EXAMPLES = """  python -m localkaggle export digits data/digits
  python -m pipeline describe --config digits --json
  python -m pipeline check --config leaves
  python -m pipeline blueprint --config leaves --output leaves.json
  python -m pipeline explain --config digits
  python -m pipeline preset keras/dinov3/keras/dinov3_vit_small_lvd1689m/1 --output data/dinov3
  python -m pipeline train --config digits --input data/digits --output out
  python -m pipeline ensemble out-1 out-2 out-3 --output mean
  python -m pipeline infer --config digits --input data/digits --artifact out/artifact --output out
"""

IMAGES = 50_000  # assumed if `data.labelled` is not set, as in CIFAR-10 and CIFAR-100


def main(arguments: list[str] | None = None) -> int:
    commands, run = Commands("python -m pipeline", str(__doc__), EXAMPLES), ("--input", "--output")
    describe = commands.add("describe", _describe, "--config")
    images = f"number of training rows (default: data.labelled minus held-out rows, or {IMAGES})"
    describe.add_argument("--images", type=int, help=images)
    commands.add("check", _check, "--config")
    blueprint = commands.add("blueprint", _blueprint, "--config", "--output")
    networks = "blueprint with the hyperparameters of published networks (default: from presets)"
    blueprint.add_argument("--networks", type=Path, help=networks)
    commands.add("explain", _explain, "--config")
    preset = commands.add("preset", _preset, "--output")
    source = "Kaggle model (owner/model/framework/variation/version) or preset folder"
    preset.add_argument("source", help=source)
    blocks = "maximum number of transformer blocks (default: all)"
    preset.add_argument("--blocks", type=int, choices=range(1, 200), metavar="N", help=blocks)
    train = commands.add("train", _train, "--config", *run, resumes=True)
    train.add_argument("--max-steps", type=int, help="stop after this step with status partial")
    several = "number of processes that train the model together (docs/hosts.md)"
    train.add_argument("--processes", type=int, help=several)
    train.add_argument("--process-id", type=int, help="index of this process, starting at 0")
    train.add_argument("--coordinator", default="", help="HOST:PORT of the process with id 0")
    fresh = "set old checkpoints and history aside and start over"
    train.add_argument("--fresh", action="store_true", help=fresh)
    custom = "path to a member's config outside pipeline/configs/ (repeatable)"
    mean = commands.add("ensemble", _ensemble, "--output")
    mean.add_argument("runs", nargs="+", type=Path, help="output folders of training runs")
    mean.add_argument("--config", action="append", default=[], help=custom)
    mean.add_argument("--input", type=Path, help="competition folder, if postprocess reads it")
    files = "out-of-fold and test predictions of another model (repeatable; docs/members.md)"
    mean.add_argument("--csv", action="append", default=[], metavar="NAME=OOF,TEST", help=files)
    infer = commands.add("infer", _infer, *run)
    members = f"{CONFIG}; repeat the option for members with custom code outside pipeline/configs/"
    infer.add_argument("--config", required=True, action="append", help=members)
    folder_of = "folder with manifest.json; repeat the option for each member of an ensemble"
    given = infer.add_mutually_exclusive_group(required=True)
    given.add_argument("--artifact", action="append", default=[], type=Path, help=folder_of)
    weights = "ensemble.json, which lists the members' folders and weights"
    given.add_argument("--ensemble", type=Path, help=weights)
    precisions = ("auto", "float32", "mixed_float16")
    precision = "model precision (default: the config's infer_precision)"
    infer.add_argument("--precision", default="", choices=precisions, help=precision)
    return commands.main(arguments)


def _describe(options: argparse.Namespace) -> dict[str, Any]:
    """Print the model's parameter count, shapes and learning rate."""
    backend.choose("jax", "tensorflow")
    config = config_module.load(options.config)
    _refuse_below_1("--images", options.images)
    images, labelled = options.images or IMAGES, config.data.labelled
    assumed = options.images is None and labelled is None
    why = "the default; set data.labelled or pass --images N"
    if options.images is None and labelled is not None:
        held_out = 1 / config.folds if config.folds else config.data.validation_fraction
        images = max(round(labelled * (1 - held_out)), 1)
        why = f"from data.labelled={labelled}; pass --images N to change this"
    if options.images is None:
        print(f"Step counts assume {images} training {config.data.noun} ({why}).", file=sys.stderr)
    from pipeline.models import architectures
    from pipeline.train import layer_rates, learning_rate, phases

    applied = learning_rate.apply(config, images)
    built = architectures.build(config, applied.batchnorm_momentum)
    result = {
        "config": config.name,
        "model": config.model,
        "parameters": architectures.count(built),
        "input": {"shape": [None, *built.input.shape[1:]], "dtype": built.input.dtype},
        "output": {"shape": [None, *built.outputs[0].shape[1:]], "dtype": "float32"},
        "images": images,
        "images_assumed": assumed,
        "optimizer": asdict(applied),
        "sizes": phases.described(config),
        "rates": layer_rates.described(architectures.build(config), config),
        "baseline": None if config.baseline is None else asdict(config.baseline),
    }
    if not options.json:
        print(json.dumps(result, indent=2))
    return result


def _refuse_below_1(option: str, number: int | None) -> None:
    if number is not None and number < 1:
        raise ConfigError(f"Invalid {option} {number}: expected 1 or more.\nCorrect or omit it.")


def _check(options: argparse.Namespace) -> dict[str, Any]:
    """Check a config's custom functions with JAX and TensorFlow."""
    backend.use_every_core(2)  # creates two devices
    config = config_module.load(options.config)
    from pipeline.evaluate import metrics
    from pipeline.models import architectures
    from pipeline.train import custom_check

    architectures.require(config)
    metrics.of(config)  # raises for an unknown name
    custom_check.check_optimizer_of(config)
    if custom_code.functions(config):
        custom_check.check(config, show)
    else:
        show(f"{config.name} has no custom functions to check")
    return {"config": config.name, "code": custom_code.digest(config)}


def _blueprint(options: argparse.Namespace) -> dict[str, Any]:
    """Write a model's blueprint, which lists its weights and contains reference outputs."""
    backend.choose("jax", "tensorflow")
    config, given = config_module.load(options.config), None
    from pipeline import blueprint
    from pipeline.models import published

    if options.networks:
        given = published.carried(json.loads(options.networks.read_bytes()))
    drawn = blueprint.draw(config, given)
    atomic_file.write(options.output, json.dumps(drawn).encode())
    show(f"{options.output}: {len(drawn['weights'])} weights and reference outputs")
    return {"config": config.name, "weights": len(drawn["weights"]), "output": str(options.output)}


def _explain(options: argparse.Namespace) -> dict[str, Any]:
    """Print the source files that process a row of data with this config, one per line."""
    backend.choose("jax")
    from pipeline import explain

    way = explain.way(config_module.load(options.config))
    for name, does in way.items():
        show(f"{name:33} {does}")
    return {"config": options.config, "way": way}


def _preset(options: argparse.Namespace) -> dict[str, Any]:
    """Write a published network with random weights, for use in a rehearsal."""
    backend.choose("jax", "tensorflow")
    from pipeline.models import presets

    written = presets.write(options.source, options.output, options.blocks)
    show(
        f"{options.output}: {written['kind']} of {options.source} with random weights,"
        f" {written['parameters']:,} parameters"
    )
    return written


def _train(options: argparse.Namespace) -> dict[str, Any]:
    """Train a model or resume its training, and write OUT/artifact."""
    backend.choose("jax")  # custom code in the config file may import Keras
    config = config_module.load(options.config)
    _refuse_below_1("--max-steps", options.max_steps)
    refuse_missing_input(options.input)
    if not backend.use_every_core(config.batch):
        show(
            f"Warning: {config.name}'s file creates a layer outside of any function. This started"
            " JAX when the file was loaded, so this CPU is used as a single device.\nCreate layers"
            " inside the model function."
        )
    processes.join(options.processes, options.process_id, options.coordinator)
    asked = {"--max-steps": options.max_steps, "--fresh": options.fresh}
    asked["custom_code"] = custom_code.digest(config)
    edit = "Start all processes with the same config and options."
    processes.refuse_differences("the run", config.to_json() | asked, edit)
    from pipeline.figures import training_figures
    from pipeline.train import custom_check, training

    first = processes.first()
    with processes.folder(options.output) as output:
        trained = training.train(
            config,
            options.input,
            output,
            max_steps=options.max_steps,
            fresh=options.fresh,
            check=custom_check.check if first else custom_check.by_jax,
            show=show if first else lambda line: None,
        )
    if trained.manifest is None or not first:
        return {"status": trained.status, "output": str(options.output)}
    return {
        "status": trained.status,
        "run_id": trained.manifest["run_id"],
        "artifact": str(options.output / "artifact"),
        "metrics": trained.manifest["metrics"],
        "pictures": [str(path) for path in training_figures.of_training(options.output, config)],
    }


def _ensemble(options: argparse.Namespace) -> dict[str, Any]:
    """Choose ensemble weights for the models of several runs, and write OUT/ensemble.json."""
    backend.choose("jax", "tensorflow")
    for name in options.config:
        config_module.load(name)
    from pipeline.infer import csv_members, ensemble

    csv = csv_members.files_of(options.csv)
    return ensemble.find(options.runs, options.output, show, csv, options.input)


def _infer(options: argparse.Namespace) -> dict[str, Any]:
    """Predict the test set and write OUT/submission.csv."""
    backend.choose("tensorflow", "jax")
    devices.share_memory()
    config, *_ = [config_module.load(name) for name in options.config]
    refuse_missing_input(options.input)
    from pipeline.infer import ensemble, inference

    found = {"members": []} if options.ensemble is None else ensemble.read(options.ensemble)
    folders = options.artifact or [Path(each["folder"]) for each in found["members"]]
    advice = (
        "Expected a folder with manifest.json.\nCorrect the path, restore the member's folder, or"
        " train a model:\npython -m pipeline train --config C --input DIR --output OUT"
    )
    for folder in folders:
        refuse_missing("The artifact", folder, advice)
    members, weights = ensemble.chosen(folders, found["members"], config)
    predictions = inference.infer(
        members,
        options.input,
        options.output,
        weights=weights,
        thresholds=found.get("thresholds"),
        config=config,
        precision=options.precision,
    )
    return {
        "submission": str(options.output / "submission.csv"),
        "rows": len(predictions.ids),
        "broken": len(predictions.broken),
        "left_out": predictions.left_out,
        "run_id": ", ".join(str(loaded.manifest["run_id"]) for loaded in members),
        "members": json.loads((options.output / inference.MEMBERS).read_bytes()),
    }


if __name__ == "__main__":
    sys.exit(main())
