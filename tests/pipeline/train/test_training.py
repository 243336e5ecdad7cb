"""A run is the same on any number of devices, stops and resumes without a difference, and leaves
what it promised.
"""

import csv
import gc
import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import jax
import keras
import numpy as np
import pandas as pd
import pytest

from pipeline import artifact
from pipeline.errors import CheckpointError, ConfigError, DivergedError
from pipeline.train import checkpoint, training
from pipeline.train.loop import EVALUATIONS, Loop
from pipeline.train.step import TrainStep
from tests.pipeline.rounding import EPS
from tests.small_competition import write_competition

ROOT = Path(__file__).resolve().parents[3]


def quiet(line: str) -> None:
    """Ignore a line for the user."""


def history(output: Path) -> list[dict[str, float]]:
    with (output / "history.csv").open(newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_a_run_learns_on_every_device_and_leaves_the_process_as_it_was(trained):
    """Eight virtual devices here. Neither the distribution nor the dtype policy outlives the run,
    and nothing of it is kept for ever. The files that it leaves: tests/doors/test_pipeline.py.
    """
    _, output, lines = trained
    manifest = json.loads((output / "artifact" / "manifest.json").read_text())
    applied = manifest["applied"]

    assert manifest["metrics"]["validation_accuracy"] == 1.0
    assert len(jax.devices()) == 8 and any("8 x cpu" in line for line in lines)
    assert any(f"{applied['peak_rate']:g} at batch 16" in line for line in lines)
    assert applied["kappa"] == 2
    assert all(line.isascii() for line in lines if line.startswith("{"))
    assert gc.get_freeze_count() == 0
    assert keras.distribution.distribution() is None
    assert keras.config.dtype_policy().name == "float32"


def test_the_validation_loss_is_the_mean_over_the_held_out_rows_alone(trained):
    """Not over rows that fill up the last batch: 8 rows are held out, and a batch has 16."""
    _, output, _ = trained
    with np.load(output / "validation.npz") as file:
        truth, found = file["truth"], file["probabilities"]

    loss = -np.log(found[np.arange(len(truth)), truth]).mean()

    assert len(truth) == 8
    last = history(output)[-1]
    assert last["validation_loss"] == pytest.approx(loss, rel=1e-5, abs=8 * EPS)
    assert last["learning_rate"] > 0  # of the last step; that of the next one is 0


@pytest.mark.slow
def test_a_step_that_ends_several_epochs_counts_them(tiny, tmp_path):
    """A row says how many epochs are done; and the golden images are of every class, also from a
    table sorted by label.
    """
    folder = write_competition(tmp_path / "competition", train=40)
    table = pd.read_csv(folder / "train.csv", dtype=str).sort_values("label")
    table.to_csv(folder / "train.csv", index=False)
    half = replace(tiny, batch=48, epochs=5, data=replace(tiny.data, validation_fraction=0.5))

    training.train(half, folder, tmp_path / "out", show=quiet)

    told = [(row["step"], row["epoch"]) for row in history(tmp_path / "out")]
    assert told == [(1, 2), (2, 4), (3, 5)]
    golden = artifact.load(tmp_path / "out" / "artifact").golden_inputs
    quarters = golden.reshape(-1, 2, 4, 2, 4).mean(axis=(2, 4)).reshape(-1, 4).argmax(axis=1)
    assert set(quarters) == {0, 1, 2, 3}


def test_batches_are_split_over_the_devices_and_weights_are_on_all_of_them(trained, tiny, tmp_path):
    """A run could see eight devices and use one."""
    seen: set[tuple[str, int, bool]] = set()

    def look(line: str) -> None:
        for array in jax.live_arrays():
            if array.shape in ((1, 16, 8, 8, 1), (64, 16)):
                found = array.sharding
                seen.add((array.dtype.name, len(found.device_set), found.is_fully_replicated))

    training.train(tiny, trained[0], tmp_path / "out", max_steps=1, show=look)

    assert {found for found in seen if found[0] == "uint8"} == {("uint8", 8, False)}
    assert ("float32", 8, True) in seen


@pytest.mark.parametrize(
    ("name", "average"),
    [
        ("adamw", {"ema_momentum": 0.95}),
        ("adamw", {"swa_start": 0.03}),  # after one of 44 steps
        pytest.param("sgd", {"ema_momentum": 0.95}, marks=pytest.mark.slow),
    ],
)
def test_every_optimizer_and_the_average_resume_bit_for_bit(trained, tiny, tmp_path, name, average):
    """Momentum, decay, the average and the sums of an epoch lie in the state like the weights;
    dropout and augmentation follow from the step. A call that takes no step writes no checkpoint.
    """
    given = replace(tiny.optimizer, name=name, weight_decay=0.01, **average)
    config, runs, stats, lines = replace(tiny, optimizer=given), [], [], list[str]()

    for folder, steps in (("parts", 2), ("parts", 2), ("parts", 6), ("whole", 6)):
        place = tmp_path / folder
        run = training.train(config, trained[0], place, max_steps=steps, show=lines.append)
        runs.append(run.status)
        found = checkpoint.latest(place / "checkpoints")
        assert found is not None and found.step == steps
        assert "same command with a larger --max-steps or without it" in lines[-1]
        stats.append((place / "checkpoints" / f"step-{steps:08d}" / "state.npz").stat())

    assert runs == ["partial"] * 4
    assert (stats[0].st_ino, stats[0].st_mtime_ns) == (stats[1].st_ino, stats[1].st_mtime_ns)
    parts, whole = (
        checkpoint.latest(tmp_path / folder / "checkpoints") for folder in ("parts", "whole")
    )
    assert parts is not None and list(whole.arrays) == list(parts.arrays)
    assert all(np.array_equal(whole.arrays[name], parts.arrays[name]) for name in whole.arrays)
    (one,), (two,) = (history(tmp_path / folder) for folder in ("parts", "whole"))
    assert (one["loss"], one["validation_loss"]) == (two["loss"], two["validation_loss"])


def test_fields_that_do_not_affect_training_may_change_before_a_resume(trained, tiny, tmp_path):
    """Where the test set lies is not the model's business; that another machine computes otherwise
    is told, and so is a disk that turns bits.
    """
    out = tmp_path / "out"
    training.train(tiny, trained[0], out, max_steps=1, show=quiet)
    begun = checkpoint.latest(out / "checkpoints")
    assert begun is not None
    before = {"precision": "mixed_bfloat16", "devices": "8 x TPU v5 lite (tpu)", "code": "0" * 64}
    begun.details["origin"].update(before)
    shutil.rmtree(out / "checkpoints" / "step-00000001")
    checkpoint.save(out / "checkpoints", 1, begun.arrays, begun.details)
    (out / "checkpoints" / "step-00000009").mkdir()
    elsewhere = replace(tiny.data, test_images="t", sample_submission="s.csv")
    changed = replace(tiny, data=elsewhere, handoff="kernel", checkpoint_seconds=1.0)
    lines: list[str] = []

    training.train(changed, trained[0], out, max_steps=2, show=lines.append)

    told = "\n".join(lines)
    corrupt = "Warning: skipped a newer checkpoint, which is corrupt: step-00000009: "
    assert re.search(f"{corrupt}.*\nResuming from step 1 of", told)
    for name, then in before.items():
        assert f"Warning: {name} changed from {then} to " in told
    found = checkpoint.latest(out / "checkpoints")
    assert found is not None and before.items() <= found.details["origin"].items()


@pytest.mark.parametrize("details", [{}, {"origin": {"config": 3}, "run_id": 1, "metrics": 3}])
def test_a_checkpoint_of_another_program_is_refused(trained, tiny, tmp_path, details):
    """In a folder that has the same name by chance."""
    checkpoint.save(tmp_path / "out" / "checkpoints", 1, {"a": np.zeros(3)}, details)

    with pytest.raises(CheckpointError, match="Differences: the program"):
        training.train(tiny, trained[0], tmp_path / "out", show=quiet)


def test_a_run_is_not_resumed_under_another_config(competition, tiny, tmp_path):
    """Nor on other data: one label that changed. The difference is named, and nothing is
    overwritten.
    """
    out, table = tmp_path / "out", competition / "train.csv"
    training.train(tiny, competition, out, max_steps=1, show=quiet)
    told, rows = (out / "progress.jsonl").read_bytes(), table.read_text()
    moved = replace(tiny, data=replace(tiny.data, crop_padding=2))

    for other, labels, said in (
        (replace(tiny, batch=32), rows, "batch: 16 then, 32 now"),
        (moved, rows, r"data\.crop_padding: 1 then, 2 now"),
        (tiny, rows.replace("r000,10", "r000,9"), "inputs or labels"),
    ):
        table.write_text(labels)
        with pytest.raises(CheckpointError, match=said):
            training.train(other, competition, out, show=quiet)

    table.write_text(rows)
    begun = training.train(moved, competition, out, max_steps=1, fresh=True, show=quiet)
    assert begun.status == "partial"
    assert (out / "checkpoints-set-aside-1" / "step-00000001").is_dir()
    assert (out / "checkpoints-set-aside-1" / "progress.jsonl").read_bytes() == told


def test_a_batch_that_does_not_split_is_refused_with_one_that_does(competition, tiny, tmp_path):
    """Before anything is read or written."""
    with pytest.raises(ConfigError, match="Set batch to 16 or 24"):
        training.train(replace(tiny, batch=20), competition, tmp_path / "out", show=quiet)

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("epochs", [60, 1], ids=["loss", "after the last step"])
def test_numbers_that_are_not_finite_stop_the_run_and_are_not_saved(
    competition, tiny, tmp_path, epochs
):
    """Wherever they appear first. Decay times rate above 2 makes weights grow."""
    changes = {"name": "sgd", "base_rate": 99.0, "weight_decay": 9.0, "base_batch": 16}
    given = replace(tiny.optimizer, **changes)
    wild = replace(tiny, optimizer=given, warmup_epochs=0, epochs=epochs, checkpoint_seconds=0)

    with pytest.raises(DivergedError, match="base_rate=99, applied") as caught:
        training.train(wild, competition, tmp_path / "out", show=quiet)

    assert caught.value.exit_code == 1 and "--fresh" in str(caught.value)
    assert not (tmp_path / "out" / "artifact").exists()
    kept = checkpoint.latest(tmp_path / "out" / "checkpoints")
    assert kept is not None
    assert all(np.isfinite(array).all() for array in kept.arrays.values())


@pytest.mark.parametrize("average", [{"ema_momentum": 0.9999}, {"swa_start": 0.75}])
def test_inference_uses_the_averaged_weights(competition, tiny, tmp_path, average):
    """The artifact holds the average, of BatchNorm's statistics too; the checkpoint holds both."""
    config = replace(tiny, optimizer=replace(tiny.optimizer, **average))

    run = training.train(config, competition, tmp_path / "out", show=quiet)

    state = checkpoint.latest(tmp_path / "out" / "checkpoints")
    assert state is not None
    weights = artifact.load(tmp_path / "out" / "artifact").weights
    for name in weights:
        assert np.array_equal(weights[name], state.arrays[f"ema/{name}"])
    kernel = "2.0 logits/kernel"
    assert not np.array_equal(weights[kernel], state.arrays[f"params/{kernel}"])
    # 44 steps at 0.9998 would leave it at its random beginning.
    assert run.manifest is not None
    assert run.manifest["metrics"]["validation_accuracy"] == 1.0


def test_a_run_keeps_time_for_the_steps_under_way_and_for_a_validation(
    competition, tiny, tmp_path, monkeypatch
):
    """Five steps may lie between the last check of the clock and the checkpoint."""
    kept = []

    class Watched(training.Session):
        def over(self, reserve):
            kept.append(reserve)
            return super().over(reserve)

    def slowly(work, seconds):
        return lambda *given: (time.sleep(seconds), work(*given))[1]

    monkeypatch.setattr(training, "Session", Watched)
    monkeypatch.setattr(TrainStep, "train", slowly(TrainStep.train, 0.1))
    monkeypatch.setattr(Loop, "_validate", slowly(Loop._validate, 0.5))

    training.train(replace(tiny, epochs=2), competition, tmp_path / "out", show=quiet)

    assert kept[3] >= 5 * 0.1
    assert max(kept) >= 5 * 0.1 + 0.5


def test_an_evaluation_runs_ahead_but_never_by_33_calls(tiny, tmp_path, monkeypatch):
    """Several devices of one CPU would wait for each other for ever (docs/dev/findings.md)."""
    flying, most = [], []
    init = TrainStep.__init__

    @jax.jit
    def slow(images):
        begin = images.astype("float32")
        return jax.lax.fori_loop(0, 2000, lambda _, x: jax.numpy.sin(x), begin).sum()

    def evaluate(trainable, other, images, labels, real):
        flying.append(slow(images))
        most.append(sum(not value.is_ready() for value in flying))
        return flying[-1], flying[-1], None

    def with_slow_evaluation(self, *given):
        init(self, *given)
        self.evaluate = evaluate

    monkeypatch.setattr(TrainStep, "__init__", with_slow_evaluation)
    folder = write_competition(tmp_path / "competition", train=320)
    config = replace(tiny, batch=8, data=replace(tiny.data, validation_fraction=0.9))

    training.train(config, folder, tmp_path / "out", show=quiet, max_steps=6)

    assert len(flying) > 33 and 1 < max(most) <= EVALUATIONS + 1


@pytest.mark.parametrize(("keep", "epoch"), [("last", 3), ("best", 1)])
def test_patience_and_keep_follow_the_competition_s_metric(
    competition, tiny, tmp_path, monkeypatch, keep, epoch
):
    """The first epoch is the best one by it here, and the worst by loss and accuracy; two others
    without a better one are enough.
    """
    losses, validate = iter([0.3, 0.2, 0.1]), Loop._validate

    def made(loop, progress):
        loss, measured = next(losses), validate(loop, progress)
        assert list(measured) == ["validation_loss", "validation_accuracy", "validation_f1"]
        assert 0 <= measured["validation_f1"] <= 1
        return dict(zip(measured, (loss, 1 - loss, loss), strict=True))

    monkeypatch.setattr(Loop, "_validate", made)
    config = replace(tiny, epochs=6, keep=keep, patience=2, metric="f1")

    run = training.train(config, competition, tmp_path / "out", show=quiet)

    rows, kept = history(tmp_path / "out"), artifact.load(tmp_path / "out" / "artifact").weights
    state = checkpoint.latest(tmp_path / "out" / "checkpoints")
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert run.manifest is not None and state is not None
    metrics, kernel = run.manifest["metrics"], "2.0 logits/kernel"
    assert metrics["validation_loss"] == pytest.approx((4 - epoch) / 10)
    assert metrics["loss"] == pytest.approx(rows[epoch - 1]["loss"], rel=1e-5)
    same = np.array_equal(kept[kernel], state.arrays[f"params/{kernel}"])
    assert same == (keep == "last")
    assert state.details["best"]["epoch"] == 1
    again = training.train(config, competition, tmp_path / "out", show=quiet)
    assert again.manifest["metrics"] == metrics  # and no further epoch
    assert again.manifest["weights_sha256"] == run.manifest["weights_sha256"]  # which bundles pin
    if keep == "best":
        other = replace(config, metric="accuracy")  # which may change otherwise
        with pytest.raises(CheckpointError, match=r"chosen by f1, not by accuracy"):
            training.train(other, competition, tmp_path / "out", show=quiet)


def test_a_run_learns_from_the_rows_that_have_weights_alone(competition, tiny, tmp_path):
    """From the config to the last step. Here only the rows of one label count."""
    weights = {"10": 0.0, "9": 0.0, "A b": 0.0}
    config = replace(tiny, class_weights=weights, epochs=4, warmup_epochs=0)

    training.train(config, competition, tmp_path, show=quiet)

    rows = pd.read_csv(tmp_path / "validation.csv")
    right, counted = rows["prediction"] == rows["label"], rows["label"] == "ß"
    assert right[counted].all() and right[~counted].mean() < 0.5  # without weights all are right
