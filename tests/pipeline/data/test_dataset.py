"""Files become arrays and arrays become batches. Nothing is dropped; broken files are named."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipeline import config as configs
from pipeline.config import Data
from pipeline.data import dataset, folds, image_files
from pipeline.data.labels import Target
from pipeline.data.row_gathering import padded
from pipeline.data.test_set import read_test
from pipeline.errors import ConfigError, DataError
from tests.pipeline.conftest import write_competition

sizes = st.integers(1, 60)


def numbered(count: int, **options: object) -> dataset.Batches:
    """Return batches of images whose only pixel value is their own number."""
    pixels = np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 3, 3, 1), np.uint8)
    return dataset.Batches(
        pixels, np.arange(count, dtype=np.int32), **{"batch": 4, "seed": 0, **options}
    )


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
    options = {"batch": batch}
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
    """In any order."""
    images, labels = numbered(60, batch=60).at(3)

    assert np.array_equal(images[:, 0, 0, 0], labels)


def test_the_images_are_those_of_the_files():
    """Not a pixel differs."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 5, 4, 3), dtype=np.uint8)
    batches = dataset.Batches(pixels, np.arange(20, dtype=np.int32), batch=7, seed=0)

    images, labels = batches.at(1)

    assert images.dtype == np.uint8
    assert np.array_equal(images, pixels[labels])


def test_a_batch_lies_in_memory_line_by_line():
    """A .npy file may have its axes in another order."""
    pixels = np.asfortranarray(np.zeros((5, 4, 3, 3), np.uint8))

    assert dataset.Batches(pixels, np.arange(5), batch=8, seed=0).at(0)[0].flags.c_contiguous


@given(st.integers(0, 40), st.integers(1, 17))
def test_padding_drops_nothing_and_has_one_shape(count, batch):
    """Evaluation sees every row once; what fills the last batch is marked."""
    pixels = np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1)

    parts = list(padded(pixels, batch))

    assert all(images.shape == (batch, 1, 1, 1) for images, _ in parts)
    assert np.array_equal(
        np.concatenate([images[:real] for images, real in parts] or [pixels]), pixels
    )


def test_training_images_are_read_in_the_table_s_order(competition, tiny):
    """With labels by sorted text."""
    images = dataset.read_training(competition, tiny)

    assert images.classes == ("10", "9", "A b", "ß")
    assert images.ids[:2] == ("r000", "r001")
    assert np.array_equal(images.labels[:8], [0, 1, 2, 3, 0, 1, 2, 3])
    for index in (0, 50):
        file = np.asarray(Image.open(competition / "train" / f"{images.ids[index]}.png"))
        assert np.array_equal(images.inputs[index, :, :, 0], file)


def test_the_test_set_is_read_in_the_sample_s_order(competition, tiny):
    """The order of the submission."""
    wanted = [
        line.split(",")[0]
        for line in (competition / "sample_submission.csv").read_text().splitlines()[1:]
    ]

    assert list(read_test(competition, tiny).ids) == wanted


def test_ids_stay_the_texts_that_they_are(competition, tiny):
    """Neither 001 nor NA nor 1e5 is a number."""
    rows = ["id,label"]
    for index, name in enumerate(("001", "NA", "1e5", "null", "-x", "ü 1", "inf", "0x1")):
        shutil.copy(
            competition / "train" / f"r{index:03d}.png", competition / "train" / f"{name}.png"
        )
        rows.append(f"{name},{('10', '9', 'A b', 'ß')[index % 4]}")
    (competition / "train.csv").write_text("\ufeff" + "\r\n".join(rows) + "\r\n")

    assert dataset.read_training(competition, tiny).ids == (
        "001",
        "NA",
        "1e5",
        "null",
        "-x",
        "ü 1",
        "inf",
        "0x1",
    )


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(2, 30), st.integers(0, 3), st.floats(0.05, 0.6))
def test_the_split_holds_back_of_every_class_and_loses_nobody(classes, each, seed, share):
    """Every class trains; together both parts are everything, once."""
    from pipeline import config as configs

    digits = configs.load("digits")
    config = replace(digits, seed=seed, data=replace(digits.data, validation_fraction=share))
    labels = np.repeat(np.arange(classes, dtype=np.int32), each)
    images = dataset.Examples(
        tuple(map(str, range(len(labels)))),
        np.zeros((len(labels), 1, 1, 1), np.uint8),
        labels,
        Target("classes", tuple(map(str, range(classes)))),
    )

    train, held = folds.split(images, config)

    assert sorted([*train, *held]) == list(range(len(labels)))
    assert set(labels[train]) == set(range(classes)) and len(held)
    assert np.array_equal(held, folds.split(images, config)[1])


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


def spoil_folder(folder):
    (folder / "train" / "r003.png").unlink()
    (folder / "train" / "r003.png").mkdir()


BROKEN = [
    (spoil_truncated, "it cannot be decoded|its header is corrupt"),
    (spoil_empty, "it is empty"),
    (spoil_html, "it is text, not an image"),
    (spoil_size, "it has 9x8 pixels"),
]


@pytest.mark.parametrize(
    ("spoil", "said"), [*BROKEN, (spoil_missing, "missing"), (spoil_folder, "missing")]
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, tiny, spoil, said):
    """One of 9 is more than one in ten. The id is in the message, and so is what was expected."""
    folder = write_competition(tmp_path / "competition", train=9)
    spoil(folder)

    with pytest.raises(DataError, match=said) as caught:
        dataset.read_training(folder, tiny)

    assert "r003" in str(caught.value) and "xpected" in str(caught.value)


@pytest.mark.parametrize(("spoil", "said"), BROKEN)
def test_a_few_broken_images_are_left_out_and_named(tmp_path, tiny, spoil, said):
    """With its label; the others stay in their order. A missing one is never left out."""
    folder = write_competition(tmp_path / "competition", train=100)
    whole = dataset.read_training(folder, tiny)
    spoil(folder)

    found = dataset.read_training(folder, tiny)

    assert set(found.broken) == {"r003"} and re.search(said, found.broken["r003"])
    assert found.ids == tuple(name for name in whole.ids if name != "r003")
    assert np.array_equal(found.inputs, np.delete(whole.inputs, 3, axis=0))
    assert np.array_equal(found.labels, np.delete(whole.labels, 3))
    assert not whole.broken and found.fingerprint != whole.fingerprint

    for row in range(50, 53):
        (folder / "train" / f"r0{row}.png").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"4 of 100 images cannot be used: 'r003'.*'r050': it is empty"
    ):
        dataset.read_training(folder, tiny)


def test_an_image_that_is_missing_is_left_out_as_a_broken_one_is(tmp_path, tiny):
    """Three in a hundred, and named."""
    folder = write_competition(tmp_path / "competition", train=100)
    (folder / "train" / "r003.png").unlink()

    found = dataset.read_training(folder, tiny)

    assert found.broken == {"r003": "it is missing"} and len(found) == 99

    for row in range(50, 53):
        (folder / "train" / f"r0{row}.png").unlink()
    with pytest.raises(DataError, match=r"4 of 100 images are missing"):
        dataset.read_training(folder, tiny)


def test_a_broken_image_takes_its_group_with_it(tmp_path, tiny):
    """Every other image keeps its own."""
    folder = write_competition(tmp_path / "competition", train=100)
    head, *lines = (folder / "train.csv").read_text().splitlines()
    added = [f"{line},p{index:02d}" for index, line in enumerate(lines)]
    (folder / "train.csv").write_text("\n".join([f"{head},patient", *added]))
    spoil_empty(folder)

    found = dataset.read_training(
        folder, replace(tiny, data=replace(tiny.data, group_column="patient"))
    )

    assert np.array_equal(found.groups, np.arange(99))
    assert len(found.groups) == len(found.ids) == len(found.labels) == len(found.inputs)


def test_a_run_tells_which_image_it_left_out(tmp_path, tiny):
    """On the screen, once."""
    from pipeline.training import learning_rate, training

    folder, lines = write_competition(tmp_path / "competition", train=100), []
    spoil_empty(folder)
    found = dataset.read_training(folder, tiny)

    training._show_plan(
        tiny, found, [folds.split(found, tiny)], learning_rate.apply(tiny, 89), lines.append
    )

    told = [line for line in lines if "left out" in line]
    assert told == ["Warning: 1 images cannot be decoded and are left out: 'r003': it is empty"]


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
        ("id,label\n/etc/passwd,10\na,9\nb,A b\nc,ß\n", "cannot be the id"),
        ("id,label\na//b,10\na,9\nb,A b\nc,ß\n", "cannot be the id"),
        ("id,label\n" + "x/" * 3000 + "x,10\na,9\nb,A b\nc,ß\n", "images are missing"),
        ("id,label\ntrain/r000,10\na,9\nb,A b\nc,ß\n", "images are missing"),
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

    with pytest.raises((ConfigError, DataError), match=said) as caught:
        dataset.read_training(competition, tiny)

    assert "train" in str(caught.value) or "id of an image" in str(caught.value)
    assert "xpected" in str(caught.value)


def test_blank_lines_of_a_table_mean_nothing(competition, tiny):
    """An editor leaves one at the end."""
    path = competition / "train.csv"
    path.write_text("\n" + path.read_text().replace("r005", "\nr005") + "\n\n")

    assert len(dataset.read_training(competition, tiny)) == 96


@pytest.mark.parametrize("name", ["train.csv", "train/r003.png", "train"])
def test_what_may_not_be_read_is_named(competition, tiny, unreadable, name):
    """It is there, and whole."""
    dataset.read_training(
        competition, tiny
    )  # what is imported on the way has been imported: nobody may not even do that

    with (
        unreadable(competition / name),
        pytest.raises(DataError, match=name.split("/")[0]) as caught,
    ):
        dataset.read_training(competition, tiny)

    assert "xpected" in str(caught.value)


def test_a_table_that_cannot_be_opened_by_its_name_is_named(competition, tiny):
    """In one message, whatever the file system says to it."""
    deep = replace(tiny, data=replace(tiny.data, train_csv="/".join(["n" * 255] * 20)))

    with pytest.raises(DataError, match="File name too long"):
        dataset.read_training(competition, deep)


def in_colour(competition, tiny):
    """Return the config that expects the competition's images in colour."""
    return replace(tiny, data=replace(tiny.data, channels=3))


def test_grey_files_are_taken_for_colour_with_equal_channels(competition, tiny):
    """Nothing is lost by it."""
    grey = dataset.read_training(competition, tiny)
    (competition / "train" / "r001.png").unlink()
    Image.fromarray(grey.inputs[1, :, :, 0]).convert("RGB").save(competition / "train" / "r001.png")

    colour = dataset.read_training(competition, in_colour(competition, tiny))

    assert np.array_equal(colour.inputs, np.repeat(grey.inputs, 3, axis=-1))


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "I;16", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_pixels_becomes_grey_or_colour_by_rule(competition, tiny, mode, channels):
    """Palette, alpha, sixteen bits and four inks; by the rules of `pipeline.data.image_decoding`,
    and none is broken.
    """
    path = competition / "train" / "r001.png"
    colours = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    if mode == "I;16":
        Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 257 * 4).save(path)
        wanted = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 4)
    else:
        Image.fromarray(colours).convert(mode).save(path, "JPEG" if mode == "CMYK" else "PNG")
        wanted = Image.open(path)
        wanted = wanted.convert("L" if mode == "LA" else "RGB")
    wanted = np.asarray(wanted.convert("L" if channels == 1 else "RGB")).reshape(8, 8, channels)

    found = dataset.read_training(
        competition, replace(tiny, data=replace(tiny.data, channels=channels))
    )

    assert not found.broken
    assert np.array_equal(found.inputs[1], wanted)


def test_images_that_fit_nowhere_are_read_only_until_too_many_are_broken(competition, tiny):
    """These need 931 GiB, and have another size than the config says."""
    names = [f"r{index:05d}" for index in range(10_000)]
    for name in names:
        (competition / "train" / f"{name}.png").hardlink_to(competition / "train" / "r000.png")
    rows = [f"{name},{('10', '9', 'A b', 'ß')[index % 4]}\n" for index, name in enumerate(names)]
    (competition / "train.csv").write_text("id,label\n" + "".join(rows))

    with pytest.raises(DataError, match="it has 8x8 pixels"):
        dataset.read_training(
            competition, replace(tiny, data=replace(tiny.data, height=10_000, width=10_000))
        )


def test_a_sample_without_rows_is_refused(competition, tiny):
    """An empty test set is a download that broke off."""
    (competition / "sample_submission.csv").write_text("id,label\n")

    with pytest.raises(DataError, match="no rows"):
        read_test(competition, tiny)


def test_batches_of_some_rows_hold_those_rows(competition, tiny):
    """The part that is trained on is never copied as a whole."""
    pixels = np.arange(60, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 3, 3, 1), np.uint8)
    rows = np.arange(1, 60, 2)
    options = {"batch": 7, "seed": 0}
    labels = np.arange(60, dtype=np.int32)

    found = dataset.Batches(pixels, labels, rows=rows, **options)

    copied = dataset.Batches(pixels[rows], labels[rows], **options)
    assert len(found) == len(copied) == 30
    for step in range(9):
        assert all(
            np.array_equal(a, b) for a, b in zip(found.at(step), copied.at(step), strict=True)
        )


def test_a_test_set_larger_than_the_sample_is_refused(competition, tiny):
    """An image without a row would get no prediction."""
    shutil.copy(competition / "test" / "e000.png", competition / "test" / "e999.png")

    with pytest.raises(DataError, match=r"22 images .* asks for 21.*\n?.*e999|e999"):
        read_test(competition, tiny)


def test_what_nobody_asked_for_does_not_end_a_scored_rerun(competition, tiny, monkeypatch):
    """Nobody is there to mend it, and all that was asked for is there."""
    shutil.copy(competition / "test" / "e000.png", competition / "test" / "e999.png")
    monkeypatch.setenv(image_files.RERUN, "1")

    assert len(read_test(competition, tiny)) == 21


def test_files_of_some_system_s_own_are_none_of_the_test_set(competition, tiny):
    """As macOS leaves them in archives; and a link that leads to itself is no file."""
    (competition / "test" / "._e000.png").write_bytes(b"")
    (competition / "test" / "loop.png").symlink_to("loop.png")

    assert len(read_test(competition, tiny)) == 21


@pytest.mark.parametrize("value", ["", "x", "256", "0.5"])
def test_a_pixel_that_is_no_level_costs_a_scored_rerun_one_row(tmp_path, monkeypatch, value):
    """Which is named, and gets the mean; where somebody can mend it, it is refused."""
    config = replace(
        configs.load("digits_csv"), data=replace(configs.load("digits_csv").data, height=2, width=2)
    )
    (tmp_path / "test.csv").write_text(
        f"pixel0,pixel1,pixel2,pixel3\n1,2,3,4\n5,{value},7,8\n9,10,11,12\n"
    )
    (tmp_path / "sample_submission.csv").write_text("ImageId,Label\n1,0\n2,0\n3,0\n")

    monkeypatch.delenv(image_files.RERUN, raising=False)
    with pytest.raises(DataError, match="pixels"):
        read_test(tmp_path, config)
    monkeypatch.setenv(image_files.RERUN, "1")
    blocks = list(read_test(tmp_path, config).blocks(2))

    assert [dict(broken) for _, _, broken in blocks] == [{1: "1 of its pixels are no levels"}, {}]
    assert blocks[0][1].reshape(2, 4).tolist() == [[1, 2, 3, 4], [0, 0, 0, 0]]


def test_an_id_may_name_folders_below_the_place(competition, tiny):
    """Each is looked at for images without a row, too."""
    for part, table in (("train", "train.csv"), ("test", "sample_submission.csv")):
        lines = (competition / table).read_text().splitlines()
        for number, line in enumerate(lines[1:], 1):
            (competition / part / f"part-{number % 3}").mkdir(exist_ok=True)
            name = line.split(",")[0]
            (competition / part / f"{name}.png").rename(
                competition / part / f"part-{number % 3}" / f"{name}.png"
            )
            lines[number] = f"part-{number % 3}/{line}"
        (competition / table).write_text("\n".join(lines) + "\n")

    assert len(dataset.read_training(competition, tiny)) == 96
    test = read_test(competition, tiny)
    assert len(test) == 21 and not any(broken for _, _, broken in test.blocks(5))

    shutil.copy(
        competition / "test" / test.ids[0][:6] / f"{test.ids[0][7:]}.png",
        competition / "test" / "part-1" / "e999.png",
    )
    with pytest.raises(DataError, match=r"22 images .* asks for 21.*part-1/e999"):
        read_test(competition, tiny)


def test_one_test_image_in_ten_may_be_missing_and_no_more(competition, tiny, monkeypatch):
    """Its row keeps its place, and the block names it. In the scored rerun all but one may be."""
    monkeypatch.delenv(image_files.RERUN, raising=False)
    for name in ("e004", "e009"):
        (competition / "test" / f"{name}.png").unlink()

    test = read_test(competition, tiny)

    broken = {
        test.ids[row]: reason for _, _, found in test.blocks(5) for row, reason in found.items()
    }
    assert broken == {"e004": "it is missing", "e009": "it is missing"}
    assert sum(len(block) for _, block, _ in test.blocks(5)) == len(test) == 21

    (competition / "test" / "e001.png").unlink()
    with pytest.raises(DataError, match=r"3 of 21 images are missing.*e0"):
        read_test(competition, tiny)
    monkeypatch.setenv(image_files.RERUN, "1")
    assert len(read_test(competition, tiny)) == 21
    for path in (competition / "test").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"21 of 21 images are missing"):
        read_test(competition, tiny)


# -- where images are


def test_images_lie_in_several_folders(competition, tiny):
    """Each is taken from the first that has it, as in the grown training sets of a competition's
    second year.
    """
    (competition / "more").mkdir()
    for index in range(0, 96, 2):
        (competition / "train" / f"r{index:03d}.png").rename(
            competition / "more" / f"r{index:03d}.png"
        )
    Image.new("L", (8, 8)).save(competition / "more" / "r001.png")
    both = replace(tiny, data=replace(tiny.data, train_images=("train", "more", "nowhere")))

    found = dataset.read_training(competition, both)

    with pytest.raises(
        DataError, match=r"48 of 96 images are missing in .*train, for example r000\.png"
    ):
        dataset.read_training(competition, tiny)
    assert len(found) == 96
    assert found.inputs[1].any()


@pytest.mark.parametrize("suffix", ["", "*"])
def test_ids_may_be_whole_file_names_and_files_of_several_formats(competition, tiny, suffix):
    """ "" where they are, "*" where each has an ending of its own."""
    before = dataset.read_training(competition, tiny)
    kinds = ("png", "jpg", "jpeg", "webp")
    for index in range(96):
        path = competition / "train" / f"r{index:03d}.png"
        with Image.open(path) as image:
            image.load()
        path.unlink()
        kind = kinds[index % 4] if suffix else "png"
        image.convert("RGB").save(
            path.with_suffix(f".{kind}"), **({"lossless": True} if kind == "webp" else {})
        )
    if not suffix:
        text = (competition / "train.csv").read_text()
        (competition / "train.csv").write_text(text.replace(",", ".png,").replace("id.png", "id"))

    found = dataset.read_training(
        competition, replace(tiny, data=replace(tiny.data, suffix=suffix))
    )

    same = slice(0, 96, 4) if suffix else slice(None)
    assert found.ids == (before.ids if suffix else tuple(f"{name}.png" for name in before.ids))
    assert np.array_equal(found.inputs[same], before.inputs[same])
    assert np.abs(found.inputs.astype(int) - before.inputs).mean() < 10


@pytest.mark.parametrize("resize", ["stretch", "crop", "pad"])
def test_images_of_other_sizes_are_resized_where_the_config_says_so(competition, tiny, resize):
    """Training and test images by the same rule."""
    for name in ("train/r000", "test/e000"):
        Image.new("L", (32, 16), 200).save(competition / f"{name}.png")
    config = replace(tiny, data=replace(tiny.data, resize=resize))

    found, test = dataset.read_training(competition, config), read_test(competition, config)

    own = test.inputs(np.array([test.ids.index("e000")]))[0]
    assert np.array_equal(found.inputs[0], own)
    wanted = np.full((8, 8), 200)
    if resize == "pad":
        wanted[:2] = wanted[6:] = 0
    assert np.array_equal(own[:, :, 0], wanted)


# -- other kinds than a file an image


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
    (tmp_path / "sample_submission.csv").write_text(
        "ImageId,Label\n" + "".join(f"{row},0\n" for row in range(1, 7))
    )
    return tmp_path, replace(tiny, data=Data(kind="pixels", height=2, width=3, channels=1))


def test_images_may_be_columns_of_a_table_without_ids(recognizer):
    """Then the rows are in the order of the sample, which calls them and the labels otherwise."""
    folder, config = recognizer

    found, test = dataset.read_training(folder, config), read_test(folder, config)

    assert np.array_equal(found.inputs, np.concatenate([PIXELS, PIXELS]))
    assert (found.ids[:2], found.classes) == (("0", "1"), ("0", "1", "2", "3"))
    assert test.ids == ("1", "2", "3", "4", "5", "6") and test.images
    assert np.array_equal(test.inputs(np.array([4, 0])), PIXELS[[4, 0]])


def test_a_test_table_without_ids_has_as_many_rows_as_the_sample(recognizer):
    """Otherwise nothing says which row is whose."""
    folder, config = recognizer
    (folder / "test.csv").write_text("\n".join([HEADER, *flat(PIXELS[:5])]))

    with pytest.raises(
        DataError,
        match=r"has 5 rows and no column 'id' or 'ImageId', and sample_submission\.csv has 6 rows",
    ):
        read_test(folder, config)


def test_images_may_be_one_array(recognizer):
    """In the order of the tables."""
    folder, config = recognizer
    (folder / "train.csv").write_text("label\n" + "".join(f"{index % 4}\n" for index in range(6)))
    np.save(folder / "train.npy", PIXELS)
    np.savez(folder / "test.npz", x=PIXELS[::-1, :, :, 0])
    config = replace(config, data=replace(config.data, kind="arrays", test_array="test.npz"))

    found, test = dataset.read_training(folder, config), read_test(folder, config)

    assert np.array_equal(found.inputs, PIXELS)
    assert np.array_equal(np.concatenate([block for _, block, _ in test.blocks(4)]), PIXELS[::-1])
    np.save(folder / "train.npy", PIXELS[:5])
    with pytest.raises(
        DataError, match=r"train\.npy holds uint8 \(5, 2, 3, 1\); expected uint8 \(6, 2, 3, 1\)"
    ):
        dataset.read_training(folder, config)


def test_rows_of_an_array_belong_to_the_ids_of_the_test_table(recognizer):
    """Where it has ids: under the config's name for them or the sample's; else rows are in the
    sample's order.
    """
    folder, config = recognizer
    np.save(folder / "test.npy", PIXELS)
    config = replace(config, data=replace(config.data, kind="arrays"))

    for column in ("id", "ImageId"):
        (folder / "test.csv").write_text(
            f"{column},more\n" + "".join(f"{row},x\n" for row in (3, 1, 2, 6, 5, 4))
        )
        test = read_test(folder, config)
        assert test.ids == ("1", "2", "3", "4", "5", "6")
        assert np.array_equal(test.inputs(np.arange(6)), PIXELS[[1, 2, 0, 5, 4, 3]])
        assert np.array_equal(
            np.concatenate([block for _, block, _ in test.blocks(4)]), PIXELS[[1, 2, 0, 5, 4, 3]]
        )


@pytest.mark.parametrize(
    ("table", "rows", "said"),
    [
        (
            "id\n1\n2\n3\n4\n5\n",
            6,
            r"test\.csv and sample_submission\.csv differ in 1 ids, for example 6",
        ),
        ("id\n1\n2\n3\n4\n5\n7\n", 6, r"differ in 2 ids, for example 6, 7"),
        ("id\n1\n2\n3\n4\n5\n5\n", 6, r"repeats 1 ids"),
        (
            "id\n1\n2\n3\n4\n5\n6\n",
            5,
            r"test\.npy holds uint8 \(5, 2, 3, 1\); expected uint8 \(6, 2, 3, 1\)",
        ),
    ],
    ids=["too few ids", "another id", "an id twice", "too few rows"],
)
def test_an_array_whose_rows_do_not_belong_to_the_ids_is_refused(recognizer, table, rows, said):
    """No row is taken for another's."""
    folder, config = recognizer
    np.save(folder / "test.npy", PIXELS[:rows])
    (folder / "test.csv").write_text(table)

    with pytest.raises(DataError, match=said):
        read_test(folder, replace(config, data=replace(config.data, kind="arrays")))


@pytest.mark.parametrize(("size", "kept"), [(64, 0), (65, 2)])
def test_large_images_are_kept_decoded_and_small_ones_are_not(
    competition, tiny, tmp_path, size, kept
):
    """What comes from the cache is what comes from the files; an image that changes is decoded
    again.
    """
    config = replace(tiny, data=replace(tiny.data, height=size, width=8, resize="stretch"))
    said: list[str] = []
    plain = dataset.read_training(competition, config)

    for _ in range(2):
        found = dataset.read_training(
            competition, config, cache=tmp_path / "decoded", show=said.append
        )
        assert found.fingerprint == plain.fingerprint
    assert len(list((tmp_path / "decoded").glob("*"))) == kept
    assert [line.startswith("Took 96 decoded images") for line in said] == [True] * (kept // 2)

    Image.new("L", (8, 8), 255).save(competition / "train" / "r000.png")
    changed = dataset.read_training(competition, config, cache=tmp_path / "decoded")
    assert changed.inputs[changed.ids.index("r000")].min() == 255


@pytest.fixture
def people(tmp_path, tiny):
    """Return a folder with a table of numbers and categories, some missing, and its config."""
    train = ["id,age,port,survived", "a,20,S,1", "b,40,S,0", "c,NA,C,1", "d,30,,0"]
    (tmp_path / "train.csv").write_text("\n".join(train))
    (tmp_path / "test.csv").write_text("id,age,port\ny,40,X\nx,,C\n")
    (tmp_path / "sample_submission.csv").write_text("id,survived\nx,0\ny,0\n")
    table = Data(
        kind="table",
        label_column="survived",
        numeric_columns=("age",),
        categorical_columns=("port",),
    )
    return tmp_path, replace(tiny, data=table, num_classes=2, model="mlp", model_options={})


def test_a_table_is_read_by_what_training_has_seen(people):
    """A missing number is the mean and marked, an unseen category is unknown; test rows are in the
    sample's order.
    """
    folder, config = people

    found = dataset.read_training(folder, config)
    test = read_test(folder, config, found.encoding)

    spread = np.sqrt(1.5)
    assert found.inputs == pytest.approx(
        np.array([[-spread, 0, 1], [spread, 0, 1], [0, 1, 3], [0, 0, 2]])
    )
    assert test.ids == ("x", "y") and not test.images
    assert test.inputs(np.array([0, 1])) == pytest.approx(np.array([[0, 1, 3], [spread, 0, 0]]))
    with pytest.raises(DataError, match="no encoding of the table"):
        read_test(folder, config)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("id,age,port\nx,1,S\nz,2,S\n", "differ in 2 ids, for example y, z"),
        ("id,age,port\nx,1,S\nx,2,S\n", "repeats 1 ids"),
        ("id,age\nx,1\ny,2\n", "expected also port"),
        ("id,age,port\nx,1,S\ny,old,S\n", "'age' that are not finite numbers, for example 'old'"),
    ],
)
def test_a_test_table_that_does_not_fit_is_refused(people, table, said):
    """No row is dropped or made up."""
    folder, config = people
    encoding = dataset.read_training(folder, config).encoding
    (folder / "test.csv").write_text(table)

    with pytest.raises((ConfigError, DataError), match=said):
        read_test(folder, config, encoding)


def test_numbers_are_held_back_in_proportion(tiny):
    """A share of each tenth."""
    numbers = np.random.default_rng(0).normal(size=(100, 1)).astype(np.float32)
    target = Target("regression", ("price",), (0.0,), (1.0,))
    rows = dataset.Examples(
        tuple(map(str, range(100))), np.zeros((100, 2), np.float32), numbers, target
    )

    train, held = folds.split(rows, replace(tiny, data=replace(tiny.data, validation_fraction=0.2)))

    assert sorted([*train, *held]) == list(range(100))
    assert list(np.bincount(target.strata(numbers)[held])) == [2] * 10


def test_a_label_without_an_image_is_refused():
    """There would be nothing to learn it from."""
    target = Target("classes", ("x", "y"))
    images = dataset.Examples(
        ("a", "b", "c"), np.zeros((3, 1, 1, 1), np.uint8), np.array([0, 0, 0], np.int32), target
    )

    with pytest.raises(DataError, match=r"'y' has no row in train\.csv"):
        folds.splits(images, configs.load("digits"))
