"""What the plan says of a row, and the share of a peak that it reached."""

import math
from dataclasses import replace

import pytest

from pipeline.bench import measurement, predictions, timings
from pipeline.bench.cells import Cell
from pipeline.bench.epochs import Epoch, Times
from pipeline.bench.measurement import Measured
from pipeline.plan.accelerators import T4

SMALL = measurement.work("wide_resnet", {"k": 1, "n": 1, "kernel_size": 3}, (1000, 8, 8, 1))
ABOUT = {
    "devices": "2 x Tesla T4 (gpu)", "work": SMALL, "real": True, "precision": "float32",
    "config": "digits", "count": 1000, "epochs": 3, "peak_bytes": 5_000_000,
    "operations": {"nominal": 8e6, "in_bounds": 6e6},
}  # fmt: skip


def row(batch: int, seconds: float, **about: object) -> timings.Timing:
    epoch = Epoch(seconds, 1000, 0, 0.1, None, 0.0)
    cell = Cell("ours", 1, "own", batch)
    return timings.of(Measured(cell, Times(1.0, (epoch,) * 3), "", ABOUT | about))


def test_a_share_of_the_peak_is_operations_over_what_the_cores_could_do():
    """In both conventions, at the speed of the precision that was trained in."""
    peak = 2 * T4.float32

    assert predictions.utilization(row(64, 0.5)) == pytest.approx((8e6 * 2000 / peak, 12e9 / peak))
    half = predictions.utilization(row(64, 0.5, precision="mixed_float16"))
    assert half == pytest.approx((8e6 * 2000 / (2 * T4.operations), 12e9 / (2 * T4.operations)))


def test_a_share_is_of_as_many_devices_as_there_were():
    """Four A100 are no machine that the plan knows, so it says nothing of their time or quota."""
    one, four = (row(64, 0.5, devices=f"{count} x NVIDIA A100-SXM4-40GB (gpu)") for count in (1, 4))

    shares = [predictions.utilization(each) for each in (one, four)]
    assert shares[0] == pytest.approx(tuple(4 * share for share in shares[1]))
    assert list(predictions.by_plan([four], print)) == []
    unknown = row(64, 0.5, operations={"nominal": 8e6, "in_bounds": None})
    assert predictions.utilization(unknown)[1] is None


@pytest.mark.parametrize("devices", ["2 x cpu (cpu)", "1 x NVIDIA K80 (gpu)"])
def test_no_share_is_given_of_a_peak_that_is_not_known(devices):
    assert predictions.utilization(row(64, 0.5, devices=devices)) is None
    assert predictions.utilization(timings.published()[0]) is None


def test_a_batch_between_two_others_is_told_by_them():
    """Steps of 2 ms and 1 ms an image: an epoch of 1,000 images takes 1 s and 2 ms a step."""
    rows = [row(batch, 1000 / batch * (2e-3 + 1e-3 * batch)) for batch in (32, 64, 128)]

    (told,) = predictions.by_law(rows)

    assert told.row.batch == 64
    assert math.isclose(told.predicted.usual, 1 + 2e-3 * 1000 / 64, rel_tol=1e-9)
    assert math.isclose(told.predicted.usual, rows[1].mean, rel_tol=1e-9)
    assert list(predictions.by_law(rows[:2])) == []


@pytest.mark.slow  # a plan compiles
def test_time_and_memory_are_those_of_the_plan():
    """Of the largest batch; a config that computes something else by now is left out."""
    time, memory = predictions.by_plan([row(32, 0.9), row(64, 0.5)], print)

    assert (time.row.batch, time.what, time.actual) == (64, "seconds an epoch", 0.5)
    assert time.predicted.least <= time.predicted.usual <= time.predicted.most
    assert (memory.what, memory.actual) == ("GB of a core", 5e-3) and memory.predicted.usual > 0
    assert "estimated" in memory.basis
    other = replace(row(64, 0.5), work="something else")
    assert list(predictions.by_plan([other], print)) == []
