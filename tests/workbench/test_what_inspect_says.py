"""Findings on ordinary folders are true of the training with the proposed config."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pipeline.data import folds
from pipeline.data.dataset import read_training
from pipeline.errors import DataError
from tests.workbench.inspect.test_inspection import proposed, report
from workbench.inspect import images as image_kinds
from workbench.inspect import inspection, leaks


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
    """Return pictures that are nearly the same, uint8 (number, side, side, 3)."""
    base = np.kron(noise(4, 4, 3, seed=seed), np.ones((side // 4, side // 4, 1)))
    apart = np.random.default_rng(seed).integers(-4, 5, (number, side, side, 3))
    return (base + apart).clip(0, 255).astype(np.uint8)


def said(folder):
    """Return the findings of inspect after a config was proposed and checked, and the config."""
    found, config = proposed(folder)
    return report(found, config), config


def test_copies_that_a_split_cannot_keep_together_are_reported_and_not_grouped(tmp_path):
    """Each class is almost one picture: grouped, no class could both train and validate."""
    images = [image for seed in range(5) for image in near(6, seed=seed)]
    labels = [f"w{number // 6}" for number in range(30)]
    folder = pictures(tmp_path, labels, [*images, *near(4, seed=99)])

    text, config = said(folder)

    assert not config.data.group_duplicates
    assert "30 rows in 5 groups" in text
    assert "warning group_duplicates: False, because" in text
    assert "30 examples can be read, of which 3 are held out" in text


def test_inspect_and_training_hold_out_the_same_rows(tmp_path):
    """Even in a different size, and if a test picture resembles two that are not alike."""
    random = np.random.default_rng(1)
    images = np.kron(random.integers(0, 255, (60, 4, 4, 3)), np.ones((40, 40, 1)))
    for number in range(0, 40, 2):  # a little brighter, again and again: a chain
        images[number + 1] = np.clip(images[number] + random.integers(0, 9), 0, 255)
    folder = pictures(tmp_path, ["a", "b", "b", "a"] * 14, images.astype(np.uint8))

    text, config = said(folder)

    assert config.data.group_duplicates and config.data.height != 64
    assert "chosen group_duplicates: True, so that duplicates are never split" in text
    read = read_training(folder, config)
    assert f"of which {len(folds.splits(read, config)[0][1])} are held out" in text
    assert inspection.inspect(folder).groups(config.data).tolist() == read.groups.tolist()


def test_frames_of_one_camera_are_sampled_and_not_grouped(tmp_path, monkeypatch):
    """All pairs are similar: comparing 10,000 frames would take 20 minutes."""
    monkeypatch.setattr(leaks, "MOST_PAIRS", 300)
    images = np.concatenate([near(40), noise(24, 24, 24, 3)])
    images[7] = images[3]
    folder = pictures(tmp_path, ["a", "b"] * 30, images)

    text, config = said(folder)

    assert "warning similar: only 39 of 64 images were compared, because too many are" in text
    assert "1 training example with the same content as another: p3 and p7" in text
    assert not config.data.group_duplicates


def test_images_that_would_take_minutes_are_sampled(tmp_path, monkeypatch):
    images = noise(44, 32, 32, 3)
    folder = pictures(tmp_path, ["a", "b"] * 20, images)
    size = sum(path.stat().st_size for path in folder.rglob("*.png"))
    monkeypatch.setattr(image_kinds, "MOST_BYTES", size / 2)

    text, config = said(folder)

    assert "unknown sample: only 20 of 40 training images were read, because" in text
    seen = inspection.inspect(folder).inputs.train
    assert config.data.labelled == 40 and np.array_equal(seen.pixels, images[seen.rows])


# Masks


LONG = " ".join(map(str, range(1, 40_001)))


def test_run_lengths_beyond_their_picture_are_reported(tmp_path):
    texts = ["", LONG, LONG, "", LONG]  # they overlap, and end beyond the pictures
    folder = pictures(tmp_path, texts, noise(9, 8, 8, 3), "shape")

    text = "\n".join(line.text for line in inspection.inspect(folder).findings)

    assert "3 of 3 masks do not match the size of their image" in text
    assert "a mask for each of 5 images, of which 2 are empty" in text and LONG[:99] not in text


# Columns that the test set shares no value of


def columns(folder, rows, tested):
    """Write a competition of columns; `rows`: with a label in "sold", the last `tested` without."""
    table = pd.DataFrame(rows)
    table.insert(0, "id", range(len(table)))
    table[:-tested].to_csv(folder / "train.csv", index=False)
    table[-tested:].drop(columns="sold").to_csv(folder / "test.csv", index=False)
    table[-tested:][["id", "sold"]].to_csv(folder / "sample_submission.csv", index=False)
    return folder


def test_dates_before_the_test_set_are_read_and_may_group_the_rows(tmp_path):
    random = np.random.default_rng(0)
    days = pd.date_range("2017-06-01", periods=50).strftime("%Y-%m-%d").repeat(4)
    table = pd.DataFrame({"date": days, "location": [*"abcd"] * 50})
    table["size"] = random.normal(size=200)
    folder = columns(tmp_path, table.assign(sold=random.normal(size=200).round(3)), 40)

    text, config = said(folder)

    assert config.data.categorical_columns == ("location",)
    assert config.data.date_columns == ("date",)
    assert "set data.group_column='date', and remove it from date_columns" in text
    assert "set data.group_column='location'" not in text  # the test set has each of them
    data = replace(config.data, group_column="date", date_columns=(), group_duplicates=False)
    read = read_training(folder, replace(config, data=data))
    for train, held in folds.splits(read, replace(config, data=data)):
        assert not set(read.groups[train]) & set(read.groups[held])


def test_dates_in_any_format_become_numbers_and_sizes_do_not(tmp_path):
    """The target depends on the days between two dates, which categories cannot express."""
    random = np.random.default_rng(0)
    ordered = pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 700, 300), "D")
    days = random.integers(1, 60, 300)
    table = pd.DataFrame({"ordered": ordered.strftime("%d/%m/%Y")})
    table["sent"] = (ordered + pd.to_timedelta(days, "D")).strftime("%B %d, %Y")
    table["size"] = random.choice(["10-12", "12-14", "3-4"], 300)
    folder = columns(tmp_path, table.assign(sold=days + 0.5), 60)

    text, config = said(folder)

    assert config.data.date_columns == ("ordered", "sent")
    assert config.data.categorical_columns == ("size",)
    assert "0 numeric columns and 1 categorical column, plus 2 date columns" in text
    found = read_training(folder, config)
    between = config.data.number_names.index("days from ordered to sent")
    assert np.corrcoef(found.inputs[:, between], found.labels[:, 0])[0, 1] > 0.999


def test_ambiguous_days_and_months_are_reported(tmp_path):
    random = np.random.default_rng(0)
    days, more = (pd.Series(random.integers(1, 13, 200)).map("{:02d}".format) for _ in range(2))
    table = pd.DataFrame({"sold_on": days + "/" + more + "/2025", "made_on": days + "/25/2025"})
    table["never"] = "2025-01-01"

    text, config = said(columns(tmp_path, table.assign(sold=random.normal(size=200)), 40))

    assert config.data.date_columns == ("sold_on", "made_on")
    assert (
        "unknown dates: sold_on: dates in the format %m/%d/%Y. If the day comes before the month"
        in text
    )
    assert "chosen dates: made_on: dates in the format %m/%d/%Y\n" in text


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
    assert f"of which 10 are held out. A submission with {rows - 50} rows" in text


def test_a_test_table_with_fewer_ids_than_the_sample_is_reported(tmp_path):
    folder = columns(tmp_path, amounts(), 30)
    with (folder / "sample_submission.csv").open("a") as file:
        file.write("9001,0\n9002,0\n")

    with pytest.raises(DataError, match=r"test\.csv is missing 2 of the 32"):
        inspection.inspect(folder)


@pytest.mark.parametrize(("ending", "command"), [(".gz", "gunzip"), (".zip", "unzip")])
def test_an_archived_sample_submission_gets_the_command_that_unpacks_it(ending, command, tmp_path):
    sample = columns(tmp_path, amounts(), 30) / "sample_submission.csv"
    packed = sample.rename(f"{sample}{ending}")

    with pytest.raises(DataError) as refused:
        inspection.inspect(tmp_path)

    assert f"archives are not read: sample_submission.csv{ending}" in str(refused.value)
    assert f"Unpack them: {command} {packed}" in str(refused.value)


DRAW = np.random.default_rng(0)
SIGNS = "mixed: x is read as a category: 0% of the values are numbers, but others look"
MIXED = "mixed: x is read as a category: 89% of the values are numbers"


@pytest.mark.parametrize(
    ("values", "says", "category"),
    [
        (["40%", "7.5%", "61%", "3%"] * 20, SIGNS, True),
        (["$1,200", "$900", "$88.50", "$7"] * 20, SIGNS, True),
        # One-hot columns by the hundred made an embedding each, which compiled for minutes.
        ([None, 0, 1, 1] * 20, "", False),
        (["1.0", "0"] * 40, "", False),
        ([1, 2] * 40, "", True),
        ([*["unknown", "<2", "n/a"] * 4, *map(str, DRAW.integers(2, 22, 68))], MIXED, True),
    ],
    ids=["percent", "money", "gaps", "floats", "one and two", "a few texts"],
)
def test_columns_are_numbers_or_categories_and_nearly_numbers_are_reported(
    values, says, category, tmp_path
):
    text, config = said(columns(tmp_path, amounts().assign(x=values), 30))

    assert says in text
    assert config.data.categorical_columns == (("x",) if category else ())
    assert config.data.numeric_columns == ("size", "other") + (() if category else ("x",))


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_a_column_without_a_name_is_left_out_and_reported(name, tmp_path):
    table = amounts().assign(**{name: DRAW.permutation(1000)[:80]})

    text, config = said(columns(tmp_path, table, 30))

    assert f"chosen left out: {name!r}: a column without a name is" in text
    assert config.data.numeric_columns == ("size", "other")


def test_boxes_in_a_coco_file_are_reported_as_not_supported(tmp_path):
    folder = pictures(tmp_path, ["a", "b"] * 4, [image for n in range(3) for image in near(4)])
    (folder / "train.csv").unlink()
    (folder / "pictures.zip").touch()  # as a download leaves it
    boxes = [{"image_id": number, "bbox": [1, 2, 3, 4]} for number in range(8)]
    (folder / "train.json").write_text(json.dumps({"images": [], "annotations": boxes}))

    with pytest.raises(
        DataError, match=r"contains detection \(boxes\) in train\.json, which is not"
    ):
        inspection.inspect(folder)


@pytest.mark.parametrize("apart", [True, False])
def test_a_test_set_that_was_not_split_at_random_is_reported(apart, tmp_path):
    """It was split by groups, so a random split scores too well."""
    random = np.random.default_rng(0)
    things = pd.DataFrame({"size": random.normal(size=60), "sold": random.normal(size=60)}).round(4)
    rows = pd.concat([things, things])
    rows = rows.sort_values("size") if apart else rows.sample(frac=1, random_state=0)

    text, _ = said(columns(tmp_path, rows.reset_index(drop=True), 40))

    assert ("seems to show different objects" in text) == apart
