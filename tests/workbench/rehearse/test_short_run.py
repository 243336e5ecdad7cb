"""A short rehearsal changes how much is done, never what, and says so."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pipeline import config as configs
from pipeline.config import Config, rehearsal
from pipeline.errors import PipelineError
from pipeline.train import learning_rate
from workbench.rehearse import short_run

# How much of a run; and random weights in place of published ones that no session can fetch.
AMOUNTS = {
    *("batch", "batchnorm_batch", "micro_batch", "epochs", "warmup_epochs", "folds", "views"),
    *("data.height", "data.width", "optimizer.base_batch"),
    *("model_options.pretrained", "model_options.batchnorm"),
}


def large(config: Config) -> Config:
    """Return a config of what is trained on a TPU."""
    data = replace(config.data, height=224, width=224, channels=3, resize="crop")
    config = replace(config, model="wide_resnet", model_options={"k": 2, "n": 1, "kernel_size": 3})
    optimizer = replace(config.optimizer, base_batch=128)
    config = replace(config, batch=1024, batchnorm_batch=None, optimizer=optimizer, data=data)
    return replace(config, epochs=90, folds=5)


def test_a_run_that_fits_the_budget_is_rehearsed_whole() -> None:
    """Or what exceeds it is said."""
    digits = configs.load("digits")
    plan = short_run.plan(digits, 957, 500, 120.0)
    assert plan == short_run.Plan()
    assert "more than --budget" in short_run.plan(digits, 957, 500, 30.0).lines[0]
    plan = short_run.plan(large(digits), 48_000, 10_000, 120.0)
    assert plan.changes["folds"] == 2
    assert "2 of 5 folds" in plan.lines[0] and "of 90 epochs" in plan.lines[0]
    assert "--full" in plan.lines[-1]


@settings(max_examples=2)  # each builds several networks
@given(rows=some.integers(300, 10**6), seconds=some.floats(60, 3600))
def test_learning_rate_and_groups_of_a_replica_stay(rows: int, seconds: float) -> None:
    config = large(configs.load("digits"))
    plan = short_run.plan(config, rows, 1000, seconds)
    short = rehearsal.with_changes(config, plan.changes)
    before, after = (learning_rate.apply(each, 10**4) for each in (config, short))
    assert not set(plan.changes) - AMOUNTS
    assert after.peak_rate == before.peak_rate
    assert after.batch // after.batchnorm_batch == before.batch // before.batchnorm_batch
    assert plan.train is None or plan.train <= rows
    config = replace(config, batch=400, optimizer=replace(config.optimizer, base_batch=400))
    changes = short_run.plan(config, 3000, 1000, 120.0).changes
    assert changes["batch"] == changes["optimizer.base_batch"] == 200  # 100 would not split by 8


def test_a_plan_whose_process_is_killed_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    with pytest.raises(PipelineError, match=r"with -9 \(out of memory") as caught:
        short_run.in_a_process(str(path), 100, 50, 120.0, internet=False)
    assert type(caught.value) is PipelineError
    assert str(caught.value).endswith(f"--config {path} --input DIR --full")


def test_published_weights_that_no_session_can_fetch_are_random_and_it_says_so() -> None:
    config = configs.load("digits_mobilenet")
    published = replace(config, model_options={**config.model_options, "pretrained": "imagenet"})
    plan = short_run.plan(published, 957, 500, 3600.0)
    assert plan.changes["model_options.pretrained"] == "none"
    assert "random weights" in plan.lines[0]
    assert not short_run.plan(published, 957, 500, 3600.0, internet=True).changes


def test_a_session_says_each_change_and_kaggle_changes_nothing(monkeypatch, capsys) -> None:
    digits = configs.load("digits")
    assert rehearsal.shortened(digits) is digits
    assert not capsys.readouterr().out
    monkeypatch.setenv(rehearsal.VARIABLE, '{"epochs": 5, "data.height": 16}')
    short = rehearsal.shortened(digits)
    assert (short.epochs, short.data.height) == (5, 16)
    assert "epochs is 5, in place of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("session", "infer", "expected"),
    [(9.0, 0.5, (2.0, 0.5)), (1.0, None, (1.0, 1.0)), (None, 9.0, (2.0, 2.0))],
)
def test_a_session_that_is_shorter_than_others_bounds_both_limits(
    session, infer, expected, capsys
) -> None:
    """Kaggle would end it, and may keep nothing of it."""
    whole = replace(configs.load("digits"), session_hours=session, infer_hours=infer)

    found = rehearsal.shortened(whole, 7200)

    assert (found.session_hours, found.infer_hours) == expected
    assert "This session has 2.0 hours" in capsys.readouterr().out
