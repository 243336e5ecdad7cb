"""Held-out rows of sets that are larger than the memory, and the time that they take."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.data.row_gathering import blocks
from pipeline.session import progress_log
from pipeline.training import training
from pipeline.training.loop import Loop
from tests.pipeline.conftest import write_competition


class Counted(np.ndarray):
    """An array that notes how many rows each copy has."""

    asked: list[int]

    def __array_finalize__(self, other: Any) -> None:
        self.asked = getattr(other, "asked", [])

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, np.ndarray) and self.ndim == 4:
            self.asked.append(len(rows))
        return super().__getitem__(rows)


def quiet(line: str) -> None:
    """Take a line that a user would see."""


def test_held_out_rows_are_copied_batch_by_batch(tiny, tmp_path):
    """All 48 would fill the memory beside an array that is mapped from a file. The pictures of the
    hardest rows are 24.
    """
    config = replace(tiny, epochs=2, data=replace(tiny.data, validation_fraction=0.5))
    folder = write_competition(tmp_path / "competition")
    examples = training.read(config, folder)
    inputs = examples.inputs.view(Counted)

    found = training.train(
        config, folder, tmp_path / "out", examples=replace(examples, inputs=inputs), show=quiet
    )

    assert found.status == "complete"
    assert max(inputs.asked) == 24


def test_the_next_blocks_are_read_while_one_is_computed():
    begun: list[list[int]] = []

    class Files:
        shape, dtype = (7, 1), np.dtype(np.uint8)

        def begin(self, pool, rows, into):
            into[:, 0] = rows
            begun.append(rows.tolist())
            return []

    found = blocks(Files(), np.array([6, 5, 4, 3, 2]), 2)
    first, real = next(found)

    assert first[:, 0].tolist() == [6, 5] and real == 2
    assert begun == [[6, 5], [4, 3], [2, 2]]
    assert [(block[:, 0].tolist(), real) for block, real in found] == [([4, 3], 2), ([2, 2], 1)]


def test_the_speed_of_a_run_is_that_of_its_training_steps(tiny, tmp_path, monkeypatch):
    """`plan` adds validation to it. Here each validation takes 10,000 s of a clock."""
    later = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + later[0])
    monkeypatch.setattr(progress_log, "time", clock)
    validate = Loop._validate

    def slowly(*given: Any) -> Any:
        later[0] += 10_000
        return validate(*given)

    monkeypatch.setattr(Loop, "_validate", slowly)
    folder = write_competition(tmp_path / "competition")

    training.train(replace(tiny, epochs=3), folder, tmp_path / "out", show=quiet)

    lines = (tmp_path / "out" / "progress.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    images = last["step"] * tiny.batch
    assert last["images_per_second"] > images / 10_000
    history = (tmp_path / "out" / "history.csv").read_text().splitlines()
    rate = float(history[-1].split(",")[history[0].split(",").index("images_per_second")])
    assert rate == pytest.approx(last["images_per_second"], rel=0.5)
