"""Masks, texts, and pictures with columns get a config that reads them unedited."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pipeline import config as configs
from pipeline.config import Config, custom_code
from pipeline.data import dataset
from pipeline.errors import DataError
from pipeline.evaluate import metrics
from pipeline.infer import submission
from pipeline.models import architectures
from tests.e2e.made_folders import goods, masks, reviews
from workbench.inspect import config_file, inspection, proposal, recipes
from workbench.inspect.tables import Given
from workbench.rehearse.hidden_test import HiddenTest


def written(folder: Path, given: Given | None = None) -> tuple[Config, str]:
    """Return the config that inspect writes for a folder, and its findings. The config was loaded
    from its file, the folder read with it, and the baseline measured.
    """
    found = inspection.inspect(folder, given)
    made = proposal.propose(found, "mine", "mine-too")
    path = folder.parent / "mine.py"
    examples = proposal.read_examples(made.config, found)
    proposal.check(made.config, found, examples, found.findings)
    config = proposal.with_baseline(made.config, found, examples, found.findings)
    path.write_text(config_file.text(found, made, given=True))
    assert config.baseline is not None and configs.load(str(path)) == made.config
    return config, "\n".join(f"{line.about}: {line.text}" for line in found.findings)


# Masks


@pytest.mark.parametrize("by_rows", [False, True])
def test_rows_of_one_picture_make_one_mask_in_either_direction(by_rows, tmp_path):
    every = masks(tmp_path / "boxes", by_rows=by_rows)

    config, said = written(tmp_path / "boxes")
    read = dataset.read_training(tmp_path / "boxes", config)

    assert ("along rows" in said) == by_rows and "of which 13 are empty" not in said
    assert "a mask for each of 40 images, of which 14 are empty" in said
    shares = np.array([every[name].mean() for name in read.ids])
    assert np.abs(read.labels.mean(axis=(1, 2)) - shares).max() < 0.02
    assert metrics.of(config)(read.labels, read.labels) == 1  # two empty ones agree, too


def test_a_predicted_mask_is_written_at_the_size_of_its_picture(tmp_path):
    every = masks(tmp_path / "boxes")
    config, _ = written(tmp_path / "boxes")
    ids, (height, width) = [f"p{number}" for number in range(40, 46)], config.data.custom_labels[1:]
    small = np.stack(
        [
            np.asarray(Image.fromarray(every[name].astype(np.float32)).resize((width, height)))
            for name in ids
        ]
    )

    write = submission.writer_of(config, tmp_path / "boxes")
    texts = write(ids, small - 0.5, ["rle"])["rle"]

    decoded = custom_code._loaded["mine"].module.decoded
    for name, text in zip(ids, texts, strict=True):
        mask = decoded(text, *every[name].shape[::-1])
        assert (mask != every[name]).mean() < 0.06
        assert bool(text) == every[name].any()


def test_a_rehearsal_hides_all_rows_of_a_picture_and_scores_masks(tmp_path):
    masks(tmp_path / "boxes")
    config, _ = written(tmp_path / "boxes")
    hidden = HiddenTest(config, tmp_path / "boxes")

    hidden.write(tmp_path / "seen")
    hidden.write(tmp_path / "rerun", hidden=True)

    train = pd.read_csv(tmp_path / "seen" / "train.csv", dtype=str, keep_default_na=False)
    away = set(hidden.solution["rle"])
    assert len(away) == 8 and not away & set(train["id"])
    assert len(train) > train["id"].nunique() == 32
    assert {path.stem for path in (tmp_path / "rerun" / "test").iterdir()} >= away
    assert hidden.score(hidden.solution) == 1
    nothing = {"rle": dict.fromkeys(away, "")}
    empty = sum(not text for text in hidden.solution["rle"].values())
    assert hidden.score(nothing) == pytest.approx(empty / 8)


def test_masks_of_several_classes_are_refused_with_advice(tmp_path):
    masks(tmp_path / "boxes")
    table = pd.read_csv(tmp_path / "boxes" / "train.csv", dtype=str, keep_default_na=False)
    table.assign(ClassId=1).to_csv(tmp_path / "boxes" / "train.csv", index=False)

    with pytest.raises(
        DataError, match=r"classes in 'ClassId'.*\nIn a copy of the table, keep only one class"
    ):
        inspection.inspect(tmp_path / "boxes")


# Texts


def test_texts_are_encoded_by_the_terms_of_the_training_set(tmp_path):
    folder = reviews(tmp_path / "reviews")

    config, said = written(folder)
    read = dataset.read_training(folder, config)
    test = dataset.read_test(folder, config, read.encoding)
    again = test.inputs(np.arange(len(test)))

    assert config.target == "classes" and "inputs: texts in text of about 8 words" in said
    assert config.baseline.model == "TF-IDF and logistic regression" and config.baseline.score > 0.9
    assert read.inputs.shape == (90, *config.data.shape) and again.any(axis=1).all()


@pytest.mark.parametrize(("seconds", "folds"), [(3_000, 5), (60, None)])
def test_texts_are_trained_in_folds_if_the_budget_lasts(tmp_path, seconds, folds):
    """The mean of five models beats one, which beats a linear model by little."""
    found = inspection.inspect(reviews(tmp_path / "reviews"))
    speed = recipes.Speed(image=0.1, setup=5.0)
    plan = recipes.Plan(recipes.CPU, seconds)

    made = proposal.propose(found, "mine", "mine-too", plan, measure=lambda config: speed)

    assert made.config.folds == folds and made.seconds < seconds
    assert made.reasons["folds"].startswith(str(folds or "none").lower())


def test_a_word_missing_from_the_training_set_is_read_by_its_pieces(tmp_path):
    folder = reviews(tmp_path / "reviews")
    texts = pd.read_csv(folder / "train.csv")["text"]
    word = max(texts.str.findall(r"\w+").explode(), key=len)
    table = pd.read_csv(folder / "test.csv")
    table.loc[:1, "text"] = [f"over{word}s", "qqqqq"]
    table.to_csv(folder / "test.csv", index=False)

    config, _ = written(folder)
    encoding = dataset.read_training(folder, config).encoding
    pieces, nothing = dataset.read_test(folder, config, encoding).inputs(np.arange(2))

    assert not texts.str.contains(f"over{word}").any() and pieces.any()
    assert not nothing.any()


def test_long_texts_are_read_by_words_alone(tmp_path):
    folder = reviews(tmp_path / "reviews")
    for name in ("train.csv", "test.csv"):
        table = pd.read_csv(folder / name)
        table.assign(text=[" ".join([text] * 20) for text in table["text"]]).to_csv(
            folder / name, index=False
        )

    config, _ = written(folder)

    assert "PIECES = ()" in (tmp_path / "mine.py").read_text()
    assert config.data.custom_inputs["words"] == ("int32", 128)


def test_a_number_can_be_predicted_from_texts_and_columns(tmp_path):
    sizes = [number % 13 + 0.5 for number in range(120)]
    folder = reviews(tmp_path / "rooms", size=sizes, floor=[n % 3 for n in range(120)])
    for name in ("train.csv", "sample_submission.csv"):
        table = pd.read_csv(folder / name).rename(columns={"good": "price"})
        table["price"] = table["price"] * 10.0 + table.get("size", 0.0)
        table.to_csv(folder / name, index=False)

    config, said = written(folder)

    assert config.target == "regression" and "and size, floor (to use only columns" in said
    assert config.data.custom_inputs["columns"] == ("float32", 2 * 1 + 3)
    assert config.baseline.model == "TF-IDF and ridge" and config.baseline.score < 4
    alone = inspection.inspect(folder, Given(alone="columns")).inputs.data
    assert (alone.kind, alone.numeric_columns) == ("table", ("size",))


# Pictures and columns


def test_columns_beside_pictures_are_read_where_they_help(tmp_path):
    folder = goods(tmp_path / "goods", matters=True)

    config, said = written(folder)
    read = dataset.read_training(folder, config)

    assert " on thumbnails and price, shop, and " in said and "--alone pictures" in said
    assert dict(config.data.custom_inputs)["columns"] == ("float32", 2 * 1 + 2)
    numbers = read.inputs[:, : 4 * 4].copy().view(np.float32)  # columns come first, by their name
    table = pd.read_csv(folder / "train.csv")
    assert np.array_equal(numbers[:, 1] > 0, table["price"].isna())  # a missing one is marked
    assert abs(numbers[:, 0].mean()) < 1e-5 and (numbers[:, 2:].sum(axis=1) == 1).all()
    # The baseline gets the same columns.
    assert np.allclose(inspection.inspect(folder).inputs.reader.features, numbers, atol=1e-5)
    assert architectures.build(config).output.shape == (None, config.outputs)


def test_columns_that_are_left_out_beside_pictures_are_listed_with_a_reason(tmp_path):
    folder = goods(tmp_path / "goods", matters=True)
    for name in ("train.csv", "test.csv"):
        table = pd.read_csv(folder / name)
        days = pd.date_range("2025-01-31", periods=len(table), freq="W")
        table = table.assign(made=days.strftime("%Y-%m-%d"), unit="kg", code=table["id"] + name)
        table = table.assign(later=1) if name == "train.csv" else table
        table.to_csv(folder / name, index=False)

    _, said = written(folder)

    for line in (
        "left out: made: dates in the format ISO8601; to read dates, pass --alone columns",
        "left out: unit: all rows have the same value",
        "left out: code: few of its texts repeat (100 distinct texts in 100 rows)",
        "left out: later: only in the training table",
    ):
        assert line in said


# Groups


@pytest.mark.parametrize("make", [masks, reviews, partial(goods, matters=True)])
def test_a_group_column_keeps_patients_on_one_side_of_split_and_rehearsal(make, tmp_path):
    folder = tmp_path / "visits"
    make(folder)
    table = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    patients = {name: f"P{number // 2}" for number, name in enumerate(table["id"].unique())}
    table.assign(patient=table["id"].map(patients)).to_csv(folder / "train.csv", index=False)

    config, said = written(folder)
    grouped = replace(config, folds=None, data=replace(config.data, group_column="patient"))
    read = dataset.read_training(folder, grouped)
    hidden = HiddenTest(grouped, folder)

    assert "set data.group_column='patient'" in said
    assert len(np.unique(read.groups)) == len(set(patients.values()))
    away = [{patients[read.ids[row]] for row in rows} for rows in (hidden.train, hidden.hidden)]
    assert away[0] and away[1] and not set.intersection(*away)


def test_a_group_column_is_to_be_removed_from_the_inputs(tmp_path):
    folder = goods(tmp_path / "goods", matters=True)
    for name in ("train.csv", "test.csv"):
        table = pd.read_csv(folder / name, dtype=str, keep_default_na=False)
        table = table.rename(columns={"shop": "site"})
        if name == "train.csv":
            table.loc[:3, "site"] = "west"
        table.to_csv(folder / name, index=False)

    _, said = written(folder)

    expected = "set data.group_column='site', remove it from CATEGORIES, and subtract 3 columns in"
    assert f"{expected} custom_inputs" in said


@pytest.mark.parametrize("make", [reviews, masks])
def test_texts_and_masks_need_no_sample_submission(make, tmp_path):
    make(tmp_path / "made")
    (tmp_path / "made" / "sample_submission.csv").unlink()

    config, _ = written(tmp_path / "made")
    hidden = HiddenTest(config, tmp_path / "made")

    assert config.data.sample_submission is None
    assert hidden.score(hidden.solution) == 1


def test_pictures_are_read_alone_if_columns_add_nothing_or_the_user_wants_it(tmp_path):
    plain = goods(tmp_path / "plain", matters=False)
    asked = goods(tmp_path / "asked", matters=True)

    found = inspection.inspect(plain)

    assert found.inputs.data.kind == "images"
    assert any("so only the images are used" in line.text for line in found.findings)
    assert inspection.inspect(asked, Given(alone="pictures")).inputs.data.kind == "images"
