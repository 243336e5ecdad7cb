"""Files become arrays and arrays become batches. Nothing is dropped; broken files are named."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipeline.config import Config, Data
from pipeline.data import dataset, image_arrays, image_files
from pipeline.data.dataset import read_test
from pipeline.errors import ConfigError, DataError
from pipeline.runtime import devices
from tests.pipeline.handmade import with_data
from tests.shipped import shipped
from tests.small_competition import CLASSES, write_competition

sizes = st.integers(1, 60)


def numbered(count: int, **options: object) -> dataset.Batches:
    """Return batches of images whose only pixel value is their own number."""
    pixels = np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 3, 3, 1), np.uint8)
    return dataset.Batches(
        pixels, np.arange(count, dtype=np.int32), **{"batch": 4, "seed": 0, **options}
    )


@given(sizes, st.integers(1, 80), st.integers(0, 5))
def test_every_epoch_holds_every_image_once(count, batch, seed):
    batches = numbered(count, batch=batch, seed=seed)
    steps = -(-3 * count // batch)

    row = np.concatenate([batches.indices(step) for step in range(steps)])

    for epoch in range(3):
        assert sorted(row[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(sizes, st.integers(1, 80), st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_a_batch_is_a_function_of_seed_and_step_alone(count, batch, visited):
    used = numbered(count, batch=batch)
    for step in visited:
        used.at(step)

    again = zip(used.at(visited[0]), numbered(count, batch=batch).at(visited[0]), strict=True)

    assert all(np.array_equal(one, other) for one, other in again)


def test_another_seed_and_another_epoch_are_another_order():
    batches = numbered(50)

    assert not np.array_equal(batches.order(0), numbered(50, seed=2).order(0))
    assert not np.array_equal(batches.order(0), batches.order(1))


def test_a_batch_holds_chosen_rows_bit_for_bit_beside_their_labels():
    """Contiguous in memory, even if the axes of the array are in a different order."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 5, 4, 3), dtype=np.uint8)
    rows, labels = np.arange(1, 20, 2), np.arange(20, dtype=np.int32)
    batches = dataset.Batches(np.asfortranarray(pixels), labels, batch=7, seed=0, rows=rows)

    images, own = batches.at(1)

    assert len(batches) == 10 and set(own) <= set(rows)
    assert images.dtype == np.uint8 and images.flags.c_contiguous
    assert np.array_equal(images, pixels[own])


def test_images_come_in_the_order_of_the_table_and_of_the_sample(competition, tiny):
    lines = (competition / "sample_submission.csv").read_text().splitlines()[1:]

    images = dataset.read_training(competition, tiny)

    assert images.classes == CLASSES and images.ids[:2] == ("r000", "r001")
    assert np.array_equal(images.labels[:8], [0, 1, 2, 3, 0, 1, 2, 3])
    file = np.asarray(Image.open(competition / "train" / f"{images.ids[50]}.png"))
    assert np.array_equal(images.inputs[50, :, :, 0], file)
    assert list(read_test(competition, tiny).ids) == [line.split(",")[0] for line in lines]


SPOILED = {
    "it is empty": lambda path: path.write_bytes(b""),
    "it has 9x8 pixels": lambda path: Image.new("L", (9, 8)).save(path),
    "missing": lambda path: path.unlink() or path.mkdir(),  # a folder of this name is no image
}


@pytest.mark.parametrize("said", SPOILED)
def test_a_few_unusable_images_are_left_out_and_named(tmp_path, tiny, said):
    """The others keep their order, labels and groups. 4 of 100 or 1 of 9 are too many."""
    folder = write_competition(tmp_path / "competition", train=100)
    head, *lines = (folder / "train.csv").read_text().splitlines()
    grouped = [f"{line},p{index:02d}" for index, line in enumerate(lines)]
    (folder / "train.csv").write_text("\n".join([f"{head},patient", *grouped]))
    config = with_data(tiny, group_column="patient")
    whole = dataset.read_training(folder, config)
    SPOILED[said](folder / "train" / "r003.png")

    found = dataset.read_training(folder, config)

    assert set(found.broken) == {"r003"} and said in found.broken["r003"]
    assert found.ids == tuple(name for name in whole.ids if name != "r003")
    assert np.array_equal(found.inputs, np.delete(whole.inputs, 3, axis=0))
    assert np.array_equal(found.labels, np.delete(whole.labels, 3))
    assert np.array_equal(found.groups, np.arange(99))
    assert not whole.broken and found.fingerprint != whole.fingerprint
    for row in range(50, 53):
        SPOILED[said](folder / "train" / f"r0{row}.png")
    for total, many in ((100, "4 of 100 images"), (9, "1 of 9 images")):
        (folder / "train.csv").write_text("\n".join([f"{head},patient", *grouped[:total]]))
        with pytest.raises(DataError, match=many) as caught:
            dataset.read_training(folder, config)
        assert all(word in str(caught.value) for word in ("r003", said, "xpected"))


THREE = "a,9\nb,A b\nc,ß\n"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            "id,label\nr000,10\nr000,9\n",
            "has 'r000' in 'id' .row 2.; expected each id once",
        ),
        ("id,label\nr000,10\nr001,9,x\n", "line 3 has 3 fields"),
        ("id,label\n", "0 rows"),
        (f"id,label\n{'n' * 300},10\n{THREE}", "images are missing"),
        (f"id,label\n../../etc/passwd,10\n{THREE}", "images are missing"),
        ("name,label\nr000,10\n", "but not the expected id"),
        ("id,label\nr000,10\nr001,9\n", "2 different labels"),
        (None, "is missing"),
    ],
)
def test_an_unusable_table_is_named(competition, tiny, table, said):
    path = competition / "train.csv"
    path.unlink() if table is None else path.write_text(table)

    with pytest.raises((ConfigError, DataError), match=said) as caught:
        dataset.read_training(competition, tiny)

    assert "xpected" in str(caught.value)


@pytest.mark.parametrize("name", ["train.csv", "train/r003.png", "train"])
def test_an_unreadable_file_is_named(competition, tiny, unreadable, name):
    dataset.read_training(competition, tiny)  # imports what nobody may not even import

    with unreadable(competition / name), pytest.raises(DataError, match=name.split("/")[0]):
        dataset.read_training(competition, tiny)


def test_hidden_files_and_images_without_a_row_are_not_read(competition, tiny):
    (competition / "test" / "._e000.png").write_bytes(b"")
    shutil.copy(competition / "test" / "e000.png", competition / "test" / "e999.png")

    assert len(read_test(competition, tiny)) == 21


@pytest.mark.parametrize("value", ["", "x", "256", "-1", "0.5"])
def test_an_invalid_pixel_breaks_only_its_row(tmp_path, value):
    config = with_data(shipped("digits_csv"), height=2, width=2)
    rows = f"1,2,3,4\n5,{value},7,8\n9,10,11,12\n"
    (tmp_path / "test.csv").write_text(f"pixel0,pixel1,pixel2,pixel3\n{rows}")
    (tmp_path / "sample_submission.csv").write_text("ImageId,Label\n1,0\n2,0\n3,0\n")

    blocks = list(read_test(tmp_path, config).blocks(2))

    assert [[*broken] for _, _, broken in blocks] == [[1], []]
    assert "in 'pixel1', but pixels must be integers from 0 to 255" in blocks[0][2][1]
    assert blocks[0][1].reshape(2, 4).tolist() == [[1, 2, 3, 4], [0, 0, 0, 0]]


def test_an_id_may_contain_folders(competition, tiny):
    for part, table in (("train", "train.csv"), ("test", "sample_submission.csv")):
        (competition / part / "deep").mkdir()
        for path in (competition / part).glob("*.png"):
            path.rename(competition / part / "deep" / path.name)
        head, *lines = (competition / table).read_text().splitlines()
        (competition / table).write_text("\n".join([head, *(f"deep/{line}" for line in lines)]))

    assert len(dataset.read_training(competition, tiny)) == 96
    test = read_test(competition, tiny)
    assert len(test) == 21 and not any(broken for _, _, broken in test.blocks(5))


def test_one_test_image_in_ten_may_be_missing_and_no_more(competition, tiny, monkeypatch):
    """The block reports its row. In the scored rerun all but one may be missing."""
    for name in ("e004", "e009"):
        (competition / "test" / f"{name}.png").unlink()

    test = read_test(competition, tiny)

    named = [(test.ids[row], why) for _, _, found in test.blocks(5) for row, why in found.items()]
    assert sorted(named) == [("e004", "it is missing"), ("e009", "it is missing")]
    assert sum(len(block) for _, block, _ in test.blocks(5)) == len(test) == 21
    (competition / "test" / "e001.png").unlink()
    with pytest.raises(DataError, match=r"3 of 21 images are missing.*e0"):
        read_test(competition, tiny)
    monkeypatch.setenv(image_files.RERUN, "1")
    assert len(read_test(competition, tiny)) == 21
    for path in (competition / "test").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="21 of 21 images are missing"):
        read_test(competition, tiny)


# -- locations of images


def test_an_image_is_taken_from_the_first_folder_that_has_it(competition, tiny):
    (competition / "more").mkdir()
    for index in range(0, 96, 2):
        path = competition / "train" / f"r{index:03d}.png"
        path.rename(competition / "more" / path.name)
    Image.new("L", (8, 8)).save(competition / "more" / "r001.png")

    with pytest.raises(DataError, match=r"48 of 96 images are missing in .*train, .*'r000'"):
        dataset.read_training(competition, tiny)
    several = with_data(tiny, train_images=("train", "more", "nowhere"))
    found = dataset.read_training(competition, several)
    assert len(found) == 96 and found.inputs[1].any()


# -- other kinds than one file per image


def flat(pixels: np.ndarray) -> list[str]:
    return [",".join(map(str, image.ravel())) for image in pixels]


PIXELS = np.random.default_rng(0).integers(0, 256, (6, 2, 3, 1), dtype=np.uint8)
HEADER = ",".join(f"pixel{index}" for index in range(6))


@pytest.fixture
def recognizer(tmp_path, tiny):
    """Return a folder of the form of Digit Recognizer, whose tables have no ids, and its config."""
    train = [f"{index % 4},{text}" for index, text in enumerate([*flat(PIXELS), *flat(PIXELS)])]
    (tmp_path / "train.csv").write_text("\n".join([f"label,{HEADER}", *train]) + "\n")
    (tmp_path / "test.csv").write_text("\n".join([HEADER, *flat(PIXELS)]) + "\n")
    sample = "".join(f"{row},0\n" for row in range(1, 7))
    (tmp_path / "sample_submission.csv").write_text(f"ImageId,Label\n{sample}")
    return tmp_path, replace(tiny, data=Data(kind="pixels", height=2, width=3, channels=1))


@pytest.fixture
def arrays(recognizer):
    """Return that folder with its test set in an array, and the config."""
    folder, config = recognizer
    np.save(folder / "test.npy", PIXELS)
    return folder, with_data(config, kind="arrays")


def test_images_may_be_columns_of_a_table_without_ids(recognizer):
    """Rows are then in the order of the sample, with the same number."""
    folder, config = recognizer

    found, test = dataset.read_training(folder, config), read_test(folder, config)

    assert np.array_equal(found.inputs, np.concatenate([PIXELS, PIXELS]))
    assert (found.ids[:2], found.classes) == (("0", "1"), ("0", "1", "2", "3"))
    assert test.ids == ("1", "2", "3", "4", "5", "6") and test.images
    assert np.array_equal(test.inputs(np.array([4, 0])), PIXELS[[4, 0]])
    (folder / "test.csv").write_text("\n".join([HEADER, *flat(PIXELS[:5])]))
    with pytest.raises(DataError, match=r"5 rows, but .* has 6\. .* no 'id' or 'ImageId' column"):
        read_test(folder, config)


def test_images_may_be_one_array_in_the_order_of_the_tables(arrays):
    folder, config = arrays
    (folder / "train.csv").write_text("label\n" + "".join(f"{index % 4}\n" for index in range(6)))
    np.save(folder / "train.npy", PIXELS)
    np.savez(folder / "test.npz", x=PIXELS[::-1, :, :, 0])
    config = with_data(config, test_array="test.npz")

    found, test = dataset.read_training(folder, config), read_test(folder, config)

    assert np.array_equal(found.inputs, PIXELS)
    assert np.array_equal(np.concatenate([block for _, block, _ in test.blocks(4)]), PIXELS[::-1])
    np.save(folder / "train.npy", PIXELS[:5])
    with pytest.raises(DataError, match=r"train\.npy contains uint8 \(5, .*expected uint8 \(6, "):
        dataset.read_training(folder, config)


@pytest.mark.parametrize("column", ["id", "ImageId"])
def test_rows_of_an_array_belong_to_the_ids_of_the_test_table(arrays, column):
    """The column may have the config's name or the sample's; the order is the sample's."""
    folder, config = arrays
    (folder / "test.csv").write_text("\n".join([column, *"312654"]))
    sample = "".join(f"{row},0\n" for row in "612345")
    (folder / "sample_submission.csv").write_text(f"ImageId,Label\n{sample}")

    test = read_test(folder, config)

    assert test.ids == tuple("612345")
    blocks = np.concatenate([block for _, block, _ in test.blocks(4)])
    for found in (test.inputs(np.arange(6)), blocks):
        assert np.array_equal(found, PIXELS[[3, 1, 2, 0, 5, 4]])


def test_an_array_whose_rows_do_not_belong_to_the_ids_is_refused(arrays):
    folder, config = arrays
    (folder / "test.csv").write_text("\n".join(["id", *"12345"]))

    with pytest.raises(DataError, match=r"sample_submission\.csv has '6' .*expected ids of test"):
        read_test(folder, config)


@pytest.mark.parametrize(("size", "kept"), [(64, 0), (65, 2)])
def test_large_images_are_kept_decoded_and_small_ones_are_not(
    competition, tiny, tmp_path, size, kept
):
    config, said, cache = with_data(tiny, height=size, resize="stretch"), [], tmp_path / "decoded"
    read = partial(dataset.read_training, competition, config)

    found = read(), *(read(cache=cache, show=said.append) for _ in range(2))

    assert len({each.fingerprint for each in found}) == 1
    assert len(list(cache.glob("*/*"))) == kept
    assert [line.startswith("Found 96 of 96") for line in said] == [True] * (kept // 2)


@pytest.fixture
def people(tmp_path, tiny):
    """Return a folder with a table of numbers and categories, some missing, and its config."""
    train = ["id,age,port,survived", "a,20,S,1", "b,40,S,0", "c,NA,C,1", "d,30,,0"]
    (tmp_path / "train.csv").write_text("\n".join(train))
    (tmp_path / "test.csv").write_text("id,age,port\ny,40,X\nx,,C\n")
    (tmp_path / "sample_submission.csv").write_text("id,survived\nx,0\ny,0\n")
    columns = {"numeric_columns": ("age",), "categorical_columns": ("port",)}
    data = Data(kind="table", label_column="survived", **columns)
    return tmp_path, replace(tiny, data=data, num_classes=2, model="mlp", model_options={})


def test_a_table_is_read_by_what_training_has_seen(people):
    """A missing number becomes the mean, and an unseen category is unknown; test rows are in the
    sample's order.
    """
    folder, config = people

    found = dataset.read_training(folder, config)
    test = read_test(folder, config, found.encoding)

    spread = np.sqrt(1.5)
    wanted = [[-spread, 0, 1], [spread, 0, 1], [0, 1, 3], [0, 0, 2]]
    assert found.inputs == pytest.approx(np.array(wanted))
    assert test.ids == ("x", "y") and not test.images
    assert test.inputs(np.array([0, 1])) == pytest.approx(np.array([[0, 1, 3], [spread, 0, 0]]))


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


def test_label_folders_are_equivalent_to_a_table(tiny, sorted_by_label):
    """The same pixels and labels, at any depth; ids are paths."""
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


def test_files_outside_label_folders_are_ignored(sorted_by_label):
    """Loose images, hidden files and folders, and those of archivers."""
    folder, config = sorted_by_label
    before = dataset.read_training(folder, config).ids
    image = (folder / before[0]).read_bytes()
    for name in ("loose.png", ".hidden/a.png", "__MACOSX/a.png", "10/._a.png", "10/notes.txt"):
        (folder / "train" / name).parent.mkdir(exist_ok=True)
        (folder / "train" / name).write_bytes(image)

    assert dataset.read_training(folder, config).ids == before


def test_a_folder_without_folders_of_images_is_refused(competition, tiny):
    with pytest.raises(DataError, match=r"(?s)has no folder with images.*data\.train_csv"):
        dataset.read_training(competition, with_data(tiny, train_csv=None))


@pytest.fixture
def in_files(competition, tiny):
    """Return the examples in memory and in their files, of which one is broken."""
    (competition / "train" / "r003.png").write_bytes(b"no picture")
    return tuple(
        dataset.read_training(competition, replace(tiny, feed=feed)) for feed in ("host", "files")
    )


def test_images_in_their_files_are_those_in_memory(in_files):
    """Indexed by a number, a slice or rows, and as a fingerprint, so that a run may switch."""
    memory, files = (one.inputs for one in in_files)

    assert isinstance(files, image_arrays.FileImages)
    assert (files.shape, files.dtype, files.nbytes) == (memory.shape, memory.dtype, memory.nbytes)
    for rows in (3, -1, slice(2, 50, 3), np.array([5, 5, 0]), slice(0, 0)):
        assert np.array_equal(files[rows], memory[rows])
    assert np.array_equal(image_arrays.some(files, np.array([7, 1]))[:], memory[[7, 1]])
    assert in_files[0].fingerprint == in_files[1].fingerprint
    assert in_files[0].broken == in_files[1].broken and len(files) == 95


def test_an_image_that_breaks_during_the_run_is_named(in_files, competition):
    """It does not silently become a black picture."""
    (competition / "train" / "r000.png").write_bytes(b"no picture")

    with pytest.raises(DataError, match=r"r000\.png could be decoded at the start of this run"):
        in_files[1].inputs[:]


def test_images_that_do_not_fit_into_memory_stay_in_their_files(
    competition, tiny, monkeypatch, tmp_path
):
    """Or in the memory-mapped files of the cache."""
    shown = []
    large = with_data(tiny, height=65, resize="stretch")
    plain = dataset.read_training(competition, large)
    monkeypatch.setattr(devices, "memory_left", lambda: 1000)

    found = dataset.read_training(competition, tiny, show=shown.append)
    mapped = dataset.read_training(competition, large, cache=tmp_path / "cache")
    shutil.rmtree(competition / "train")

    assert isinstance(found.inputs, image_arrays.FileImages)
    assert np.array_equal(mapped.inputs[:], plain.inputs)
    assert mapped.fingerprint == plain.fingerprint
    assert "will be read during the run" in shown[0]
