"""The noise scale is that of the problem, and the gradients are those of the training."""

import json
import math
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from pipeline.data import dataset
from pipeline.errors import CheckpointError, ConfigError
from pipeline.runtime import replicas
from pipeline.training import gradient_noise, learning_rate, training
from pipeline.training.gradient_noise import Noise
from pipeline.training.loop import Loop
from tests.pipeline.one_ulp import TIMES
from tests.pipeline.rounding import EPS


@pytest.mark.parametrize("sigma", [0.5, 4.0])
@pytest.mark.parametrize("sizes", [(1, 16), (8, 64)])
def test_the_scale_of_a_linear_regression_is_the_one_on_paper(sigma, sizes):
    """x of N(0, 1) in d dimensions, noise of sigma: |G|^2 = |off|^2 and tr(Sigma) = (d + 1) |off|^2
    + d sigma^2.
    """
    dimensions, steps = 20, 400
    random = np.random.default_rng(3)
    off = random.normal(size=dimensions)  # how far the weights are from the true ones
    small, large = sizes

    def squares() -> tuple[float, float]:
        x = random.normal(size=(large, dimensions))
        gradients = x * (x @ off - sigma * random.normal(size=large))[:, None]
        groups = gradients.reshape(-1, small, dimensions).mean(axis=1)
        return float((groups**2).sum(axis=1).mean()), float((gradients.mean(axis=0) ** 2).sum())

    found = gradient_noise.estimate(small, large, [squares() for _ in range(steps)])

    expected = dimensions + 1 + dimensions * sigma**2 / (off @ off)
    assert found.scale == pytest.approx(expected, rel=0.3)
    assert found.signal == pytest.approx(off @ off, rel=0.3)


def test_the_means_are_taken_before_the_ratio():
    """A step whose |G|^2 comes out near 0 or below does not decide."""
    steps = [(5.0, 2.0), (5.0, 1.25), (5.0, 1.0)]  # |G|^2 of 1, 0, -1/3

    assert gradient_noise.estimate(1, 4, steps).scale == pytest.approx(
        (4 + 5 + 16 / 3) / (1 - 1 / 3)
    )


@pytest.mark.parametrize(
    ("signal", "spread", "scale"),
    [(0.0, 3.0, math.inf), (-1.0, 3.0, math.inf), (1.0, -3.0, 0.0), (0.0, 0.0, 0.0)],
)
def test_what_was_not_seen_is_no_number_with_a_wrong_sign(signal, spread, scale):
    found = Noise(8, 64, 50, signal, spread)

    assert found.scale == scale
    assert found.to_json()["scale"] == (None if math.isinf(scale) else scale)


@pytest.mark.parametrize(
    ("small", "large", "squares"), [(4, 4, [(1, 1)]), (0, 4, [(1, 1)]), (1, 4, [])]
)
def test_sizes_that_tell_nothing_are_refused(small, large, squares):
    with pytest.raises(ValueError, match="1 <= small < large"):
        gradient_noise.estimate(small, large, squares)


@pytest.mark.parametrize(
    ("batch", "unit", "scale", "best", "said"),
    [
        (
            2048,
            32,
            300.0,
            256,
            "past the noise scale of about 300: more than 300 images a step buy little;"
            " take batch 256",
        ),
        (256, 32, 300.0, 256, "within the noise scale"),
        (256, 32, math.inf, 256, "within"),
        (256, 32, 10.0, 32, "take batch 32"),
        (32, 32, 10.0, 32, "32 is the smallest batch that was asked for"),
    ],
)
def test_a_batch_past_the_scale_is_capped_with_the_reason(batch, unit, scale, best, said):
    found = Noise(
        8,
        64,
        50,
        signal=0.0 if math.isinf(scale) else 1.0,
        spread=1.0 if math.isinf(scale) else scale,
    )

    taken, reason = gradient_noise.advised(found, batch, unit)

    assert taken == best
    assert said in reason


def test_the_squares_are_those_of_the_gradients_that_training_applies(trained, tiny, tmp_path):
    """Plain SGD moves the weights by rate x gradient, so a step of the batch, and one of each
    group, show them.
    """
    plain = replace(
        tiny,
        batch=32,
        batchnorm_batch=8,
        warmup_epochs=0,
        model_options={"width": 4, "depth": 1, "dropout": 0.0},
        optimizer=replace(tiny.optimizer, name="sgd", base_rate=0.1, base_batch=32, momentum=0.0),
    )
    images = training.read(plain, trained[0])

    def loop(batch: int) -> Loop:
        config = replace(plain, batch=batch, optimizer=replace(plain.optimizer, base_batch=batch))
        batches = dataset.Batches(images.inputs, images.labels, batch=batch, seed=0)
        held = (images.inputs[:8], images.labels[:8])
        applied = learning_rate.apply(config, len(images))
        return Loop(config, applied, batches, held, tmp_path, print, {})

    def still(number: int) -> np.ndarray:
        """Return draws that move no image."""
        return np.tile(np.array([plain.data.crop_padding] * 2 + [0], np.int32), (number, 1))

    def moved(run: Loop, pixels: np.ndarray, labels: np.ndarray) -> float:
        before = [np.asarray(value) for value in run.state.tree[0]]
        kept = jax.tree.map(
            lambda leaf: leaf.copy(), run.state.tree
        )  # a step takes the memory of what it is given
        placed = replicas.put(
            run.compiled.mesh, pixels[None], labels[None], still(len(pixels))[None], axis=1
        )
        after, _ = run.compiled.train(kept, (), placed, 1)
        pairs = zip(before, after[0], strict=True)
        return sum(float(((a - np.asarray(b)) ** 2).sum()) for a, b in pairs) / 0.1**2

    whole, group = loop(32), loop(8)
    group.state = group.state.restored(whole.state.arrays())
    pixels, labels = whole.batches.at(0)

    of_small, of_large = whole.compiled.squares(whole.state.tree, (pixels, labels, still(32)))

    groups = [
        moved(group, pixels[start : start + 8], labels[start : start + 8])
        for start in range(0, 32, 8)
    ]
    # A weight that moved is rounded, which changes its square by as much as each other number near.
    weights = [np.asarray(value) for value in whole.state.tree[0]]
    norm = math.sqrt(sum(float((value.astype(float) ** 2).sum()) for value in weights)) / 0.1
    bound = TIMES * EPS * (1 + norm / math.sqrt(of_large))
    assert bound < 0.05
    assert of_small == pytest.approx(np.mean(groups), rel=bound)
    assert of_large == pytest.approx(moved(whole, pixels, labels), rel=bound)
    assert of_small > of_large > 0


def test_a_batch_of_one_group_is_refused(trained, tiny):
    config = replace(tiny, batch=8)

    with pytest.raises(ConfigError, match="one group of BatchNorm"):
        gradient_noise.measure(config, training.read(config, trained[0]))


def test_measuring_is_repeatable_and_writes_nothing(trained, tiny, tmp_path, monkeypatch):
    """The same steps and batches, whatever ran before."""
    monkeypatch.chdir(tmp_path)
    images = training.read(tiny, trained[0])

    first, again, others = (
        gradient_noise.measure(tiny, images, steps=3, seeds=seeds) for seeds in ((), (), (7, 8))
    )

    assert first == again
    assert (first.small, first.large, first.steps, others.steps) == (8, 16, 3, 6)
    assert others != first
    assert not list(Path(tmp_path).iterdir())


def test_a_run_that_asks_for_it_takes_the_batch_that_the_noise_allows_in_every_session(
    tiny, competition, tmp_path
):
    capped = replace(
        tiny, batch=64, noise_cap=True, epochs=2, optimizer=replace(tiny.optimizer, base_batch=8)
    )
    told: list[str] = []

    assert (
        training.train(capped, competition, tmp_path, max_steps=1, show=told.append).status
        == "partial"
    )
    found = json.loads((tmp_path / "noise.json").read_text())
    assert found["batch"] in (8, 16, 32)
    assert found["reason"] == told[0]

    done = training.train(capped, competition, tmp_path, show=told.append)
    assert told.count(found["reason"]) == 2
    assert (done.status, done.applied.batch) == ("complete", found["batch"])
    assert done.manifest["config"]["batch"] == found["batch"]


def test_a_run_that_does_not_ask_keeps_its_batch_and_measures_nothing(tiny, tmp_path):
    assert gradient_noise.capped(tiny, None, tmp_path, 1, fresh=False, show=print) is tiny
    assert not list(tmp_path.iterdir())


def test_a_file_of_something_else_is_not_taken_for_the_measurement(tiny, tmp_path):
    (tmp_path / "noise.json").write_text('{"batch": 64}')

    with pytest.raises(
        CheckpointError, match=r"noise\.json could not be read: KeyError.*\n.*--fresh"
    ):
        gradient_noise.capped(
            replace(tiny, noise_cap=True), None, tmp_path, 1, fresh=False, show=print
        )


def test_the_batch_that_a_run_began_with_stays_or_is_refused(tiny, tmp_path):
    """A run may resume on more devices than it began on."""
    config = replace(tiny, noise_cap=True)
    kept = {"config": config.to_json(), "batch": 12, "reason": "Take batch 12.", "noise": {}}
    (tmp_path / "noise.json").write_text(json.dumps(kept))

    assert gradient_noise.capped(config, None, tmp_path, 4, fresh=False, show=str).batch == 12
    with pytest.raises(
        CheckpointError, match=r"batch=12, which the run began with; .* over 8 replicas.\n.*--fresh"
    ):
        gradient_noise.capped(config, None, tmp_path, 8, fresh=False, show=str)
    with pytest.raises(
        CheckpointError, match=r"of another run; changed since: seed: 0 then, 1 now.\n.*--fresh"
    ):
        gradient_noise.capped(replace(config, seed=1), None, tmp_path, 4, fresh=False, show=str)
    assert json.loads((tmp_path / "noise.json").read_text()) == kept
