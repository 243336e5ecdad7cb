"""Files become arrays and arrays become batches; nothing is dropped, and what is broken is named."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipeline import data
from pipeline.errors import DataError

sizes = st.integers(1, 60)


def numbered(count: int, **options: object) -> data.Batches:
    """Return batches of images whose only pixel value is their own number."""
    pixels = np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 3, 3, 1), np.uint8)
    return data.Batches(pixels, np.arange(count, dtype=np.int32), **{"batch": 4, "seed": 0, **options})


@given(sizes, st.integers(1, 80), st.integers(0, 5))
def test_every_epoch_holds_every_image_once(count, batch, seed):
    """Whatever the batch: the row of positions is cut into permutations."""
    batches = numbered(count, batch=batch, seed=seed)
    steps = -(-3 * count // batch)

    row = np.concatenate([batches.indices(step) for step in range(steps)])

    for epoch in range(3):
        assert sorted(row[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(sizes, st.integers(1, 80), st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_a_batch_is_a_function_of_seed_and_step_alone(count, batch, visited):
    """Whatever was asked before, in whatever order, by whichever object."""
    options = {"batch": batch, "crop_padding": 1, "flip": True}
    used = numbered(count, **options)
    for step in visited:
        used.at(step)

    images, labels = used.at(visited[0])

    fresh_images, fresh_labels = numbered(count, **options).at(visited[0])
    assert np.array_equal(images, fresh_images)
    assert np.array_equal(labels, fresh_labels)


def test_another_seed_is_another_order():
    """Otherwise a repetition would tell nothing about the spread."""
    assert not np.array_equal(numbered(50, seed=1).order(0), numbered(50, seed=2).order(0))


def test_two_epochs_have_two_orders():
    """An order that repeats is learned."""
    batches = numbered(50)

    assert not np.array_equal(batches.order(0), batches.order(1))


def test_images_stay_with_their_labels():
    """Augmentation moves pixels, not rows."""
    images, labels = numbered(60, batch=60, flip=True).at(3)

    assert np.array_equal(images[:, 0, 0, 0], labels)


def test_without_augmentation_the_images_are_those_of_the_files():
    """Not a pixel differs."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 5, 4, 3), dtype=np.uint8)
    batches = data.Batches(pixels, np.arange(20, dtype=np.int32), batch=7, seed=0)

    images, labels = batches.at(1)

    assert images.dtype == np.uint8
    assert np.array_equal(images, pixels[labels])


def test_a_crop_is_a_window_of_the_padded_image_and_all_windows_occur():
    """Zeros come in from the sides, as far as the padding, and no farther."""
    pixels = np.random.default_rng(0).integers(1, 256, (1, 6, 6, 1), dtype=np.uint8)
    batches = data.Batches(pixels, np.zeros(1, np.int32), batch=400, seed=0, crop_padding=2)
    around = np.pad(pixels[0], ((2, 2), (2, 2), (0, 0)))
    windows = {around[y : y + 6, x : x + 6].tobytes() for y in range(5) for x in range(5)}

    images, _ = batches.at(0)

    assert {image.tobytes() for image in images} == windows


def test_a_flip_mirrors_left_to_right_about_half_of_the_images():
    """Never top to bottom."""
    pixels = np.random.default_rng(0).integers(0, 256, (1, 4, 4, 3), dtype=np.uint8)
    batches = data.Batches(pixels, np.zeros(1, np.int32), batch=400, seed=0, flip=True)

    images, _ = batches.at(0)

    mirrored = [np.array_equal(image, pixels[0][:, ::-1]) for image in images]
    straight = [np.array_equal(image, pixels[0]) for image in images]
    assert all(a or b for a, b in zip(mirrored, straight, strict=True))
    assert 120 < sum(mirrored) < 280


@given(st.integers(0, 40), st.integers(1, 17))
def test_padding_drops_nothing_and_has_one_shape(count, batch):
    """Evaluation sees every row once; what fills the last batch is marked."""
    pixels = np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1)

    parts = list(data.padded(pixels, batch))

    assert all(images.shape == (batch, 1, 1, 1) for images, _ in parts)
    assert np.array_equal(np.concatenate([images[:real] for images, real in parts] or [pixels]), pixels)


def test_training_images_are_read_in_the_table_s_order(competition, tiny):
    """With labels by sorted text."""
    images = data.read_training(competition, tiny)

    assert images.classes == ("10", "9", "A b", "ß")
    assert images.ids[:2] == ("r000", "r001")
    assert np.array_equal(images.labels[:8], [0, 1, 2, 3, 0, 1, 2, 3])
    for index in (0, 50):
        file = np.asarray(Image.open(competition / "train" / f"{images.ids[index]}.png"))
        assert np.array_equal(images.pixels[index, :, :, 0], file)


def test_the_test_set_is_read_in_the_sample_s_order(competition, tiny):
    """The order of the submission."""
    wanted = [line.split(",")[0] for line in (competition / "sample_submission.csv").read_text().splitlines()[1:]]

    assert list(data.read_test(competition, tiny).ids) == wanted


def test_ids_stay_the_texts_that_they_are(competition, tiny):
    """Neither 001 nor NA nor 1e5 is a number."""
    rows = ["id,label"]
    for index, name in enumerate(("001", "NA", "1e5", "null", "-x", "ü 1", "inf", "0x1")):
        shutil.copy(competition / "train" / f"r{index:03d}.png", competition / "train" / f"{name}.png")
        rows.append(f"{name},{('10', '9', 'A b', 'ß')[index % 4]}")
    (competition / "train.csv").write_text("\ufeff" + "\r\n".join(rows) + "\r\n")

    assert data.read_training(competition, tiny).ids == ("001", "NA", "1e5", "null", "-x", "ü 1", "inf", "0x1")


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(2, 30), st.integers(0, 3), st.floats(0.05, 0.6))
def test_the_split_holds_back_of_every_class_and_loses_nobody(classes, each, seed, share):
    """Both parts have every class; together they are everything, once."""
    from pipeline import config as configs

    digits = configs.load("digits")
    config = replace(digits, seed=seed, data=replace(digits.data, validation_fraction=share))
    labels = np.repeat(np.arange(classes, dtype=np.int32), each)
    images = data.Images(
        tuple(map(str, range(len(labels)))),
        np.zeros((len(labels), 1, 1, 1), np.uint8),
        labels,
        tuple(map(str, range(classes))),
    )

    train, held = data.split(images, config)

    assert sorted([*train, *held]) == list(range(len(labels)))
    assert set(labels[train]) == set(labels[held]) == set(range(classes))
    assert np.array_equal(held, data.split(images, config)[1])


def spoil_truncated(folder):
    path = folder / "train" / "r003.png"
    path.write_bytes(path.read_bytes()[:40])


def spoil_empty(folder):
    (folder / "train" / "r003.png").write_bytes(b"")


def spoil_html(folder):
    (folder / "train" / "r003.png").write_text("<html>403 Forbidden</html>")


def spoil_size(folder):
    Image.new("L", (9, 8)).save(folder / "train" / "r003.png")


def spoil_missing(folder):
    (folder / "train" / "r003.png").unlink()


def spoil_colour(folder):
    Image.new("RGB", (8, 8)).save(folder / "train" / "r003.png")


def spoil_alpha(folder):
    Image.new("LA", (8, 8)).save(folder / "train" / "r003.png")


def spoil_palette(folder):
    Image.new("P", (8, 8)).save(folder / "train" / "r003.png")


def spoil_depth(folder):
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(folder / "train" / "r003.png")


def spoil_inks(folder):
    Image.new("CMYK", (8, 8)).save(folder / "train" / "r003.png", "JPEG")


def spoil_folder(folder):
    (folder / "train" / "r003.png").unlink()
    (folder / "train" / "r003.png").mkdir()


@pytest.mark.parametrize(
    "spoil",
    [
        *(spoil_truncated, spoil_empty, spoil_html, spoil_size, spoil_missing, spoil_colour, spoil_alpha),
        *(spoil_palette, spoil_depth, spoil_inks, spoil_folder),
    ],
)
def test_a_file_that_cannot_be_used_is_named(competition, tiny, spoil):
    """The path is in the message, and so is what was expected."""
    spoil(competition)

    with pytest.raises(DataError, match=r"r003\.png") as caught:
        data.read_training(competition, tiny)

    assert "xpected" in str(caught.value)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("id,label\nr000,10\nr000,9\n", "repeats 1 ids"),
        ("id,label\nr000,10,\nr001,9,\n", r"line 2 has 3 fields and the header 2 \(id, label\)"),
        ("id,label\nr000,10\nr001,9,x\n", "line 3 has 3 fields"),
        ("id,label\nr000,10\nr001\n", "line 3 has 1 fields"),
        ('id,label\nr000,"10\nr001,9\n', "could not be read"),
        ("id,label,label\nr000,10,9\n", "names a column twice"),
        ("id,label\n", "no rows"),
        ("\n\n", "it is empty"),
        ("id,label\n" + "n" * 300 + ",10\na,9\nb,A b\nc,ß\n", r"images are missing"),
        ("id,label\n../../etc/passwd,10\na,9\nb,A b\nc,ß\n", "cannot be the id"),
        ("name,label\nr000,10\n", "expected also id"),
        ("id,label\nr000,10\nr001,9\n", "2 different labels"),
        ("", "could not be read"),
        (None, "is missing"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(competition, tiny, table, said):
    """Before any image is read."""
    path = competition / "train.csv"
    path.unlink() if table is None else path.write_text(table)

    with pytest.raises(DataError, match=said) as caught:
        data.read_training(competition, tiny)

    assert "train" in str(caught.value) or "id of an image" in str(caught.value)
    assert "xpected" in str(caught.value)


def test_blank_lines_of_a_table_mean_nothing(competition, tiny):
    """An editor leaves one at the end."""
    path = competition / "train.csv"
    path.write_text("\n" + path.read_text().replace("r005", "\nr005") + "\n\n")

    assert len(data.read_training(competition, tiny)) == 96


@pytest.mark.parametrize("name", ["train.csv", "train/r003.png", "train"])
def test_what_may_not_be_read_is_named(competition, tiny, unreadable, name):
    """It is there, and whole."""
    data.read_training(competition, tiny)  # what is imported on the way has been imported: nobody may not even do that

    with unreadable(competition / name), pytest.raises(DataError, match=name.split("/")[0]) as caught:
        data.read_training(competition, tiny)

    assert "xpected" in str(caught.value)


def test_a_table_that_cannot_be_opened_by_its_name_is_named(competition, tiny):
    """In one message, whatever the file system says to it."""
    deep = replace(tiny, data=replace(tiny.data, train_csv="/".join(["n" * 255] * 20)))

    with pytest.raises(DataError, match="File name too long"):
        data.read_training(competition, deep)


def in_colour(competition, tiny):
    """Return the config that expects the competition's images in colour."""
    return replace(tiny, data=replace(tiny.data, channels=3))


def test_grey_files_are_taken_for_colour_with_equal_channels(competition, tiny):
    """Nothing is lost by it; it is the only conversion."""
    grey = data.read_training(competition, tiny)
    (competition / "train" / "r001.png").unlink()
    Image.fromarray(grey.pixels[1, :, :, 0]).convert("RGB").save(competition / "train" / "r001.png")

    colour = data.read_training(competition, in_colour(competition, tiny))

    assert np.array_equal(colour.pixels, np.repeat(grey.pixels, 3, axis=-1))


def test_a_palette_is_taken_for_the_colours_that_it_stands_for(competition, tiny):
    """A PNG of few colours is saved so by many programs."""
    colours = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(colours).convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(
        competition / "train" / "r001.png"
    )

    found = data.read_training(competition, in_colour(competition, tiny)).pixels[1]

    assert np.array_equal(found, np.asarray(Image.open(competition / "train" / "r001.png").convert("RGB")))


@pytest.mark.parametrize("spoil", [spoil_alpha, spoil_depth, spoil_inks])
def test_what_colour_cannot_hold_is_refused_too(competition, tiny, spoil):
    """Alpha, sixteen bits and four inks."""
    spoil(competition)

    with pytest.raises(DataError, match=r"r003\.png (is|has)"):
        data.read_training(competition, in_colour(competition, tiny))


def test_images_that_do_not_fit_into_memory_are_told_with_their_size(competition, tiny):
    """Not by a traceback. Where the machine promises what it does not have, the first file tells the same."""
    names = [f"r{index:05d}" for index in range(10_000)]
    for name in names:
        (competition / "train" / f"{name}.png").hardlink_to(competition / "train" / "r000.png")
    rows = [f"{name},{('10', '9', 'A b', 'ß')[index % 4]}\n" for index, name in enumerate(names)]
    (competition / "train.csv").write_text("id,label\n" + "".join(rows))

    with pytest.raises(DataError, match=r"10000 images of 10000x10000x1 need 931 GiB|is 8x8x1"):
        data.read_training(competition, replace(tiny, data=replace(tiny.data, height=10_000, width=10_000)))


def test_a_sample_without_rows_is_refused(competition, tiny):
    """An empty test set is a download that broke off."""
    (competition / "sample_submission.csv").write_text("id,label\n")

    with pytest.raises(DataError, match="no rows"):
        data.read_test(competition, tiny)


def test_batches_of_some_rows_hold_those_rows(competition, tiny):
    """The part that is trained on is never copied as a whole."""
    pixels = np.arange(60, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 3, 3, 1), np.uint8)
    rows = np.arange(1, 60, 2)
    options = {"batch": 7, "seed": 0, "crop_padding": 1, "flip": True}
    labels = np.arange(60, dtype=np.int32)

    found = data.Batches(pixels, labels, rows=rows, **options)

    copied = data.Batches(pixels[rows], labels[rows], **options)
    assert len(found) == len(copied) == 30
    for step in range(9):
        assert all(np.array_equal(a, b) for a, b in zip(found.at(step), copied.at(step), strict=True))


def test_a_test_set_larger_than_the_sample_is_refused(competition, tiny):
    """An image without a row would get no prediction."""
    shutil.copy(competition / "test" / "e000.png", competition / "test" / "e999.png")

    with pytest.raises(DataError, match=r"22 images .* asks for 21.*\n?.*e999|e999"):
        data.read_test(competition, tiny)


def test_a_row_of_the_sample_without_an_image_is_refused(competition, tiny):
    """No row is dropped in silence."""
    (competition / "test" / "e004.png").unlink()

    with pytest.raises(DataError, match=r"1 of 21 images are missing.*e004"):
        data.read_test(competition, tiny)


def test_a_label_with_one_image_is_refused():
    """It cannot be in both parts."""
    from pipeline import config as configs

    images = data.Images(("a", "b", "c"), np.zeros((3, 1, 1, 1), np.uint8), np.array([0, 0, 1], np.int32), ("x", "y"))

    with pytest.raises(DataError, match="'y' has 1 image"):
        data.split(images, configs.load("digits"))
