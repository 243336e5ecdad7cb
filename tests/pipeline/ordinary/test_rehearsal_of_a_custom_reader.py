"""A folder that a custom reader reads is rehearsed: its hidden rows stay hidden."""

from dataclasses import replace
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

ROWS, TESTS = 60, 12


@pytest.fixture
def orders(tmp_path: Path) -> tuple[Config, Path]:
    """Return the config of a picture and columns, whose reader is its own, and a folder for it."""
    folder, random = tmp_path / "orders", np.random.default_rng(0)
    tables = {}
    for part, count in (("train", ROWS), ("test", TESTS)):
        (folder / part).mkdir(parents=True)
        ids = [f"{part}{number:03d}" for number in range(count)]
        for name in ids:
            pixels = random.integers(0, 256, (8, 8), np.uint8)
            Image.fromarray(pixels).save(folder / part / f"{name}.png")
        numbers = random.normal(size=(count, 2)).round(4)
        tables[part] = pd.DataFrame(numbers, columns=["price", "discount"])
        tables[part].insert(0, "id", ids)
    tables["train"]["size"] = np.where(np.arange(ROWS) % 3 == 0, "large", "small")
    for part, table in tables.items():
        table.to_csv(folder / f"{part}.csv", index=False)
    sample = pd.DataFrame({"id": tables["test"]["id"], "size": "small"})
    sample.to_csv(folder / "sample_submission.csv", index=False)
    return configs.load("orders"), folder


def test_hidden_rows_of_a_custom_reader_are_in_no_file_of_a_session(orders, tmp_path):
    config, folder = orders
    (folder / "notes.csv").write_text("id,by\n" + "".join(f"train{n:03d},ann\n" for n in range(60)))
    hidden = HiddenTest(config, folder)
    hidden.write(tmp_path / "seen")
    hidden.write(tmp_path / "rerun", hidden=True)

    away = {f"train{row:03d}" for row in hidden.hidden}
    for place in ("seen", "rerun"):
        for path in (tmp_path / place).rglob("*"):
            assert path.stem not in away
            if path.suffix == ".csv":
                assert not any(name in path.read_text() for name in away)
    assert len(away) == round(0.2 * ROWS)
    assert any("notes.csv" in line for line in hidden.left_out)


def test_a_custom_reader_reads_the_hidden_rows_under_their_new_ids(orders, tmp_path):
    config, folder = orders
    whole = dataset.read_training(folder, config)
    hidden = HiddenTest(config, folder)
    hidden.write(tmp_path / "seen")
    hidden.write(tmp_path / "rerun", hidden=True)

    seen = dataset.read_training(tmp_path / "seen", config)
    rerun = read_test(tmp_path / "rerun", config, seen.encoding)

    assert seen.ids == tuple(whole.ids[row] for row in hidden.train)
    found = rerun.inputs(np.arange(len(rerun)))
    assert len(found) == len(hidden.hidden)
    # A packed row begins with the picture; the numbers are scaled by the rows that are trained on.
    assert np.array_equal(found[:, :64], whole.inputs[hidden.hidden][:, :64])


def test_right_answers_of_a_custom_reader_s_rehearsal_score_1(orders):
    config, folder = orders
    hidden = HiddenTest(config, folder)

    assert hidden.score(hidden.solution) == 1


def test_a_custom_reader_without_a_table_of_labels_is_refused(orders):
    config, folder = orders
    missing = replace(config, data=replace(config.data, train_csv="labels.csv"))

    with pytest.raises(ConfigError, match=r"cannot be hidden: .*labels\.csv.*\nSet data\.train"):
        HiddenTest(missing, folder)
