"""A folder that nobody has described is described: what it holds, what is wrong with it, and a
config that runs as it is.
"""

import io
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from localkaggle.competitions import EMBEDDED
from pipeline import config as configs
from pipeline.__main__ import main
from pipeline.config import Config, Data
from pipeline.data import dataset
from pipeline.data.test_set import read_test
from pipeline.errors import DataError, PipelineError, SubmissionError
from pipeline.inspection import (
    config_proposal,
    config_writer,
    inspection,
    inspection_page,
    recipes,
)
from pipeline.inspection.inspection import Inspection
from pipeline.inspection.tables import Given
from pipeline.inspection.training_speed import Speed

# The others have readers of their own.
DESCRIBED = [slug for slug in EMBEDDED if configs.load(slug.replace("-", "_")).data.kind != "own"]
RANDOM = np.random.default_rng(0)
SHAPE = "kind height width channels train_csv test_csv sample_submission id_column label_column"
COLUMNS = "numeric_columns categorical_columns suffix train_images test_images resize"


def png(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return file.getvalue()


def noise(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 255, shape, dtype=np.uint8)


def csv(*rows: object) -> bytes:
    lines = [row if isinstance(row, str) else ",".join(map(str, row)) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def size(n: int) -> float:
    """Return a number that reveals nothing of a label."""
    return n * 37 % 101 / 8


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def pictures(*, train: int = 24, test: int = 6, ending: str = ".png") -> dict[str, bytes]:
    """Return the files of a competition of images 12x12, three labels, ids without ending."""
    kind = "JPEG" if ending == ".jpg" else "PNG"
    return {
        "train.csv": csv("id,kind", *((f"a{n}", "xyz"[n % 3]) for n in range(train))),
        "sample_submission.csv": csv("id,kind", *((f"b{n}", "x") for n in range(test))),
        **{f"train/a{n}{ending}": png(noise(12, 12), kind) for n in range(train)},
        **{f"test/b{n}{ending}": png(noise(12, 12), kind) for n in range(test)},
    }


def table(rows: int = 60) -> dict[str, bytes]:
    """Return the files of a competition of a table: a number, a category, a label of two."""
    return {
        "train.csv": csv(
            "id,size,colour,sold", *((n, size(n), "rgb"[n * 7 % 3], n * 5 % 2) for n in range(rows))
        ),
        "test.csv": csv("id,size,colour", *((1000 + n, n / 8, "rgb"[n % 3]) for n in range(9))),
        "sample_submission.csv": csv("id,sold", *((1000 + n, 0) for n in range(9))),
    }


def proposed(folder: Path, given: Given | None = None) -> tuple[Inspection, Config]:
    """Return what was found and the config, after it has read the folder as training and inference
    do.
    """
    found = inspection.inspect(folder, given)
    made = config_proposal.propose(found, *config_proposal.names(folder, None, ""))
    assert "would be accepted" in config_proposal.check(made, found)[-1].text
    return found, made.config


def texts(found: Inspection, level: str) -> str:
    return "\n".join(f"{line.about}: {line.text}" for line in found.findings if line.level == level)


# What is proposed


@pytest.mark.parametrize("slug", DESCRIBED)
def test_an_embedded_competition_is_described_as_it_was_by_hand(slug, tmp_path):
    """The inspection does not read the configs."""
    EMBEDDED[slug]().write(tmp_path / slug)
    by_hand = configs.load(slug.replace("-", "_"))

    _, config = proposed(tmp_path / slug)

    for name in f"{SHAPE} {COLUMNS}".split():
        assert getattr(config.data, name) == getattr(by_hand.data, name)
    for name in ("name", "competition", "num_classes", "target", "model"):
        assert getattr(config, name) == getattr(by_hand, name)
    assert config.metric == (by_hand.metric or "accuracy")


def test_the_file_of_a_config_loads_as_the_config_and_is_formatted(tmp_path):
    """So that `invoke check` passes with it."""
    EMBEDDED["breast-cancer"]().write(tmp_path / "breast-cancer")
    put(tmp_path / "leaves", pictures())
    for name in ("breast-cancer", "leaves"):
        found = inspection.inspect(tmp_path / name)
        made = config_proposal.propose(found, name.replace("-", "_"), name)
        path = config_proposal.place(str(tmp_path / f"{made.config.name}.py"))
        text = config_proposal.text(found, made, given=True)

        assert config_proposal.write(path, text) == made.config

    ruff = f"{sys.executable} -m ruff format --check --config line-length=100".split()
    done = subprocess.run([*ruff, *tmp_path.glob("*.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(
    names=st.lists(NAMES, min_size=3, max_size=12, unique=True),
    rate=st.floats(1e-6, 99),
    seconds=st.floats(0, 3600),
)
def test_any_config_can_be_written_as_a_file(names, rate, seconds):
    """Whatever its columns are called."""
    digits = configs.load("digits")
    config = replace(
        digits,
        data=Data(
            kind="table",
            id_column=names[0],
            label_column=names[1],
            numeric_columns=tuple(names[2:]),
        ),
        optimizer=replace(digits.optimizer, base_rate=rate),
        progress_seconds=seconds,
    )
    held: dict[str, object] = {}

    doc = [f'a """ and \\ {names[0]!r}']
    text = config_writer.write(config, doc, {"metric": "a comment"})
    exec(text, held)  # noqa: S102 - our own text

    assert held["CONFIG"] == config


CELLS = st.one_of(
    st.sampled_from(["", "NA", "0", "1", "2", "a", "b", "1.5"]),
    st.integers(-50, 300).map(str),
    st.text("ab 1.,", max_size=4),
)
COLUMN = st.sampled_from([CELLS, st.sampled_from(["0", "1"]), st.floats(0, 1).map(str)])


@settings(max_examples=60)
@given(data=st.data())
def test_a_config_that_is_proposed_reads_its_folder_or_there_is_a_message(data, tmp_path_factory):
    """Whatever is in the cells: nothing else is raised, and nothing is proposed that training or
    inference would refuse.
    """
    rows, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 4))
    columns = [
        data.draw(st.lists(data.draw(COLUMN), min_size=rows + 3, max_size=rows + 3))
        for _ in range(width + 1)
    ]
    cells = [[f'"{cell}"' for cell in row] for row in zip(*columns, strict=True)]
    sample = [data.draw(st.sampled_from(["0", "0.5", "a"])) for _ in range(3)]
    names = [f"c{n}" for n in range(width)]
    files = {
        "train.csv": csv(["id", *names, "goal"], *([n, *cells[n]] for n in range(rows))),
        "test.csv": csv(["id", *names], *([900 + n, *cells[rows + n][:-1]] for n in range(3))),
        "sample_submission.csv": csv("id,goal", *((900 + n, sample[n]) for n in range(3))),
    }
    folder = put(tmp_path_factory.mktemp("any"), files)

    try:
        proposed(folder)
    except PipelineError as error:
        assert len(str(error).splitlines()) > 1


def test_several_folders_endings_and_modes_are_found(tmp_path):
    """Ids without ending, two folders of training images, PNG and JPEG, colours in some: and larger
    images are reduced.
    """
    files = {
        "labels/all.csv": csv("name,kind", *((f"a{n}", "xy"[n % 2]) for n in range(20))),
        "sample.csv": csv("name,kind", *((f"b{n}", "x") for n in range(5))),
        **{f"part_{n % 2}/a{n}.png": png(noise(90, 120, 3)) for n in range(9)},
        **{f"part_{n % 2}/a{n}.jpg": png(noise(90, 120, 3), "JPEG") for n in range(9, 20)},
        **{f"held/b{n}.png": png(noise(120, 90)) for n in range(5)},
    }

    found, config = proposed(put(tmp_path, files))

    data = config.data
    assert set(data.train_images) == {"part_0", "part_1"}
    assert (data.test_images, data.suffix) == ("held", "*")
    assert (data.train_csv, data.id_column, data.label_column) == ("labels/all.csv", "name", "kind")
    assert (data.height, data.width, data.channels, data.resize) == (160, 224, 3, "stretch")
    assert (found.inputs.data.height, found.inputs.data.width) == (48, 64)  # for a CPU
    assert "RGB 20, L 5" in texts(found, "found")
    assert "reduced to 64 pixels" in texts(found, "chosen")


@pytest.mark.parametrize(("other", "suffix"), [("JPG", ".JPG"), ("jpg", "*")])
def test_endings_in_capitals_are_endings(tmp_path, other, suffix):
    """As cameras write them, alone and among others; and training finds them."""
    files = {
        "train.csv": csv("id,kind", *((f"a{n}", "xy"[n % 2]) for n in range(20))),
        "sample_submission.csv": csv("id,kind", *((f"b{n}", "x") for n in range(5))),
        **{f"train/a{n}.{'JPG' if n else other}": png(noise(16, 16, 3), "JPEG") for n in range(20)},
        **{f"test/b{n}.JPG": png(noise(16, 16, 3), "JPEG") for n in range(5)},
    }

    _, config = proposed(put(tmp_path, files))

    assert config.data.suffix == suffix
    assert len(dataset.read_training(tmp_path, config)) == 20
    assert len(read_test(tmp_path, config)) == 5


def test_whole_names_are_ids_and_long_images_are_padded(tmp_path):
    files = {
        "train.csv": csv("file,kind", *((f"a{n}.png", "xy"[n % 2]) for n in range(20))),
        "submission_format.csv": csv("file,kind", *((f"b{n}.png", "x") for n in range(5))),
        **{f"images/a{n}.png": png(noise(10 + 2 * n, 50 - 2 * n)) for n in range(20)},
        **{f"images/b{n}.png": png(noise(30, 30)) for n in range(5)},
    }

    _, config = proposed(put(tmp_path, files))

    data = config.data
    assert (data.suffix, data.train_images, data.test_images) == ("", "images", "images")
    assert (data.resize, data.channels) == ("pad", 1) and data.height == data.width


@pytest.mark.parametrize(
    ("train", "test", "ending", "places"),
    [
        ("x/", "y/z/", "", (".", ".")),
        ("train/x/", "test/", ".png", (".", ".")),
        ("", "y/", "", ("x", ".")),
    ],
)
def test_ids_may_name_folders(tmp_path, train, test, ending, places):
    """As many tables do, with a path for each image: it is below a folder of the config."""
    files = {
        "train.csv": csv("path,kind", *((f"{train}a{n}{ending}", "xy"[n % 2]) for n in range(20))),
        "sample_submission.csv": csv(
            "path,kind", *((f"{test}b{n}{ending}", "x") for n in range(5))
        ),
        **{f"{train or 'x/'}a{n}.png": png(noise(12, 12)) for n in range(20)},
        **{f"{test}b{n}.png": png(noise(12, 12)) for n in range(5)},
    }

    _, config = proposed(put(tmp_path, files))

    assert (config.data.train_images, config.data.test_images) == places
    assert len(dataset.read_training(tmp_path, config)) == 20
    assert len(read_test(tmp_path, config)) == 5


def test_masks_and_the_other_set_are_not_taken_for_the_images(tmp_path):
    """Their files may have the same names, and there may be more; a finding names them."""
    files = {
        "train.csv": csv("id,kind", *((n, "xy"[n % 2]) for n in range(20))),
        "sample_submission.csv": csv("id,kind", *((n, "x") for n in range(20))),
        **{f"train_images/{n}.png": png(noise(12, 12)) for n in range(3, 20)},
        **{f"train_masks/{n}.png": png(noise(12, 12)) for n in range(20)},
        **{f"test/{n}.png": png(noise(12, 12)) for n in range(20)},
    }

    with pytest.raises(DataError, match=r"3 of 20 images are missing in .*train_images"):
        proposed(put(tmp_path, files))
    others = {f"train_images/{n}.png": png(noise(12, 12)) for n in range(3)}
    found, config = proposed(put(tmp_path, others))

    assert (config.data.train_images, config.data.test_images) == ("train_images", "test")
    assert "train_masks/ has files for 20 of these ids, too" in texts(found, "unknown")


def test_a_label_in_only_one_row_is_reported_and_trained_on(tmp_path):
    """Many whales and landmarks were seen once. A few such numbers do not make a regression."""
    for labels in ("x", 9):
        rows = [(f"a{n}", n % 3 if labels == 9 else "uvw"[n % 3]) for n in range(23)]
        table = csv("id,kind", *rows, ("a23", labels))
        folder = put(tmp_path / str(labels), pictures() | {"train.csv": table})

        found, config = proposed(folder)

        assert (config.target, config.num_classes) == ("classes", 4)
        assert "1 labels have only one row, which cannot validate" in texts(found, "warning")


def test_numbers_that_come_often_may_be_names(tmp_path):
    """More than fifty are likelier amounts; a finding says that they may be names."""
    rows = [(n, size(n), "rgb"[n % 3], n % 60) for n in range(180)]

    files = table() | {"train.csv": csv("id,size,colour,sold", *rows)}
    found, config = proposed(put(tmp_path, files))

    assert config.target == "regression"
    assert "if each of the 60 numbers is the name of a class" in texts(found, "unknown")


def test_commas_are_reported_where_a_column_is_read_as_a_category(tmp_path):
    rows = [(n, size(n), f'"{n % 20},50"', n * 5 % 2) for n in range(80)]
    tests = [(1000 + n, n / 8, f'"{n},50"') for n in range(9)]
    files = table() | {
        "train.csv": csv("id,size,price,sold", *rows),
        "test.csv": csv("id,size,price", *tests),
    }

    found, config = proposed(put(tmp_path, files))

    assert config.data.categorical_columns == ("price",)
    said = "price is read as a category: numbers with commas, such as '0,50'"
    assert said in texts(found, "warning")


def test_ids_with_another_ending_than_the_files_are_not_looked_for_among_the_labels(tmp_path):
    """Labels may be called as files are, too."""
    files = pictures() | {
        "train.csv": csv("id,kind", *((f"{n}.jpg", n % 3) for n in range(24))),
        "sample_submission.csv": csv("id,kind", *((f"{90 + n}.jpg", 0) for n in range(6))),
        **{f"train/{n}.JPG": png(noise(12, 12), "JPEG") for n in range(24)},
    }

    with pytest.raises(DataError, match=r"(?s)nothing to learn from.*an id '0\.jpg'"):
        proposed(put(tmp_path, files))


def test_a_sample_may_have_another_name_for_its_ids(tmp_path):
    """The column of the training table is found by the names of the files."""
    files = pictures() | {
        "sample_submission.csv": csv("image,kind", *((f"b{n}", "x") for n in range(6)))
    }

    found, config = proposed(put(tmp_path, files))

    assert config.data.id_column == "id"
    assert "100% of its texts are names of image files" in texts(found, "chosen")


def test_arrays_are_found_by_their_shapes(tmp_path):
    files = {
        "train_labels.csv": csv("label,row", *((n % 2, n) for n in range(30))),
        "sample_submission.csv": csv("row,label", *((n, 0) for n in range(8))),
    }
    put(tmp_path, files)
    np.save(tmp_path / "x_train.npy", noise(30, 9, 7, 3))
    np.savez(tmp_path / "x_test.npz", images=noise(8, 9, 7, 3))

    _, config = proposed(tmp_path)

    data = config.data
    assert (data.kind, data.train_array, data.test_array) == ("arrays", "x_train.npy", "x_test.npz")
    assert data.shape == (9, 7, 3)


def test_the_rows_of_an_array_are_those_of_the_test_table_whatever_it_is_called(tmp_path):
    """The sample's order is another one: without the table, each id would get the prediction of
    another's image.
    """
    files = {
        "train.csv": csv("row,label", *((n, n % 2) for n in range(30))),
        "metadata_test.csv": csv("row,age", *((n, 1) for n in (3, 0, 2, 1))),
        "sample_submission.csv": csv("row,label", *((n, 0) for n in range(4))),
    }
    put(tmp_path, files)
    images, known = noise(4, 9, 7, 3), noise(30, 9, 7, 3)
    known[5] = images[0]
    np.save(tmp_path / "x_train.npy", known)
    np.save(tmp_path / "x_test.npy", images)

    found, config = proposed(tmp_path)

    assert "the same content as a training example: 5 and 3." in texts(found, "warning")

    read = read_test(tmp_path, config)
    assert (read.inputs(np.arange(4)) == images[[1, 3, 2, 0]]).all()


@pytest.mark.parametrize("letter", ["", "x"])
def test_columns_that_are_only_numbered_are_pixels_only_if_they_hold_levels(letter, tmp_path):
    for name, value, kind in (
        ("features", lambda n: n / 8 - 3, "table"),
        ("answers", lambda n: n % 2, "table"),
        ("levels", lambda n: n % 256, "pixels"),
    ):
        rows = [[value(n * 37 + place * 11) for place in range(64)] for n in range(40)]
        columns = ",".join(f"{letter}{place}" for place in range(64))
        files = {
            "train.csv": csv(
                f"id,sold,{columns}", *((n, n % 2, *row) for n, row in enumerate(rows[:30]))
            ),
            "test.csv": csv(f"id,{columns}", *((100 + n, *row) for n, row in enumerate(rows[30:]))),
            "sample_submission.csv": csv("id,sold", *((100 + n, 0) for n in range(10))),
        }

        _, config = proposed(put(tmp_path / name, files))

        assert config.data.kind == kind


@pytest.mark.parametrize("strange", ["NA", "None"])
def test_a_label_that_no_submission_may_hold_is_reported_before_a_training(strange, tmp_path):
    files = table()
    files["train.csv"] = csv(
        "id,size,sold", *((n, n / 8, ("yes", "no", strange)[n % 3]) for n in range(61))
    )
    files["sample_submission.csv"] = csv("id,sold", *((1000 + n, "yes") for n in range(9)))

    said = f"1 labels that cannot be submitted, for example '{strange}'"
    with pytest.raises(SubmissionError, match=said):
        proposed(put(tmp_path, files))


def test_a_picture_that_cannot_be_decoded_is_no_example_on_the_page(tmp_path):
    files = pictures(train=300)
    files["train/a0.png"] = files["train/a0.png"][:60]
    put(tmp_path / "in", files)

    found, _ = proposed(tmp_path / "in")

    page = inspection_page.write(found, found.findings, "", tmp_path / "page.html").read_text()
    assert 'training row 1"' not in page and 'training row 2"' in page


def test_a_test_image_without_a_file_is_reported(tmp_path):
    files = pictures(test=12)
    del files["test/b3.png"]

    found, _ = proposed(put(tmp_path, files))

    assert "1 of 12 test images have no file, for example b3" in texts(found, "warning")


@pytest.mark.parametrize("tables", [("train.csv", "test.csv"), ("known.csv", "asked.csv")])
def test_pixels_whose_names_have_two_numbers_need_no_square(tables, tmp_path):
    """Without ids the test set is found by its name, or by its columns and rows."""
    names = [f"{row}x{column}" for row in range(6) for column in range(10)]
    files = {
        tables[0]: csv(["label", *names], *([n % 2, *noise(60)] for n in range(20))),
        tables[1]: csv(names, *(noise(60) for _ in range(4))),
        "sample_submission.csv": csv("ImageId,Label", *((n + 1, 0) for n in range(4))),
    }

    _, config = proposed(put(tmp_path, files))

    assert (config.data.kind, config.data.shape) == ("pixels", (6, 10, 1))


@pytest.mark.parametrize(
    ("labels", "sample", "target", "metric", "classes"),
    [
        ([f"t{n % 3} t{n % 2}x" for n in range(30)], "t0", "multilabel", "f1", 5),
        (
            [f"{'abc'[n % 3]} {'xyz'[n // 3 % 3]}" for n in range(30)],
            "a x",
            "classes",
            "accuracy",
            9,
        ),
        ([("no", "yes")[n % 2] for n in range(30)], "0.5", "classes", "auc", 2),
        (["abc"[n % 3] for n in range(30)], "a b c", "classes", "map@3", 3),
        ([n % 5 for n in range(30)], "0", "classes", "accuracy", 5),
        ([n % 5 for n in range(30)], "0.0", "regression", "rmse", 0),
        ([n % 5 for n in range(26)] + [77, 12, 31, 8], "0", "regression", "rmse", 0),
        ([n / 7 for n in range(30)], "0", "regression", "rmse", 0),
    ],
)
def test_the_target_follows_from_labels_and_sample(
    labels, sample, target, metric, classes, tmp_path
):
    """The form of the sample suggests the metric, which a finding calls unknown."""
    files = table(30) | {
        "train.csv": csv("id,size,goal", *((n, size(n), label) for n, label in enumerate(labels))),
        "sample_submission.csv": csv("id,goal", *((1000 + n, sample) for n in range(9))),
    }

    found, config = proposed(put(tmp_path, files))

    assert (config.target, config.metric, config.num_classes) == (target, metric, classes)
    assert "is only on the competition page" in texts(found, "unknown")
    assert ('target="ordinal"' in texts(found, "unknown")) == (classes == 5 and target == "classes")
    assert ("each text is one label" in texts(found, "unknown")) == (target == "multilabel")


@pytest.mark.parametrize(
    ("value", "target", "metric"),
    [(lambda n: n % 2, "multilabel", "auc"), (lambda n: n / 3, "regression", "rmse")],
)
def test_several_label_columns_are_several_targets(value, target, metric, tmp_path):
    files = table(30) | {
        "train.csv": csv(
            "id,size,one,two", *((n, size(n), value(n), value(n + n // 2)) for n in range(30))
        ),
        "sample_submission.csv": csv("id,one,two", *((1000 + n, 0.5, 0.5) for n in range(9))),
    }

    _, config = proposed(put(tmp_path, files))

    found = (config.target, config.metric, config.data.label_column)
    assert found == (target, metric, ("one", "two"))


def test_a_column_for_each_class_asks_for_probabilities(tmp_path):
    files = pictures() | {
        "sample_submission.csv": csv("id,x,y,z", *((f"b{n}", *[0.3] * 3) for n in range(6)))
    }

    _, config = proposed(put(tmp_path, files))

    found = (config.target, config.metric, config.data.label_column)
    assert found == ("classes", "log_loss", "kind")


def test_columns_that_cannot_be_used_are_left_out_with_the_reason(tmp_path):
    """One of the training table alone, a constant one, one without values, names, one that counts
    the rows, decimal commas.
    """
    rows = range(60)
    files = table() | {
        "train.csv": csv(
            "id,size,same,none,name,count,tall,later,sold",
            *(
                (n, size(n), 3, "", f"name {n}", n + 1, f'"{n + 1},5"', n % 2, n * 5 % 2)
                for n in rows
            ),
        ),
        "test.csv": csv(
            "id,size,same,none,name,count,tall",
            *((1000 + n, n / 8, 3, "", f"other {n}", n + 61, f'"{n},5"') for n in range(9)),
        ),
    }

    found, config = proposed(put(tmp_path, files))

    assert (config.data.numeric_columns, config.data.categorical_columns) == (("size",), ())
    said = texts(found, "chosen")
    for name, why in (
        ("same", "the same in every row"),
        ("none", "no value in any row"),
        ("later", "in the training table alone"),
        ("name", "60 distinct texts in 60 rows: almost none repeats"),
        ("count", "it counts the rows"),
    ):
        assert f"left out: {name}: {why}" in said
    said = "tall is left out: numbers with commas, such as '1,5': write decimals with a point"
    assert said in texts(found, "warning")


# What is wrong with it


@pytest.mark.parametrize("name", ["train.csv", "test.csv"])
def test_a_text_that_spoils_a_column_of_numbers_is_named(name, tmp_path):
    """It is not one of many distinct texts, of which nothing can be learned."""
    files = {
        "train.csv": csv("id,size,age,sold", *((n, n / 8, n % 7 / 3, n % 2) for n in range(60))),
        "test.csv": csv("id,size,age", *((100 + n, n / 4, n % 7 / 3) for n in range(60))),
        "sample_submission.csv": csv("id,sold", *((100 + n, 0) for n in range(60))),
    }
    files[name] = files[name].replace(b",2.5,", b",oops,", 1)

    found, config = proposed(put(tmp_path, files))

    assert "size: numbers, except 'oops': correct the tables" in texts(found, "chosen")
    assert config.data.numeric_columns == ("age",)


def test_what_is_planted_among_images_is_found(tmp_path):
    """The same file twice with two labels, one in the test set, a picture saved again, a corrupt
    file.
    """
    files = pictures(train=240)
    files["train/a7.png"] = files["train/a0.png"]
    files["test/b1.png"] = files["train/a4.png"]
    bright = np.clip(noise(12, 12).astype(int) // 2 + 40, 0, 255).astype(np.uint8)
    files["train/a9.png"], files["train/a12.png"] = png(bright), png(bright + 1)
    files["train/a20.png"] = files["train/a20.png"][:60]

    found, _ = proposed(put(tmp_path, files))

    pairs = {
        (
            found.ids[d.one],
            (found.test_ids if d.test else found.ids)[d.other],
            d.near,
            d.conflicting,
        )
        for d in found.duplicates
    }
    near = ("a9", "a12", True, False)
    assert pairs == {("a0", "a7", False, True), ("a4", "b1", False, False), near}
    assert set(found.inputs.broken) == {"a20"}
    said = texts(found, "warning")
    assert "1 test examples have the same content as a training example: a4 and b1" in said
    assert "1 of these pairs have different labels" in said
    assert "1 training and 0 test images cannot be decoded: a20: " in said


def test_a_clean_folder_gets_no_warning(tmp_path):
    """An alarm that always rings says nothing."""
    for number, slug in enumerate(DESCRIBED):
        EMBEDDED[slug]().write(tmp_path / str(number))

        assert texts(inspection.inspect(tmp_path / str(number)), "warning") == ""


def test_ids_that_reveal_the_label_are_named(tmp_path):
    """By their order, or by what they begin with; neither is an input."""
    ordered = table() | {
        "train.csv": csv(
            "id,size,colour,sold", *((n, size(n), "rgb"[n % 3], n // 30) for n in range(60))
        )
    }
    called = table() | {
        "train.csv": csv(
            "id,size,colour,sold",
            *(
                (f"{'ab'[n * 5 % 2]}{n * 7919 % 1000}", size(n), "rgb"[n % 3], n * 5 % 2)
                for n in range(60)
            ),
        )
    }

    by_order, _ = proposed(put(tmp_path / "1", ordered))
    by_name, _ = proposed(put(tmp_path / "2", called))

    assert "in the order of the numbers in the ids" in texts(by_order, "warning")
    assert "the beginning of the id predicts the label of 100%" in texts(by_name, "warning")


def test_a_column_that_alone_reveals_the_label_is_named(tmp_path):
    """As the number of a ticket that only those have who were rescued."""
    files = table() | {
        "train.csv": csv(
            "id,size,boat,sold",
            *((n, size(n), "xyuv"[n * 5 % 2 + 2 * (n % 2)], n * 5 % 2) for n in range(60)),
        ),
        "test.csv": csv("id,size,boat", *((1000 + n, n / 8, "x") for n in range(9))),
    }

    found, _ = proposed(put(tmp_path, files))

    assert "leak: 'boat' alone reveals the label of every row" in texts(found, "warning")


def test_rows_that_may_be_related_are_an_advice(tmp_path):
    files = pictures() | {
        "train.csv": csv(
            "id,kind,patient", *((f"a{n}", "xyz"[n % 3], f"p{n // 4}") for n in range(24))
        )
    }

    found, config = proposed(put(tmp_path, files))

    assert "data.group_column='patient'" in texts(found, "unknown")
    assert config.data.group_column is None


def test_too_many_corrupt_files_are_refused_as_training_would(tmp_path):
    """Two of 24 in the training set may be, and one in ten of the test set."""
    files = pictures()
    few = files | {f"train/a{n}.png": files["train/a0.png"][:50] for n in (1, 2, 3)}

    with pytest.raises(DataError, match=r"3 of 24 images cannot be used: 'a1'"):
        proposed(put(tmp_path / "1", few))
    with pytest.raises(DataError, match=r"2 of 6 images cannot be used: 'b0': it is empty"):
        proposed(put(tmp_path / "2", files | {"test/b0.png": b"", "test/b3.png": b"GIF89a"}))


# What cannot be described


def without(word):
    """Return a change that removes the files with a word in their names."""
    return lambda files: {name: files[name] for name in files if word not in name}


def replaced(name, change):
    """Return a change of the bytes of one file."""
    return lambda files: files | {name: change(files[name])}


def train(row, header="id,size,sold", rows=9):
    """Return a change that writes another training table."""
    return lambda files: files | {"train.csv": csv(header, *map(row, range(rows)))}


def commas_everywhere(files):
    """Write the only column that a model could read with commas in both tables."""
    tests = csv("id,size", *((1000 + n, f'"{n},5"') for n in range(9)))
    return train(lambda n: (n, f'"{n},25"', n % 2), rows=40)(files | {"test.csv": tests})


def unclear_label(files):
    """Ask for a label that no column is called by, beside two columns that the test set lacks."""
    sample = csv("id,answer", *((1000 + n, 0) for n in range(9)))
    labelled = files["train.csv"].replace(b"colour", b"shape")
    return files | {"sample_submission.csv": sample, "train.csv": labelled}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda files: {}, "expected tables (.csv), and found none"),
        (lambda files: {"train.zip": b"PK", "notes.txt": b"x"}, "train.zip: unpack archives"),
        (without("sample"), "page, or write one: the ids of the test set, and a column for each"),
        (
            lambda files: files | {"my_submission.csv": files["sample_submission.csv"]},
            "--sample my_submission.csv",
        ),
        (without("train.csv"), "Complete the download, or make a table"),
        (lambda files: files | {"train_more.csv": files["train.csv"]}, "Name it: --train train"),
        (
            replaced("train.csv", lambda text: text.partition(b"\n")[2]),
            "Write a line of names above it",
        ),
        (replaced("train.csv", lambda text: text.partition(b"\n")[0]), "a header and no rows"),
        (train(lambda n: (n // 2, n, n % 2), rows=40), "repeats 20 ids"),
        (replaced("train.csv", lambda _: b"id,id\n1,2\n"), "its header names a column twice"),
        (replaced("train.csv", lambda _: b"\xff\xfe\x00"), "could not be read as a CSV"),
        (train(lambda n: (n, n, 1)), "the same label in"),
        (train(lambda n: (n, n, f"kind {max(n, 3)}")), "in only one row"),
        (
            train(lambda n: (n, n, f'"{n},5"'), rows=40),
            "with commas in 'sold', such as '0,5'",
        ),
        (train(lambda n: (n, n, "" if n else 1)), "without a label"),
        (train(lambda n: (n, n, n % 2), "id,other,sold"), "nothing to learn from"),
        (without("test.csv"), "nothing to learn from was found"),
        (commas_everywhere, "can read none of them: size: numbers with commas, such as '0,25'"),
        (
            lambda _: {k.replace(".png", ".Jpg"): v for k, v in pictures().items()},
            "is called 'a0.Jpg', an id 'a0'",
        ),
        (unclear_label, "with commas between: --label shape"),
    ],
)
def test_what_cannot_be_described_is_one_clear_message(change, said, tmp_path):
    put(tmp_path, change(table()))

    with pytest.raises(DataError) as refused:
        proposed(tmp_path)

    assert said in str(refused.value) and len(str(refused.value).splitlines()) > 1


def test_what_is_ambiguous_can_be_given(tmp_path):
    """The options that the messages name."""
    files = table()
    files |= {
        "my_submission.csv": files["sample_submission.csv"],
        "train_more.csv": files["train.csv"].replace(b"sold", b"gone"),
    }

    _, config = proposed(
        put(tmp_path, files),
        Given("sample_submission.csv", "train_more.csv", "test.csv", ("gone",)),
    )

    assert (config.data.train_csv, config.data.label_column) == ("train_more.csv", "gone")


# The command


def test_the_command_writes_config_and_page_and_never_over_a_config(tmp_path, capsys):
    """The next command, which it prints, can be pasted: a path may hold a space."""
    place = tmp_path / "my data"
    folder, config = put(place / "leaves", pictures()), place / "leaves.py"
    words = ["inspect", str(folder), "--write", str(config), "--page", str(place / "page.html")]

    first = main([*words, "--json"])
    *_, following, last = capsys.readouterr().out.splitlines()
    end = json.loads(last)
    again = main([*words, "--json"])

    assert (first, again) == (0, 2)
    assert {str(folder), str(config)} <= set(shlex.split(following))
    assert (
        "exists; expected a new file"
        in json.loads(capsys.readouterr().out.splitlines()[-1])["error"]
    )
    assert configs.from_json(end["proposed"]) == configs.load(end["written"])
    assert end["competition"] == "leaves" and {line["level"] for line in end["findings"]} >= {
        "found",
        "chosen",
        "unknown",
    }


def test_what_it_writes_for_this_cpu_trains_and_predicts_unedited(tmp_path, monkeypatch):
    """For one epoch: the machine is said to be slow."""
    slow = partial(recipes.recipe, measure=lambda config: Speed(1.0, 5.0))
    monkeypatch.setattr(recipes, "recipe", slow)
    folder, config = put(tmp_path / "leaves", pictures(ending=".jpg")), tmp_path / "leaves.py"
    given = ["--config", config, "--input", folder, "--output", tmp_path / "out"]

    for words in (
        ["inspect", folder, "--for", "cpu", "--write", config],
        ["train", *given],
        ["infer", *given, "--artifact", tmp_path / "out" / "artifact"],
    ):
        assert main([str(word) for word in words]) == 0


@pytest.mark.parametrize(
    ("labels", "said"), [(("dead", "recovered"), "data.positive_label='dead'"), ((0, 1), "")]
)
def test_which_label_a_probability_is_about_is_asked(labels, said, tmp_path):
    """The form of the sample cannot tell; of 0 and 1 everybody knows."""
    files = table(30) | {
        "train.csv": csv("id,size,goal", *((n, size(n), labels[n % 2]) for n in range(30))),
        "sample_submission.csv": csv("id,has_died", *((1000 + n, 0.5) for n in range(9))),
    }

    found, _ = proposed(put(tmp_path, files))

    positive = [each.text for each in found.findings if each.about == "positive"]
    assert said in "".join(positive) and bool(positive) == bool(said)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nowhere",), 2, "there is no such folder"),
        (("n" * 300,), 2, "there is no such folder"),
        ((".", "--write", "Not A Name"), 2, "expected a name of lower-case letters"),
        ((".", "--write", "../x"), 2, "expected a name of lower-case letters"),
        ((".", "--write", "digits"), 2, "exists; expected a new file"),
        ((".", "--write", "no/such/folder.py"), 2, "there is no folder"),
        ((".", "--competition", "A Slug"), 2, "competition='A Slug'"),
        ((".", "--for", "gpu"), 2, "expected one of tpu-v5e-8, cpu"),
        ((".", "--budget", "soon"), 2, "expected a time from 30s to 240h"),
        ((".", "--page", "no/such/page.html"), 2, "mkdir -p no/such"),
        ((".", "--sample", "../outside.csv"), 2, "there is no such table"),
        ((".", "--train", "no.csv"), 2, "--train no.csv: there is no such table"),
        ((".", "--label", "gone"), 2, "has no column gone beside its ids; it has"),
    ],
)
def test_an_argument_that_cannot_work_is_refused(words, code, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(put(tmp_path, table()))

    assert main(["inspect", *words]) == code
    assert said in capsys.readouterr().err


def test_the_page_escapes_what_the_folder_says_and_is_the_same_each_time(tmp_path):
    """Labels, ids and columns come from somebody else; equal folders give equal bytes."""
    bad = "<script>alert(1)</script>"
    files = pictures() | {
        "train.csv": csv("id,kind", *((f"a{n}", (bad, "</pre>", "z")[n % 3]) for n in range(24))),
        "sample_submission.csv": csv("id,kind", *((f"b{n}", "z") for n in range(6))),
    }
    folder = put(tmp_path / bad.replace("/", ""), files)
    for name in ("one.html", "two.html"):
        page = str(tmp_path / name)
        assert main(["inspect", str(folder), "--competition", "leaves", "--page", page]) == 0

    page = (tmp_path / "one.html").read_text()
    assert page.encode() == (tmp_path / "two.html").read_bytes()
    assert "<script" not in page and "&lt;script&gt;" in page and "default-src 'none'" in page
    assert page.count("<img") == 24 and "http" not in page.replace("http-equiv", "")


def test_a_folder_that_does_not_run_is_reported_all_the_same(tmp_path, capsys):
    """The page shows what was found, and the reason; no config is written."""
    files = pictures() | {
        "sample_submission.csv": csv("id,one,two", *((f"b{n}", 0, 0) for n in range(6)))
    }
    put(tmp_path / "leaves", files)

    words = f"inspect {tmp_path}/leaves --write {tmp_path}/x.py --page {tmp_path}/x.html"
    code = main(words.split())

    shown = capsys.readouterr()
    assert (code, (tmp_path / "x.py").exists()) == (1, False)
    assert (
        "has the columns one, two beside the id" in shown.err
        and "image files: train/ to train" in shown.out
    )
    assert "The proposed config does not run" in (tmp_path / "x.html").read_text()
