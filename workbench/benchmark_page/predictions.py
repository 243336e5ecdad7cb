"""Predictions: what the plan says of rows that were measured, and the share of the cores' peak that
these reached.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline import config as config_module
from pipeline.config import Config
from pipeline.errors import PipelineError
from workbench.benchmark import bench_command, measurement, own_way
from workbench.benchmark.cells import OURS
from workbench.benchmark_page.timings import Timing
from workbench.plan import accelerators, plan
from workbench.plan.accelerators import RUNTIMES
from workbench.plan.laws import VALIDATES, AffineLaw, Interval

PROBED = 256, 1024  # the two batches of 2018 from which those above are told


@dataclass(frozen=True)
class Prediction:
    """A figure of a row, as it was predicted and as it is.

    Attributes:
        row: which.
        what: the figure, with its unit.
        predicted: least, usual and most.
        actual: None if the device does not say.
        basis: what the prediction rests on.
    """

    row: Timing
    what: str
    predicted: Interval
    actual: float | None
    basis: str


def utilization(row: Timing) -> tuple[float, float | None] | None:
    """Return the share of the cores' peak that a row reached, from the second epoch on, with
    nominal operations and with those in bounds (`workbench.plan.operation_counts`), where these are
    known.

    None of a device whose peak is not known, as of a CPU, and of 2018.
    """
    runtime = RUNTIMES.get(accelerators.like(row.device))
    if row.measured is None or row.measured.times is None or not (runtime and runtime.core):
        return None
    half = row.measured.about["precision"] != "float32"
    peak = accelerators.counted(row.device) * (
        runtime.core.operations if half else runtime.core.float32
    )
    counts, rate = row.measured.about["operations"], row.images + VALIDATES * row.validated
    share, inside = rate / row.mean / peak, counts["in_bounds"]
    return counts["nominal"] * share, None if inside is None else inside * share


def in_percent(row: Timing) -> str:
    """Return both shares of `utilization` for people; "—" is one that is not known."""
    shares = utilization(row) or (None, None)
    return " / ".join("—" if one is None else f"{one:.1%}" for one in shares)


def by_law(rows: Sequence[Timing]) -> Iterator[Prediction]:
    """Yield an epoch at each batch, told by two others of its device, way and pattern: a step takes
    a fixed time, and a time for each image.

    Of 2018 those two are `PROBED`; else the smallest and the largest batch.
    """
    series: dict[tuple[str, ...], list[Timing]] = {}
    for row in rows:
        key = row.work, row.config, row.device, row.way, str(row.pattern), row.feed
        series.setdefault(key, []).append(row)
    for each in series.values():
        batches = {row.batch: row for row in each}
        known = PROBED if each[0].measured is None else (min(batches), max(batches))
        if len(batches) < 3 or not set(known) <= set(batches):
            continue
        law = AffineLaw.through(*((batch, _step(batches[batch])) for batch in known))
        for batch in sorted(set(batches) - set(known)):
            row = batches[batch]
            seconds = law.of(batch) * row.images / batch
            basis = f"step = a + b x batch, by batch {known[0]} and {known[1]}"
            exact = Interval(seconds, seconds, seconds)
            yield Prediction(row, "seconds an epoch", exact, row.mean, basis)


def by_plan(rows: Sequence[Timing], show: Callable[[str], None]) -> Iterator[Prediction]:
    """Yield an epoch and the memory of ours at the largest batch of each accelerator, as
    `python -m workbench plan` tells them before anything has run there.
    """
    largest: dict[str, Timing] = {}
    for row in sorted(rows, key=lambda row: (-row.pattern, row.batch)):
        known = row.measured is not None and accelerators.named(row.device) in RUNTIMES
        if known and row.way == OURS:
            largest[row.device] = row
    for row in largest.values():
        config = _config(row)
        if config is None:
            continue
        given = plan.Given(round(row.images), "as they were counted")
        name = accelerators.named(row.device)
        (outlook,) = plan.make(config, [name], given, show).outlooks
        assert row.measured is not None  # noqa: S101 - chosen so
        if outlook.step is not None:
            images = row.images + VALIDATES * row.validated
            yield Prediction(
                *(row, "seconds an epoch", outlook.step.times(images / row.batch), row.mean),
                f"the plan, {outlook.time_basis}",
            )
        if outlook.memory is not None:
            peak, memory = row.measured.about.get("peak_bytes"), outlook.memory / 1e9
            yield Prediction(
                *(row, "GB of a core", Interval(memory, memory, memory), peak and peak / 1e9),
                f"the plan, {outlook.memory_basis}",
            )


def _step(row: Timing) -> float:
    return row.mean * row.batch / row.images


def _config(row: Timing) -> Config | None:
    """Return the config of a row; None if it is gone, or computes something else by now."""
    assert row.measured is not None  # noqa: S101 - of 2018 there is none
    about = row.measured.about
    try:
        config = bench_command.network(config_module.load(about["config"]), lambda line: None)
    except PipelineError:
        return None
    shape = (about["count"], *config.data.shape)
    if measurement.work(config.model, config.model_options, shape) != row.work:
        return None
    config = own_way.of_cell(config, row.measured.cell, about["epochs"])
    return replace(config, precision=about["precision"])
