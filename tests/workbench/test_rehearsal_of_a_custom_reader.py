"""A rehearsal hides rows from a custom reader too."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from localkaggle import competitions
from pipeline.config import Config
from pipeline.data import dataset
from pipeline.data.dataset import read_test
from pipeline.errors import ConfigError
from tests.pipeline.handmade import with_data
from tests.shipped import shipped
from workbench.rehearse.hidden_test import HiddenTest


@pytest.fixture
def orders(tmp_path: Path) -> tuple[Config, Path]:
    """Return a config with a custom reader, and a folder for it."""
    competitions.EMBEDDED["orders"]().write(tmp_path / "orders")
    return shipped("orders"), tmp_path / "orders"


def test_tables_keep_their_separator(orders, tmp_path):
    config, folder = orders
    for name in ("train.csv", "test.csv"):
        pd.read_csv(folder / name, dtype=str).to_csv(folder / name, sep=";", index=False)

    written(config, folder, tmp_path)

    header = (folder / "train.csv").read_text().partition("\n")[0]
    for part in ("seen", "rerun"):
        assert (tmp_path / part / "train.csv").read_text().partition("\n")[0] == header
        assert ";" in (tmp_path / part / "test.csv").read_text().partition("\n")[0]


def test_a_custom_reader_gets_no_hidden_rows_but_all_other_files(orders, tmp_path):
    config, folder = orders
    ids = dataset.read_training(folder, config).ids
    (folder / "notes.csv").write_text("id,by\n" + "".join(f"{name},ann\n" for name in ids))

    hidden = written(config, folder, tmp_path)

    away = {ids[row] for row in hidden.hidden}
    for part in ("seen", "rerun"):
        assert not away & set(pd.read_csv(tmp_path / part / "train.csv", dtype=str)["id"])
        assert not away & {path.stem for path in (tmp_path / part / "train").iterdir()}
        assert (tmp_path / part / "notes.csv").samefile(folder / "notes.csv")
    assert len(away) == round(0.2 * len(ids))
    assert hidden.score(hidden.solution) == 1


def test_a_custom_reader_reads_the_hidden_rows_of_a_rerun(orders, tmp_path):
    config, folder = orders
    whole = dataset.read_training(folder, config)
    hidden = written(config, folder, tmp_path)

    seen = dataset.read_training(tmp_path / "seen", config)
    rerun = read_test(tmp_path / "rerun", config, seen.encoding)

    assert seen.ids == tuple(whole.ids[row] for row in hidden.train)
    found = rerun.inputs(np.arange(len(rerun)))
    # A packed row starts with the picture; numbers are scaled by the training rows.
    assert np.array_equal(found[:, :64], whole.inputs[hidden.hidden][:, :64])


def written(config: Config, folder: Path, output: Path) -> HiddenTest:
    """Write the folders of a session and of its scored rerun."""
    hidden = HiddenTest(config, folder)
    hidden.write(output / "seen")
    hidden.write(output / "rerun", hidden=True)
    return hidden


def test_a_custom_reader_without_a_table_of_labels_is_refused(orders):
    config, folder = orders

    with pytest.raises(ConfigError, match=r"cannot be hidden: .*labels\.csv.*\nSet data\.train"):
        HiddenTest(with_data(config, train_csv="labels.csv"), folder)
