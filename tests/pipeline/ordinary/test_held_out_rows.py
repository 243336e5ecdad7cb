"""Held-out rows of sets that do not fit in memory, and the time that they take."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from pipeline.data import dataset
from pipeline.data.row_gathering import blocks
from pipeline.train import progress_log, training
from pipeline.train.loop import Loop
from tests.pipeline.handmade import with_data
from tests.small_competition import write_competition


class Counted(np.ndarray):
    """An array that records the number of rows in each copy."""

    asked: ClassVar[list[int]] = []

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, np.ndarray) and self.ndim == 4:
            self.asked.append(len(rows))
        return super().__getitem__(rows)


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
    assert begun == [[6, 5], [4, 3], [2]]
    assert [(block[:, 0].tolist(), real) for block, real in found] == [([4, 3], 2), ([2, 2], 1)]


def test_held_out_rows_are_copied_batch_by_batch_and_their_time_is_not_that_of_steps(
    tiny, tmp_path, monkeypatch
):
    """A copy of all 48 would fill the memory; the hardest rows are 24. `plan` counts validation
    separately; here each one takes 10,000 s of a clock.
    """
    later, validate = [0.0], Loop._validate
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + later[0])
    monkeypatch.setattr(progress_log, "time", clock)

    def slowly(*given: Any) -> Any:
        later[0] += 10_000
        return validate(*given)

    monkeypatch.setattr(Loop, "_validate", slowly)
    config, out = replace(with_data(tiny, validation_fraction=0.5), epochs=2), tmp_path / "out"
    folder = write_competition(tmp_path / "competition")
    examples = dataset.read_training(folder, config)
    mapped = replace(examples, inputs=examples.inputs.view(Counted))

    found = training.train(config, folder, out, examples=mapped, show=str)

    assert found.status == "complete" and max(Counted.asked) == 24
    last = json.loads((out / "progress.jsonl").read_text().splitlines()[-1])
    rate = pd.read_csv(out / "history.csv")["images_per_second"].iloc[-1]
    assert min(rate, last["images_per_second"]) > last["step"] * tiny.batch / 10_000
