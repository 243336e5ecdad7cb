"""Measurement: a cell trained on the devices that are here, and a grid of them, cell by cell.

Each cell is a file in the output folder, by config and devices, written when it is complete. A grid
that is given again measures what has none.
"""

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from formats import atomic_file
from formats.errors import writing
from pipeline.config import Config, custom_code
from pipeline.errors import ConfigError, DeviceError, PipelineError, reading
from pipeline.runtime import devices, provenance
from workbench.benchmark import epochs as times_of
from workbench.benchmark import images as images_of
from workbench.benchmark.cells import FIT, PATTERNS, Cell
from workbench.benchmark.epochs import Times
from workbench.benchmark.images import Images
from workbench.budget import shown
from workbench.plan import kept_plans, operation_counts

FOLDER, FILES = "cells", "files"
# What two calls have to have alike, for the cells of one to serve the other.
ALIKE = ("devices", "config", "work", "images", "epochs", "precision", "versions", "settings")
ABOUT = {*ALIKE, "cpus", "real", "count", "operations"}
ROOM = 1.2  # of what a cell is expected to take, before the end of the time


@dataclass(frozen=True)
class Measured:
    """A cell, and what it took.

    Attributes:
        cell: which.
        times: of its training; None if it cannot be trained.
        reason: why not; "" if it was.
        about: devices, versions, config, images, date: whatever else a figure depends on.
    """

    cell: Cell
    times: Times | None
    reason: str
    about: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `of_json` takes them."""
        times = self.times.to_json() if self.times else None
        return {
            "cell": asdict(self.cell),
            "times": times,
            "reason": self.reason,
            "about": self.about,
        }


def of_json(found: dict[str, Any]) -> Measured:
    """Return what `Measured.to_json` gave."""
    times = times_of.of_json(found["times"]) if found["times"] else None
    return Measured(Cell(**found["cell"]), times, found["reason"], found["about"])


def read(path: Path) -> Measured:
    """Return the cell of a file.

    Raises:
        ConfigError: if it is corrupt.
    """
    fix = "Remove it, and give the command again."
    with reading(path, ConfigError, fix):
        try:
            found = of_json(json.loads(path.read_bytes()))
            if missing := ABOUT - found.about.keys():
                raise KeyError(min(missing))
            return found
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"{path} is no cell of a benchmark: {type(error).__name__}: {error}.\n{fix}"
            ) from error


def run(
    cells: Sequence[Cell],
    config: Config,
    images: Images,
    output: Path,
    *,
    epochs: int,
    until: float = math.inf,
    scratch: Path | None = None,
    show: Callable[[str], None],
) -> list[Measured]:
    """Measure the cells that the output folder lacks, and return all that it has of these.

    Args:
        epochs: of each cell.
        until: time (`time.monotonic`) after which no cell begins that would end later, by what
            others took.
        scratch: gets the images as PNG files; None: the output folder.

    Raises:
        DiskError: if nothing can be written.
    """
    about = _about(config, images, epochs)
    kept = output / FOLDER / folder_name(about)
    with writing(kept):
        kept.mkdir(parents=True, exist_ok=True)
    found: list[Measured] = []
    left, spent = list(cells), 0.0
    for cell in cells:
        before = _kept(kept / f"{cell}.json", about)
        if before is not None:
            found.append(before)
            left.remove(cell)
    if found:
        show(f"{len(found)} of {len(cells)} cells were measured before, in {kept}")
    for number, cell in enumerate(left, start=1):
        longest = _expected(found, cell)
        if time.monotonic() + ROOM * longest > until:
            missing = len(cells) - len(found)
            show(
                f"The time is up: {missing} of {len(cells)} cells are left; give the command again"
            )
            break
        files = None
        if PATTERNS[cell.pattern].files:
            files = images_of.as_files(images, (scratch or output) / FILES, show)
        begun = time.monotonic()
        measured = _measure(cell, images, files, config, epochs, about)
        atomic_file.write(kept / f"{cell}.json", json.dumps(measured.to_json()).encode())
        found.append(measured)
        took = time.monotonic() - begun
        spent += took
        rest = spent / number * (len(cells) - len(found))
        line = in_words(measured, len(found), len(cells), took)
        show(f"{line}; about {shown(rest)} left" if rest else line)
    return found


def folder_name(about: Mapping[str, Any]) -> str:
    """Return the folder of a config's cells of so many epochs on these devices.

    >>> folder_name({"config": "cifar100_wrn", "devices": "8 x TPU v5 lite (tpu)", "epochs": 3})
    'cifar100-wrn-8-x-tpu-v5-lite-tpu-3-epochs'
    """
    named = f"{about['config']} {about['devices']} {about['epochs']} epochs".lower()
    return re.sub("[^a-z0-9]+", "-", named).strip("-")


def in_words(measured: Measured, number: int, count: int, seconds: float) -> str:
    """Return a line about a cell."""
    start = f"{number} of {count}  {measured.cell!s:24}"
    times = measured.times
    if times is None:
        return f"{start}  n/a: {measured.reason}"
    return (
        f"{start}  {times.mean:.2f} s an epoch, {times.rate:,.0f} images/s,"
        f" {times.images:,.0f} images an epoch, {times.compiling:.1f} s compiling; {seconds:.0f} s"
    )


def _measure(
    cell: Cell,
    images: Images,
    files: Path | None,
    config: Config,
    epochs: int,
    about: dict[str, Any],
) -> Measured:
    import jax
    import keras

    from workbench.benchmark import fit_way, own_way

    here, ours = devices.found(), cell.way != FIT
    # On a CPU fit computes as it does by itself: on one device, with every core.
    count = here.count if ours or here.platform != "cpu" else 1
    before, peak = keras.config.dtype_policy(), peak_bytes() or 0
    way = own_way.train if ours else fit_way.train
    try:
        if cell.batch % count:
            raise ConfigError(f"a batch of {cell.batch} does not split over {count} devices")
        keras.distribution.set_distribution(
            keras.distribution.DataParallel() if count > 1 else None
        )
        keras.config.set_dtype_policy(about["precision"])
        with jax.default_matmul_precision(devices.matmul_precision(about["precision"])):
            times = way(cell, images, files, config, epochs)
    except (ConfigError, DeviceError) as error:
        return Measured(cell, None, str(error).splitlines()[0], about)
    except Exception as error:
        if isinstance(error, PipelineError) or not devices.exhausted(error):
            raise
        return Measured(cell, None, "out of memory", about)
    finally:
        keras.distribution.set_distribution(None)
        keras.config.set_dtype_policy(before)
        keras.utils.clear_session(free_memory=True)
    now = peak_bytes() or 0  # of the whole process: what an earlier cell took hides what is less
    return Measured(cell, times, "", {**about, "peak_bytes": now if now > peak else None})


def peak_bytes() -> int | None:
    """Return the most memory that a device has had in use so far; None where it does not say."""
    import jax

    found = [one.memory_stats() for one in jax.local_devices()]
    peaks = [each["peak_bytes_in_use"] for each in found if each and "peak_bytes_in_use" in each]
    return max(peaks, default=None)


def work(model: str, options: Mapping[str, Any], shape: Sequence[int]) -> str:
    """Return what an epoch computes; only rows with the same work are compared.

    >>> work("wide_resnet", {"n": 4, "k": 7}, (50_000, 32, 32, 3))
    'wide_resnet(k=7, n=4) on 50,000 images of 32x32x3'
    """
    given = ", ".join(f"{name}={options[name]}" for name in sorted(options))
    count, *form = shape
    return f"{model}({given}) on {count:,} images of {'x'.join(map(str, form))}"


def _about(config: Config, images: Images, epochs: int) -> dict[str, Any]:
    here, counts = devices.found(), operation_counts.of(config)
    return {
        "devices": str(here),
        "precision": devices.precision(config.precision, here),
        "versions": provenance.versions(),
        "cpus": devices.cores(),
        "config": config.name,
        "work": work(config.model, config.model_options, images.train.shape),
        "images": images.source,
        "real": images.real,
        "count": len(images.train),
        "epochs": epochs,
        "operations": {
            "nominal": counts.nominal,
            "in_bounds": None if math.isnan(counts.in_bounds) else counts.in_bounds,
        },
        "settings": {  # as JSON gives them back
            name: value
            for name, value in json.loads(json.dumps(config.to_json())).items()
            if name not in kept_plans.NOTHING
        }
        | {"custom_code": custom_code.digest(config)},
    }


def _kept(path: Path, about: dict[str, Any]) -> Measured | None:
    """Return a cell of an earlier call; None if it was not trained: by now it may be.

    Raises:
        ConfigError: if it was measured otherwise.
    """
    if not path.exists():
        return None
    measured = read(path)
    if measured.times is None:
        return None
    for name in ALIKE:
        then, now = measured.about.get(name), about[name]
        if then == now:
            continue
        if isinstance(now, dict):
            both = then or {}, now
            others = sorted(key for key in {**both[0], **now} if both[0].get(key) != now.get(key))
            then, now = ({key: each.get(key) for key in others} for each in both)
        raise ConfigError(
            f"{path} was measured with {name} {then!r}; this call has {now!r}.\n"
            "Choose another --output, or give the earlier options. On Kaggle:\n"
            "python -m commands push-bench --fresh"
        )
    return measured


def _expected(found: Sequence[Measured], cell: Cell) -> float:
    """Return how many seconds a cell will take, by those that are like it; 0 if there are none."""
    like = [one for one in found if one.times and one.cell.way == cell.way]
    if not like:
        return 0.0

    def seconds(one: Measured) -> float:
        assert one.times is not None  # noqa: S101 - it is in `like`
        return one.times.before + sum(epoch.seconds for epoch in one.times.epochs)

    def unlike(one: Measured) -> tuple[object, ...]:
        pattern = one.cell.pattern != cell.pattern
        files = PATTERNS[one.cell.pattern].files != PATTERNS[cell.pattern].files
        return pattern, files, abs(math.log(one.cell.batch / cell.batch)), -seconds(one)

    return seconds(min(like, key=unlike))
