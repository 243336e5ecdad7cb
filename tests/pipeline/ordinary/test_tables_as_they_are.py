"""Real-world tables: typos, columns of mostly zeros, heavy tails, labels over decades."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline import artifact
from pipeline.__main__ import main as model_side
from pipeline.config import Baseline, Config, Data
from pipeline.data import dataset, table_features
from pipeline.data.labels import Target
from pipeline.errors import ConfigError
from pipeline.infer import inference
from pipeline.train import progress_log, training
from tests.pipeline.handmade import with_data
from tests.shipped import shipped
from workbench.__main__ import main
from workbench.report import report

STONES, TESTED = 600, 60


def stones(count: int, seed: int) -> pd.DataFrame:
    """Return diamonds: the price is a power of the weight, and y is the width in mm."""
    random = np.random.default_rng(seed)
    carat = random.lognormal(-0.4, 0.5, count).clip(0.2, 4)
    width = 6.3 * carat ** (1 / 3) + random.normal(0, 0.05, count)
    price = np.round(4000 * carat**1.7 * random.lognormal(0, 0.1, count))
    return pd.DataFrame({"carat": carat, "y": width, "price": price})


@pytest.fixture(scope="module")
def diamonds(tmp_path_factory) -> tuple[Path, Path, Config, list[str]]:
    """Return (folder, output, config, shown lines) of a training on stones of which two have a
    typo in y; a third one is in the test set.
    """
    folder = tmp_path_factory.mktemp("diamonds")
    train, test = stones(STONES, 0), stones(TESTED, 1)
    test["price"] = 0
    train.loc[[3, 500], "y"] = 318.0, 58.9
    test.loc[7, "y"] = 318.0
    for name, table in (("train", train), ("test", test)):
        table.index = [f"{name}{row}" for row in range(len(table))]
        table.to_csv(folder / f"{name}.csv", index_label="id")
    test[["price"]].to_csv(folder / "sample_submission.csv", index_label="id")
    model = {"model_options": {"width": 16, "depth": 1, "dropout": 0.0}, "epochs": 4, "folds": 2}
    data = Data(kind="table", label_column="price", numeric_columns=("carat", "y"))
    baseline = Baseline(
        model="HistGradientBoosting", metric="rmse", score=900, error=90, rows=STONES
    )
    named = {"name": "stones", "competition": "stones", "metric": "rmsle"}
    config = replace(shipped("diabetes"), data=data, baseline=baseline, **model, **named)
    lines: list[str] = []
    training.train(config, folder, folder / "out", show=lines.append)
    return folder, folder / "out", config, lines


def test_the_manifest_scores_what_the_artifact_predicts(diamonds):
    """Out-of-fold predictions and the submission are clipped to the same range of labels."""
    folder, output, _, _ = diamonds
    labels = pd.read_csv(folder / "train.csv")["price"]
    made = artifact.load(output / "artifact")

    found = inference.infer(made, folder, output / "inferred", show=str)

    low, high = made.target.lowest[0], made.target.highest[0]
    assert (low, high) == pytest.approx((labels.min(), labels.max()))
    for values in (found.values, np.load(output / "validation.npz")["values"]):
        assert low * (1 - 1e-5) <= values.min() and values.max() <= high * (1 + 1e-5)


def test_folds_and_members_average_the_logarithms_that_rmsle_scores():
    """The mean of 9 and 999 is 99: the arithmetic mean of 504 would be bad for rmsle."""
    target = Target("regression", ("price",), (0.0,), (1.0,), log=True)
    nine, many = (target.predictions(np.log1p([[number]])) for number in (9.0, 999.0))

    found = target.mean([nine, many])

    weighted = np.expm1(np.log1p(99) / 4 + np.log1p(999) * 3 / 4)
    assert found == pytest.approx(99, rel=1e-5)
    assert target.mean([found, many], [1, 3]) == pytest.approx(weighted, rel=1e-5)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([-26.0, *np.linspace(0, 1, 999)], 0, 1),  # a typo
        ([0.0] * 5000 + [1.0, 2.0, 3.0, 4.0], 0, 4),  # mostly zeros
        ([*[0.5] * 40, *np.linspace(0, 1, 10), 999.0, 999.0], 0, 999),  # 999: unknown
        ([3.3] * 9, 3.3, 3.3),  # a constant
        ([1.0, 2.0], 1, 2),
    ],
)
def test_a_column_is_limited_to_a_range_that_few_rows_cannot_move(values, low, high):
    """No input is beyond ten, for any value in a row."""
    scale = table_features.scale_of(np.array(values))

    inputs = (np.array([*values, -1e9, 1e9]).clip(scale.low, scale.high) - scale.mean) / scale.unit
    assert (scale.low, scale.high) == pytest.approx((low, high), abs=0.05)
    assert np.abs(inputs).max() <= table_features.FARTHEST


def test_a_heavy_tail_loses_less_than_a_hundredth():
    """For a Pareto and a lognormal distribution."""
    random = np.random.default_rng(0)
    for values in (random.pareto(1, 20_000), random.lognormal(0, 2, 20_000)):
        scale = table_features.scale_of(values)
        assert (values > scale.high).mean() < 0.01 and (values >= scale.low).all()


def test_a_row_that_carries_the_error_is_the_first_of_the_worst(diamonds, tmp_path):
    """A price with three zeros too many, which longer training would not fix."""
    folder, _, config, _ = diamonds
    for name in ("test.csv", "sample_submission.csv"):
        shutil.copy(folder / name, tmp_path)
    table = pd.read_csv(folder / "train.csv", index_col="id")
    table.loc["train3", "price"] *= 1000
    table.to_csv(tmp_path / "train.csv")
    # A regression may go beyond its labels if the config says so, as a trend does.
    free = {"epochs": 2, "warmup_epochs": 1, "limit_predictions": False}
    wrong = replace(config, metric="rmse", **free)
    out, lines = tmp_path / "out", []

    training.train(wrong, tmp_path, out, show=lines.append)

    assert "below the baseline" in lines[-1] and "Inspect the worst rows" in lines[-1]
    assert artifact.load(out / "artifact").target.highest == ()
    page = report.write(out).read_text()
    assert "Check the worst rows below" in page
    worst = page.partition('id="worst"')[2]
    assert re.search(r"train\d+", worst)[0] == "train3"


def test_a_table_is_planned_described_and_trained_in_rows(diamonds, capsys, written_config):
    folder, _, config, lines = diamonds
    words = ["--config", str(written_config(config))]

    assert main(["plan", *words, "--input", str(folder), "--for", "gpu-t4x2"]) == 0
    assert model_side(["describe", *words, "--images", "600"]) == 0

    told = capsys.readouterr().out.replace('"images', "").splitlines()  # the names of keys
    told += map(progress_log.readable, lines)
    assert any("rows/s" in line for line in told)
    assert [line for line in told if re.search("(?i)\\bimages?\\b(?!\\.)", line)] == []


def test_a_column_that_the_table_lacks_is_a_mistake_of_the_config(diamonds):
    """Exit code 2, as for a misspelt field."""
    folder, _, config, _ = diamonds

    with pytest.raises(ConfigError, match="but not the expected width"):
        dataset.read_training(folder, with_data(config, numeric_columns=("carat", "width")))
