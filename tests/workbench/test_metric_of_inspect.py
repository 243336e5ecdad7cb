"""Inspect measures in the competition's metric, and can renew it in an existing config."""

import re
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.config import Baseline
from pipeline.config.config_files import load
from pipeline.evaluate import held_out_rows
from tests.shipped import shipped
from tests.workbench.inspect.test_inspection import IN_FOLDERS, put
from workbench.__main__ import main
from workbench.inspect import config_file, proposal


@pytest.fixture(scope="module")
def prices(tmp_path_factory) -> Path:
    """Return a folder with 60 stones, their weights and prices."""
    folder, random = tmp_path_factory.mktemp("prices"), np.random.default_rng(0)
    carat = random.lognormal(-0.4, 0.5, 70).round(2)
    price = (4000 * carat**1.7 * random.lognormal(0, 0.1, 70)).round(1)
    table = pd.DataFrame({"id": range(70), "carat": carat, "price": price})
    table[:60].to_csv(folder / "train.csv", index=False)
    table[60:].drop(columns="price").to_csv(folder / "test.csv", index=False)
    table[60:].drop(columns="carat").to_csv(folder / "sample_submission.csv", index=False)
    return folder


@pytest.fixture(scope="module", autouse=True)
def untrained():
    """No network is trained beside boosting: test_baseline.py looks at that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proposal, "compared", lambda made, *rest: made)
        yield


@pytest.fixture(scope="module")
def written(prices, untrained, tmp_path_factory) -> tuple[Path, str]:
    """Return a config that inspect wrote without knowing the metric, and what was shown."""
    path, shown = tmp_path_factory.mktemp("configs") / "stones.py", StringIO()
    with redirect_stdout(shown):
        assert main(["inspect", str(prices), "--write", str(path)]) == 0
    return path, shown.getvalue()


def test_a_missing_metric_is_asked_for_with_its_option(prices, written, capsys):
    (line,) = [each for each in written[1].splitlines() if " metric  " in each]
    assert "If the competition page specifies another" in line and "--metric NAME" in line
    assert main(["inspect", str(prices), "--write", str(written[0])]) == 2  # it exists
    assert "--metric NAME" in capsys.readouterr().err
    assert main(["inspect", str(prices), "--metric", "accuracy"]) == 2
    assert "rmse, rmsle" in capsys.readouterr().err  # which can score such labels


def test_config_and_baseline_have_the_metric_of_the_option(prices, tmp_path):
    path = tmp_path / "stones.py"

    assert main(["inspect", str(prices), "--metric", "mae", "--write", str(path)]) == 0

    config = load(str(path))
    assert config.baseline is not None and (config.metric, config.baseline.metric) == ("mae", "mae")
    assert "A default" not in path.read_text()


def test_a_written_config_gets_another_metric_and_nothing_else(prices, written, tmp_path, capsys):
    """The owner's edits stay, byte for byte."""
    path = tmp_path / "stones.py"
    before = written[0].read_text().replace("batch=", "batch = ", 1)  # as a person may write
    before = re.sub("epochs=[0-9]+", "epochs=3", before)
    notes = '# my notes: é, \'x\', "y", metric="rmse"\nSEEN = 3  # mine\n\n\nCONFIG ='
    before = before.replace("CONFIG =", notes)
    path.write_text(before)
    old = load(str(path))

    code = main(["inspect", str(prices), "--metric", "rmsle", "--write", str(path)])

    new = load(str(path))
    assert code == 0 and "by HistGradientBoosting" in capsys.readouterr().out
    assert new.baseline is not None and (new.metric, new.baseline.metric) == ("rmsle", "rmsle")
    assert replace(new, metric=old.metric, baseline=old.baseline) == old
    lines = [set(text.splitlines()) for text in (before, path.read_text())]
    about = (
        "metric",
        "baseline=",
        "Baseline  ",
        "by Hist",
        "score=",
        "error=",
        "model=",
        "rows=",
        "),",
    )
    assert [line for line in lines[0] ^ lines[1] if not any(word in line for word in about)] == []
    assert "rmse " not in path.read_text()


def test_a_config_that_cannot_be_edited_safely_is_not_changed(prices, written, tmp_path, capsys):
    """A comment that looks like the field could be taken for it."""
    path = tmp_path / "stones.py"
    path.write_text(written[0].read_text().replace("Config(\n", 'Config(  # metric="rmse"\n', 1))
    before = path.read_bytes()

    assert main(["inspect", str(prices), "--metric", "rmsle", "--write", str(path)]) == 2

    assert path.read_bytes() == before
    assert 'metric="rmsle",\nbaseline=Baseline(' in capsys.readouterr().err


def test_a_config_without_a_baseline_gets_one_and_the_import():
    baseline = Baseline(model="HistGradientBoosting", metric="rmse", score=900, error=90, rows=60)
    text = (
        "from pipeline.config import Config, Data\n\nCONFIG = Config(\n    name='a',  # mine\n)\n"
    )

    before = replace(shipped("digits"), baseline=None)

    new = config_file.edited(text, before, {"metric": "rmsle", "baseline": baseline})

    added = (
        'baseline=Baseline(model="HistGradientBoosting", metric="rmse", score=900, error=90,'
        ' rows=60),\n    metric="rmsle",'
    )
    wanted = text.replace("import Config", "import Baseline, Config")
    assert new == wanted.replace("    name=", f"    {added}\n    name=")


def test_a_config_of_class_folders_gets_another_metric(tmp_path):
    """Its labels are not in a column."""
    folder, path = put(tmp_path / "pets", IN_FOLDERS), tmp_path / "pets.py"
    words = ["inspect", str(folder), "--write", str(path)]

    assert main(words) == main([*words, "--metric", "log_loss"]) == 0

    assert load(str(path)).metric == "log_loss"


def test_a_config_built_by_code_is_not_changed(prices, written, tmp_path, capsys):
    """The message has the two lines to write."""
    path = tmp_path / "stones.py"
    config = load(str(written[0])).to_json()
    text = f"from pipeline.config import from_json\n\nCONFIG = from_json({config!r})\n"
    path.write_text(text)

    code = main(["inspect", str(prices), "--metric", "rmsle", "--write", str(path)])

    said = capsys.readouterr().err
    assert code == 2 and path.read_text() == text
    assert 'metric="rmsle"' in said and 'baseline=Baseline(model="Hist' in said


def test_scores_in_different_metrics_are_not_compared():
    """One line shows how to renew the baseline."""
    line = held_out_rows.differing(replace(shipped("diabetes"), metric="mae"))

    assert "baseline uses rmse" in line and "metric is mae" in line
    assert line.endswith("invoke inspect --input DIR --metric mae --write diabetes")
