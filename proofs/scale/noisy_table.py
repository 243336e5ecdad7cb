"""Where Adam's scaled rate is checked: a table that is hard to learn, and how it is trained.

Adam's square-root rule is for steps that noise decides (Malladi et al. 2022, 2205.10287). So half
of the labels are drawn at random. There are more rows than digits has, so that an epoch has 64
steps at 8 times the batch. All of this was chosen on the seeds 0 to 2 (docs/LOG.md, 2026-11-23).
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.config import Config, Data, Optimizer

SEED = 0  # of the table
ROWS, TESTS, NUMBERS, CLASSES, RANDOM = 4551, 8, 16, 4, 0.5
BASE = 8  # rows a step
COLUMNS = tuple(f"x{number}" for number in range(NUMBERS))


def config(name: str, times: int, seed: int) -> Config:
    """Return the config with that optimizer, at so many times the base batch."""
    more: dict[str, Any] = {"weight_decay": 0.02} if name == "adamw" else {}
    return Config(
        name="noisy_table",
        competition="noisy-table",
        num_classes=CLASSES,
        data=Data(
            kind="table", numeric_columns=COLUMNS, label_column="label", validation_fraction=0.1
        ),
        model="mlp",
        model_options={"width": 64, "depth": 2, "dropout": 0.0},
        optimizer=Optimizer(name=name, base_rate=1e-3, base_batch=BASE, **more),
        batch=BASE * times,
        epochs=20,
        warmup_epochs=4,
        seed=seed,
        steps_per_call=64,
    )


def write(folder: Path) -> None:
    """Write the competition: a label is what a random network says, or drawn at random."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(SEED)
    numbers = draw.normal(size=(ROWS + TESTS, NUMBERS)).astype(np.float32)
    inner = draw.normal(size=(NUMBERS, 32)) / np.sqrt(NUMBERS)
    labels = np.argmax(np.tanh(2 * numbers @ inner) @ draw.normal(size=(32, CLASSES)), axis=1)
    random = draw.random(len(labels)) < RANDOM
    labels[random] = draw.integers(0, CLASSES, random.sum())
    table = pd.DataFrame(numbers, columns=list(COLUMNS))
    table.insert(0, "id", [f"r{number}" for number in range(len(table))])
    table[ROWS:].to_csv(folder / "test.csv", index=False)
    table.assign(label=labels)[:ROWS].to_csv(folder / "train.csv", index=False)
    sample = pd.DataFrame({"id": table["id"][ROWS:], "label": 0})
    sample.to_csv(folder / "sample_submission.csv", index=False)
