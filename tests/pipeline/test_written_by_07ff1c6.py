"""What commit 07ff1c6 wrote is read: an artifact always, a checkpoint is refused.

Both are of `write_competition` and of the config `tiny`, which had four convolutions then, trained
on 8 virtual CPU devices.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from pipeline import artifact
from pipeline.errors import CheckpointError
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


def test_a_checkpoint_of_07ff1c6_is_refused_with_what_to_do(tmp_path, tiny):
    """Its random numbers were drawn in another way; nothing of it is lost."""
    folder, output = write_competition(tmp_path / "competition"), tmp_path / "out"
    shutil.copytree(OLD / "partial", output)
    four = replace(tiny, model="small_cnn", model_options={"width": 4, "dropout": 0.1})

    with pytest.raises(CheckpointError, match=r"made in way 1; .* way 2.*\n.*--fresh"):
        training.train(four, folder, output, show=lambda line: None)

    kept, found = (sorted(path.rglob("checkpoints/*/*")) for path in (OLD / "partial", output))
    assert [path.read_bytes() for path in kept] == [path.read_bytes() for path in found]
