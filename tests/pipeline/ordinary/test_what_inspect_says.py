"""What inspect says of an ordinary folder is true of the training with its config."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pipeline.config import Data
from pipeline.config.budget import shown
from pipeline.data import folds
from pipeline.data.dataset import read_training
from pipeline.errors import DataError
from pipeline.inspection import column_types, config_proposal, inspection, recipes
from pipeline.inspection.training_speed import CPU, TPU, Plan, Speed
from pipeline.plan.laws import VALIDATES


def pictures(folder, labels, images, column="kind"):
    """Write a competition of PNG files; the last four images are its test set."""
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
    for number, image in enumerate(images):
        part = "train" if number < len(labels) else "test"
        Image.fromarray(image).save(folder / part / f"p{number}.png")
    tests = dict.fromkeys(range(len(labels), len(images)), labels[0])
    for name, rows in (("train", dict(enumerate(labels))), ("sample_submission", tests)):
        lines = [f"id,{column}", *(f"p{number},{label}" for number, label in rows.items())]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 255, shape, np.uint8)


def near(number, side=24, seed=0):
    """Return so many pictures that are nearly the same, uint8 (number, side, side, 3)."""
    base = np.kron(noise(4, 4, 3, seed=seed), np.ones((side // 4, side // 4, 1)))
    apart = np.random.default_rng(seed).integers(-4, 5, (number, side, side, 3))
    return (base + apart).clip(0, 255).astype(np.uint8)


def said(folder, plan=None):
    """Return the lines of inspect after a config was proposed and checked, and the config."""
    found = inspection.inspect(folder)
    made = config_proposal.propose(found, "pictures", "pictures", plan)
    lines = [*found.findings, *made.findings, *config_proposal.check(made, found)]
    return "\n".join(f"{line.level} {line.about}: {line.text}" for line in lines), made.config


@pytest.mark.parametrize("classes", [5, 40])
def test_copies_that_a_split_cannot_keep_together_are_named_and_not_grouped(classes, tmp_path):
    """Each class is one picture, nearly; grouped, no class could both train and validate."""
    images = [image for seed in range(classes) for image in near(6, seed=seed)]
    labels = [f"w{number // 6}" for number in range(6 * classes)]
    folder = pictures(tmp_path, labels, [*images, *near(4, seed=99)])

    text, config = said(folder)

    assert not config.data.group_duplicates
    assert f"{classes} groups of duplicates" in text
    assert "warning group_duplicates: False, since" in text
    assert f"{6 * classes:,} examples, {0.6 * classes:.0f} of them held out" in text


@pytest.mark.parametrize("machine", [TPU, CPU])
def test_few_copies_are_grouped_and_inspect_says_so(machine, tmp_path, monkeypatch):
    speed = partial(recipes.recipe, measure=lambda config: Speed(0.002, 5.0))
    monkeypatch.setattr(recipes, "recipe", speed)
    images = noise(44, 24, 24, 3)
    images[10] = images[0]

    text, config = said(pictures(tmp_path, ["a", "b"] * 20, images), Plan(machine, 300))

    assert config.data.group_duplicates
    assert "chosen group_duplicates: True: the copies stay on one side" in text


def test_the_held_out_rows_of_inspect_are_those_of_the_training(tmp_path):
    """In another size, and where test pictures join training pictures that are not near."""
    random = np.random.default_rng(1)
    images = np.kron(random.integers(0, 255, (60, 4, 4, 3)), np.ones((40, 40, 1)))
    for number in range(0, 40, 2):  # a little brighter, again and again: a chain
        images[number + 1] = np.clip(images[number] + random.integers(0, 9), 0, 255)
    folder = pictures(tmp_path, ["a", "b", "b", "a"] * 14, images.astype(np.uint8))

    text, config = said(folder)

    assert config.data.group_duplicates and config.data.height != 64
    read = read_training(folder, config)
    assert f" {len(folds.splits(read, config)[0][1])} of them held out" in text
    assert inspection.inspect(folder).groups(config.data).tolist() == read.groups.tolist()


# Masks


LONG = " ".join(map(str, range(1, 40_001)))


@pytest.mark.parametrize(
    ("texts", "empty"),
    [
        ([LONG] * 8, 0),  # no runs of pixels, but long
        (["", LONG, LONG, "", LONG], 2),
        (["", "5 10", "", "7 3", "9 4", ""], 3),  # one run each
    ],
)
def test_masks_as_numbers_are_told_and_their_example_is_named(texts, empty, tmp_path):
    folder = pictures(tmp_path, texts, noise(len(texts) + 4, 8, 8, 3), "shape")

    with pytest.raises(DataError) as refused:
        inspection.inspect(folder)

    said = str(refused.value)
    assert len(said) < 700 and "docs/segmentation.md" in said
    assert "masks as run lengths in 'shape'" in said and "remove those rows" not in said
    assert (f"{empty} rows are empty: images without a mask" in said) == bool(empty)


def test_long_labels_are_shortened_in_what_is_said(tmp_path):
    labels = [f'"{"genus of a plant with a long name, " * 40}{kind}"' for kind in "ab"]
    folder = pictures(tmp_path, labels * 10, noise(24, 12, 12, 3))

    balance = next(x for x in inspection.inspect(folder).findings if x.about == "balance")

    assert "'genus of a plant with a long name, genus …' has 50.0%" in balance.text
    assert len(balance.text) < 250


# Time


def test_the_reason_for_the_epochs_says_what_start_and_compilation_take():
    given = {"name": "small", "competition": "small", "num_classes": 2, "target": "classes"}
    data = Data(height=24, width=24, channels=3)
    task = recipes.Task(given | {"metric": "accuracy"}, data, rows=200, rarest=4)
    speed = Speed(image=1 / 250, setup=40.0)

    made = recipes.recipe(task, Plan(CPU, 120), lambda config: speed)

    start = made.seconds - made.config.epochs * speed.image * (180 + 20 * VALIDATES)
    assert f"at 250 images/s after {shown(start)} to start" in made.reasons["epochs"]


# Columns that are nearly numbers


def test_a_column_of_numbers_with_a_few_texts_is_named(tmp_path):
    random = np.random.default_rng(0)
    score = random.integers(2, 50, 200).astype(str)
    score[:12] = ["unknown", "<2", "n/a"] * 4
    kind = np.array(["1", "2", "A", "B7"])[random.integers(0, 4, 200)]
    columns(tmp_path, {"score": score, "kind": kind, "sold": score > "3"}, 50)

    found = inspection.inspect(tmp_path)

    (line,) = [each for each in found.findings if each.about == "mixed"]
    assert line.level == "unknown" and "score is read as a category" in line.text
    assert "mostly numbers (96%), and '<2', 'unknown'. To have it read as numbers" in line.text
    uses = {column.name: column.use for column in found.inputs.columns}
    assert uses == {"score": column_types.CATEGORY, "kind": column_types.CATEGORY}


# Columns that the test set shares no value of


def columns(folder, rows, tested):
    """Write a competition of columns; `rows`: with a label in "sold", the last `tested` without."""
    table = pd.DataFrame(rows)
    table.insert(0, "id", range(len(table)))
    table[:-tested].to_csv(folder / "train.csv", index=False)
    table[-tested:].drop(columns="sold").to_csv(folder / "test.csv", index=False)
    table[-tested:][["id", "sold"]].to_csv(folder / "sample_submission.csv", index=False)
    return folder


def test_a_date_before_those_of_the_test_set_is_left_out_and_may_group_the_rows(tmp_path):
    random = np.random.default_rng(0)
    days = pd.date_range("2017-06-01", periods=50).strftime("%Y-%m-%d").repeat(4)
    table = pd.DataFrame({"date": days, "location": [*"abcd"] * 50})
    table["size"] = random.normal(size=200)
    folder = columns(tmp_path, table.assign(sold=random.normal(size=200).round(3)), 40)

    text, config = said(folder)

    assert config.data.categorical_columns == ("location",)
    assert "chosen left out: date: none of its values is in the test set" in text
    assert "set data.group_column='date'\n" in text
    assert "set data.group_column='location', and take it out of categorical_columns" in text
    data = replace(config.data, group_column="date", group_duplicates=False)
    read = read_training(folder, replace(config, data=data))
    for train, held in folds.splits(read, replace(config, data=data)):
        assert not set(read.groups[train]) & set(read.groups[held])


# Which table is the test set


def amounts(rows=80):
    random = np.random.default_rng(0)
    table = pd.DataFrame({"size": random.normal(size=rows), "other": random.normal(size=rows)})
    return table.assign(sold=(table["size"] > 0).astype(int))


@pytest.mark.parametrize("rows", [80, 140])  # fewer test rows than labelled ones, and more
def test_a_test_table_may_have_an_empty_target(rows, tmp_path):
    folder = columns(tmp_path, amounts(rows), rows - 50)
    tested = pd.read_csv(folder / "test.csv")
    tested.assign(sold="").to_csv(folder / "test.csv", index=False)

    text, config = said(folder)

    assert (config.data.train_csv, config.data.test_csv) == ("train.csv", "test.csv")
    assert config.data.numeric_columns == ("size", "other")
    assert f"50 examples, 10 of them held out, {rows - 50} to predict" in text


def test_a_test_table_with_fewer_ids_than_the_sample_is_named(tmp_path):
    folder = columns(tmp_path, amounts(), 30)
    with (folder / "sample_submission.csv").open("a") as file:
        file.write("9001,0\n9002,0\n")

    with pytest.raises(DataError, match=r"test\.csv .* lacks 2 of the 32"):
        inspection.inspect(folder)


@pytest.mark.parametrize(("ending", "command"), [(".gz", "gunzip"), (".zip", "unzip")])
def test_a_sample_submission_in_an_archive_is_to_be_unpacked(ending, command, tmp_path):
    sample = columns(tmp_path, amounts(), 30) / "sample_submission.csv"
    packed = sample.rename(f"{sample}{ending}")

    with pytest.raises(DataError) as refused:
        inspection.inspect(tmp_path)

    assert f"the sample submission as sample_submission.csv{ending}" in str(refused.value)
    assert f"Unpack it: {command} {packed}" in str(refused.value)


@pytest.mark.parametrize("texts", [["40%", "7.5%", "61%"], ["$1,200", "$900", "$88.50"]])
def test_percent_and_money_are_said_to_be_no_numbers(texts, tmp_path):
    table = amounts().assign(rate=[*texts, texts[0]] * 20)

    text, config = said(columns(tmp_path, table, 30))

    assert "warning signs: rate is read as a category: numbers with signs, such as" in text
    assert "write numbers alone" in text
    assert config.data.numeric_columns == ("size", "other")


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_a_column_without_a_name_is_left_out_and_named(name, tmp_path):
    random = np.random.default_rng(0)
    table = amounts().assign(**{name: random.permutation(1000)[:80]})

    text, config = said(columns(tmp_path, table, 30))

    assert f"chosen left out: {name!r}: a column without a name" in text
    assert config.data.numeric_columns == ("size", "other")


def test_columns_of_0_and_1_are_numbers_and_those_of_1_and_2_categories(tmp_path):
    """One-hot columns by the hundred made an embedding each, which compiled for minutes."""
    random = np.random.default_rng(0)
    bits = random.integers(0, 2, (80, 3))
    table = amounts().assign(
        hot=bits[:, 0], gap=np.where(bits[:, 1], "1.0", "0"), sex=1 + bits[:, 2]
    )
    table.loc[::7, "hot"] = None

    _, config = said(columns(tmp_path, table, 30))

    assert config.data.numeric_columns == ("size", "other", "hot", "gap")
    assert config.data.categorical_columns == ("sex",)


# Kinds that are not supported


def test_audio_is_said_to_be_not_supported(tmp_path):
    names = [f"t{number}.wav" for number in range(20)]
    rows = "".join(f"{name},{number % 2}\n" for number, name in enumerate(names))
    (tmp_path / "train").mkdir()
    for name in ("train.csv", "sample_submission.csv"):
        (tmp_path / name).write_text("fname,kind\n" + rows)
    for name in names:
        (tmp_path / "train" / name).write_bytes(b"RIFF")

    with pytest.raises(DataError, match=r"has audio, in train/t.* … \(20\), which is not supp"):
        inspection.inspect(tmp_path)


def test_boxes_in_a_coco_file_are_said_to_be_not_supported(tmp_path):
    folder = pictures(tmp_path, ["a", "b"] * 4, [image for n in range(3) for image in near(4)])
    (folder / "train.csv").unlink()
    boxes = [{"image_id": number, "bbox": [1, 2, 3, 4]} for number in range(8)]
    (folder / "train.json").write_text(json.dumps({"images": [], "annotations": boxes}))

    with pytest.raises(DataError, match=r"has detection \(boxes\), in train\.json, which is not"):
        inspection.inspect(folder)
