"""Create thirteen experiments, so that `invoke runs` has a table to show.

Each experiment is a dry run of the embedded digits. Their configs use different networks, seeds,
numbers of folds and numbers of epochs. The last one has a common data leak: a few rows are repeated
with new ids before the split, so the model is trained on copies of the held-out rows.

    python -m benchmarks.experiments FOLDER        all of them (a quarter of an hour on two cores)
    python -m benchmarks.experiments FOLDER 4 8    numbers 4 to 7

Configs are written to FOLDER, and runs to runs/.
"""

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline import config as configs
from pipeline.config import Config, Data

DENSE = {"model": "mlp", "model_options": {"width": 32, "depth": 1, "dropout": 0.0}}
CONV = {"model": "small_cnn", "model_options": {"width": 8, "dropout": 0.1}}
WIDE = {"model": "mlp", "model_options": {"width": 256, "depth": 2, "dropout": 0.3}}
LEAK = "digits_repeated"
# Name of each config, and its changes to the digits config.
RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("digits_dense", {**DENSE, "epochs": 2, "seed": 0}),
    ("digits_dense", {**DENSE, "epochs": 2, "seed": 1}),
    ("digits_dense", {**DENSE, "epochs": 4, "seed": 0}),
    ("digits_dense", {**DENSE, "epochs": 4, "seed": 0, "folds": 3}),
    ("digits_dense", {**DENSE, "epochs": 10, "seed": 0, "folds": 3}),
    ("digits_conv", {**CONV, "epochs": 3, "seed": 0}),
    ("digits_conv", {**CONV, "epochs": 6, "seed": 0}),
    ("digits_conv", {**CONV, "epochs": 6, "seed": 1, "folds": 3}),
    ("digits_wide", {**WIDE, "epochs": 3, "seed": 0, "folds": 2}),
    ("digits_wide", {**WIDE, "epochs": 6, "seed": 0, "folds": 3}),
    ("digits_wide", {**WIDE, "epochs": 12, "seed": 0, "folds": 3}),
    ("digits_wide", {**WIDE, "epochs": 12, "seed": 1, "folds": 3}),
    (LEAK, {**WIDE, "epochs": 12, "seed": 0, "folds": 3}),
)
READERS = """
import numpy as np
import pandas as pd
from PIL import Image

from pipeline.data.custom_readers import Rows

ROWS, COPIES = 100, 8


def pictures(folder, ids):
    return np.stack([np.asarray(Image.open(folder / f"{name}.png")) for name in ids])[..., None]


def read_repeated(folder, config):
    table = pd.read_csv(folder / "train.csv", dtype=str).head(ROWS)
    ids, inputs = table["id"].tolist(), pictures(folder / "train", table["id"])
    return Rows(
        ids=[f"{name}-{copy}" for copy in range(COPIES) for name in ids],
        inputs=np.tile(inputs, (COPIES, 1, 1, 1)),
        labels=table["label"].tolist() * COPIES,
    )


def read_test(folder, config, ids, state):
    return pictures(folder / "test", ids)

"""


def written(folder: Path, name: str, changes: dict[str, Any]) -> Path:
    config: Config = replace(configs.load("digits"), name=name, warmup_epochs=1, **changes)
    if name == LEAK:
        data = Data(kind="custom", custom_inputs={"picture": ("uint8", 8, 8, 1)})
        config = replace(config, data=data, read_training="read_repeated", read_test="read_test")
    text = f"CONFIG = from_json({config.to_json()!r})\n"
    path = folder / f"{name}.py"
    path.write_text(f"from pipeline.config import from_json\n{READERS * (name == LEAK)}{text}")
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("end", type=int, nargs="?", default=len(RUNS))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, changes in RUNS[given.first : given.end]:
        config = str(written(given.folder, name, changes))
        subprocess.run([sys.executable, "-m", "invoke", "dry-run", "-c", config], check=True)
