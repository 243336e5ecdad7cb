"""A short rehearsal changes amounts, never methods, and says so."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from pipeline.config import Config, rehearsal
from pipeline.errors import PipelineError
from pipeline.train import learning_rate, session
from tests.pipeline.models.test_published import SIZES, preset
from tests.shipped import shipped
from workbench.plan import probe
from workbench.rehearse import short_run

# Amounts, and random weights instead of published ones that sessions cannot download.
AMOUNTS = {
    *("batch", "batchnorm_batch", "micro_batch", "epochs", "warmup_epochs", "folds", "views"),
    *("data.height", "data.width", "optimizer.base_batch"),
    *("pretrained", "model_options.batchnorm"),
}


def large(config: Config) -> Config:
    """Return a config as for a TPU."""
    data = replace(config.data, height=224, width=224, channels=3, resize="crop")
    config = replace(config, model="wide_resnet", model_options={"k": 2, "n": 1, "kernel_size": 3})
    optimizer = replace(config.optimizer, base_batch=128)
    config = replace(config, batch=1024, batchnorm_batch=None, optimizer=optimizer, data=data)
    return replace(config, epochs=90, folds=5)


@pytest.fixture
def paced(monkeypatch) -> Callable[[float, float], None]:
    """Return a function that sets the time of first steps: seconds per image, and to compile."""

    def set_pace(image: float, compile_seconds: float) -> None:
        timed = lambda config: probe.Probed(image * config.batch, waits=0.0, setup=compile_seconds)  # noqa: E731
        monkeypatch.setattr(probe, "of_step", timed)
        monkeypatch.setattr(session, "age", lambda: 10.0)

    return set_pace


def planned(config: Config, rows: int, tests: int, budget: float) -> short_run.Plan:
    *_, last = short_run.plans(config, rows, tests, budget)
    return last


def test_a_run_that_fits_the_budget_is_rehearsed_whole(paced) -> None:
    """Otherwise it says what it leaves out."""
    digits = shipped("digits")
    paced(2e-4, 5.0)
    assert planned(digits, 957, 500, 120.0) == short_run.Plan()
    assert "raise --budget" in planned(digits, 957, 500, 30.0).lines[0]
    plan = planned(large(digits), 48_000, 10_000, 120.0)
    assert plan.changes["folds"] == 2
    assert "2 of 5 folds" in plan.lines[0] and "of 90 epochs" in plan.lines[0]
    assert "--full" in plan.lines[-1]


@pytest.mark.parametrize("image", [1e-5, 1e-3, 0.05])
def test_a_short_run_takes_the_time_that_is_left(paced, image) -> None:
    """A network that is twice as slow sees half as many images."""
    config = large(shipped("digits"))
    paced(image, 5.0)
    plan = planned(config, 10**6, 1000, 600.0)
    assert plan.train is not None
    images = plan.train * plan.changes.get("epochs", config.epochs)  # two folds, each on a half
    left = 0.75 * (600.0 - 10.0 - short_run.FIXED - 2 * 5.0)
    assert plan.train == short_run.FILES * 600 or 0.9 * left < 4 / 3 * images * image < 1.01 * left


def test_if_the_first_steps_take_too_long_the_least_is_done() -> None:
    """This comes before they are timed, and counts if their process is ended."""
    plan = next(short_run.plans(large(shipped("digits")), 48_000, 10_000, 120.0))
    assert (plan.train, plan.tests) == (short_run.LEAST_ROWS, short_run.LEAST_TESTS)
    assert plan.changes["epochs"] == 1 and plan.changes["batch"] == 32
    assert "uses the minimum amounts; to train more, raise --budget" in plan.lines[0]


@given(rows=some.integers(300, 10**6), seconds=some.floats(60, 3600), image=some.floats(1e-5, 1.0))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_learning_rate_and_groups_per_replica_stay(
    paced, rows: int, seconds: float, image: float
) -> None:
    config = large(shipped("digits"))
    paced(image, 5.0)
    plan = planned(config, rows, 1000, seconds)
    short = rehearsal.with_changes(config, plan.changes)
    before, after = (learning_rate.apply(each, 10**4) for each in (config, short))
    assert not set(plan.changes) - AMOUNTS
    assert after.peak_rate == before.peak_rate
    assert after.batch // after.batchnorm_batch == before.batch // before.batchnorm_batch
    assert plan.train is None or plan.train <= rows
    assert short.warmup_epochs / short.epochs == pytest.approx(config.warmup_epochs / config.epochs)


@pytest.mark.parametrize(("share", "height"), [(0.85, 192), (0.75, 48)])
def test_growing_images_are_rehearsed_at_growing_sizes(paced, share, height) -> None:
    """0.85 of 96 pixels would be rounded to 96."""
    config = large(shipped("digits"))
    config = replace(config, data=replace(config.data, height=192, width=192), progressive=(share,))
    paced(1e-4, 5.0)
    changes = planned(config, 3000, 1000, 600.0).changes
    assert changes.get("data.height", 192) == height


def test_a_smaller_batch_splits_over_the_replicas(paced) -> None:
    digits = shipped("digits")
    optimizer = replace(digits.optimizer, base_batch=400)
    config = replace(digits, batch=400, batchnorm_batch=None, optimizer=optimizer)
    paced(1.0, 5.0)
    changes = planned(config, 3000, 1000, 120.0).changes
    assert changes["batch"] == changes["optimizer.base_batch"] == 200  # 100 would not split by 8


def test_a_killed_process_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    with pytest.raises(PipelineError, match=r"with -9 \(out of memory") as caught:
        short_run.in_a_process(str(path), 100, 50, 120.0, internet=False)
    assert type(caught.value) is PipelineError
    assert str(caught.value).endswith(f"--config {path} --input DIR --full")


def test_published_weights_that_sessions_cannot_download_are_random() -> None:
    config = shipped("digits_mobilenet")
    published = replace(config, pretrained="imagenet")
    plan, *_ = short_run.plans(published, 957, 500, 3600.0)
    assert plan.changes["pretrained"] == "none"
    assert "random weights" in plan.lines[0]
    plan, *_ = short_run.plans(published, 957, 500, 3600.0, internet=True)
    assert not [name for name in plan.changes if name.startswith("model_options")]


@pytest.mark.usefixtures("hub")
def test_images_stay_multiples_of_a_network_s_patches(tmp_path: Path) -> None:
    numbers = {**SIZES["ViTBackbone"], "image_shape": [224, 224, 3], "patch_size": 16}
    source, digits = preset(tmp_path, "ViTBackbone", numbers), shipped("digits_mobilenet")
    large = replace(digits.data, height=224, width=224)
    config = replace(digits, model="published", model_options={}, pretrained=source, data=large)
    plan = next(short_run.plans(config, 957, 500, 3600.0))
    assert plan.changes["data.height"] == plan.changes["data.width"] == 112  # 56 is 3.5 patches


def test_a_session_prints_each_change_and_kaggle_changes_nothing(monkeypatch, capsys) -> None:
    digits = shipped("digits")
    assert rehearsal.shortened(digits) is digits
    assert not capsys.readouterr().out
    monkeypatch.setenv(rehearsal.VARIABLE, '{"epochs": 5, "data.height": 16}')
    short = rehearsal.shortened(digits)
    assert (short.epochs, short.data.height) == (5, 16)
    assert "epochs is 5 instead of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("session", "infer", "expected"),
    [(9.0, 0.5, (2.0, 0.5)), (1.0, None, (1.0, 1.0)), (None, 9.0, (2.0, 2.0))],
)
def test_a_shorter_session_lowers_both_limits(session, infer, expected, capsys) -> None:
    """Kaggle would end it, and may keep nothing of it."""
    whole = replace(shipped("digits"), session_hours=session, infer_hours=infer)

    found = rehearsal.shortened(whole, 7200)

    assert (found.session_hours, found.infer_hours) == expected
    assert "This session is limited to 2.0 hours" in capsys.readouterr().out
