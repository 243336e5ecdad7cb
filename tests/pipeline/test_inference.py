"""An artifact gives the same answers wherever it is loaded, or it is refused."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline import artifact, data, inference, model
from pipeline.__main__ import main
from pipeline.errors import ArtifactError, ConfigError

ROOT = Path(__file__).resolve().parents[2]


def quiet(line: str) -> None:
    """Take a line that a user would see."""


def infer(folder: Path, trained_artifact: Path, output: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pipeline",
        "infer",
        "--config",
        str(output.parent / "tiny.py"),
        "--input",
        str(folder),
    ]
    return subprocess.run(
        [*command, "--artifact", str(trained_artifact), "--output", str(output), "--json", *more],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
    )


def test_both_backends_write_the_same_submission(trained, tiny, written_config, tmp_path):
    """Trained on JAX, inferred on TensorFlow and on JAX."""
    folder, output, _ = trained
    written_config(tiny)
    inference.infer(artifact.load(output / "artifact"), folder, tmp_path / "jax", show=quiet)

    done = infer(folder, output / "artifact", tmp_path / "tensorflow")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["rows"] == 21
    assert (tmp_path / "tensorflow" / "submission.csv").read_bytes() == (
        tmp_path / "jax" / "submission.csv"
    ).read_bytes()


def test_every_test_image_gets_its_own_label(trained):
    """21 images, which no batch divides; the ids tell the truth here."""
    folder, output, _ = trained

    found = inference.predict(artifact.load(output / "artifact"), folder)

    assert len(found.ids) == 21
    assert list(found.labels) == [("10", "9", "A b", "ß")[int(name[1:]) % 4] for name in found.ids]
    assert found.probabilities.sum(axis=1) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("batch", [1, 4, 21, 64])
def test_padding_changes_no_prediction(trained, batch):
    """Whatever fills the last batch."""
    folder, output, _ = trained
    loaded = artifact.load(output / "artifact")
    rebuilt = inference.restore(loaded)
    pixels = data.read_test(folder, loaded.config).pixels

    found = model.probabilities(rebuilt, pixels, batch)

    assert np.max(np.abs(found - model.probabilities(rebuilt, pixels, 7))) < 1e-5


def test_half_precision_agrees_with_the_golden_outputs(trained):
    """To its own tolerance, and with the same labels."""
    folder, output, _ = trained
    loaded = artifact.load(output / "artifact")

    half = inference.predict(loaded, folder, "mixed_float16")

    assert half.labels == inference.predict(loaded, folder).labels


def test_another_precision_is_refused_by_name(trained):
    """With the ones that there are."""
    with pytest.raises(ConfigError, match="float32, mixed_float16"):
        inference.restore(artifact.load(trained[1] / "artifact"), "int8")


def test_a_model_that_answers_otherwise_than_when_it_was_trained_is_refused(trained, tmp_path):
    """Weights and hashes agree, and still the outputs differ: other code, or a library with a fault."""
    from dataclasses import replace

    loaded = artifact.load(trained[1] / "artifact")
    altered = replace(loaded, golden_outputs=loaded.golden_outputs[:, ::-1])

    with pytest.raises(ArtifactError, match="other outputs here"):
        inference.restore(altered)


def test_changed_weights_are_refused_and_nothing_is_written(trained, tiny, written_config, tmp_path, flipped, capsys):
    """One message, the exit code of a failed run, no traceback, no file."""
    folder, output, _ = trained
    shutil.copytree(output / "artifact", tmp_path / "artifact")
    flipped(tmp_path / "artifact" / "weights.npz", 4000)

    code = main(
        [
            *("infer", "--config", str(written_config(tiny)), "--input", str(folder), "--json"),
            *("--artifact", str(tmp_path / "artifact"), "--output", str(tmp_path / "out")),
        ]
    )

    shown = capsys.readouterr()
    assert code == 1
    assert "weights.npz has other bytes" in json.loads(shown.out.splitlines()[-1])["error"]
    assert shown.err.startswith("Error: ")
    assert not (tmp_path / "out").exists()
