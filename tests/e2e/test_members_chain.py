"""Boosting, and predictions in CSV files, beside a network: from the training to the score."""

from pathlib import Path

import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from localkaggle import competitions
from localkaggle.server import LocalKaggle
from tests.e2e.project import by_jax, copied, runner

CONFIG = """from dataclasses import replace
from pipeline.configs.{base} import CONFIG as base
CONFIG = replace(base, name="{name}", folds=3, keep="last", patience=None, {more})
"""
BOOSTED = 'model="columns", model_options={}, fit="boosting"'


def write(project: Path, base: str, name: str, more: str) -> None:
    path = project / "pipeline/configs" / f"{name}.py"
    path.write_text(CONFIG.format(base=base, name=name, more=more))


@pytest.mark.slow
def test_a_network_and_boosting_are_mixed_and_scored(tmp_path):
    project = by_jax(copied(tmp_path))
    write(project, "diabetes", "network", "")
    write(project, "diabetes", "boosted", BOOSTED)
    with LocalKaggle(tmp_path / "kaggle", competitions=["diabetes"], offline=True) as local:
        run, ran = runner(project, local)
        outputs = [ran("push-train", ("--config", name))[0] for name in ("network", "boosted")]
        run("pipeline", "ensemble", *outputs, "--output", tmp_path / "mean")
        mixed = ("--config", "network", "--ensemble", tmp_path / "mean" / "ensemble.json")
        run("invoke", "publish", *mixed)
        folder, which = ran("push-infer", mixed[:2], *mixed[2:])
        scored = run("invoke", "submit", *which, "--yes")

    assert len(pd.read_json(folder / "members.json")) == 2
    assert scored["score"] < 65  # the RMSE; 77 for the mean of the training rows


@pytest.mark.slow
def test_predictions_in_a_csv_are_published_mixed_and_scored(tmp_path):
    """In a competition that accepts files, whose test set is public."""
    project = by_jax(copied(tmp_path))
    write(project, "digits_csv", "network", "epochs=10, warmup_epochs=1")
    data = tmp_path / "digits-csv"
    competitions.EMBEDDED["digits-csv"]().write(data)
    with LocalKaggle(tmp_path / "kaggle", competitions=["digits-csv"], offline=True) as local:
        run, ran = runner(project, local)
        output, _ = ran("push-train", ("--config", "network"))
        train, test = pd.read_csv(data / "train.csv"), pd.read_csv(data / "test.csv")
        folds = pd.read_csv(output / "validation.csv").set_index("id")["fold"]
        pixels, labels = train[test.columns], train["label"]
        files = {"oof": pd.DataFrame(index=folds.index, columns=range(10), dtype=float)}
        for fold in (1, 2, 3):
            held = folds.index[folds == fold]
            model = LogisticRegression(max_iter=200).fit(pixels.drop(held), labels.drop(held))
            files["oof"].loc[held] = model.predict_proba(pixels.loc[held])
        ids = pd.read_csv(data / "sample_submission.csv")["ImageId"]
        whole = LogisticRegression(max_iter=200).fit(pixels, labels).predict_proba(test)
        files["test"] = pd.DataFrame(whole, index=ids)
        for name, table in files.items():
            table.rename_axis("id").to_csv(tmp_path / f"{name}.csv")
        option = f"linear={tmp_path / 'oof.csv'},{tmp_path / 'test.csv'}"
        words = ("--csv", option, "--output", tmp_path / "mean")
        found = run("pipeline", "ensemble", output, *words)
        mixed = ("--config", "network", "--ensemble", tmp_path / "mean" / "ensemble.json")
        run("invoke", "publish", *mixed)
        folder, which = ran("push-infer", mixed[:2], *mixed[2:])
        scored = run("invoke", "submit", *which, "--yes")
        links = run("invoke", "status", *mixed[:2], "--of", scored["submission"])["links"]

    used = {each["run_id"]: each["weight"] for each in found["members"]}
    lineage = pd.read_json(folder / "members.json").set_index("run_id")["used"]
    kept = {name: weight for name, weight in used.items() if weight}
    assert lineage.to_dict() == pytest.approx(kept, abs=1e-12)
    (linear,) = [name for name in used if name.startswith("linear-")]
    assert used[linear] > 0
    assert linear in [link["value"] for link in links if link["what"] == "artifact"]
    assert scored["score"] > 0.9
