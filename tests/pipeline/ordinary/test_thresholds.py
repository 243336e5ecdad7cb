"""Thresholds and `postprocess` from the training to the submission."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline import artifact
from pipeline.__main__ import main
from pipeline.config import Config, Data
from pipeline.errors import ConfigError
from pipeline.evaluate import metrics, thresholds
from pipeline.infer import inference
from pipeline.train import training

SEEDS = range(5)
WORDS = ["no", "yes"]


def write_table(folder: Path, seed: int, rows: int = 900, test: int = 300) -> Path:
    """Write an unbalanced table: about 8 % of the rows are "yes", `a` and `b` are two labels, and
    `grade` is one of three.
    """
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(rows + test, 3))
    table = pd.DataFrame(numbers, columns=["x", "y", "z"])
    noise = random.logistic(size=(rows + test, 3))
    rare = 1.5 * numbers[:, :2] + [-3.3, -2.5] + noise[:, :2] > 0
    table["label"] = np.array(WORDS)[rare[:, 0].astype(int)]
    table["a"], table["b"] = rare.astype(int).T
    table["grade"] = np.digitize(1.5 * numbers[:, 2] + noise[:, 2], [1.5, 3.5])
    table.insert(0, "id", [f"r{number}" for number in range(len(table))])
    folder.mkdir(parents=True, exist_ok=True)
    table[:rows].to_csv(folder / "train.csv", index=False)
    table[rows:][["id", "x", "y", "z"]].to_csv(folder / "test.csv", index=False)
    return folder


FORMS = {
    "classes": ("f1", "label", 2, 1),
    "multilabel": ("f_beta:2", ("a", "b"), 0, 2),
    "ordinal": ("qwk", "grade", 3, 2),
}


def asked(tiny: Config, kind: str = "classes", **fields) -> Config:
    """Return a config that fits a linear model to that table."""
    metric, label, classes, _ = FORMS[kind]
    data = Data(
        kind="table",
        label_column=label,
        numeric_columns=("x", "y", "z"),
        sample_submission=None,
    )
    given = {"target": kind, "metric": metric, "num_classes": classes, "data": data, "folds": 5}
    given |= {"model": "columns", "model_options": {}, "fit": "linear", "thresholds": True}
    return replace(tiny, **(given | fields))


def trained(config: Config, folder: Path, output: Path) -> tuple[dict, list[str]]:
    lines: list[str] = []
    return training.train(config, folder, output, show=lines.append).manifest, lines


def test_an_unbalanced_table_gains_on_rows_that_chose_no_threshold(tiny, tmp_path):
    """For each of five seeds, which were chosen before; and the optimistic score is larger."""
    shown = []
    for seed in SEEDS:
        folder = write_table(tmp_path / f"data-{seed}", seed)
        manifest, lines = trained(asked(tiny, seed=seed), folder, tmp_path / f"out-{seed}")
        found = manifest["thresholds"]
        shown.append([found[name] for name in ("plain", "nested", "optimistic")])
        assert found["used"] and found["plain"] < found["nested"] < found["optimistic"]
        assert manifest["metrics"]["validation_f1"] == found["nested"]
        (line,) = [line for line in lines if line.startswith("Thresholds: f1 ")]
        assert f"{found['nested']:.4f} nested, {found['plain']:.4f} with the defaults" in line
        assert f"{found['optimistic']:.4f} on the rows that chose them (optimistic)" in line
    print(np.round(shown, 4).tolist())


@pytest.mark.parametrize("kind", FORMS)
def test_inference_applies_them_and_gives_the_same_bytes_again(kind, tiny, tmp_path):
    """To the mean of all folds; with rows on both sides of every threshold."""
    folder, config = write_table(tmp_path / "data", 0), asked(tiny, kind)
    manifest, _ = trained(config, folder, tmp_path / "out")
    made, lines = artifact.load(tmp_path / "out" / "artifact"), []

    one, two = (
        inference.infer(made, folder, tmp_path / name, show=lines.append) for name in ("1", "2")
    )
    plain = replace(config, thresholds=False)
    off = inference.infer(made, folder, tmp_path / "3", config=plain, show=lines.append)

    found, (metric, _, _, values) = manifest["thresholds"], FORMS[kind]
    assert len(found["values"]) == (2 if kind != "ordinal" else values)
    assert found["used"] and found["nested"] > found["plain"]
    files = [(tmp_path / name / "submission.csv").read_bytes() for name in "123"]
    assert files[0] == files[1] != files[2]
    decision = thresholds.apply(found, one.values)
    _, labels = metrics.find(metric, kind).arguments(
        np.zeros(np.shape(decision[:, 0]) if kind != "multilabel" else decision.shape), decision
    )
    table = pd.read_csv(tmp_path / "1" / "submission.csv", dtype=str)
    texts = {"classes": np.array(WORDS), "ordinal": np.array(["0", "1", "2"])}.get(kind)
    wanted = labels.astype(str) if texts is None else texts[labels][:, None]
    assert table.iloc[:, 1:].to_numpy().tolist() == wanted.tolist()
    assert all(
        table[name].nunique() == (3 if kind == "ordinal" else 2) for name in table.columns[1:]
    )
    assert np.array_equal(one.values, off.values) and two.labels == one.labels != off.labels
    (member,) = json.loads((tmp_path / "1" / "members.json").read_text())
    assert member["thresholds"] == found
    assert "thresholds" not in json.loads((tmp_path / "3" / "members.json").read_text())[0]
    assert sum(line.startswith("The config has thresholds=False") for line in lines) == 1


def test_thresholds_that_do_not_help_change_nothing(tiny, tmp_path):
    """The same files as without the field, and a line says so."""
    folder = write_table(tmp_path / "data", 0)
    for name, given in (("with", True), ("without", False)):
        config = asked(tiny, thresholds=given, metric="accuracy")
        manifest, lines = trained(config, folder, tmp_path / name)
        made = artifact.load(tmp_path / name / "artifact")
        inference.infer(made, folder, tmp_path / name, show=lines.append)
        if given:
            assert not manifest["thresholds"]["used"]
            said = "the nested score is not better, so the defaults are used"
            assert sum(said in line for line in lines) == 2
        else:
            assert manifest["thresholds"] is None
            assert not any(line.startswith("Thresholds") for line in lines)

    for file in ("submission.csv", "validation.csv", "validation.npz", "artifact/weights.npz"):
        assert (tmp_path / "with" / file).read_bytes() == (tmp_path / "without" / file).read_bytes()
    one, two = (artifact.load(tmp_path / name / "artifact") for name in ("with", "without"))
    assert one.manifest["metrics"] == two.manifest["metrics"]
    assert one.manifest["error"] == two.manifest["error"]


def test_without_folds_the_held_out_rows_are_divided(tiny, tmp_path):
    """And the labels of validation.csv are the nested decisions, beside the probabilities."""
    folder, config = write_table(tmp_path / "data", 1), asked(tiny, folds=None)
    config = replace(config, data=replace(config.data, validation_fraction=0.5))

    manifest, _ = trained(config, folder, tmp_path / "out")

    found, table = manifest["thresholds"], pd.read_csv(tmp_path / "out" / "validation.csv")
    assert found["used"] and found["optimistic"] > found["nested"] > found["plain"]
    truth, labels = (table[name].map(WORDS.index).to_numpy() for name in ("label", "prediction"))
    assert metrics.f_beta(truth, labels) == found["nested"] == manifest["metrics"]["validation_f1"]
    likely = np.load(tmp_path / "out" / "validation.npz")["probabilities"]
    assert metrics.f_beta(truth, likely.argmax(axis=1)) == found["plain"]


def test_a_resumed_run_finds_the_same_and_a_complete_one_takes_the_field_up(
    tiny, competition, tmp_path
):
    config, whole = replace(tiny, folds=2, epochs=2, metric="f1", thresholds=True), tmp_path / "1"
    manifest, _ = trained(config, competition, whole)
    plain = replace(config, thresholds=False)

    for steps in (3, None):
        again = training.train(
            plain, competition, tmp_path / "2", max_steps=steps, show=str
        ).manifest
    late, _ = trained(config, competition, tmp_path / "2")

    assert again["thresholds"] is None and late["thresholds"] == manifest["thresholds"]
    assert late["weights_sha256"] == again["weights_sha256"] == manifest["weights_sha256"]
    assert late["metrics"]["validation_f1"] == manifest["metrics"]["validation_f1"]
    assert len(manifest["thresholds"]["values"]) == 4


def test_an_ensemble_has_thresholds_of_its_own(tiny, written_config, tmp_path, capsys):
    """Found for the mean, stored in ensemble.json, and applied by `infer`."""
    folder, runs = write_table(tmp_path / "data", 0), []
    for seed in (1, 2):
        runs.append(tmp_path / f"run-{seed}")
        columns = ("x", "y") if seed == 1 else ("x", "z")
        config = asked(tiny, seed=seed)
        trained(
            replace(config, data=replace(config.data, numeric_columns=columns)), folder, runs[-1]
        )
    path, out = tmp_path / "mean" / "ensemble.json", tmp_path / "out"

    assert main(["ensemble", *map(str, runs), "--output", str(path.parent)]) == 0
    words = ["infer", "--config", str(written_config(config)), "--input", str(folder)]
    assert main([*words, "--ensemble", str(path), "--output", str(out)]) == 0

    value, said = json.loads(path.read_bytes()), capsys.readouterr().out
    found, members = value["thresholds"], json.loads((out / "members.json").read_text())
    assert found["used"] and found["plain"] < found["nested"] == value["score"]
    assert said.count(thresholds.line(found, "f1")) == 2  # of both commands
    assert all(member["thresholds"] == found for member in members)
    loaded = [artifact.load(run / "artifact") for run in runs]
    alone = {each["run_id"]: each["alone"] for each in value["members"]}
    for each in loaded:
        # On other parts of the rows than in its own run, but never the optimistic one.
        own = each.manifest["thresholds"]
        assert own["plain"] < alone[each.manifest["run_id"]] < own["optimistic"] + 0.01
    weights = {each["run_id"]: each["weight"] for each in value["members"]}
    given = [weights[each.manifest["run_id"]] for each in loaded]
    mean = inference.infer(
        loaded, folder, tmp_path / "again", weights=given, thresholds=found, show=str
    )
    assert (tmp_path / "again/submission.csv").read_bytes() == (out / "submission.csv").read_bytes()
    assert set(mean.labels) == set(WORDS)
    lines: list[str] = []
    inference.infer(loaded, folder, tmp_path / "none", weights=given, show=lines.append)
    assert any(line.startswith("Warning: there are no thresholds") for line in lines)


# Post-processing

SWAPPED = """
def swapped(ids, predictions):
    assert len(ids) == len(predictions) and all(name[0] == "r" for name in ids)
    return predictions[:, ::-1]
"""
READS = """
def reads(ids, predictions, folder):
    import pandas as pd

    names = {part: set(pd.read_csv(folder / f"{part}.csv")["id"]) for part in ("train", "test")}
    assert set(ids) <= names["train"] or set(ids) <= names["test"]
    return predictions[:, ::-1]
"""


@pytest.mark.parametrize(("code", "name"), [(SWAPPED, "swapped"), (READS, "reads")])
def test_a_postprocess_changes_what_is_scored_and_submitted(code, name, tiny, custom, tmp_path):
    """And not the predictions that ensembles average."""
    folder, runs = write_table(tmp_path / "data", 0), {}
    for word in ("", name):
        fields = {"metric": "accuracy", "thresholds": False, "postprocess": word}
        config = custom(code, **vars(asked(tiny, **fields)))
        manifest, _ = trained(config, folder, tmp_path / (word or "plain"))
        made = artifact.load(tmp_path / (word or "plain") / "artifact")
        found = inference.infer(made, folder, tmp_path / f"of-{word}", show=str)
        runs[word] = manifest["metrics"]["validation_accuracy"], found

    assert runs[name][0] == pytest.approx(1 - runs[""][0])
    assert np.array_equal(runs[name][1].values, runs[""][1].values[:, ::-1])
    assert all(a != b for a, b in zip(runs[name][1].labels, runs[""][1].labels, strict=True))
    one, two = (tmp_path / run / "validation.npz" for run in ("plain", name))
    assert one.read_bytes() == two.read_bytes()
    (member,) = json.loads((tmp_path / f"of-{name}" / "members.json").read_text())
    assert member["postprocess"] == name


def test_thresholds_are_found_after_postprocess(tiny, custom, tmp_path):
    """Probabilities that are divided by ten have a tenth of the odds."""
    code = """
def small(ids, predictions):
    predictions[:, 1] /= 10
    return predictions
"""
    folder, values = write_table(tmp_path / "data", 0), []
    for word in ("", "small"):
        config = custom(code, **vars(asked(tiny, postprocess=word)))
        manifest, _ = trained(config, folder, tmp_path / (word or "plain"))
        values.append(manifest["thresholds"]["values"][1])

    assert values[1] == pytest.approx(10 * values[0])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return predictions[:, :1]", r"shape \(16, 1\) .* expected an array of shape \(16, 2\)"),
        ("return predictions * np.nan", "32 non-finite numbers"),
        ("return np.random.default_rng().random(predictions.shape)", "different predictions when"),
        ("return predictions[ids]", "raised .*line"),
    ],
)
def test_a_wrong_postprocess_is_refused_before_training(body, said, tiny, custom, tmp_path):
    code = f"import numpy as np\n\n\ndef wrong(ids, predictions):\n    {body}\n"
    folder = write_table(tmp_path / "data", 0)
    config = custom(code, **vars(asked(tiny, postprocess="wrong")))

    with pytest.raises(ConfigError, match=f"postprocess='wrong'.*{said}"):
        trained(config, folder, tmp_path / "out")

    assert not (tmp_path / "out" / "artifact").exists()


def test_members_with_different_postprocess_functions_are_refused(tiny, custom, tmp_path):
    folder, loaded = write_table(tmp_path / "data", 0), []
    for word in ("", "swapped"):
        config = custom(SWAPPED, **vars(asked(tiny, postprocess=word)))
        trained(config, folder, tmp_path / f"run-{word}")
        loaded.append(artifact.load(tmp_path / f"run-{word}" / "artifact"))

    with pytest.raises(ConfigError, match="postprocess is '' and 'swapped' in the configs of"):
        inference.infer(loaded, folder, tmp_path / "out", show=str)
