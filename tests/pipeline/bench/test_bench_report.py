"""The page of any runs: what it compares, what it refuses to, and how it looks without any."""

import html
import re
from pathlib import Path

import pytest

from pipeline.bench import bench_report, comparisons, timings
from pipeline.bench.cells import Cell
from pipeline.bench.epochs import Epoch, Times
from pipeline.bench.measurement import Measured
from pipeline.errors import ConfigError
from tests.pipeline.bench.test_timings import keep

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


def cell(way: str, feed: str, times: Times | None = FAST, **about: object) -> Measured:
    return Measured(Cell(way, 3, feed, 256), times, "" if times else "too large", ABOUT | about)


def shown(path: str) -> str:
    """Return the words of a page."""
    body = Path(path).read_text(encoding="utf-8").partition("<body>")[2]
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())


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


def test_other_work_is_not_compared(tmp_path):
    """A small network on few images says nothing about the devices of 2018."""
    rows = [timings.of(cell("ours", "own", work="small")), *timings.published()]

    assert all(one.slow.work == one.fast.work for one in comparisons.of(rows, 3))


def test_the_time_to_an_accuracy_is_that_of_real_images(tmp_path, monkeypatch):
    """The third epoch has 0.6: 1 s before, and three of 30 s."""
    monkeypatch.setattr(bench_report.pictures, "draw", lambda *given, **more: [])
    run = keep(tmp_path / "run", cell("ours", "own"))

    advice = bench_report.write([run], tmp_path / "page", print)["advice"]
    assert advice[0].startswith(
        f"Only 8 x TPU v5 lite (tpu) was measured for {timings.WORK}: nothing"
    )
    assert advice[0].endswith("augmentation: 91.0 s with all compilation, in epoch 3.")
    assert f"{91 / 3600 / 20:.2%} of a week's quota" in advice[1]
    other = keep(tmp_path / "other", cell("ours", "own", SLOW, devices="2 x Tesla T4 (gpu)"))
    advice = bench_report.write([run, other], tmp_path / "page", print)["advice"]
    assert advice[0].startswith(f"Choose 8 x TPU v5 lite (tpu) for {timings.WORK}. The fastest")
    made = keep(tmp_path / "made", cell("ours", "own", real=False))
    assert "is not known" in bench_report.write([made], tmp_path / "page", print)["advice"][0]


def test_a_page_has_what_there_is(tmp_path, monkeypatch):
    """Of one pattern it is not known what another one costs; what could not be trained is named;
    and without a run there are the headlines of 2018.
    """
    run = keep(tmp_path / "run", cell("ours", "own", work="small"), cell("fit", "generator", None))

    found = bench_report.write([run], tmp_path / "page", print)

    assert len(found["pictures"]) == 3 and not (tmp_path / "page" / "more.png").exists()
    assert "n/a: fit-3-generator-256: too large" in shown(found["page"])
    with pytest.raises(ConfigError, match="--pattern 5: these runs measured 3 alone"):
        bench_report.write([run], tmp_path / "page", print, pattern=5)
    monkeypatch.setattr(bench_report.pictures, "draw", lambda *given, **more: [])
    alone = bench_report.write([], tmp_path / "alone", print)
    assert alone["pattern"] == 3 and "figures of 2018" in alone["advice"][0]
    assert "3.17" in shown(alone["page"])


def test_the_ways_are_compared_to_the_same_accuracy():
    """The unscaled rate took 90 s an epoch where the scaled one took 30."""
    rows = [timings.of(cell("ours", "own")), timings.of(cell("unscaled", "own", SLOW))]

    (found,) = comparisons.by_accuracy(comparisons.to_accuracy(rows, 0.5), 0.5)

    assert (found.slow.way, found.fast.way) == ("unscaled", "ours")
    assert found.ratio == pytest.approx(271 / 91)
