"""A baseline is the score of a simple model on rows that it has not seen."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from threadpoolctl import threadpool_info

from localkaggle.competitions import EMBEDDED
from pipeline import config as configs
from pipeline.config import Data, from_json
from pipeline.data.dataset import Examples, read_training
from pipeline.data.labels import Target
from pipeline.errors import DataError
from tests.shipped import shipped
from tests.workbench.inspect.test_inspection import columns, pictures, png, put
from workbench.__main__ import main
from workbench.inspect import baseline, inspection, proposal

RANDOM = np.random.default_rng(0)
DIGITS = shipped("digits")


def coloured(labels: np.ndarray) -> np.ndarray:
    """Return noise whose mean colour depends on the label: uint8 (n, 16, 16, 3)."""
    noise = RANDOM.integers(0, 120, (len(labels), 16, 16, 3), np.uint8)
    return noise + (40 * labels[:, None, None, None]).astype(np.uint8)


def examples(labels: np.ndarray, inputs: np.ndarray, kind: str = "classes") -> Examples:
    names = tuple("abcd"[: 4 if labels.ndim == 1 else labels.shape[1]])
    numbers = (0.0,) * len(names), (1.0,) * len(names)
    target = Target(kind, names, *(numbers if kind == "regression" else ((), ())))
    return Examples(tuple(map(str, range(len(labels)))), inputs, labels, target)


@pytest.mark.parametrize(("kind", "metric"), [("multilabel", "auc"), ("regression", "r2")])
def test_a_forest_learns_colours_and_boosting_a_number(kind, metric):
    """Each of several columns of labels is learned."""
    shades, names = np.arange(96) % 4, ("a", "b")
    labels = np.stack([shades > 0, shades > 1], axis=1).astype(np.float32)
    data = replace(DIGITS.data, label_column=names)
    config = replace(DIGITS, target=kind, num_classes=0, metric=metric, data=data)
    table = replace(config, data=Data(kind="table", label_column=names, numeric_columns=("x",)))
    rows = np.stack([shades, np.zeros(96)], axis=1).astype(np.float32)

    of_pictures = baseline.fit(config, examples(labels, coloured(shades), kind))
    of_table = baseline.fit(table, examples(labels, rows, kind))

    assert (of_pictures.metric, of_pictures.rows, of_table.rows) == (metric, 96, 96)
    assert (of_pictures.model, of_table.model) == (baseline.FOREST, baseline.BOOSTING)
    assert of_pictures.score > 0.8 and of_table.score > 0.5


@pytest.mark.parametrize("kind", ["images", "table", "texts"])
def test_soft_labels_are_learned_as_shares(kind):
    """A model that always predicts the mean diverges by 0.6 or more."""
    shades = np.arange(96) % 4
    labels = np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]], np.float32)[shades]
    data = replace(DIGITS.data, label_column=("a", "b", "c"))
    config = replace(DIGITS, num_classes=0, metric="kl_divergence", data=data)
    known, beside = examples(labels, coloured(shades)), None
    if kind == "table":
        data = Data(kind="table", label_column=data.label_column, numeric_columns=("x",))
        rows = np.stack([shades, np.zeros(96)], axis=1).astype(np.float32)
        config, known = replace(config, data=data), replace(known, inputs=rows)
    if kind == "texts":
        own = {"read_training": "read_training", "read_test": "read_test"}
        inputs = {"terms": ("int32", 9)}
        data = Data(kind="custom", custom_inputs=inputs, label_column=data.label_column)
        config = replace(config, data=data, **own)
        beside = baseline.of_texts(pd.Series([f"{2 * 'word'}{shade}" for shade in shades]), None)

    found = baseline.fit(config, known, beside)

    assert (found.metric, found.rows) == ("kl_divergence", 96)
    assert 0 < found.score < 0.3


@pytest.mark.parametrize("kind", ["images", "table"])
def test_many_classes_are_predicted_by_nearest_neighbours(kind):
    """A forest on 2,000 classes took 8 GB."""
    labels = np.repeat(np.arange(250), 4).astype(np.int32)
    names = tuple(map(str, range(250)))
    pictures = RANDOM.integers(0, 200, (250, 16, 16, 3), np.uint8)[labels]
    pictures += RANDOM.integers(0, 50, pictures.shape, np.uint8)
    known = Examples(names * 4, pictures, labels, Target("classes", names))
    config = replace(DIGITS, num_classes=250)
    if kind == "table":
        config = replace(config, data=Data(kind="table", numeric_columns=("x",)))
        rows = np.stack([labels + RANDOM.random(1000) / 2, labels % 7 == 0], axis=1)
        known = replace(known, inputs=rows.astype(np.float32))

    found = baseline.fit(config, known)

    assert found.model == baseline.NEIGHBOURS
    assert found.score > 0.5


def test_wide_tables_and_texts_with_many_labels_are_sampled(monkeypatch):
    """So that a fit takes seconds and less than a gigabyte."""
    labels = np.arange(300) % 3
    known = Examples(
        tuple(map(str, range(300))), coloured(labels), labels, Target("classes", tuple("abc"))
    )
    names = tuple(f"x{n}" for n in range(20))
    table = replace(DIGITS, num_classes=3, data=Data(kind="table", numeric_columns=names))
    rows = np.concatenate([RANDOM.random((300, 20)) + labels[:, None], np.zeros((300, 20))], axis=1)
    texts = pd.Series([f"{2 * 'abc'[label]} word{n}" for n, label in enumerate(labels)])
    terms = baseline.of_texts(texts, None)
    own = {"read_training": "read_training", "read_test": "read_test"}
    data = Data(kind="custom", custom_inputs={"terms": ("int32", 9)})
    custom = replace(DIGITS, num_classes=3, data=data, **own)
    monkeypatch.setattr(baseline, "MOST_NUMBERS", 200 * 40)
    monkeypatch.setattr(baseline, "MOST_LINEAR", 3 * 100)
    monkeypatch.setattr(baseline, "MOST_WEIGHTS", 3 * 3)

    of_table = baseline.fit(table, replace(known, inputs=rows.astype(np.float32)))
    of_texts = baseline.fit(custom, known, terms)

    assert (of_table.rows, of_texts.rows) == (200, 100)
    assert min(of_table.score, of_texts.score) > 0.95  # the terms that are frequent are kept


@pytest.mark.filterwarnings("error")
def test_columns_beside_pictures_of_many_classes_show_what_they_add():
    """Neighbours take little memory, and no fit warns of many classes."""
    labels = np.repeat(np.arange(250), 4)
    noise = RANDOM.integers(0, 255, (1_000, 8, 8, 3), np.uint8)
    places = np.tile([labels % 16, labels // 16], (20, 1)).T + RANDOM.random((1_000, 40)) / 10

    alone, both, error = baseline.gain(noise, places.astype(np.float32), labels, "classes")

    assert alone < 0.1 and both > alone + 2 * error


def test_a_fit_uses_one_thread(monkeypatch):
    """On a busy machine, several wait for each other: a minute in place of two seconds."""
    seen: list[int] = []

    class Noted(DummyClassifier):
        def fit(self, *given: object) -> DummyClassifier:
            seen.append(max(pool["num_threads"] for pool in threadpool_info()))
            return super().fit(*given)

    monkeypatch.setattr(baseline, "_model", lambda *given, **options: Noted())
    labels = np.arange(2_100) % 2
    table = replace(DIGITS, num_classes=4, data=Data(kind="table", numeric_columns=("x",)))

    baseline.fit(table, examples(labels, np.zeros((2_100, 2), np.float32)))

    assert seen == [1] * baseline.FEWER_FOLDS


def test_the_baseline_of_random_labels_is_chance():
    """A model that had seen the rows would be right."""
    labels = np.array([0, 1] * 100, np.int32)
    noise = RANDOM.integers(0, 255, (200, 8, 8, 1), np.uint8)
    config = replace(DIGITS, num_classes=4)

    chance = baseline.fit(config, examples(labels, noise))

    assert abs(chance.score - 0.5) < 5 * chance.error
    assert chance.error == pytest.approx((0.25 / 200) ** 0.5, rel=0.2)


def test_rows_of_a_group_are_never_on_both_sides(monkeypatch):
    """Otherwise a forest would know a group's colours. The same holds if rows are sampled."""
    groups = np.repeat(np.arange(30), 4).astype(np.int32)
    labels = (groups % 2).astype(np.int32)
    inputs = np.tile(RANDOM.integers(0, 255, (30, 1, 1, 3), np.uint8)[groups], (1, 8, 8, 1))
    alike = examples(labels, inputs)
    config = replace(DIGITS, num_classes=4)

    known = baseline.fit(config, alike).score
    apart = baseline.fit(config, replace(alike, groups=groups)).score
    monkeypatch.setattr(baseline, "MOST_IMAGES", 110)
    sampled = baseline.fit(config, replace(alike, groups=groups))

    assert known > 0.95 > max(apart, sampled.score) and sampled.rows == 110


def test_too_few_rows_have_no_baseline():
    labels = np.array([0, 1, 0, 1], np.int32)

    with pytest.raises(DataError, match="too few labelled rows"):
        baseline.fit(replace(DIGITS, num_classes=4), examples(labels, coloured(labels)))


def test_boosting_sees_a_missing_number_as_missing(tmp_path):
    """The label is whether the number is missing."""
    files = columns(80, gap=lambda n: (n % 2 and n / 7) or "", sold=lambda n: n % 2)
    found = inspection.inspect(put(tmp_path, files))
    config = proposal.propose(found, "sold", "sold").config

    assert baseline.fit(config, read_training(tmp_path, config)).score > 0.95


def test_inspect_writes_the_baseline_into_the_config_and_skips_broken_files(tmp_path, capsys):
    labels = np.arange(240) % 3
    drawn = coloured(labels)
    files = pictures(train=240) | {f"train/a{n}.png": png(drawn[n]) for n in range(240)}
    files["train/a17.png"] = b"torn"
    folder = put(tmp_path / "leaves", files | {f"test/b{n}.png": png(drawn[n]) for n in range(6)})

    code = main(["inspect", str(folder), "--write", f"{tmp_path}/leaves.py", "--json"])

    end = json.loads(capsys.readouterr().out.splitlines()[-1])
    config = configs.load(f"{tmp_path}/leaves.py")
    assert code == 0 and config == from_json(end["proposed"])
    assert config.baseline is not None and config.baseline.rows == 239
    said = next(line["text"] for line in end["findings"] if line["about"] == "baseline")
    assert said == f"{config.baseline}. A useful model must score better"
    assert f"Baseline  {config.baseline.metric}" in (tmp_path / "leaves.py").read_text()


@pytest.mark.slow  # it trains; tests/e2e has an inspection of a table
@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        (600.0, "on 369 rows: HistGradientBoosting"),
        (0.0, "not be compared with the network: training on 369 rows took over 0 s"),
    ],
)
def test_inspect_proposes_boosting_or_a_network_for_a_table_by_their_scores(
    seconds, verdict, tmp_path, monkeypatch
):
    """Both are scored on the same rows, if that takes at most a minute."""
    monkeypatch.setattr(proposal, "COMPARED_SECONDS", seconds)
    EMBEDDED["breast-cancer"]().write(tmp_path)
    found = inspection.inspect(tmp_path)
    made = proposal.propose(found, "cancer", "cancer", findings=found.findings)
    short = replace(made.config, epochs=2, folds=2, warmup_epochs=1)

    examples = proposal.read_examples(short, found)
    short = proposal.with_baseline(short, found, examples, found.findings)
    made = proposal.compared(replace(made, config=short), tmp_path, examples, found.findings)

    (said,) = (line.text for line in found.findings if line.about == "boosting")
    assert verdict in said
    assert ("therefore uses boosting" in said) == (seconds > 0) == (made.config.fit == "boosting")
    about = [line.about for line in found.findings if line.level == "chosen"]
    assert ("epochs" in about) == (seconds == 0) and about.count("model") == 1


@pytest.mark.slow  # it trains
def test_boosting_gets_the_differences_of_numbers_where_they_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(proposal, "COMPARED_SECONDS", 3600.0)
    draw = np.random.default_rng(0)
    inner = draw.normal(0, 10, 400).round(2)
    outer = (inner + draw.normal(0, 1, 400)).round(2)
    names = {"id": np.arange(400), "inner": inner, "outer": outer, "colour": ["red", "blue"] * 200}
    table = pd.DataFrame(names)
    table[:300].assign(fits=(inner < outer)[:300].astype(int)).to_csv(
        tmp_path / "train.csv", index=False
    )
    table[300:].to_csv(tmp_path / "test.csv", index=False)
    table[["id"]][300:].assign(fits=0).to_csv(tmp_path / "sample_submission.csv", index=False)
    found = inspection.inspect(tmp_path)
    made = proposal.propose(found, "rings", "rings", findings=found.findings)
    examples = proposal.read_examples(made.config, found)
    config = proposal.with_baseline(made.config, found, examples, found.findings)
    short = replace(config, epochs=2, folds=2, warmup_epochs=1)

    made = proposal.compared(replace(made, config=short), tmp_path, examples, found.findings)

    (said,) = (line.text for line in found.findings if line.about == "boosting")
    assert "the differences between all pairs of the 2 numbers" in said
    assert "uses boosting with differences" in said
    assert (made.config.fit, dict(made.config.model_options)) == ("boosting", {"differences": 2})
