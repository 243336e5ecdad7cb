"""Folders of other layouts: labels that are folders, several labels in one text, pictures in the
alpha channel, copies of pictures; and what no config can describe is told by what it is.
"""

import io
import json
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pipeline.__main__ import main
from pipeline.data import dataset, folds
from pipeline.data.test_set import read_test
from pipeline.errors import DataError
from pipeline.inspection import inspection
from pipeline.inspection.tables import Given
from pipeline.submission.prediction_format import Form
from tests.pipeline.inspection.test_inspection import (
    csv,
    noise,
    pictures,
    png,
    proposed,
    put,
    size,
    table,
    texts,
)

LABELS = ("cat", "dog", "big owl")


def sorted_pictures(place: str = "train", each: int = 12) -> dict[str, bytes]:
    """Return the files of a competition whose labels are the names of folders."""
    return {
        "sample_submission.csv": csv("id,animal", *((f"{n}", "cat") for n in range(5))),
        **{f"{place}/{k}/{n}.png": png(noise(12, 12)) for k in LABELS for n in range(each)},
        **{f"test/{n}.png": png(noise(12, 12)) for n in range(5)},
    }


# Labels that are folders


@pytest.mark.parametrize("place", ["train", "photos/all"])
def test_folders_that_are_labels_are_found_and_read(place, tmp_path):
    """By a label of the sample submission, or by the name of the folder."""
    found, config = proposed(put(tmp_path, sorted_pictures(place)))

    data = config.data
    assert (data.train_csv, data.train_images, data.test_images) == (None, place, "test")
    assert (data.label_column, data.suffix, config.num_classes) == ("animal", ".png", 3)
    assert f"each of 3 folders in {place}/ is a label" in texts(found, "chosen")
    assert texts(found, "warning") == ""
    read = dataset.read_training(tmp_path, config)
    assert read.classes == tuple(sorted(LABELS)) and len(read) == 36
    assert len(read_test(tmp_path, config)) == 5


def test_a_second_folder_of_the_same_labels_is_named(tmp_path):
    """As one to validate; training reads both where the config says so."""
    files = sorted_pictures() | {f"val/cat/{n}.png": png(noise(12, 12)) for n in range(4)}

    found, config = proposed(put(tmp_path, files))

    assert "folders: val hold folders of these labels, too" in texts(found, "unknown")
    both = replace(config, data=replace(config.data, train_images=("train", "val")))
    assert len(dataset.read_training(tmp_path, both)) == len(found.ids) + 4 == 40


def test_a_column_for_each_folder_asks_for_probabilities(tmp_path):
    files = sorted_pictures()
    sample = csv(["id", *LABELS], *((f"{n}.png", 0.3, 0.3, 0.4) for n in range(5)))

    _, config = proposed(put(tmp_path, files | {"sample_submission.csv": sample}))

    assert (config.metric, config.data.label_column, config.data.suffix) == (
        "log_loss",
        "label",
        "",
    )


def test_a_table_of_labels_comes_before_folders(tmp_path):
    """Also where its images lie in folders: these may be batches."""
    files = pictures()
    moved = {name.replace("train/a", f"train/part{len(name) % 2}/a"): files[name] for name in files}

    _, config = proposed(put(tmp_path, moved))

    assert config.data.train_csv == "train.csv" and config.num_classes == 3


def test_a_table_without_labels_leaves_the_folders(tmp_path):
    """As a list of the classes; and images in no folder of a label are a warning."""
    files = sorted_pictures() | {"classes.csv": csv("number,animal_name", (0, "cat"), (1, "dog"))}
    files["train/loose.png"] = png(noise(12, 12))

    found, config = proposed(put(tmp_path, files))

    assert config.data.train_csv is None
    assert "1 images of train/ are in no folder of a label" in texts(found, "warning")


def test_the_folder_of_folders_can_be_given(tmp_path):
    """Where its name and its labels say nothing."""
    files = {
        name.replace("train/", "a/b/").replace("cat", "x"): content
        for name, content in sorted_pictures().items()
    }
    put(tmp_path, files)

    with pytest.raises(DataError, match=r"a folder for each label \(train/cats/1\.jpg\)"):
        proposed(tmp_path)
    _, config = proposed(tmp_path, Given(train="a/b"))

    assert (config.data.train_csv, config.data.train_images) == (None, "a/b")


# Several labels in one text


@pytest.mark.parametrize(
    ("separator", "sample", "between"),
    [("|", "cat|dog", "|"), (",", '"cat,dog"', ","), ("; ", "cat", "; "), ("|", "cat dog", " ")],
)
def test_labels_with_any_separator_are_several_labels(separator, sample, between, tmp_path):
    """The config names it, and a submission is written as the sample is."""
    rows = [[LABELS[k] for k in range(3) if 1 + n % 7 & 1 << k] for n in range(42)]
    cells = [f'"{separator.join(row)}"' for row in rows]
    files = table(42) | {
        "train.csv": csv("id,size,animals", *((n, size(n), cells[n]) for n in range(42))),
        "sample_submission.csv": csv("id,animals", *((1000 + n, sample) for n in range(9))),
    }

    found, config = proposed(put(tmp_path, files))

    assert (config.target, config.num_classes) == ("multilabel", 3)
    assert config.data.label_separator == separator
    assert f"label_separator={separator!r}" in texts(found, "chosen")
    target = dataset.read_training(tmp_path, config).target
    form = Form(target, config.metric, tmp_path / "sample_submission.csv")
    values = np.array([[name in ("cat", "big owl") for name in target.names]], np.float32)
    assert form.texts(values) == {"animals": [f"big owl{between}cat"]}


# Pictures in the alpha channel


def drawn(number: int, *, colour: int, kind: str) -> bytes:
    """Return a drawing whose colours are flat: only the alpha channel, or a palette, shows it."""
    alpha = Image.new("L", (16, 16))
    ImageDraw.Draw(alpha).line((number % 16, 0, 15 - number % 7, 15), fill=255, width=4)
    if kind == "P":
        image = alpha.point(lambda level: level // 255).convert("P")
        image.putpalette([colour] * 6)
        options = {"transparency": 0}
    else:
        image, options = Image.new("RGBA", (16, 16), (colour, colour, colour, 0)), {}
        image.putalpha(alpha)
    file = io.BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("colour", "kind", "background"),
    [(0, "RGBA", "white"), (255, "RGBA", "black"), (0, "P", "white")],
)
def test_a_picture_in_the_alpha_channel_is_noticed_and_read(colour, kind, background, tmp_path):
    """Laid on the colour that shows it, in training and in inference."""
    files = pictures() | {
        name: drawn(n, colour=colour, kind=kind)
        for n, name in enumerate(name for name in pictures() if name.endswith(".png"))
    }

    found, config = proposed(put(tmp_path, files))

    assert config.data.alpha == background
    assert "the picture is in the alpha channel of 30 images" in texts(found, "chosen")
    for inputs in (
        dataset.read_training(tmp_path, config).inputs,
        read_test(tmp_path, config).inputs(np.arange(6)),
    ):
        assert (inputs.std(axis=(1, 2, 3)) > 50).all()


def test_colours_that_show_a_picture_are_read_as_they_are_stored(tmp_path):
    """A finding says that there is an alpha channel; opaque images have none."""
    clear, opaque = pictures(), pictures()
    for name in [name for name in clear if name.endswith(".png")]:
        pixels = noise(12, 12, 4)
        clear[name] = png(pixels)
        pixels[..., 3] = 255
        opaque[name] = png(pixels)

    found, config = proposed(put(tmp_path / "clear", clear))
    plain, _ = proposed(put(tmp_path / "opaque", opaque))

    assert config.data.alpha == "drop"
    assert "30 images have an alpha channel, which is dropped" in texts(found, "unknown")
    assert "alpha" not in texts(plain, "unknown") + texts(plain, "chosen")


# Copies of pictures


def test_copies_of_training_pictures_are_kept_together(tmp_path):
    """The config says so, and no split of a training divides them."""
    files = pictures(train=60)
    for n in range(0, 30, 3):
        files[f"train/a{n + 30}.png"] = files[f"train/a{n}.png"]

    found, config = proposed(put(tmp_path, files))

    assert config.data.group_duplicates
    assert "a split that divides them makes validation scores too good" in texts(found, "warning")
    assert len(np.unique(found.groups(config.data))) == 50
    read = dataset.read_training(tmp_path, replace(config, folds=5))
    for rows, held in folds.splits(read, replace(config, folds=5)):
        ids = [
            {int(read.ids[row][1:]) % 30 for row in part if int(read.ids[row][1:]) % 3 == 0}
            for part in (rows, held)
        ]
        assert not ids[0] & ids[1]


def test_without_copies_nothing_is_grouped(tmp_path):
    """Copies in the test set are no reason to group."""
    files = pictures()
    files["test/b1.png"] = files["train/a4.png"]

    _, config = proposed(put(tmp_path, files))

    assert not config.data.group_duplicates


# What no config can describe


TITLES = [" ".join(letters) for letters in product("abcde", "fghij", "klmno")]
SENTENCES = [f"the quick fox jumps over {title} and runs away" for title in TITLES]


def masks(header: str, *rows: object) -> dict[str, bytes]:
    """Return the files of a segmentation, whose submission has the header of its table."""
    return {
        "train.csv": csv(header, *rows),
        "sample_submission.csv": csv(header, *((90 + n, "1 1") for n in range(4))),
        **{f"train/images/{n}.png": png(noise(9, 9)) for n in range(20)},
    }


RUNS = [" ".join(f"{start} {2 + n % 3}" for start in range(n + 1, 80, 9)) for n in range(20)]
MASK_FILES = {
    "train.csv": csv("id", *((n,) for n in range(20))),
    "sample_submission.csv": csv("id,label", *((90 + n, 0) for n in range(4))),
    **{f"train/images/{n}.png": png(noise(9, 9)) for n in range(20)},
    **{f"train/masks/{n}.png": png(noise(9, 9)) for n in range(20)},
}


def written(texts: list[str]) -> dict[str, bytes]:
    """Return the files of a competition whose only input is a text."""
    return {
        "train.csv": csv("id,text,goal", *((n, texts[n], n % 2) for n in range(100))),
        "test.csv": csv("id,text", *((900 + n, texts[100 + n]) for n in range(25))),
        "sample_submission.csv": csv("id,goal", *((900 + n, 0) for n in range(25))),
    }


ANSWERS = [
    (n, size(n), "rgb"[n % 3], " ".join(f"{word}{n}" for word in "abcdef")) for n in range(40)
]


@pytest.mark.parametrize(
    ("files", "what"),
    [
        pytest.param(masks("id,rle_mask", *enumerate(RUNS)), "segmentation", id="run lengths"),
        pytest.param(masks("id,shape", *enumerate(RUNS)), "segmentation", id="called otherwise"),
        pytest.param(
            masks("id,EncodedPixels", *((n // 2, RUNS[n]) for n in range(20))),
            "segmentation",
            id="a row for each mask",
        ),
        pytest.param(MASK_FILES, "segmentation", id="files of masks"),
        pytest.param(
            {name: MASK_FILES[name] for name in MASK_FILES if name != "train.csv"},
            "segmentation",
            id="files of masks without a table",
        ),
        pytest.param(written(SENTENCES), "text", id="sentences"),
        pytest.param(written(TITLES), "text", id="titles"),
        pytest.param(
            table() | {"train.csv": csv("id,size,colour,sold", *ANSWERS)}, "text", id="answers"
        ),
    ],
)
def test_what_is_not_supported_is_told_by_what_it_is(files, what, tmp_path):
    """Not by what is missing for something else; and a worked example is named."""
    with pytest.raises(DataError) as refused:
        proposed(put(tmp_path, files))

    said = str(refused.value)
    assert f"looks like a {what} competition" in said and "inspect has no config" in said
    assert "Expected labels or numbers to predict" in said and f"docs/{what}.md" in said


def test_another_column_than_that_of_the_masks_can_be_given(tmp_path):
    """As the messages say; a table may have both."""
    rows = [(n, RUNS[n], n % 2) for n in range(20)]
    files = masks("id,rle_mask", *rows) | {
        "train.csv": csv("id,rle_mask,coat", *rows),
        **{f"test/{n}.png": png(noise(9, 9)) for n in range(90, 94)},
    }

    found = inspection.inspect(put(tmp_path, files), Given(labels=("coat",)))

    assert found.target.kind == "classes" and found.contents.labels == ("coat",)


def test_a_column_of_text_beside_others_is_a_warning(tmp_path):
    """The others train; nobody is left to think that the text is read."""
    rows = [(n, size(n), SENTENCES[n], n % 2) for n in range(100)]
    tests = [(1000 + n, n / 8, SENTENCES[100 + n]) for n in range(9)]
    files = table() | {
        "train.csv": csv("id,size,text,sold", *rows),
        "test.csv": csv("id,size,text", *tests),
    }

    found, config = proposed(put(tmp_path, files))

    assert config.data.numeric_columns == ("size",)
    assert "text is left out, since text is not supported" in texts(found, "warning")


def test_numbers_that_are_several_labels_are_no_masks(tmp_path):
    """They repeat from row to row; run lengths do not."""
    rows = [" ".join(row) for row in combinations(("1", "3", "9", "27", "81", "243"), 4)] * 4
    files = table() | {
        "train.csv": csv("id,size,tags", *((n, size(n), row) for n, row in enumerate(rows))),
        "sample_submission.csv": csv("id,tags", *((1000 + n, "1 3") for n in range(9))),
    }

    _, config = proposed(put(tmp_path, files))

    assert (config.target, config.num_classes) == ("multilabel", 6)


# The name


@pytest.mark.parametrize(
    ("folder", "words", "slug", "said"),
    [
        ("leaves", "", "leaves", "assumed 'leaves' (as the folder is called)"),
        (
            "competition",
            "",
            "unnamed-competition",
            "the folder is called 'competition', which says nothing",
        ),
        ("data", "--write {}/maple.py", "maple", "(as the config is called; the folder"),
        ("leaves", "--competition plants", "plants", ""),
    ],
)
def test_a_slug_that_nobody_gave_is_said_to_be_assumed(folder, words, slug, said, tmp_path, capsys):
    put(tmp_path / folder, pictures())

    given = words.format(tmp_path).split()

    assert main(["inspect", str(tmp_path / folder), *given, "--json"]) == 0

    *lines, last = capsys.readouterr().out.splitlines()
    assert json.loads(last)["competition"] == slug
    assert any(said in line for line in lines if line.startswith("unknown  competition")) == bool(
        said
    )
