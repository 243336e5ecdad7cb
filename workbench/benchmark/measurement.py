"""Measure the cells of a grid on this machine's devices, and write a JSON file for each cell.

The files are in a folder for each combination of settings that affect the results, such as the
config and the devices. Cells that already have a file are skipped.
"""

import hashlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from formats import atomic_file
from formats.errors import writing
from pipeline.config import Config, custom_code
from pipeline.errors import ConfigError, DeviceError, reading
from pipeline.runtime import devices, provenance
from workbench.benchmark.grid import FILES, FIT, PATTERNS, Cell
from workbench.benchmark.images import Images, write
from workbench.budget import shown

FOLDER = "cells"
MARGIN = 1.2  # a cell starts only if this multiple of its expected duration is left
# Config fields that do not affect the results.
UNIMPORTANT = {
    *("name", "competition", "epochs", "folds", "views", "keep", "patience", "handoff", "feed"),
    *("session_hours", "infer_hours", "progress_seconds", "checkpoint_seconds"),
    *("baseline", "metric"),
}


@dataclass(frozen=True)
class Measured:
    """The measurement of a cell.

    Attributes:
        about: everything that affects the results, such as devices, versions, config and images.
        date: time of the measurement, in ISO 8601.
        before: seconds before the first epoch.
        epochs: a dictionary per epoch with its `seconds` (including validation and compilation),
            the `compiling` seconds, the number of `images` actually trained on, their `accuracy`,
            the number of `validated` images, and the `validation_accuracy`. The list is empty if
            the training run failed.
        reason: why the training run failed, or "".
    """

    cell: Cell
    about: dict[str, Any]
    date: str
    before: float = 0.0
    epochs: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""

    @property
    def seconds(self) -> float:
        return self.before + float(sum(epoch["seconds"] for epoch in self.epochs))

    def summary(self) -> dict[str, float]:
        """Return the results of a successful training run as a table row.

        `before` is the number of seconds before the first epoch, and `first` is the duration of the
        first epoch. `mean` and `deviation` are the mean and the standard deviation of the duration
        of later epochs, excluding compilation. `late` is the compilation time after epoch 1, for
        example for a smaller last batch, and `compiling` is the total compilation time. `images`
        and `validated` are means over later epochs, and `accuracy` is the final training accuracy.
        """
        epochs = pd.DataFrame(self.epochs)
        later = epochs[1:]
        took = later["seconds"] - later["compiling"]
        return {
            "before": self.before,
            "first": epochs["seconds"][0],
            "mean": took.mean(),
            "deviation": took.std(),
            "late": later["compiling"].sum(),
            "compiling": epochs["compiling"].sum(),
            "images": later["images"].mean(),
            "validated": later["validated"].mean(),
            "accuracy": epochs["accuracy"].iloc[-1],
        }

    def until(self, accuracy: float) -> dict[str, float]:
        """Return how long it took to reach the given training accuracy, including compilation.

        `reached` is the number of epochs, and `seconds` is the time. The dictionary is empty if the
        accuracy was not reached, or if the images are random noise.
        """
        seconds = self.before
        for number, epoch in enumerate(self.epochs, start=1):
            seconds += epoch["seconds"]
            if epoch["accuracy"] >= accuracy and self.about["real"]:
                return {"reached": number, "seconds": seconds}
        return {}


def read(path: Path) -> Measured:
    with reading(path, ConfigError, "Remove the file, then run the command again."):
        found = json.loads(path.read_bytes())
        return Measured(**{**found, "cell": Cell(**found["cell"])})


def run(
    cells: Sequence[Cell],
    config: Config,
    images: Images,
    output: Path,
    *,
    epochs: int,
    until: float,
    show: Callable[[str], None],
) -> int:
    """Measure the cells that have no file yet or failed earlier, and return how many remain.

    Args:
        until: time (`time.monotonic`) by which the last cell should finish. Durations are estimated
            from earlier cells.

    Raises:
        ConfigError: if a file of an earlier cell cannot be read.
        DiskError: if a file cannot be written.
    """
    about = _about(config, images, epochs)
    kept = output / FOLDER / folder_name(about)
    with writing(kept):
        kept.mkdir(parents=True, exist_ok=True)
    known = [read(path) for cell in cells if (path := kept / f"{cell}.json").exists()]
    found = {one.cell: one for one in known if one.epochs}
    if found:
        show(f"{len(found)} of {len(cells)} cells were already measured, in {kept}")
    left, spent = [cell for cell in cells if cell not in found], 0.0
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        files = Path(scratch) / "files"
        for number, cell in enumerate(left, start=1):
            if time.monotonic() + MARGIN * _expected(found.values(), cell) > until:
                break
            if FILES in PATTERNS[cell.pattern] and not files.exists():
                show("Writing the images as PNG files")
                write(images, files)
            began = time.monotonic()
            found[cell] = measured = _measure(cell, images, files, config, about)
            text = json.dumps(asdict(measured)).encode()
            atomic_file.write(kept / f"{cell}.json", text)
            took = time.monotonic() - began
            spent += took
            rest = shown(spent / number * (len(left) - number))
            show(f"{len(found)} of {len(cells)}  {_in_words(measured, took)}; about {rest} left")
    if missing := len(cells) - len(found):
        show(f"Out of time: {missing} of {len(cells)} cells remain; run the command again")
    return missing


def work(config: Config, images: Images) -> str:
    """Describe the work of an epoch. Only measurements of the same work are compared."""
    options = ", ".join(f"{name}={value}" for name, value in sorted(config.model_options.items()))
    count, *form = images.train.pixels.shape
    return f"{config.model}({options}) on {count:,} images of {'x'.join(map(str, form))}"


def folder_name(about: dict[str, Any]) -> str:
    """Return the name of the folder for cells with these `about` values.

    The name does not depend on `cpus`.
    >>> folder_name({"config": "cifar100_wrn", "devices": "8 x TPU v5 lite (tpu)", "epochs": 3})
    'cifar100-wrn-8-x-tpu-v5-lite-tpu-3-epochs-d2729e38'
    """
    named = f"{about['config']} {about['devices']} {about['epochs']} epochs".lower()
    deciding = json.dumps({**about, "cpus": None}, sort_keys=True)
    digest = hashlib.sha256(deciding.encode()).hexdigest()
    return re.sub("[^a-z0-9]+", "-", f"{named} {digest[:8]}").strip("-")


def _about(config: Config, images: Images, epochs: int) -> dict[str, Any]:
    here = devices.found()
    settings = {name: value for name, value in config.to_json().items() if name not in UNIMPORTANT}
    return {
        "devices": str(here),
        "precision": devices.precision(config.precision, here),
        "versions": provenance.versions(),
        "cpus": devices.cores(),
        "config": config.name,
        "work": work(config, images),
        "images": images.source,
        "real": images.real,
        "epochs": epochs,
        "settings": {**settings, "custom_code": custom_code.digest(config)},
    }


def _measure(
    cell: Cell, images: Images, files: Path, config: Config, about: dict[str, Any]
) -> Measured:
    import jax
    import keras

    from workbench.benchmark import training

    here, precision, before = devices.found(), about["precision"], keras.config.dtype_policy()
    train = training.fit if cell.way == FIT else training.ours
    # On a CPU, fit uses its default of a single device with all cores.
    count = 1 if cell.way == FIT and here.platform == "cpu" else here.count
    date = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        if cell.batch % count:
            raise ConfigError(f"batch {cell.batch} cannot be split evenly across {count} devices")
        split = keras.distribution.DataParallel() if count > 1 else None
        keras.distribution.set_distribution(split)
        keras.config.set_dtype_policy(precision)
        with jax.default_matmul_precision(devices.matmul_precision(precision)):
            clock = train(cell, images, files, config, about["epochs"])
        return Measured(cell, about, date, clock.before, clock.epochs)
    except Exception as error:
        refused = isinstance(error, ConfigError | DeviceError)
        if not refused and not devices.exhausted(error):
            raise
        reason = str(error).splitlines()[0] if refused else "out of memory"
        return Measured(cell, about, date, reason=reason)
    finally:
        keras.distribution.set_distribution(None)
        keras.config.set_dtype_policy(before)
        keras.utils.clear_session(free_memory=True)


def _in_words(measured: Measured, took: float) -> str:
    if not measured.epochs:
        return f"{measured.cell!s:24}  n/a: {measured.reason}"
    found = measured.summary()
    return (
        f"{measured.cell!s:24}  {found['images'] / found['mean']:,.0f} images/s,"
        f" {found['mean']:.2f} s and {found['images']:,.0f} images per epoch,"
        f" {found['compiling']:.1f} s compiling; {took:.0f} s"
    )


def _expected(found: Iterable[Measured], cell: Cell) -> float:
    """Return the longest duration of similar cells in seconds, or 0 if there are no similar cells.

    Similar cells train in the same way. If any of them have the same batch size, only these are
    used.
    """
    alike = [one for one in found if one.cell.way == cell.way]
    same = [one for one in alike if one.cell.batch == cell.batch]
    return max((one.seconds for one in same or alike), default=0.0)
