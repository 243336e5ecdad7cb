"""A folder for each label is a table: the same images train with the same labels as from a CSV."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.config import Config
from pipeline.data import dataset
from pipeline.data.test_set import read_test
from pipeline.errors import DataError
from tests.pipeline.handmade import with_data


@pytest.fixture
def sorted_by_label(competition: Path, tiny: Config) -> tuple[Path, Config]:
    """Move the training images into a folder for each label, some of them deeper, and return the
    competition and a config that reads them.
    """
    table = pd.read_csv(competition / "train.csv", dtype=str)
    for number, (name, label) in enumerate(table.to_numpy()):
        file = competition / "train" / label / ("deep" if number % 5 else "") / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        (competition / "train" / f"{name}.png").rename(file)
    (competition / "train.csv").unlink()
    return competition, with_data(tiny, train_csv=None)


def test_folders_of_labels_give_what_a_table_gives(tiny, sorted_by_label):
    """For each image the same pixels and the same label, at any depth; ids are paths."""
    folder, config = sorted_by_label
    found = dataset.read_training(folder, config)
    labels = [found.classes[code] for code in found.labels]
    rows = [f"{name},{label}" for name, label in zip(found.ids, labels, strict=True)]
    (folder / "table.csv").write_text("\n".join(["id,label", *rows, ""]))

    by_table = with_data(tiny, train_csv="table.csv", train_images=".", suffix="")
    other = dataset.read_training(folder, by_table)

    assert len(found) == 96 and found.ids == other.ids and found.target == other.target
    assert [name.split("/")[:2] for name in found.ids] == [["train", label] for label in labels]
    assert np.array_equal(found.inputs, other.inputs)
    assert found.fingerprint == other.fingerprint
    assert len(read_test(folder, config)) == 21


def test_what_lies_beside_the_folders_of_labels_trains_nothing(sorted_by_label):
    """Loose images, hidden files and folders, and what archivers leave."""
    folder, config = sorted_by_label
    before = dataset.read_training(folder, config).ids
    image = (folder / before[0]).read_bytes()
    for name in ("loose.png", ".hidden/a.png", "__MACOSX/a.png", "10/._a.png", "10/notes.txt"):
        (folder / "train" / name).parent.mkdir(exist_ok=True)
        (folder / "train" / name).write_bytes(image)

    assert dataset.read_training(folder, config).ids == before


def test_several_places_have_the_same_labels(sorted_by_label):
    """As where a competition has a folder to train and one to validate."""
    folder, config = sorted_by_label
    (folder / "more" / "10").mkdir(parents=True)
    first = dataset.read_training(folder, config).ids[0]
    (folder / first).rename(folder / "more" / "10" / "a.PNG")

    found = dataset.read_training(folder, with_data(config, train_images=("more", "train")))

    assert len(found) == 96 and found.ids[0] == "more/10/a.PNG"


def test_a_folder_without_folders_of_images_is_refused(competition, tiny):
    with pytest.raises(DataError, match=r"(?s)holds no folder with images.*data\.train_csv"):
        dataset.read_training(competition, with_data(tiny, train_csv=None))
