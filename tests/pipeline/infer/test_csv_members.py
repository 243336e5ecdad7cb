"""Predictions in CSV files are members of an ensemble. They are checked, and found by their ids."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pipeline import artifact
from pipeline.__main__ import main
from pipeline.data.labels import Target
from pipeline.errors import ArtifactError, ConfigError, DataError
from pipeline.infer import csv_members, ensemble, inference
from pipeline.infer.csv_members import Files
from tests.pipeline import members
from tests.pipeline.infer.test_ensemble import rows_of

CLASSES = ("10", "9", "A b", "ß")


@pytest.fixture(scope="module")
def runs(trained, tmp_path_factory):
    """Return the outputs of two runs; read-only."""
    folder = tmp_path_factory.mktemp("runs")
    for number in (1, 2):
        members.write(folder / f"run-{number}", trained[1] / "artifact", f"run-{number}")
    return [folder / f"run-{number}" for number in (1, 2)]


@pytest.fixture
def files(trained, tmp_path):
    """Return the CSVs of a model that is right about four times of five, columns in any order."""
    random = np.random.default_rng(7)
    sample = pd.read_csv(trained[0] / "sample_submission.csv", dtype=str)
    written = {}
    for name, ids in (("oof", [f"r{row:03d}" for row in range(60)]), ("test", sample.iloc[:, 0])):
        scores = random.gumbel(size=(len(ids), 4)) + 2.5 * np.eye(4)[np.arange(len(ids)) % 4]
        values = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        table = pd.DataFrame(values, columns=CLASSES).round(6)[list(CLASSES[::-1])]
        table.insert(0, "row", list(ids))
        written[name] = tmp_path / f"{name}.csv"
        table.sample(frac=1, random_state=1).to_csv(written[name], index=False)
    return Files("lgbm", written["oof"], written["test"])


def option(files):
    return f"{files.name}={files.oof},{files.test}"


def found(runs, files, output):
    """Find the weights of two runs and a CSV; return the contents of ensemble.json."""
    return ensemble.find(runs, output, str, [files])


def test_the_commands_find_its_weight_and_add_its_predictions(
    runs, files, trained, tiny, written_config, tmp_path, capsys
):
    """The same bytes for any order of the runs; ensemble.json and the lineage name the CSV."""
    path, texts = tmp_path / "mean" / "ensemble.json", []
    for order in (runs, runs[::-1]):
        words = ["--csv", option(files), "--json", "--output", str(path.parent)]
        assert main(["ensemble", *map(str, order), *words]) == 0
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    csv = next(each for each in told["members"] if each["run_id"].startswith("lgbm-"))
    assert csv["weight"] > 0.2 and csv["alone"] > 0.7
    manifest = json.loads((path.parent / "csv-lgbm" / "manifest.json").read_text())
    assert manifest["metrics"] == {"validation_accuracy": csv["alone"]}

    words = ["--config", written_config(tiny), "--input", trained[0], "--output", tmp_path / "out"]
    assert main(["infer", *map(str, words), "--ensemble", str(path)]) == 0

    lineage = json.loads((tmp_path / "out" / "members.json").read_text())
    used = {each["run_id"]: each["used"] for each in lineage}
    weights = {each["run_id"]: each["weight"] for each in told["members"] if each["weight"]}
    assert used == pytest.approx(weights, abs=1e-12)
    assert csv["weights_sha256"] == csv_members.sha256(files.test.read_bytes()).hexdigest()
    assert csv["oof_sha256"] == csv_members.sha256(files.oof.read_bytes()).hexdigest()


def test_each_test_id_gets_the_row_of_its_id(runs, files, trained, tmp_path):
    value = found(runs, files, tmp_path)
    (folder,) = (one["folder"] for one in value["members"] if "csv-lgbm" in one["folder"])
    member = ensemble._load(csv_members.Path(folder))

    alone = inference.infer(member, trained[0], tmp_path, show=str)

    table = pd.read_csv(files.test, dtype={"row": str}).set_index("row")
    assert np.array_equal(alone.values, table.loc[list(alone.ids), list(CLASSES)].to_numpy("f4"))
    assert [CLASSES[row.argmax()] for row in alone.values] == list(alone.labels)


def edit(path, change):
    """Change a CSV as a table of texts."""
    change(pd.read_csv(path, dtype=str)).to_csv(path, index=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.drop(columns="9"), r"columns row, ß, A b, 10\. The first"),
        (lambda table: table.assign(fold=1), "columns row, ß, A b, 9, 10, fold. The first"),
        (lambda table: pd.concat([table, table[:1]]), "expected each id once"),
        (lambda table: table.assign(ß="1.5"), "'1.5' in 'ß' .*expected numbers from 0 to 1"),
        (lambda table: table.assign(ß="nan"), "'nan' in 'ß' .*expected numbers from 0 to 1"),
        (lambda table: table.assign(ß="0.9"), "expected probabilities with a sum of 1"),
        (
            lambda table: table.assign(row="x" + table["row"]),
            "no predictions for the rows that run-1",
        ),
    ],
)
def test_invalid_out_of_fold_predictions_are_refused(runs, files, tmp_path, change, said):
    edit(files.oof, change)

    with pytest.raises(DataError, match=said):
        found(runs, files, tmp_path / "mean")

    assert not (tmp_path / "mean").exists()


def test_a_missing_test_id_is_refused_before_anything_is_computed(runs, files, trained, tmp_path):
    """As in a scored rerun with another test set."""
    edit(files.test, lambda table: table[1:])
    weights = [1.0, 1.0]
    value, lines = found(runs, files, tmp_path / "mean"), list[str]()
    (folder,) = (one["folder"] for one in value["members"] if "csv-lgbm" in one["folder"])
    both = [ensemble._load(csv_members.Path(folder)), artifact.load(runs[0] / "artifact")]

    with pytest.raises(DataError, match=r"no predictions for 1 of 21 test ids.*\n.*--csv lgbm=…"):
        inference.infer(both, trained[0], tmp_path / "out", weights=weights, show=lines.append)

    assert not (tmp_path / "out").exists()


def test_a_changed_csv_is_refused(runs, files, tmp_path):
    """On Kaggle and at home. Its file next to the runs may be gone."""
    value = found(runs, files, tmp_path)
    files.test.unlink()
    inputs = tmp_path / "input" / "datasets" / "ann"
    for one in value["members"]:
        shutil.copytree(one["folder"], inputs / one["run_id"])
    loaded, _ = ensemble.mounted(inputs.parents[1], value)
    assert sorted(each.manifest["run_id"] for each in loaded)[0].startswith("lgbm-")
    path = next(inputs.glob("lgbm-*/test.csv"))
    path.write_text(path.read_text().replace("0.", "0.0", 1))

    with pytest.raises(ArtifactError, match=r"test\.csv does not match manifest\.json"):
        ensemble.mounted(inputs.parents[1], value)


def test_a_single_column_is_a_number_or_the_probability_of_one_class(tmp_path):
    """The class that a submission has, too: the one that the column names, or the second one."""
    path = tmp_path / "one.csv"

    def read(header, target, **data):
        path.write_text(f"id,{header}\n7,0.25\n8,1\n")
        config = SimpleNamespace(data=SimpleNamespace(positive_label=data.get("positive_label")))
        return csv_members._read(path, target, config).values.tolist()

    two = Target("classes", ("no", "yes"))
    assert read("sold", two) == read("yes", two) == [[0.75, 0.25], [0.0, 1.0]]
    assert read("no", two) == read("sold", two, positive_label="no") == [[0.25, 0.75], [1.0, 0.0]]
    assert read("anything", Target("regression", ("price",))) == [[0.25], [1.0]]
    for target in (Target("classes", CLASSES), Target("multilabel", ("a", "b"))):
        with pytest.raises(DataError, match=r"columns id, sold\. The first column"):
            read("sold", target)


def test_options_that_name_no_files_are_refused_with_an_example():
    for options in (
        ["oof.csv,test.csv"],
        ["a=oof.csv"],
        ["../a=o.csv,t.csv"],
        ["a=o.csv,t.csv"] * 2,
    ):
        with pytest.raises(ConfigError, match=r"--csv lgbm=oof\.csv,test\.csv"):
            csv_members.files_of(options)


# What a member adds


def numbers(seed, errors, rows=200):
    """Return predictions of a number with independent normal errors, scored by the RMSE."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=(rows, 1))
    predictions = [truth + error * random.normal(size=(rows, 1)) for error in errors]
    return rows_of(
        truth, predictions, lambda truth, found: -float(np.sqrt(((found - truth) ** 2).mean()))
    )


def test_what_a_member_adds_has_its_standard_error():
    """The mean of two members with the same error has an RMSE that is lower by 1 - 0.5**0.5. The
    interval of two errors covers this in about 95% of seeds; expected here: in 33 of 40.
    """
    found = [ensemble._other_half(numbers(seed, (1.0, 1.0)))["adds"][0] for seed in range(40)]
    gains, errors = np.array(found).T
    assert (np.abs(gains - (1 - 0.5**0.5)) <= 2 * errors).sum() >= 33
    assert 2 / 3 < errors.mean() / gains.std() < 3 / 2


def test_a_useless_member_adds_nothing_on_rows_that_did_not_choose_it():
    """It improves the score of the rows that chose it, but not that of others."""
    seen, others = [], []
    for seed in range(20):
        rows = numbers(seed, (1.0, *[8.0] * 4), rows=60)
        best = rows.ranks(np.eye(5)).max()
        seen.append(rows.ranks(ensemble.climb(rows)[None])[0] - best)
        others.append(ensemble._other_half(rows)["gain"])
    assert min(seen) >= 0 and np.mean(seen) > 0.003
    assert np.mean(others) < np.mean(seen) / 2


def test_a_member_adds_what_the_others_lose_with_weights_of_their_own():
    """Errors of 0.3, -0.3 and 0.2 cancel out. Without the second one, 0.2 alone is best."""
    truth = np.linspace(0, 1, 40)
    predictions = [truth + error for error in (0.3, -0.3, 0.2)]
    rows = rows_of(truth, predictions, lambda truth, found: -float(np.abs(found - truth).mean()))

    adds = np.array(ensemble._other_half(rows)["adds"])[:, 0]

    assert np.abs(adds - (0, 0.2, 0)).max() < 0.01


def test_copies_of_a_member_add_nothing():
    rows = numbers(0, (1.0,))
    twice = replace(rows, members=rows.members * 2, predictions=np.repeat(rows.predictions, 2, 0))
    assert np.abs(ensemble._other_half(twice)["adds"]).max() < 1e-6


def test_a_metric_without_a_value_for_a_half_leaves_empty_columns():
    member = {"weight": 0.5, "alone": 1.0, "without": 1.0, "adds": None, "adds_error": None}
    value = {"members": [member | {"run_id": name} for name in "ab"], "metric": "auc", "score": 1.0}

    lines = ensemble.table({**value, "other_half": None, "greater_is_better": True})

    assert lines[1].split() == ["0.50000", "1.00000", "1.00000", "a"]
