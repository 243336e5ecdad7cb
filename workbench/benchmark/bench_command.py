"""The commands `python -m workbench bench` and `bench-report`."""

import argparse
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline import config as config_module
from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.runtime import backend, devices
from workbench.benchmark import cells, images, measurement
from workbench.options import BENCH

EPOCHS = 3
SMALL = {"k": 1, "n": 1, "kernel_size": 3}
INPUT = "a competition's folder; default: CIFAR-100 where Keras reaches it, else made images"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench`, beside --config."""
    parser.add_argument("--input", type=Path, help=INPUT)
    parser.add_argument("--output", required=True, type=Path, help="gets a file a cell")
    for option, words in BENCH.items():
        parser.add_argument(f"--{option}", default="", help=words)


def bench(options: argparse.Namespace, show: Callable[[str], None]) -> dict[str, Any]:
    """Measure what the options say, as `run` does."""
    given = {name: getattr(options, name) for name in BENCH}
    return measure(options.config, options.input, options.output, given, show)


def measure(
    name: str, folder: Path | None, output: Path, given: dict[str, str], show: Callable[[str], None]
) -> dict[str, Any]:
    """Measure with the config of that name and every core, as `run` does."""
    backend.choose("jax")
    config = config_module.load(name)
    use_cores(config, given)
    return run(config, folder, output, given, show)


def use_cores(config: Config, given: Mapping[str, str]) -> None:
    """Let JAX split this CPU into devices that divide each batch. Call it before JAX computes."""
    backend.use_every_core(math.gcd(*read(config, given).batches))


@dataclass(frozen=True)
class Options:
    """What the options say, as numbers.

    Attributes:
        batches, patterns: of the grid.
        epochs: of each training.
        images: to train on at most; None: all.
        minutes: after which no other cell begins; infinite: no end.
    """

    batches: list[int]
    patterns: list[int]
    epochs: int
    images: int | None
    minutes: float


def read(config: Config, given: Mapping[str, str]) -> Options:
    """Return what the options say, before anything is measured.

    Args:
        given: by the names of `workbench.options.BENCH`; "", or not there: the default.

    Raises:
        ConfigError: if an option is none.
    """
    sizes = [config.batch // part for part in (4, 2, 1) if config.batch % part == 0]
    patterns = given.get("pattern") or f"1..{len(cells.PATTERNS)}"
    epochs, images = (_whole(name, given.get(name, "")) for name in ("epochs", "images"))
    if epochs == 1:
        raise ConfigError(
            "--epochs 1: expected 2 or more, since the first epoch compiles.\nCorrect it:"
            " --epochs 3"
        )
    return Options(
        cells.read_batches(given["batch"]) if given.get("batch") else sizes,
        cells.read_patterns(patterns),
        epochs or EPOCHS,
        images,
        _number("minutes", given.get("minutes", "")) or math.inf,
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
    given: Mapping[str, str],
    show: Callable[[str], None],
    *,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Measure the grid that the options name, and return its cells as plain values.

    Args:
        folder: of a competition; None: as `workbench.benchmark.images.find` says.
        given: as `read` takes it.
        scratch: as `workbench.benchmark.measurement.run` takes it.

    Raises:
        ConfigError: if an option is none.
    """
    begun, options = time.monotonic(), read(config, given)
    images.require(config)
    config = network(config, show)
    found = images.find(config, folder, show)
    if options.images is not None:
        found = found.first(options.images)
    here = devices.found()
    if here.platform != "cpu":  # where fit computes on one device
        found = found.split_over(here.count)
    if len(found.train) < max(options.batches):
        raise ConfigError(
            f"--batch {max(options.batches)}: there are {len(found.train)} images to train on.\n"
            "Give smaller batches, or more images."
        )
    ways = cells.WAYS if found.real else (cells.FIT, cells.OURS)  # noise teaches no rate anything
    grid = cells.grid(options.patterns, options.batches, ways)
    show(
        f"Images: {len(found.train):,} to train on, {len(found.test):,} to validate; {found.source}"
    )
    how: dict[str, Any] = {"epochs": options.epochs, "until": begun + 60 * options.minutes}
    measured = measurement.run(grid, config, found, output, **how, scratch=scratch, show=show)
    return {
        "output": str(output),
        "cells": [one.to_json() for one in measured],
        "left": len(grid) - len(measured),
    }


def _whole(name: str, text: str) -> int | None:
    """Return the whole number of an option; None if it is not given."""
    value = _number(name, text)
    if value is not None and value != int(value):
        raise ConfigError(
            f"--{name} {text[:40]}: expected a whole number.\nCorrect it: --{name} 10"
        )
    return None if value is None else int(value)


def _number(name: str, text: str) -> float | None:
    """Return the number of an option; None if it is not given."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigError(
            f"--{name} {text[:40]}: expected a number above 0.\nCorrect it: --{name} 10"
        )
    return value
