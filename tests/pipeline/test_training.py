"""A run is the same on any number of devices, stops and goes on without a difference, and leaves what it promised."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import keras
import numpy as np
import pytest

from pipeline import artifact, training
from pipeline.errors import CheckpointError, ConfigError, PipelineError

ROOT = Path(__file__).resolve().parents[2]


def quiet(line: str) -> None:
    """Take a line that a user would see."""


def history(output: Path) -> list[dict[str, float]]:
    with (output / "history.csv").open(newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_a_run_leaves_what_scripts_rely_on(trained, tiny):
    """Artifact, checkpoints, progress and history, as docs/design.md names them."""
    _, output, lines = trained
    manifest = json.loads((output / "artifact" / "manifest.json").read_text())
    progress = [json.loads(line) for line in (output / "progress.jsonl").read_text().splitlines()]

    rows = history(output)

    assert set(artifact.KEYS) <= set(manifest)
    assert manifest["status"] == "complete"
    assert manifest["metrics"]["validation_accuracy"] == 1.0
    assert [row["epoch"] for row in rows] == list(range(1, 9))
    assert all({"step", "epoch", "loss", "images_per_second", "eta_seconds"} <= set(line) for line in progress)
    assert progress[-1]["step"] == manifest["applied"]["total_steps"]
    assert all(line.isascii() for line in lines if line.startswith("{"))
    assert list((output / "checkpoints").glob("step-*/manifest.json"))


def test_the_applied_numbers_are_shown_and_kept(trained):
    """A reader sees what the scaling did, and so does the manifest."""
    _, output, lines = trained
    applied = json.loads((output / "artifact" / "manifest.json").read_text())["applied"]

    assert any(f"{applied['peak_rate']:g} at batch 16" in line for line in lines)
    assert applied["kappa"] == 2


def test_all_devices_are_used(trained):
    """Eight virtual ones here."""
    assert len(jax.devices()) == 8
    assert any("8 x cpu" in line for line in trained[2])


def test_the_first_epoch_is_the_same_on_one_device(trained, tiny, tmp_path):
    """Losses to 1e-4: the batch decides, not the number of replicas."""
    folder, output, _ = trained
    (tmp_path / "tiny.py").write_text(
        f"from pipeline.config import from_json\nCONFIG = from_json({tiny.to_json()!r})\n"
    )
    environment = {**os.environ, "XLA_FLAGS": ""}
    command = [sys.executable, "-m", "pipeline", "train", "--config", str(tmp_path / "tiny.py")]

    done = subprocess.run(
        [*command, "--input", str(folder), "--output", str(tmp_path / "one"), "--max-steps", "6"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert "1 x cpu" in done.stdout
    one, eight = history(tmp_path / "one")[0], history(output)[0]
    assert one["step"] == eight["step"]
    for name in ("loss", "validation_loss"):
        assert one[name] == pytest.approx(eight[name], abs=1e-4)


def test_a_run_that_stops_and_goes_on_ends_with_the_same_weights(trained, tiny, tmp_path):
    """Bit for bit, dropout and augmentation included."""
    folder, output, _ = trained
    out = tmp_path / "out"

    first = training.train(tiny, folder, out, max_steps=4, show=quiet)
    second = training.train(tiny, folder, out, max_steps=11, show=quiet)
    third = training.train(tiny, folder, out, show=quiet)

    unbroken = json.loads((output / "artifact" / "manifest.json").read_text())
    assert [run.status for run in (first, second, third)] == ["partial", "partial", "complete"]
    assert third.manifest is not None
    assert third.manifest["weights_sha256"] == unbroken["weights_sha256"]
    assert [row["loss"] for row in history(out)] == [row["loss"] for row in history(output)]


@pytest.mark.parametrize(
    ("change", "said"),
    [({"seed": 1}, "seed: 0 then, 1 now"), ({"batch": 32}, "batch: 16 then, 32 now")],
)
def test_a_run_is_not_gone_on_with_under_another_config(trained, tiny, tmp_path, change, said):
    """The difference is named, and nothing is overwritten."""
    training.train(tiny, trained[0], tmp_path / "out", max_steps=1, show=quiet)

    with pytest.raises(CheckpointError, match=said):
        training.train(replace(tiny, **change), trained[0], tmp_path / "out", show=quiet)

    begun = training.train(replace(tiny, **change), trained[0], tmp_path / "out", max_steps=1, fresh=True, show=quiet)
    assert begun.status == "partial"
    assert (tmp_path / "out" / "checkpoints-set-aside-1").is_dir()


def test_a_run_is_not_gone_on_with_on_other_data(competition, tiny, tmp_path):
    """One label that changed is another data set."""
    training.train(tiny, competition, tmp_path / "out", max_steps=1, show=quiet)
    table = competition / "train.csv"
    table.write_text(table.read_text().replace("r000,10", "r000,9"))

    with pytest.raises(CheckpointError, match="images or labels"):
        training.train(tiny, competition, tmp_path / "out", show=quiet)


def test_a_batch_that_does_not_split_is_refused_with_one_that_does(competition, tiny, tmp_path):
    """Before anything is read or written."""
    with pytest.raises(ConfigError, match="Set batch to 16 or 24"):
        training.train(replace(tiny, batch=20), competition, tmp_path / "out", show=quiet)

    assert not (tmp_path / "out").exists()


def test_a_loss_that_is_not_finite_stops_the_run_and_is_not_saved(competition, tiny, tmp_path):
    """The message names the rate, and no checkpoint holds the state. Decay times rate above 2 makes weights grow."""
    wild = replace(
        tiny, optimizer=replace(tiny.optimizer, name="sgd", base_rate=99.0, weight_decay=9.0), warmup_epochs=0
    )

    with pytest.raises(PipelineError, match="base_rate") as caught:
        training.train(replace(wild, epochs=60), competition, tmp_path / "out", show=quiet)

    assert caught.value.exit_code == 1
    assert not (tmp_path / "out" / "artifact").exists()
    assert not list(tmp_path.rglob("step-*"))


def test_an_average_of_the_weights_is_what_is_inferred_with(competition, tiny, tmp_path):
    """The artifact holds the average; the checkpoint holds both."""
    config = replace(tiny, epochs=1, warmup_epochs=0, optimizer=replace(tiny.optimizer, ema_momentum=0.9))

    training.train(config, competition, tmp_path / "out", show=quiet)

    from pipeline import checkpoint

    state = checkpoint.latest(tmp_path / "out" / "checkpoints")
    assert state is not None
    weights = artifact.load(tmp_path / "out" / "artifact").weights["logits/kernel"]
    assert np.array_equal(weights, state.arrays["average/logits/kernel"])
    assert not np.array_equal(weights, state.arrays["trainable/logits/kernel"])


def test_a_run_leaves_keras_as_it_found_it(trained):
    """Neither the distribution nor the dtype policy outlives it."""
    assert keras.distribution.distribution() is None
    assert keras.config.dtype_policy().name == "float32"
