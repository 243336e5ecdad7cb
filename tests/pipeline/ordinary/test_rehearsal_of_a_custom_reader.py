"""A folder that a custom reader reads is rehearsed: its hidden rows stay hidden."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pipeline import config as configs
from pipeline.config import Config
from pipeline.data import dataset
from pipeline.data.test_set import read_test
from pipeline.errors import ConfigError
from pipeline.rehearsal.hidden_test import HiddenTest
from tests.pipeline.handmade import with_data

ROWS, TESTS = 60, 12


@pytest.fixture
def orders(tmp_path: Path) -> tuple[Config, Path]:
    """Return the config of a picture and columns, whose reader is its own, and a folder for it."""
    folder, random = tmp_path / "orders", np.random.default_rng(0)
    for part, count in (("train", ROWS), ("test", TESTS)):
        (folder / part).mkdir(parents=True)
        table = pd.DataFrame({"id": [f"{part}{number:03d}" for number in range(count)]})
        for name in table["id"]:
            pixels = random.integers(0, 256, (8, 8), np.uint8)
            Image.fromarray(pixels).save(folder / part / f"{name}.png")
        table[["price", "discount"]] = random.normal(size=(count, 2)).round(4)
        sizes = np.where(np.arange(count) % 3 == 0, "large", "small")
        if part == "train":
            table["size"] = sizes
        table.to_csv(folder / f"{part}.csv", index=False)
    sample = pd.DataFrame({"id": table["id"], "size": "small"})
    sample.to_csv(folder / "sample_submission.csv", index=False)
    return configs.load("orders"), folder


def test_hidden_rows_of_a_custom_reader_are_in_no_file_of_a_session(orders, tmp_path):
    config, folder = orders
    (folder / "notes.csv").write_text("id,by\n" + "".join(f"train{n:03d},ann\n" for n in range(60)))

    hidden = written(config, folder, tmp_path)

    away = {f"train{row:03d}" for row in hidden.hidden}
    for path in (*(tmp_path / "seen").rglob("*"), *(tmp_path / "rerun").rglob("*")):
        assert path.stem not in away
        if path.suffix == ".csv":
            assert not any(name in path.read_text() for name in away)
    assert len(away) == round(0.2 * ROWS)
    assert any("notes.csv" in line for line in hidden.left_out)
    assert hidden.score(hidden.solution) == 1


def test_a_custom_reader_reads_the_hidden_rows_under_their_new_ids(orders, tmp_path):
    config, folder = orders
    whole = dataset.read_training(folder, config)
    hidden = written(config, folder, tmp_path)

    seen = dataset.read_training(tmp_path / "seen", config)
    rerun = read_test(tmp_path / "rerun", config, seen.encoding)

    assert seen.ids == tuple(whole.ids[row] for row in hidden.train)
    found = rerun.inputs(np.arange(len(rerun)))
    # A packed row begins with the picture; the numbers are scaled by the rows that are trained on.
    assert np.array_equal(found[:, :64], whole.inputs[hidden.hidden][:, :64])


def written(config: Config, folder: Path, output: Path) -> HiddenTest:
    """Write what a session sees, and what its scored rerun does."""
    hidden = HiddenTest(config, folder)
    hidden.write(output / "seen")
    hidden.write(output / "rerun", hidden=True)
    return hidden


def test_a_custom_reader_without_a_table_of_labels_is_refused(orders):
    config, folder = orders

    with pytest.raises(ConfigError, match=r"cannot be hidden: .*labels\.csv.*\nSet data\.train"):
        HiddenTest(with_data(config, train_csv="labels.csv"), folder)
