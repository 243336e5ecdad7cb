"""Competition folders as people have them: TFRecords, nested folders, archives, broken files."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from pipeline.data import dataset
from pipeline.data.dataset import read_test
from pipeline.errors import DataError
from tests.workbench.inspect.test_inspection import csv, pictures, proposed, put, table


def nested(folder: Path) -> Path:
    """Write a competition whose images lie in folders by their ids: train/0 to 3, test/4."""
    files = {}
    for name, content in pictures(train=24, test=6).items():
        part, _, own = name.rpartition("/")
        inside = {"train": f"{len(files) % 4}/", "test": "4/"}.get(part, "")
        files[f"{part}/{inside}{own}" if part else own] = content
    return put(folder, files)


def test_images_in_folders_by_id_are_found_in_one_folder(tmp_path):
    """The hidden test set has other folders below the same one."""
    _, config = proposed(nested(tmp_path))
    (tmp_path / "test/4").rename(tmp_path / "test/5")
    (tmp_path / "test/6").mkdir()
    (tmp_path / "test/5/b3.png").rename(tmp_path / "test/6/b3.png")

    hidden = read_test(tmp_path, config)

    assert (config.data.train_images, config.data.test_images) == ("train", "test")
    assert len(dataset.read_training(tmp_path, config)) == 24
    assert [broken for _, _, broken in hidden.blocks(6)] == [{}]


def test_an_id_in_two_subfolders_is_refused(tmp_path):
    _, config = proposed(nested(tmp_path))
    put(tmp_path, {"train/9/a5.png": next(tmp_path.glob("train/*/a5.png")).read_bytes()})

    with pytest.raises(
        DataError, match=r"/a5\.png and .*/train/9/a5\.png are both images with the id 'a5'"
    ):
        dataset.read_training(tmp_path, config)


def test_labels_in_an_array_are_refused_with_the_code_for_a_table(tmp_path):
    """As Kuzushiji has them."""
    np.savez(tmp_path / "train-imgs.npz", np.zeros((9, 4, 4), np.uint8))
    np.savez(tmp_path / "train-labels.npz", np.arange(9))
    np.savez(tmp_path / "test-imgs.npz", np.zeros((3, 4, 4), np.uint8))

    with pytest.raises(DataError, match=r"only train-labels\.npz; .*labels must be in a CSV"):
        proposed(put(tmp_path, {"sample_submission.csv": csv("id,label", (0, 0), (1, 0), (2, 0))}))


def damaged(change):
    """Return the files of a table's competition, with the content of train.csv changed."""
    files = table()
    return files | {"train.csv": change(files["train.csv"])}


BROKEN = dict.fromkeys((f"train/a{n}.png" for n in range(5)), b"")
REFUSED = {
    r"Replace the broken images, or remove them from the training set": lambda: pictures() | BROKEN,
    r"iconv -f latin1 -t utf8 .*train\.csv > ": lambda: damaged(
        lambda text: text.replace(b",r,", b",rot\xfc,")
    ),
    r"archives are not read: train\.csv\.gz(?s:.*)gunzip .*train\.csv\.gz": lambda: {
        f"{name}.gz" if name == "train.csv" else name: content
        for name, content in damaged(gzip.compress).items()
    },
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_a_person_can_fix_is_refused_with_the_fix(tmp_path, said):
    with pytest.raises(DataError, match=said):
        proposed(put(tmp_path, REFUSED[said]()))
