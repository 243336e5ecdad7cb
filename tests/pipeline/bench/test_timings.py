"""Rows of any runs beside those of 2018, and what each thing that is done more costs."""

import json
import shutil
from dataclasses import replace
from statistics import fmean

import pytest

from pipeline.bench import measurement, timings
from pipeline.bench.cells import Cell
from pipeline.bench.epochs import Epoch, Times
from pipeline.bench.measurement import FOLDER, Measured
from pipeline.errors import ConfigError

EPOCH = Epoch(2.0, 48, 0, 0.5, None, 0.0)
TIMES = Times(1.0, (replace(EPOCH, seconds=9.0, compiling=6.0), EPOCH, replace(EPOCH, seconds=3.0)))
ABOUT = dict.fromkeys(measurement.ABOUT) | {
    "devices": "1 x cpu (cpu)",
    "config": "digits",
    "work": "little",
}
CELL = Measured(Cell("fit", 1, "whole", 16), TIMES, "", ABOUT)


def keep(folder, *cells):
    kept = folder / FOLDER / "devices"
    kept.mkdir(parents=True, exist_ok=True)
    for one in cells:
        (kept / f"{one.cell}.json").write_text(json.dumps(one.to_json()))
    return folder


def test_a_cell_has_the_columns_of_2018():
    """Its total is before + epoch 1 + mean x the others."""
    row = timings.of(CELL)

    assert (row.before, row.first, row.mean, row.total(20)) == (1.0, 9.0, 2.5, 1 + 9 + 19 * 2.5)
    assert (TIMES.rate, TIMES.until(0.5), TIMES.until(0.6)) == (96 / 5, (1, 10.0), None)


def test_of_2018_validation_costs_a_few_per_cent_and_truncating_nothing_an_image():
    """As its author says of validation."""
    costs: dict[str, list[float]] = {}
    for name, _, _, share in timings.costs_of_more(timings.published()):
        costs.setdefault(name, []).append(share)

    assert 1.0 < fmean(costs["validation"]) < 1.1
    assert fmean(costs["truncated"]) == pytest.approx(1, abs=0.05)


def test_rows_of_several_runs_are_put_together(tmp_path):
    """A cell that two runs share counts once; one that they measured differently is refused."""
    first = keep(tmp_path / "first", CELL)
    other = keep(tmp_path / "other", replace(CELL, cell=replace(CELL.cell, batch=32)))
    shutil.copytree(first, tmp_path / "copy")

    assert len(timings.read([first, other, tmp_path / "copy"])) == 2
    slower = replace(CELL, times=replace(TIMES, before=2.0))
    with pytest.raises(ConfigError, match="fit-1-whole-16 was measured twice on 1 x cpu"):
        timings.read([first, keep(tmp_path / "slower", slower)])
    with pytest.raises(
        ConfigError, match=r"holds no cells/DEVICES/\*\.json(.|\n)*python -m pipeline bench"
    ):
        timings.read([tmp_path])


def test_of_two_trainings_of_a_cell_the_longer_one_counts(tmp_path):
    """And a training before one that failed."""
    longer = replace(CELL, times=replace(TIMES, epochs=(*TIMES.epochs, EPOCH)))
    failed = replace(CELL, times=None, reason="out of memory")
    folders = [
        keep(tmp_path / name, one)
        for name, one in (("short", CELL), ("long", longer), ("failed", failed))
    ]

    assert timings.read(folders) == timings.read(folders[::-1]) == [longer]


def test_what_is_compiled_late_counts_once():
    """The generator's ragged batch comes in epoch 2: later epochs take what the third one took."""
    epochs = [Epoch(9.0, 32, 0, 0.1, None, 5.0), Epoch(6.0, 32, 0, 0.1, None, 4.0)]
    times = Times(1.0, (*epochs, Epoch(2.0, 32, 0, 0.1, None, 0.0)))

    assert (times.mean, times.rate) == (2.0, 16.0)
    assert times.total(3) == 1 + 9 + 6 + 2 and times.total(103) - times.total(3) == 200


def test_runs_of_two_configs_on_one_device_stand_beside_each_other(tmp_path):
    """The same cell of each; neither is compared with the other."""
    other = replace(CELL, about=ABOUT | {"config": "others", "work": "much"})

    found = timings.read([keep(tmp_path / "one", CELL), keep(tmp_path / "other", other)])

    assert [one.about["config"] for one in found] == ["digits", "others"]
