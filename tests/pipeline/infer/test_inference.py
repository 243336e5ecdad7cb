"""An artifact gives the same predictions everywhere, or it is refused."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from pipeline import artifact
from pipeline.data import image_files
from pipeline.data.dataset import read_test
from pipeline.errors import ArtifactError, ConfigError, DataError, DeviceError
from pipeline.infer import check, forward_pass, inference
from pipeline.infer.inference import Predictions
from pipeline.runtime import devices
from tests.pipeline import members
from tests.pipeline.one_ulp import SEEDS, TIMES, nudged
from tests.pipeline.rounding import EPS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def loaded(trained) -> artifact.Artifact:
    """Return the artifact of the run that is trained once for many tests."""
    return artifact.load(trained[1] / "artifact")


def truth(ids: Sequence[str]) -> list[str]:
    """Return the label of each test image, which its id tells."""
    return [("10", "9", "A b", "ß")[int(name[1:]) % 4] for name in ids]


@pytest.fixture(scope="module")
def bound(trained, loaded) -> float:
    """Return how far a prediction may be from that of a program that adds in another order."""
    weights = [loaded.weights, *(nudged(loaded.weights, seed) for seed in SEEDS)]
    config = replace(loaded.config, folds=len(weights))
    folds = replace(loaded, config=config, weights=artifact.joined(weights))
    pixels = read_test(trained[0], loaded.config).inputs(np.arange(21))
    outputs = check.restore(folds)[0].outputs(pixels)
    whole, *others = (loaded.target.predictions(one) for one in outputs)
    return TIMES * (max(float(np.abs(other - whole).max()) for other in others) + EPS)


def predicted(folder: Path, loaded: artifact.Artifact, batch: int = 0) -> Predictions:
    """Return the predictions of the test set in `folder`."""
    forward = check.restore(loaded, "float32")[0]
    forward.batch = batch or forward.batch
    return inference.predict(loaded, read_test(folder, loaded.config), forward)


@pytest.mark.parametrize("batch", [3, 64])
def test_the_batch_changes_no_prediction(trained, loaded, bound, batch):
    """The padding of the last batch has no effect, and each of 21 rows keeps its place."""
    whole = predicted(trained[0], loaded)

    found = predicted(trained[0], loaded, batch)

    assert found.values == pytest.approx(whole.values, abs=bound)
    assert list(found.labels) == truth(found.ids)
    assert found.values.sum(axis=1) == pytest.approx(1, abs=TIMES * EPS)
    assert (len(found.ids), found.broken, found.left_out) == (21, {}, 0)


@pytest.fixture
def float16():
    """Skip where XLA cannot compile it for this CPU."""
    try:
        jax.jit(lambda number: number.astype("float16") / 3)(np.ones(3, np.float32))
    except jax.errors.JaxRuntimeError:
        pytest.skip("XLA cannot compile float16 for this CPU")


# -- what cannot be read


def rows(path: Path) -> dict[str, str]:
    """Return the labels of a submission by id."""
    return dict(line.split(",") for line in path.read_text().splitlines()[1:])


def test_a_test_image_that_is_missing_or_broken_gets_the_mean_prediction(
    trained, loaded, competition, tmp_path
):
    """It is reported, and every other image gets its own prediction."""
    lines: list[str] = []
    (competition / "test" / "e004.png").unlink()
    (competition / "test" / "e007.png").write_bytes(b"<html>")

    found = inference.infer(loaded, competition, tmp_path / "out", show=lines.append)

    usual = loaded.target.best(loaded.prior[None])[0]
    broken = {"e004": "it is missing", "e007": "it is text, not an image: '<html>'"}
    assert dict(found.broken) == broken
    assert all(np.array_equal(found.values[found.ids.index(name)], loaded.prior) for name in broken)
    (said,) = (line for line in lines if line.startswith("Warning"))
    assert "2 of 21 inputs cannot be read" in said and "'e004': it is missing" in said
    wanted = dict(zip(found.ids, truth(found.ids), strict=True))
    assert rows(tmp_path / "out" / "submission.csv") == wanted | dict.fromkeys(broken, usual)


def test_more_than_one_in_ten_broken_test_images_are_refused(
    loaded, competition, tmp_path, monkeypatch
):
    """Except in the scored rerun, where nobody can fix them."""
    infer = partial(inference.infer, loaded, competition, tmp_path / "out", show=str)
    broken = {"e001", "e002", "e003"}
    for name in broken:
        (competition / "test" / f"{name}.png").write_bytes(b"")

    with pytest.raises(DataError, match=r"3 of 21 images cannot be used: 'e0.*it is empty"):
        infer()
    mean = loaded.target.best(loaded.prior[None])
    assert set(rows(tmp_path / "out" / "submission.csv").values()) == set(mean)

    monkeypatch.setenv(image_files.RERUN, "1")
    assert set(infer().broken) == broken


def test_an_older_submission_survives_an_inference_that_fails(loaded, competition, tmp_path):
    """An unreadable test set once replaced a good file by the mean prediction."""
    lines, older = list[str](), tmp_path / "submission.csv"
    for path in (competition / "test").iterdir():
        path.write_bytes(b"<html>")
    older.write_text("yesterday's")

    with pytest.raises(DataError, match="21 images cannot be used"):
        inference.infer(loaded, competition, tmp_path, show=lines.append)

    assert older.read_text() == "yesterday's"
    assert lines[-1] == f"Warning: {older} is unchanged."


def test_identical_predictions_cause_a_warning(loaded, competition, tmp_path):
    lines: list[str] = []
    for path in (competition / "test").iterdir():
        shutil.copyfile(competition / "train" / "r000.png", path)

    inference.infer(loaded, competition, tmp_path, show=lines.append)

    (warning,) = [line for line in lines if line.startswith("Warning")]
    assert "all 21 rows have the same prediction" in warning


# -- time


@pytest.fixture
def three(loaded, monkeypatch) -> tuple[artifact.Artifact, members.Clock]:
    """Return an artifact of three folds, all of them the trained model, two views, and the clock
    that its predictions move, in six blocks.
    """
    config = replace(loaded.config, folds=3, views=2)
    made = replace(loaded, config=config, weights=artifact.joined(members.alike(loaded.weights, 3)))
    return made, members.Clock(monkeypatch, 4)


@pytest.mark.parametrize(
    ("seconds", "told", "left"),
    [
        (30, ["1 of 2 views from row 4 on"], 0),
        (9, ["1 of 2 views from row 4 on", "rows have the mean prediction"], 17),
        (0, ["rows have the mean prediction"], 21),
    ],
)
def test_where_time_is_short_views_are_left_out_and_then_rows(
    three, trained, tmp_path, seconds, told, left
):
    """Within the time, and with a submission for every id."""
    loaded, clock = three
    lines: list[str] = []
    end = clock.now + 3 + seconds  # the golden inputs are computed first
    short = replace(loaded.config, session_hours=(seconds + 3) / 3600)

    found = inference.infer(loaded, trained[0], tmp_path, config=short, show=lines.append)

    assert clock.now <= end and found.left_out == left
    assert all(any(said in line for line in lines) for said in told)
    assert any("Warning" in line for line in lines) == bool(left)
    assert (found.values[21 - left :] == loaded.prior).all()
    assert list(found.labels[: 21 - left]) == truth(found.ids)[: 21 - left]
    assert rows(tmp_path / "submission.csv") == dict(zip(found.ids, found.labels, strict=True))


def test_a_long_inference_shows_how_far_it_is_and_what_is_left(three, trained, tmp_path):
    """At most every `progress_seconds`, and not for the last rows."""
    loaded, _ = three
    lines: list[str] = []

    for seconds in (0, 3600):
        config = replace(loaded.config, progress_seconds=seconds)
        inference.infer(loaded, trained[0], tmp_path, config=config, show=lines.append)

    shown = [line for line in lines if line.startswith("Predicted")]
    assert [line.split(" images")[0] for line in shown] == [
        f"Predicted {done} of 21" for done in range(4, 21, 4)
    ]
    assert shown[2] == "Predicted 12 of 21 images, 0:00:13 to go"


# -- several views of an image


def test_views_are_averaged_and_each_is_what_training_may_have_seen(trained, loaded, tmp_path):
    """The unchanged image first, then moved ones, since this training moved its images and mirrored
    none. Today's config sets their number.
    """
    models, test = check.restore(loaded)[0], read_test(trained[0], loaded.config)
    pixels = test.inputs(np.arange(21))
    moved = np.zeros_like(pixels)
    moved[:, 1:] = pixels[:, :-1]
    one, other = (
        forward_pass.mean_of_folds(loaded, models.outputs(images)) for images in (pixels, moved)
    )
    data = replace(loaded.config.data, flip=True)

    infer = partial(inference.infer, loaded, trained[0], tmp_path, show=str)
    found = infer(config=replace(loaded.config, views=2, data=data))

    assert found.values == pytest.approx((one + other) / 2, abs=8 * EPS)
    assert np.abs(one - other).max() > 100 * EPS
    with pytest.raises(ConfigError, match="views=10 is invalid: expected at most 5"):
        infer(config=replace(loaded.config, views=10, data=data))


# -- several devices


def test_devices_share_the_rows(trained, loaded, bound, monkeypatch):
    """Each computes whole batches, the last one with fewer rows."""
    whole, used = predicted(trained[0], loaded), []
    compute = forward_pass.Forward._outputs

    def noted(forward, device, batch):
        used.append(device)
        return compute(forward, device, batch)

    monkeypatch.setattr(forward_pass.Forward, "_outputs", noted)
    monkeypatch.setattr(forward_pass, "device_names", lambda: ["cpu:0", "cpu:1", "cpu:2"])
    found = predicted(trained[0], loaded, batch=4)

    assert found.values == pytest.approx(whole.values, abs=bound)
    assert sorted(used[1:]) == ["cpu:0"] * 2 + ["cpu:1"] * 2 + ["cpu:2"] * 2  # after golden inputs


ON_TWO = """
import sys
from pathlib import Path

import tensorflow as tf
from pipeline import artifact
from pipeline.infer import forward_pass, inference

half, cpu = tf.config.LogicalDeviceConfiguration(), tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu[0], [half, half])
forward_pass.device_names, forward_pass.MOST_ROWS = lambda: ["cpu:0", "cpu:1"], 4
folder, competition = map(Path, sys.argv[1:])
print(*inference.infer(artifact.load(folder), competition, Path("out"), show=str).labels, sep="|")
"""


@pytest.mark.slow
def test_devices_of_tensorflow_share_the_rows(trained, tmp_path):
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'guard'}"
    environment = os.environ | {"KERAS_BACKEND": "tensorflow", "PYTHONPATH": path}
    words = [sys.executable, "-c", ON_TWO, trained[1] / "artifact", trained[0]]

    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    ids = read_test(trained[0], artifact.load(trained[1] / "artifact").config).ids
    assert done.stdout.strip().split("|") == truth(ids)


def test_a_device_without_room_for_the_first_batch_gets_smaller_ones_from_the_golden_inputs_on(
    trained, loaded, tmp_path, monkeypatch
):
    """If not even one row fits, a message reports it."""
    room, compiled = [8], forward_pass._compiled

    def small(model):
        call = compiled(model)

        def fits(weights, inputs):
            if len(inputs) > room[0]:
                raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")
            return call(weights, inputs)

        return fits

    monkeypatch.setattr(forward_pass, "_compiled", small)

    found = inference.infer(loaded, trained[0], tmp_path, show=str)
    room[0] = 0

    assert truth(found.ids) == list(found.labels)
    with pytest.raises(DeviceError, match="Not even a single row fits"):
        check.restore(loaded)


def on_a_gpu(monkeypatch):
    here = replace(devices.found(), platform="gpu")
    monkeypatch.setattr(check.devices, "found", lambda: here)


def test_a_gpu_computes_in_float16_if_the_golden_outputs_agree(
    trained, loaded, monkeypatch, float16
):
    """A CPU, which has no fast float16, does not."""
    lines: list[str] = []
    assert check.restore(loaded)[1].precision == "float32"

    on_a_gpu(monkeypatch)
    checked = check.restore(loaded, show=lines.append)[1]
    swapped = replace(loaded, golden_outputs=loaded.golden_outputs[::-1])
    with pytest.raises(ArtifactError, match="in float32"):
        check.restore(swapped, show=lines.append)

    assert checked.precision == "mixed_float16"
    assert 0 < checked.difference < checked.tolerance
    assert len(lines) == 1 and "Using float32" in lines[0]


@pytest.mark.parametrize(("every", "in_time"), [(2, True), (21, False)])
def test_what_is_too_large_for_float16_is_computed_in_float32(
    trained, loaded, tmp_path, monkeypatch, float16, every, in_time
):
    """If there is no time for that, the other rows keep their predictions."""
    on_a_gpu(monkeypatch)
    wanted, passes = predicted(trained[0], loaded), []
    mean, restore, predict = forward_pass.mean_of_folds, check.restore, inference.predict

    def overflowing(given, found):
        values = mean(given, found)
        if passes == ["mixed_float16"] and len(values) > len(loaded.golden_inputs):
            values[::every] = np.nan
        return values

    def restored(*given, **words):
        forward, checked = restore(*given, **words)
        passes.append(checked.precision)
        return forward, checked

    def predicted_late(*given, **words):
        late = not in_time and len(passes) == 2
        return predict(*given, **words | ({"end": 0.0} if late else {}))

    monkeypatch.setattr(check, "restore", restored)
    monkeypatch.setattr(forward_pass, "mean_of_folds", overflowing)
    monkeypatch.setattr(inference, "predict", predicted_late)
    found = inference.infer(loaded, trained[0], tmp_path, show=str)

    assert passes == ["mixed_float16", "float32"] and found.left_out == 0
    strange = [wanted.ids.index(name) for name in found.broken]
    assert bool(strange) != in_time and len(strange) <= 2
    others = np.delete(np.arange(21), strange)
    assert np.abs(found.values[others] - wanted.values[others]).max() <= (0 if in_time else 0.02)
    assert (found.values[strange] == loaded.prior).all()


@pytest.mark.parametrize(
    "altered", [lambda golden: golden[:, ::-1], lambda golden: golden * np.nan]
)
def test_a_model_with_outputs_different_from_training_is_refused(loaded, altered):
    """Weights and hashes agree, and still the outputs differ, or the difference is not a number:
    other code, or a library with a fault.
    """
    altered = replace(loaded, golden_outputs=altered(loaded.golden_outputs))

    with pytest.raises(ArtifactError, match="outputs on 8 golden inputs differ"):
        check.restore(altered)[0]
