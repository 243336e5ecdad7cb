"""Folders of other layouts: labels that are folders, several labels in one text, pictures in the
alpha channel, copies of pictures; and what no config can describe is told by what it is.
"""

from itertools import combinations, product

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pipeline.data import dataset
from pipeline.data.test_set import read_test
from pipeline.errors import DataError
from pipeline.inspection import inspection
from pipeline.inspection.tables import Given
from pipeline.submission.prediction_format import Form
from tests.pipeline.inspection.test_inspection import (
    columns,
    csv,
    noise,
    pictures,
    png,
    proposed,
    put,
    size,
    table,
    texts,
    told,
)

LABELS = ("cat", "dog", "big owl")


def sorted_pictures() -> dict[str, bytes]:
    """Return the files of a competition whose labels are the names of folders."""
    return {
        "sample_submission.csv": csv("id,animal", *((f"{n}", "cat") for n in range(5))),
        **{f"train/{k}/{n}.png": png(noise(12, 12)) for k in LABELS for n in range(12)},
        **{f"test/{n}.png": png(noise(12, 12)) for n in range(5)},
    }


# Labels that are folders


IN_FOLDERS = sorted_pictures()
EACH = csv(["id", *LABELS], *((f"{n}.png", 0.3, 0.3, 0.4) for n in range(5)))


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        (
            IN_FOLDERS,
            (
                *("train_csv=None", "train_images='train'", "label_column='animal'"),
                *("each of 3 folders in train/ is a label", "suffix='.png'", "test_images='test'"),
            ),
        ),
        (
            IN_FOLDERS | {f"val/cat/{n}.png": png(noise(12, 12)) for n in range(4)},
            ("unknown folders: val hold folders of these labels, too",),
        ),
        (
            IN_FOLDERS | {"sample_submission.csv": EACH},
            ("metric='log_loss'", "label_column='label'", "suffix=''"),
        ),
        (
            # A list of the classes is no table of labels.
            IN_FOLDERS
            | {"classes.csv": csv("number,animal_name", (0, "cat"), (1, "dog"))}
            | {"train/loose.png": png(noise(12, 12))},
            ("train_csv=None", "1 images of train/ are in no folder of a label"),
        ),
    ],
    ids=["train", "a second one", "probabilities", "a list of classes"],
)
def test_folders_that_are_labels_are_found_and_read(files, facts, tmp_path):
    """By a label of the sample submission, or by the name of the folder."""
    found, config = proposed(put(tmp_path, files))

    said = told(found, config)
    assert [fact for fact in facts if fact not in said] == []
    assert bool(texts(found, "warning")) == ("loose" in str(files.keys()))
    read = dataset.read_training(tmp_path, config)
    assert len(read) == 36 and len(read.classes) == 3
    assert len(read_test(tmp_path, config)) == 5


def test_the_folder_of_folders_can_be_given(tmp_path):
    """Where its name and its labels say nothing."""
    files = {
        name.replace("train/", "a/b/").replace("cat", "x"): content
        for name, content in IN_FOLDERS.items()
    }
    put(tmp_path, files)

    with pytest.raises(DataError, match=r"a folder for each label \(train/cats/1\.jpg\)"):
        proposed(tmp_path)
    _, config = proposed(tmp_path, Given(train="a/b"))

    assert (config.data.train_csv, config.data.train_images) == (None, "a/b")


# Several labels in one text


@pytest.mark.parametrize(
    ("separator", "sample", "between"),
    [(",", '"cat,dog"', ","), ("; ", "cat", "; "), ("|", "cat dog", " ")],
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


def drawn(number: int, colour: int) -> bytes:
    """Return a drawing whose colours are flat: only the alpha channel shows it."""
    alpha = Image.new("L", (16, 16))
    ImageDraw.Draw(alpha).line((number % 16, 0, 15 - number % 7, 15), fill=255, width=4)
    image = Image.new("RGBA", (16, 16), (colour, colour, colour, 0))
    image.putalpha(alpha)
    return png(np.asarray(image))


@pytest.mark.parametrize(("colour", "background"), [(0, "white"), (255, "black")])
def test_a_picture_in_the_alpha_channel_is_noticed_and_read(colour, background, tmp_path):
    """Laid on the colour that shows it, in training and in inference."""
    images = [name for name in pictures() if name.endswith(".png")]
    files = pictures() | {name: drawn(n, colour) for n, name in enumerate(images)}

    found, config = proposed(put(tmp_path, files))

    assert config.data.alpha == background
    assert "the picture is in the alpha channel of 30 images" in texts(found, "chosen")
    trained = dataset.read_training(tmp_path, config).inputs
    for inputs in (trained, read_test(tmp_path, config).inputs(np.arange(6))):
        assert (inputs.std(axis=(1, 2, 3)) > 50).all()


@pytest.mark.parametrize("opaque", [True, False])
def test_colours_that_show_a_picture_are_read_as_they_are_stored(opaque, tmp_path):
    """A finding says that there is an alpha channel; opaque images have none."""
    pixels = noise(30, 12, 12, 4)
    pixels[..., 3] = 255 if opaque else pixels[..., 3]
    images = [name for name in pictures() if name.endswith(".png")]
    files = pictures() | {name: png(pixels[n]) for n, name in enumerate(images)}

    found, config = proposed(put(tmp_path, files))

    assert config.data.alpha == "drop"
    said = "30 images have an alpha channel, which is dropped" in texts(found, "unknown")
    assert said != opaque and ("alpha" in texts(found, "unknown")) != opaque


# What no config can describe


SENTENCES = [
    f"the quick fox jumps over {' '.join(letters)} and runs away"
    for letters in product("abcde", "fghij", "klmno")
]


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


SENTENCES_ALONE = {
    "train.csv": csv("id,text,goal", *((n, SENTENCES[n], n % 2) for n in range(100))),
    "test.csv": csv("id,text", *((900 + n, SENTENCES[100 + n]) for n in range(25))),
    "sample_submission.csv": csv("id,goal", *((900 + n, 0) for n in range(25))),
}
ANSWERS = [
    (n, size(n), "rgb"[n % 3], " ".join(f"{word}{n}" for word in "abcdef")) for n in range(40)
]


@pytest.mark.parametrize(
    ("files", "what"),
    [
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
        pytest.param(SENTENCES_ALONE, "text", id="sentences"),
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


CHOSEN = [" ".join(row) for row in combinations(("1", "3", "9", "27", "81", "243"), 4)]


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        # The others train; nobody is left to think that the text is read.
        (
            columns(100, text=lambda n: SENTENCES[n]),
            ("text is left out, since text is not supported", "numeric_columns=('size',)"),
        ),
        # They repeat from row to row; run lengths do not.
        (
            columns(60, label="tags", sold=lambda n: CHOSEN[n % 15], sample="1 3"),
            ("target='multilabel'", "num_classes=6"),
        ),
    ],
    ids=["a text beside others", "numbers that are several labels"],
)
def test_what_is_supported_beside_or_like_it_is_read(files, facts, tmp_path):
    said = told(*proposed(put(tmp_path, files)))

    assert [fact for fact in facts if fact not in said] == []
