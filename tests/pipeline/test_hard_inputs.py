"""What hundreds of spoiled inputs have taught: each fault that they found has its test here, beside the module's own."""

import numpy as np
import pytest

from pipeline import artifact, inference
from pipeline.errors import DataError


def quiet(line: str) -> None:
    """Take a line that a user would see."""


# -- an older submission


def test_an_older_submission_survives_an_inference_that_fails(trained, competition, tmp_path):
    """Yesterday's good file was once exchanged for the mean prediction, by a test set that could not be read."""
    loaded, lines = artifact.load(trained[1] / "artifact"), []
    for path in (competition / "test").iterdir():
        path.write_bytes(b"<html>")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "submission.csv").write_text("yesterday's")

    with pytest.raises(DataError, match="21 images cannot be used"):
        inference.infer(loaded, competition, tmp_path / "out", show=lines.append)

    assert [path.read_text() for path in (tmp_path / "out").iterdir()] == ["yesterday's"]
    assert lines[-1] == f"Warning: {tmp_path / 'out' / 'submission.csv'} is as it was before."


def test_predictions_that_are_all_the_same_are_told(trained, competition, tmp_path):
    """Such a file is valid, and hardly what anybody means."""
    loaded, lines = artifact.load(trained[1] / "artifact"), []
    picture = next((competition / "test").iterdir()).read_bytes()
    for path in (competition / "test").iterdir():
        path.write_bytes(picture)

    found = inference.infer(loaded, competition, tmp_path / "out", show=lines.append)

    assert not np.ptp(found.values, axis=0).any()
    assert [line for line in lines if line.startswith("Warning")] == [
        "Warning: all 21 rows have the same prediction; look at the inputs and the training"
    ]
