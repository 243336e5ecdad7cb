"""Rows of any runs: how they are read, what the plan says of them, and how a page compares them."""

import html
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from workbench.benchmark import measurement
from workbench.benchmark.cells import Cell
from workbench.benchmark.epochs import Epoch, Times
from workbench.benchmark.measurement import FOLDER, Measured
from workbench.benchmark_page import bench_report, comparisons, predictions, timings
from workbench.plan.accelerators import T4

ABOUT = {
    "settings": {},
    "devices": "8 x TPU v5 lite (tpu)", "work": timings.WORK, "real": True, "precision": "float32",
    "config": "gone", "count": 50_000, "images": "CIFAR-100", "versions": {"jax": "1"},
    "cpus": 2, "peak_bytes": 4_000_000_000, "operations": {"nominal": 8e10, "in_bounds": 6e10},
    "epochs": 3,
}  # fmt: skip
SLOW, FAST = (
    Times(1.0, tuple(Epoch(seconds, 49_152, 8192, 0.2 * number, 0.1, 0.0) for number in (1, 2, 3)))
    for seconds in (90.0, 30.0)
)
SMALL = measurement.work("wide_resnet", {"k": 1, "n": 1, "kernel_size": 3}, (1000, 8, 8, 1))


def cell(way: str, feed: str, times: Times | None = FAST, **about: object) -> Measured:
    return Measured(Cell(way, 3, feed, 256), times, "" if times else "too large", ABOUT | about)


def row(batch: int, seconds: float, **about: object) -> timings.Timing:
    """Return a row of a small network on a pair of T4."""
    given = {
        "devices": "2 x Tesla T4 (gpu)", "work": SMALL, "config": "digits", "count": 1000,
        "peak_bytes": 5_000_000, "operations": {"nominal": 8e6, "in_bounds": 6e6},
    }  # fmt: skip
    times = Times(1.0, (Epoch(seconds, 1000, 0, 0.1, None, 0.0),) * 3)
    return timings.of(Measured(Cell("ours", 1, "own", batch), times, "", ABOUT | given | about))


def keep(folder: Path, *cells: Measured) -> Path:
    kept = folder / FOLDER / "devices"
    kept.mkdir(parents=True)
    for one in cells:
        (kept / f"{one.cell}.json").write_text(json.dumps(one.to_json()))
    return folder


def shown(path: str) -> str:
    """Return the words of a page."""
    body = Path(path).read_text(encoding="utf-8").partition("<body>")[2]
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())


# How they are read


def test_what_is_compiled_late_counts_once():
    """The generator's ragged batch comes in epoch 2: later epochs take what the third one took."""
    epochs = [Epoch(9.0, 32, 0, 0.1, None, 5.0), Epoch(6.0, 32, 0, 0.5, None, 4.0)]
    times = Times(1.0, (*epochs, Epoch(2.0, 32, 0, 0.1, None, 0.0)))

    assert (times.mean, times.rate) == (2.0, 16.0)
    assert (times.until(0.5), times.until(0.6)) == ((2, 16.0), None)
    assert times.total(3) == 1 + 9 + 6 + 2 and times.total(103) - times.total(3) == 200


def test_rows_of_several_runs_are_put_together(tmp_path):
    """A cell that two runs share counts once; one that they measured differently is refused. The
    same cell of two configs stands beside the other.
    """
    one = cell("fit", "whole")
    first = keep(tmp_path / "first", one)
    other = keep(tmp_path / "other", replace(one, cell=replace(one.cell, batch=32)))
    config = keep(tmp_path / "config", cell("fit", "whole", config="others", work="much"))
    shutil.copytree(first, tmp_path / "copy")

    assert len(timings.read([first, other, config, tmp_path / "copy"])) == 3
    with pytest.raises(ConfigError, match="fit-3-whole-256 was measured twice on 8 x TPU"):
        timings.read([first, keep(tmp_path / "slower", cell("fit", "whole", SLOW))])
    with pytest.raises(ConfigError, match=r"holds no cells/DEVICES/\*\.json(.|\n)*workbench bench"):
        timings.read([tmp_path])


def test_of_two_trainings_of_a_cell_the_longer_one_counts(tmp_path):
    """And a training before one that failed."""
    longer = cell("fit", "whole", replace(FAST, epochs=(*FAST.epochs, FAST.epochs[0])))
    cells = cell("fit", "whole"), longer, cell("fit", "whole", None)
    folders = [keep(tmp_path / str(number), one) for number, one in enumerate(cells)]

    assert timings.read(folders) == timings.read(folders[::-1]) == [longer]


# What the plan says of them


def test_a_share_of_the_peak_is_operations_over_what_the_cores_could_do():
    """In both conventions, at the speed of the precision that was trained in."""
    peak = 2 * T4.float32

    assert predictions.utilization(row(64, 0.5)) == pytest.approx((8e6 * 2000 / peak, 12e9 / peak))
    half = predictions.utilization(row(64, 0.5, precision="mixed_float16"))
    assert half == pytest.approx((8e6 * 2000 / (2 * T4.operations), 12e9 / (2 * T4.operations)))


def test_a_share_is_of_as_many_devices_as_there_were():
    """Four A100 are no machine that the plan knows, so it says nothing of their time or quota; nor
    of a peak that is not known.
    """
    one, four = (row(64, 0.5, devices=f"{count} x NVIDIA A100-SXM4-40GB (gpu)") for count in (1, 4))

    shares = [predictions.utilization(each) for each in (one, four)]
    assert shares[0] == pytest.approx(tuple(4 * share for share in shares[1]))
    assert list(predictions.by_plan([four], print)) == []
    for unknown in (row(64, 0.5, devices="1 x NVIDIA K80 (gpu)"), timings.published()[0]):
        assert predictions.utilization(unknown) is None


def test_a_batch_between_two_others_is_told_by_them():
    """Steps of 2 ms and 1 ms an image: an epoch of 1,000 images takes 1 s and 2 ms a step."""
    rows = [row(batch, 1000 / batch * (2e-3 + 1e-3 * batch)) for batch in (32, 64, 128)]

    (told,) = predictions.by_law(rows)

    assert told.row.batch == 64
    assert told.predicted.usual == pytest.approx(1 + 2e-3 * 1000 / 64, rel=1e-9)
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


# The page


def test_equal_work_is_compared_with_2018_and_between_the_ways(tmp_path):
    """At the batch that both have, and each at its best; with what is known against it."""
    run = keep(tmp_path / "run", cell("fit", "generator", SLOW), cell("ours", "own"))

    found = bench_report.write([run], tmp_path / "page", print)

    ratios = [
        (one["slow"][:3], round(one["ratio"], 9))
        for one in found["compared"]
        if one["what"] == "an image, at batch 256" and one["fast"].startswith("8 x")
    ]
    there = timings.published_grid.row("gpu", 256, 3)
    assert ("8 x", 3.0) in ratios
    assert ("GPU", round(there.mean / there.images / (30 / 49_152), 9)) in ratios
    text = shown(found["page"])
    assert "in 2018 nobody counted the images" in text and "ours, batch 256" in text
    assert {path.rpartition("/")[2] for path in found["pictures"]} == {
        *("epoch.png", "epoch-log.png", "more.png", "totals.png"),
    }


def test_other_work_is_not_compared():
    """A small network on few images says nothing about the devices of 2018."""
    rows = [timings.of(cell("ours", "own", work="small")), *timings.published()]

    assert all(one.slow.work == one.fast.work for one in comparisons.of(rows, 3))


def test_the_ways_are_compared_to_the_same_accuracy():
    """The unscaled rate took 90 s an epoch where the scaled one took 30."""
    rows = [timings.of(cell("ours", "own")), timings.of(cell("unscaled", "own", SLOW))]

    (found,) = comparisons.by_accuracy(comparisons.to_accuracy(rows, 0.5), 0.5)

    assert (found.slow.way, found.fast.way) == ("unscaled", "ours")
    assert found.ratio == pytest.approx(271 / 91)


def test_the_time_to_an_accuracy_is_that_of_real_images(tmp_path, monkeypatch):
    """The third epoch has 0.6: 1 s before, and three of 30 s."""
    monkeypatch.setattr(bench_report.pictures, "draw", lambda *given, **more: [])
    run = keep(tmp_path / "run", cell("ours", "own"))
    other = keep(tmp_path / "other", cell("ours", "own", SLOW, devices="2 x Tesla T4 (gpu)"))
    made = keep(tmp_path / "made", cell("ours", "own", real=False))

    alone, both, unreal, none = (
        bench_report.write(runs, tmp_path / "page", print)["advice"]
        for runs in ([run], [run, other], [made], [])
    )

    assert "91.0 s with all compilation, in epoch 3" in alone[0]
    assert f"{91 / 3600 / 20:.2%} of a week's quota" in alone[1]
    assert both[0].startswith("Choose 8 x TPU v5 lite (tpu)")
    assert "is not known" in unreal[0] and "figures of 2018" in none[0]
    assert "3.17" in shown(str(tmp_path / "page" / "bench.html"))


def test_a_page_has_what_there_is(tmp_path):
    """Of one pattern it is not known what another one costs; what could not be trained is named."""
    run = keep(tmp_path / "run", cell("ours", "own", work="small"), cell("fit", "generator", None))

    found = bench_report.write([run], tmp_path / "page", print)

    assert len(found["pictures"]) == 3 and not (tmp_path / "page" / "more.png").exists()
    assert "n/a: fit-3-generator-256: too large" in shown(found["page"])
    with pytest.raises(ConfigError, match="--pattern 5: these runs measured 3 alone"):
        bench_report.write([run], tmp_path / "page", print, pattern=5)
