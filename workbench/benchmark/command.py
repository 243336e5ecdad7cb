"""Run a benchmark for `python -m workbench bench` or the bench notebook."""

import math
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from formats import atomic_file
from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.runtime import backend, devices, mounts
from workbench.benchmark import grid, images, measurement
from workbench.benchmark.grid import PATTERNS

SMALL = {"k": 1, "n": 1, "kernel_size": 3}
HOURS = 9.0  # Kaggle's limit for TPU sessions, which is its shortest limit
COMPLETE = "complete.json"  # written by the session that measures the last cell
Show = Callable[[str], None]


class Options(NamedTuple):
    """Benchmark options.

    Attributes:
        pattern: keys of `PATTERNS`.
        images: maximum number of training images.
        minutes: time after which no new cell starts.
    """

    batch: list[int]
    pattern: list[int]
    epochs: int = 3
    images: int = 10**7
    minutes: float = math.inf


# Each option's example, minimum and maximum. An option accepts several values if its example has a
# comma.
RANGES = {
    "batch": ("64,128,256", 1, 2**16),
    "pattern": ("1,3 or 1..8", 1, len(PATTERNS)),
    "epochs": ("3", 2, 10**7),  # the first one compiles
    "images": ("10000", 1, 10**7),
    "minutes": ("60", 1, 10**7),
}


def read(config: Config, given: Mapping[str, str]) -> Options:
    """Parse the values of the options in `workbench.options.BENCH`. Empty values become defaults.

    Raises:
        ConfigError: if an option is not a number or out of range.
    """
    sizes = [config.batch // part for part in (4, 2, 1) if config.batch % part == 0]
    asked: dict[str, Any] = {"batch": sizes, "pattern": [*PATTERNS]}
    for name, text in given.items():
        if text:
            found = numbers(name, text)
            asked[name] = found if "," in RANGES[name][0] else found[0]
    return Options(**asked)


def numbers(name: str, text: str) -> list[int]:
    """Parse an option's integers.

    >>> numbers("pattern", "1..3,8")
    [1, 2, 3, 8]
    """
    example, least, most = RANGES[name]
    several = "," in example
    expected = "integers, such as 2,4 or 2..4, each" if several else "an integer"
    found = set[int]()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,8})(?:\.\.(\d{1,8}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not least <= first <= last <= most or (not several and not text.isdecimal()):
            raise ConfigError(
                f"--{name} {text[:40]}: expected {expected} from {least} to {most}.\n"
                f"For example: --{name} {example}"
            )
        found.update(range(first, last + 1))
    return sorted(found)


def use_cores(options: Options) -> None:
    backend.use_every_core(math.gcd(*options.batch))


def run(
    config: Config, folder: Path | None, output: Path, options: Options, show: Show
) -> dict[str, Any]:
    """Measure a grid's cells, and return the output folder and the number of cells that remain.

    Args:
        folder: competition folder, or None to use the default images of `images.find`.

    Raises:
        ConfigError: if the config is not for image classification, or has fewer images than a
            batch.
    """
    until = time.monotonic() + 60 * options.minutes
    images.require(config)
    if config.model != "wide_resnet":
        text = ", ".join(f"{name}={value}" for name, value in SMALL.items())
        show(f"Training a WideResNet ({text}) instead of {config.model}")
        config = replace(config, model="wide_resnet", model_options=SMALL)
    found, here = images.find(config, folder, show), devices.found()
    count = len(found.train.labels)
    found = found.first(options.images, max(len(found.test.labels) * options.images // count, 1))
    if here.platform != "cpu":  # on a CPU, fit uses a single device
        found = found.whole(here.count)
    count, largest = len(found.train.labels), max(options.batch)
    if count < largest:
        raise ConfigError(
            f"--batch {largest}: there are only {count} training images.\n"
            "Use smaller batches or more images."
        )
    many = f"{count:,} for training, {len(found.test.labels):,} for validation"
    show(f"Images: {many}; {found.source}")
    cells = grid.cells(options.pattern, options.batch)
    left = measurement.run(
        cells, config, found, output, epochs=options.epochs, until=until, show=show
    )
    return {"output": str(output), "cells": len(cells) - left, "left": left}


def run_on_kaggle(config: Config, options: Options, output: Path, show: Show) -> None:
    """Measure as many of the remaining cells as fit in a Kaggle session.

    Args:
        output: folder for the files of all cells, including cells from earlier sessions. When no
            cells remain, the file `COMPLETE` is written there, so that the next push does not start
            a session.
    """
    inputs, copied = mounts.root() / "input", 0
    for place in mounts.OUTPUTS:
        for path in inputs.glob(f"{place}/{measurement.FOLDER}/*/*.json"):
            target = output / measurement.FOLDER / path.parent.name / path.name
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                copied += 1
    show(f"{copied} cells from earlier sessions")
    folder = None
    if images.mounted(config):
        marker = config.data.sample_submission
        folder = mounts.competition(inputs, config.competition, marker)
    options = options._replace(minutes=session_minutes(config))
    if not run(config, folder, output, options, show)["left"]:
        atomic_file.write(output / COMPLETE, b"{}\n")


def session_minutes(config: Config) -> float:
    """Return the number of minutes after which no new cell may start.

    The last ten minutes of a session are reserved, or its last quarter if that is shorter.

    >>> from pipeline import config
    >>> digits = config.load("digits")
    >>> [session_minutes(replace(digits, session_hours=hours)) for hours in (None, 0.1)]
    [530.0, 4.5]
    """
    session = 60 * min(config.session_hours or HOURS, HOURS)
    return session - min(session / 4, 10)
