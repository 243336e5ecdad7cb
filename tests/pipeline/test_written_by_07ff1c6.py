"""What commit 07ff1c6 wrote is read: an artifact always, a checkpoint until batches change.

Both are of `write_competition` and of the config `tiny`, which had four convolutions then, trained
on 8 virtual CPU devices.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from pipeline import artifact
from pipeline.inference import inference
from pipeline.training import training
from tests.pipeline.conftest import write_competition

OLD = Path(__file__).with_name("written_by_07ff1c6")


def test_an_artifact_of_07ff1c6_predicts_as_it_did(tmp_path):
    """Its golden outputs are computed again, and each test image gets its label."""
    folder = write_competition(tmp_path / "competition")

    inference.infer(
        artifact.load(OLD / "artifact"), folder, tmp_path / "out", show=lambda line: None
    )

    found = pd.read_csv(tmp_path / "out" / "submission.csv", dtype=str).set_index("id")["label"]
    # `write_competition` draws test image e<n> with label n % 4.
    labels = artifact.load(OLD / "artifact").manifest["classes"]
    drawn = ("10", "9", "A b", "ß")
    assert sorted(labels) == sorted(drawn)
    assert all(label == drawn[int(name[1:]) % 4] for name, label in found.items())


def test_a_checkpoint_of_07ff1c6_resumes(tmp_path, tiny):
    """From its step 10, as the same run, with what it had measured by then."""
    folder, output = write_competition(tmp_path / "competition"), tmp_path / "out"
    shutil.copytree(OLD / "partial", output)
    before = json.loads(next(OLD.glob("partial/checkpoints/*/manifest.json")).read_text())
    shown: list[str] = []

    four = replace(tiny, model="small_cnn", model_options={"width": 4, "dropout": 0.1})

    trained = training.train(four, folder, output, show=shown.append)

    steps = [
        json.loads(line)["step"] for line in (output / "progress.jsonl").read_text().splitlines()
    ]
    assert trained.status == "complete" and steps == sorted(set(steps)) and steps[-1] == 44
    assert trained.manifest is not None
    assert trained.manifest["run_id"] == before["details"]["run_id"]
    history = pd.read_csv(output / "history.csv")
    assert list(history["epoch"]) == list(range(1, 9))
    assert np.isfinite(history["loss"]).all()
