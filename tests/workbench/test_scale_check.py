"""The check of the learning rate, and that it can fail."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pipeline.data.dataset import Examples
from pipeline.data.labels import Target
from pipeline.errors import ConfigError
from pipeline.train import learning_rate, training
from tests.shipped import shipped
from workbench import loss_curves, scale_check
from workbench.__main__ import main
from workbench.loss_curves import Compared

EPOCHS = 20


def curves(
    *, late: float = 0.0, noise: float = 0.01, seed: int = 0, times: float = 1.0
) -> np.ndarray:
    """Return losses (3, 20) that fall as exp(-epoch / 5), late or stretched, with seed noise."""
    epochs = np.arange(1, EPOCHS + 1)
    return (
        np.exp(-(epochs / times - late) / 5)
        + noise * np.random.default_rng(seed).normal(size=(3, EPOCHS)) / 10
    )


def test_variants_that_differ_only_by_noise_mostly_hold():
    """The means of three seeds differ by 0.8 s.d.; over 17 independent epochs the largest gap is
    below 2 s.d. in four of five checks.
    """
    holds = [
        loss_curves.compare(curves(seed=seed), curves(seed=seed + 1000), 3).holds
        for seed in range(200)
    ]

    assert 0.7 < np.mean(holds) < 0.9


LATER_IN_ONE = (np.arange(3)[:, None] == 1) & (np.arange(EPOCHS) >= 9)
DIVERGED = np.where(LATER_IN_ONE, math.nan, curves(seed=1))


@pytest.mark.parametrize(
    "other",
    [curves(late=2.0, seed=1), curves(late=-2.0, seed=1), curves(times=8.0, seed=1), DIVERGED],
    ids=["late", "early", "slow", "diverged"],
)
def test_a_different_curve_does_not_hold(other):
    assert not loss_curves.compare(curves(), other, 3).holds
    assert not loss_curves.compare(other, curves(), 3).holds


def test_the_gap_is_in_pooled_deviations_and_keeps_its_sign_and_epoch():
    """Two seeds at ±d have an s.d. of d sqrt(2) at every epoch."""
    fall = np.linspace(2, 1, 10)
    base = np.array([fall - 0.1, fall + 0.1])
    other = base.copy()
    other[:, 6] -= 0.3

    found = loss_curves.compare(base, other, 2)

    assert found.gap == pytest.approx(-0.3 / (0.1 * math.sqrt(2)))
    assert found.epoch == 7
    assert found.spread == pytest.approx(1)


GOOD, BAD = Compared(0.5, 9, 1.0, 1.0), Compared(40.0, 9, math.inf, 1.0)


@pytest.mark.parametrize(
    ("scaled", "unscaled", "said"),
    [
        (
            GOOD,
            BAD,
            "Passed: the linear rule works for scaling the learning rate from batch 32",
        ),
        (GOOD, GOOD, "is inconclusive"),
        (BAD, BAD, "To check half this batch, use --batch 16"),
        (replace(GOOD, gap=-2.5), BAD, "2.5 s.d. better than the base"),
        (replace(GOOD, gap=-2.5, spread=4.0), BAD, "does not work for scaling the learning rate"),
    ],
)
def test_a_check_passes_only_if_it_could_have_failed(scaled, unscaled, said):
    digits = shipped("digits")
    optimizer = replace(digits.optimizer, name="sgd", base_batch=32)
    config = replace(digits, batch=256, optimizer=optimizer)

    outcome = scale_check.judged(config, 32, scaled, unscaled)

    assert said in outcome["advice"]
    assert outcome["passed"] is (scaled == GOOD and unscaled == BAD)
    assert json.loads(json.dumps(outcome, allow_nan=False)) == outcome
    assert ("never" in "".join(scale_check.lines(outcome))) == (BAD in (scaled, unscaled))


def test_a_config_is_checked_at_the_batch_that_it_scales_to():
    """Or at 8 times the batch if it scales nothing."""
    sgd = shipped("digits_sgd")  # tuned at 8

    assert [scale_check.times(replace(sgd, batch=batch)) for batch in (32, 20, 8)] == [4, 2, 8]


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_unscaled_variant_has_the_base_numbers_at_the_large_batch(name):
    digits = shipped("digits")
    more = {"name": name, "base_batch": 32, "ema_momentum": 0.99, "weight_decay": 1e-3}
    config = replace(digits, optimizer=replace(digits.optimizer, **more), folds=5, micro_batch=8)
    asked = replace(config, batch=256, batchnorm_batch=None)
    arms = scale_check.variants(asked, 16, 1000)

    applied = {arm: learning_rate.apply(config, 1000) for arm, config in arms.items()}
    same = (
        "peak_rate", "momentum", "beta_1", "beta_2", "epsilon", "weight_decay", "ema_momentum",
        "batchnorm_momentum", "batchnorm_batch",
    )  # fmt: skip
    assert [arms[arm].batch for arm in ("base", "scaled", "unscaled")] == [16, 128, 128]
    unscaled, base = ([getattr(applied[arm], one) for one in same] for arm in ("unscaled", "base"))
    assert unscaled == pytest.approx(base)
    assert applied["scaled"].peak_rate > 2 * applied["base"].peak_rate
    assert applied["unscaled"].total_steps == applied["scaled"].total_steps


IMAGES = Examples(
    ("a",), np.zeros((1, 8, 8, 1), np.uint8), np.zeros(1, np.int32), Target("classes", ("x", "y"))
)


def test_a_stopped_run_does_not_count_as_diverged(tiny, tmp_path, monkeypatch):
    """Its missing epochs would stay infinite losses."""
    stopped = training.Trained("partial", None, {})
    monkeypatch.setattr(training, "train", lambda *given, **more: stopped)

    with pytest.raises(KeyboardInterrupt):
        scale_check._trained(tiny, tmp_path, tmp_path, IMAGES, print)

    assert not (tmp_path / "losses.json").exists()


@pytest.mark.parametrize("text", ['{"origin": {', "{}"])
def test_corrupt_losses_are_refused_by_name(tiny, tmp_path, text):
    """They once ended every later check in a traceback."""
    (tmp_path / "losses.json").write_text(text)

    with pytest.raises(
        ConfigError, match=r"(?s)losses\.json is corrupt, or belongs to a check.*remove"
    ):
        scale_check._trained(tiny, tmp_path, tmp_path, IMAGES, str)


@pytest.fixture
def swept(trained, tiny, written_config, tmp_path, capsys):
    """Return a function that sweeps and returns exit code and output."""

    def sweep(base_rate: float):
        optimizer = replace(tiny.optimizer, name="sgd", base_rate=base_rate)
        short = replace(
            tiny, epochs=4, model="mlp", model_options={"width": 8, "depth": 4}, optimizer=optimizer
        )
        words = ["--config", written_config(short), "--input", trained[0], "--sweep", "--json"]
        code = main(["scale-check", *map(str, words), "--output", str(tmp_path / "sweep")])
        return code, capsys.readouterr()

    return sweep


def test_a_sweep_finds_the_best_of_five_rates_and_trains_each_once(swept, tmp_path, monkeypatch):
    """The smallest hardly learns, the largest diverges."""
    monkeypatch.setattr(scale_check, "RATES", (1e-6, 1e-4, 1.0, 100.0, 1900.0))

    code, first = swept(0.05)

    told = json.loads(first.out.splitlines()[-1])
    assert (code, told["base_rate"]) == (0, 0.05) and "base_rate=0.05 in the config" in first.out
    kept = json.loads((tmp_path / "sweep" / "rates.json").read_text())["tried"]
    assert kept[2]["rate"] == pytest.approx(0.1)  # at twice the base batch
    assert first.out.count(", 2 epochs") == 5  # of 4: no fewer than two
    losses = [one["validation_loss"] for one in kept]
    assert losses[-1] is None and "diverged" in first.out
    assert losses[0] > losses[2] < losses[1]
    assert (tmp_path / "sweep" / "rates.png").is_file()
    again_code, again = swept(0.05)  # complete runs are not trained again
    assert again_code == 0 and "in the last epoch" not in again.out
    assert "in the last epoch" in first.out
    assert json.loads(again.out.splitlines()[-1]) == told
    other_code, other = swept(0.06)
    assert other_code == 2 and "Use a different --output" in other.err


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([0.9, 0.5, 0.7], "Set base_rate=0.2 in the config"),
        ([0.4, 0.5, 0.7], "at the end of the range. Set base_rate=0.1 and sweep again"),
        ([0.9, 0.5, 0.3], "at the end of the range. Set base_rate=0.4 and sweep again"),
        ([math.nan, 0.5, math.nan], "Set base_rate=0.2 in the config"),
        ([math.nan] * 3, "All runs diverged. Set base_rate=0.01 and sweep again"),
    ],
)
def test_a_sweep_prints_the_rate_to_write_or_where_to_sweep_again(losses, said):
    rates = [0.1, 0.2, 0.4]
    tried = pd.DataFrame(
        {"base_rate": rates, "rate": rates, "loss": losses, "validation_loss": losses}
    )

    assert said in scale_check.rate_lines(tried, 64)[-1]


@pytest.mark.slow
def test_the_command_writes_curves_and_prints_the_result(
    trained, tiny, written_config, tmp_path, capsys, monkeypatch
):
    """Running it again trains nothing; a different config is refused."""
    monkeypatch.setattr(scale_check, "SEEDS", 2)
    # One layer, which compiles quickly.
    short = replace(tiny, epochs=2, model="mlp", model_options={"width": 8, "depth": 1})

    def run(config):
        words = ["--config", written_config(config), "--input", trained[0], "--json"]
        words += ["--output", tmp_path / "out"]
        code = main(["scale-check", *map(str, words)])
        return code, capsys.readouterr()

    code, first = run(short)
    again_code, again = run(short)
    other_code, other = run(replace(short, epochs=3))

    told = json.loads(first.out.splitlines()[-1])
    kept = json.loads((tmp_path / "out" / "scaling.json").read_text())
    assert code == again_code == (0 if told["passed"] else 1)
    assert kept["batches"] == {"base": 8, "scaled": 16, "unscaled": 16}
    assert np.array([*kept["losses"].values()], float).shape == (3, 2, 2)
    assert (tmp_path / "out" / "scaling.png").is_file()
    assert "in the last epoch" in first.out and "in the last epoch" not in again.out
    assert json.loads(again.out.splitlines()[-1]) == told
    assert other_code == 2 and "a different config" in other.err


@pytest.mark.parametrize(
    ("batch", "epochs", "said"),
    [
        ("64", 8, "Use --batch 40 or less"),
        ("9", 8, "Use --batch 8"),
        ("8", 1, "warmup_epochs=1 with epochs=1 leaves no epochs"),
    ],
)
def test_an_impossible_check_is_refused_before_nine_runs(
    trained, tiny, written_config, tmp_path, capsys, batch, epochs, said
):
    config = written_config(replace(tiny, epochs=epochs))
    words = ["--config", config, "--input", trained[0], "--batch", batch]
    words += ["--output", tmp_path / "out"]

    code = main(["scale-check", *map(str, words)])

    assert code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
