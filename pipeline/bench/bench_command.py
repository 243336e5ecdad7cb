"""The commands `python -m pipeline bench` and `bench-report`."""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline import config as config_module
from pipeline.bench import cells, images, measurement
from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.runtime import backend, devices

OPTIONS = {
    "batch": "images a step, with commas between; default: the config's, a half and a quarter",
    "pattern": "of the eight, as 1,3 or 1..8; default: all",
    "epochs": "of each training, 2 or more: the first compiles; default: 3",
    "images": "to train on at most; default: all",
    "minutes": "after which no other cell begins; default: no end",
}
EPOCHS = 3
SMALL = {"k": 1, "n": 1, "kernel_size": 3}
INPUT = "a competition's folder; default: CIFAR-100 where Keras reaches it, else made images"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench`, beside --config."""
    parser.add_argument("--input", type=Path, help=INPUT)
    parser.add_argument("--output", required=True, type=Path, help="gets a file a cell")
    for option, words in OPTIONS.items():
        parser.add_argument(f"--{option}", default="", help=words)


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench-report`."""
    parser.add_argument("runs", nargs="*", type=Path, help="the output folders of bench")
    parser.add_argument("--output", required=True, type=Path, help="gets the page and its pictures")
    parser.add_argument("--pattern", type=int, default=0, choices=range(1, 9), help="to compare")
    parser.add_argument("--accuracy", type=float, default=0.5, help="to reach; default: 0.5")


def bench(options: argparse.Namespace, show: Callable[[str], None]) -> dict[str, Any]:
    """Measure what the options say, as `run` does."""
    given = {name: getattr(options, name) for name in OPTIONS}
    return measure(options.config, options.input, options.output, given, show)


def measure(
    name: str, folder: Path | None, output: Path, given: dict[str, str], show: Callable[[str], None]
) -> dict[str, Any]:
    """Measure with the config of that name and every core, as `run` does."""
    backend.choose("jax")
    config = config_module.load(name)
    devices.use_cores(_common(given["batch"]) or config.batch)
    return run(config, folder, output, given, show)


def report(options: argparse.Namespace, show: Callable[[str], None]) -> dict[str, Any]:
    """Write the page that the options say."""
    backend.choose("jax")
    from pipeline.bench import bench_report

    return bench_report.write(
        options.runs, options.output, show, pattern=options.pattern, accuracy=options.accuracy
    )


def network(config: Config, show: Callable[[str], None]) -> Config:
    """Return the config with this benchmark's kind of network: its own if it is a WideResNet."""
    if config.model == "wide_resnet":
        return config
    options = ", ".join(f"{name}={value}" for name, value in SMALL.items())
    show(f"{config.name} has {config.model}; a WideResNet ({options}) is trained in its place")
    return replace(config, model="wide_resnet", model_options=SMALL)


def run(
    config: Config,
    folder: Path | None,
    output: Path,
    given: dict[str, str],
    show: Callable[[str], None],
    *,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Measure the grid that the options name, and return its cells as plain values.

    Args:
        folder: of a competition; None: as `pipeline.bench.images.find` says.
        given: by the names of `OPTIONS`; "": the default.
        scratch: as `pipeline.bench.measurement.run` takes it.

    Raises:
        ConfigError: if an option is none.
    """
    begun = time.monotonic()
    numbers = {name: _number(name, given.get(name, "")) for name in ("epochs", "images", "minutes")}
    epochs = int(numbers["epochs"] or EPOCHS)
    if epochs < 2:
        raise ConfigError(
            "--epochs 1: expected 2 or more, since the first epoch compiles.\nCorrect it."
        )
    sizes = [config.batch // part for part in (4, 2, 1) if config.batch % part == 0]
    batches = cells.read_batches(given["batch"]) if given.get("batch") else sizes
    patterns = cells.read_patterns(given.get("pattern") or f"1..{len(cells.PATTERNS)}")
    config = network(config, show)
    found = images.find(config, folder, show)
    if numbers["images"]:
        found = found.first(int(numbers["images"]))
    here = devices.found()
    if here.platform != "cpu":  # where fit computes on one device
        found = found.split_over(here.count)
    if len(found.train) < max(batches):
        raise ConfigError(
            f"--batch {max(batches)}: there are {len(found.train)} images to train on.\n"
            "Give smaller batches, or more images."
        )
    ways = cells.WAYS if found.real else (cells.FIT, cells.OURS)  # noise teaches no rate anything
    grid = cells.grid(patterns, batches, ways)
    show(
        f"Images: {len(found.train):,} to train on, {len(found.test):,} to validate; {found.source}"
    )
    until = begun + 60 * numbers["minutes"] if numbers["minutes"] else math.inf
    measured = measurement.run(
        grid, config, found, output, epochs=epochs, until=until, scratch=scratch, show=show
    )
    return {
        "output": str(output),
        "cells": [one.to_json() for one in measured],
        "left": len(grid) - len(measured),
    }


def _common(batches: str) -> int:
    """Return the largest number that divides each batch of the option; 0 if it names none."""
    return math.gcd(*cells.read_batches(batches)) if batches else 0


def _number(name: str, text: str) -> float:
    """Return the number of an option, 0 if it is not given."""
    try:
        value = float(text or 0)
    except ValueError:
        value = -1.0
    if value < 0 or not math.isfinite(value) or (text and not value):
        raise ConfigError(f"--{name} {text[:40]}: expected a number above 0.\nCorrect it.")
    return value
