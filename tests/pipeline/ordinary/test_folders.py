"""Competition folders as people have them: TFRecords, nested folders, archives, broken files."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from pipeline.data import dataset
from pipeline.data.test_set import read_test
from pipeline.errors import DataError
from tests.pipeline.inspection.test_inspection import csv, pictures, proposed, put, table, texts


def nested(folder: Path) -> Path:
    """Write a competition whose images lie in folders by their ids: train/0 to 3, test/4."""
    files = {}
    for name, content in pictures(train=24, test=6).items():
        place, _, own = name.rpartition("/")
        inside = {"train": f"train/{len(files) % 4}/", "test": "test/4/"}.get(place, "")
        files[f"{inside}{own}"] = content
    return put(folder, files)


def test_images_in_folders_by_id_are_found_below_one_folder(tmp_path):
    """The hidden test set has other folders below the same one."""
    _, config = proposed(nested(tmp_path))
    (tmp_path / "test/4").rename(tmp_path / "test/5")
    (tmp_path / "test/6").mkdir()
    (tmp_path / "test/5/b3.png").rename(tmp_path / "test/6/b3.png")

    hidden = read_test(tmp_path, config)

    assert (config.data.train_images, config.data.test_images) == ("train", "test")
    assert len(dataset.read_training(tmp_path, config)) == 24
    assert [broken for _, _, broken in hidden.blocks(6)] == [{}]


def test_an_id_in_two_folders_below_one_is_refused(tmp_path):
    """Which of them is meant is not guessed."""
    _, config = proposed(nested(tmp_path))
    put(tmp_path, {"train/9/a5.png": next(tmp_path.glob("train/*/a5.png")).read_bytes()})

    with pytest.raises(DataError, match=r"train/. and .*train/9 both have an image of the id 'a5'"):
        dataset.read_training(tmp_path, config)


def test_a_file_without_a_row_below_the_test_folder_is_told(tmp_path):
    """As it is in a test folder without others in it."""
    _, config = proposed(nested(tmp_path))
    put(tmp_path, {"test/6/b9.png": (tmp_path / "test/4/b3.png").read_bytes()})

    with pytest.raises(DataError, match="1 images have no row, for example b9"):
        read_test(tmp_path, config)


def test_a_few_broken_images_of_a_small_set_are_left_out(tmp_path):
    """Two of 24; they are named, and are no copies of each other, nor of one in the test set."""
    files = pictures(train=24, test=11)
    broken = dict.fromkeys(("train/a4.png", "train/a7.png", "test/b3.png"), b"")

    found, config = proposed(put(tmp_path, files | broken))

    assert set(dataset.read_training(tmp_path, config).broken) == {"a4", "a7"}
    assert "2 training and 1 test images cannot be decoded" in texts(found, "warning")
    assert not found.duplicates


def test_the_message_on_broken_images_names_the_table_to_remove_them_from(tmp_path):
    """Which is easier than to mend them."""
    files = pictures() | dict.fromkeys((f"train/a{n}.png" for n in range(5)), b"")

    with pytest.raises(DataError, match=r"broken files, remove their rows from train\.csv, or"):
        proposed(put(tmp_path, files))


def test_a_table_in_an_archive_is_refused_with_the_command_that_unpacks_it(tmp_path):
    """As Kaggle's older competitions have them."""
    files = table()
    put(tmp_path, {f"{name}.gz": gzip.compress(files.pop(name)) for name in ("train.csv",)})

    with pytest.raises(
        DataError, match=r"but train\.csv\.gz; archives (?s:.*)gunzip .*train\.csv\.gz"
    ):
        proposed(put(tmp_path, files))


def test_labels_in_an_array_are_refused_with_the_lines_that_make_a_table(tmp_path):
    """As Kuzushiji has them."""
    np.savez(tmp_path / "train-imgs.npz", np.zeros((9, 4, 4), np.uint8))
    np.savez(tmp_path / "train-labels.npz", np.arange(9))
    np.savez(tmp_path / "test-imgs.npz", np.zeros((3, 4, 4), np.uint8))

    with pytest.raises(DataError, match=r"but train-labels\.npz; .*labels must stand in a CSV"):
        proposed(put(tmp_path, {"sample_submission.csv": csv("id,label", (0, 0), (1, 0), (2, 0))}))


def test_a_table_with_semicolons_is_refused_as_one(tmp_path):
    """And not for the number of its columns."""
    files = {name: content.replace(b",", b";") for name, content in table().items()}

    with pytest.raises(DataError, match="semicolons stand between the fields; write it again with"):
        proposed(put(tmp_path, files))


def test_a_table_in_latin_1_is_refused_with_the_command_that_converts_it(tmp_path):
    """Only its owner knows that it is that."""
    files = table()
    files["train.csv"] = files["train.csv"].replace(b",r,", b",rot\xfc,")

    with pytest.raises(DataError, match=r"iconv -f latin1 -t utf8 .*train\.csv > "):
        proposed(put(tmp_path, files))
