"""The plan before a push stops what cannot fit, and says what would be regretted."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from commands import push_plan
from deploy.errors import UsageError
from deploy.kernel.push_and_watch import Run
from pipeline import config as configs
from pipeline.plan import cost, plan, plan_command
from pipeline.plan.accelerators import RUNTIMES
from pipeline.plan.input_rate import verdict
from pipeline.plan.laws import Interval
from pipeline.plan.outlook import Outlook
from pipeline.plan.plan import Plan

HOUR = 3600.0
ONE = Outlook(
    "tpu-v5e-8", "Kaggle TPU v5e-8", "", 128, "mixed_bfloat16", 16e9, 2e9,
    memory_basis="compiled", fits=True, total=Interval(HOUR, 2 * HOUR, 4 * HOUR),
    spent=cost.of(RUNTIMES["tpu-v5e-8"], 2 * HOUR), input=verdict(1000, 2000),
)  # fmt: skip


def preview(**changes) -> SimpleNamespace:
    """Return what a plan asks of a push."""
    usual = {"kernel": "train-tpu", "machine_shape": "TpuV5E8", "hours_left": None, "changes": {}}
    return SimpleNamespace(**{**usual, **changes})


def judged(capsys, left=None, **changes):
    """Return what is shown of a plan."""
    one = replace(ONE, **changes)
    made = Plan("ants", 64, 3, 1, 10, 9, "counted", None, None, 1.0, "", (one,), None, "Go.", ())
    push_plan.judge(made.to_json(), left, "ants")
    return capsys.readouterr().out


def test_the_plan_of_a_push_lies_beside_the_folder_of_its_run(tmp_path, capsys):
    planned = push_plan.PushPlan("digits", lambda preview: print("asked"), runs=tmp_path)

    planned(preview())
    planned.keep(Run("ann/digits-train-tpu", 3, "", ""))

    assert re.search(r"^plan .*(.|\n)*^asked$", capsys.readouterr().out, re.MULTILINE)
    planned(preview(kernel="infer-gpu", hours_left=30.0))  # as `invoke relay` goes on
    assert capsys.readouterr().out == "asked\n"
    kept = plan_command.kept(tmp_path / "digits-train-tpu-v3")
    assert plan.from_json(json.loads(kept.read_bytes())).outlooks[0].memory_basis == "compiled"


def test_an_inference_needs_no_plan(tmp_path):
    planned = push_plan.PushPlan("digits", lambda preview: None, runs=tmp_path)

    planned(preview(kernel="infer-gpu"))
    planned.keep(Run("ann/digits-infer-gpu", 3, "", ""))

    assert list(tmp_path.iterdir()) == []


def test_a_training_on_the_pair_is_planned_for_the_pair(tmp_path, capsys):
    planned = push_plan.PushPlan("digits", lambda preview: None, tmp_path)

    planned(preview(machine_shape="NvidiaTeslaT4", hours_left=30.0))
    planned.keep(Run("ann/digits-train-tpu", 3, "", ""))

    kept = plan_command.kept(tmp_path / "digits-train-tpu-v3")
    (one,) = plan.from_json(json.loads(kept.read_bytes())).outlooks
    assert (one.runtime, one.precision) == ("gpu-t4x2", "float32")
    assert "Warning" not in capsys.readouterr().out


def test_a_gpu_that_may_be_too_small_is_called_a_gpu(capsys):
    changes = {"fits": False, "memory_basis": "estimated"}

    assert "fit into a GPU's memory" in judged(capsys, left=20.0, runtime="gpu-t4x2", **changes)


def test_a_plan_whose_ends_read_alike_has_one_number(capsys):
    assert judged(capsys, total=Interval(HOUR, HOUR, HOUR)).startswith("plan        60 min in all")


def test_a_plan_that_holds_is_one_line(capsys):
    shown = judged(capsys, left=20.0)

    assert shown == "plan        2 h (60 min to 4 h) in all, with 9 images to train on (counted)\n"


@pytest.mark.parametrize(
    ("micro", "edit"), [(16, "Set micro_batch=16"), (0, "Take smaller images")]
)
def test_a_step_that_its_compiler_refuses_is_not_pushed(capsys, micro, edit):
    with pytest.raises(UsageError, match=f"nothing was pushed.\n{edit}"):
        judged(capsys, fits=False, micro_batch=micro)


@pytest.mark.parametrize(
    ("changes", "left", "said"),
    [
        ({"fits": False, "memory_basis": "estimated", "micro_batch": 4}, 20.0, "may not fit"),
        ({}, 1.0, "2 hours, and 1 are left this week: 1 sessions in 2 weeks"),
        ({"input": verdict(1000, 400), "why": "input-bound: 4 CPUs"}, 20.0, "input-bound: 4 CPUs"),
    ],
)
def test_what_would_be_regretted_is_a_warning(capsys, changes, left, said):
    shown = judged(capsys, left=left, **changes)

    assert f"Warning: {said}" in shown.replace("a step ", "").replace("it may take ", "")


def test_a_training_that_resumes_has_found_what_fits(capsys):
    one = replace(ONE, fits=False, micro_batch=16)
    made = Plan("ants", 64, 3, 1, 10, 9, "counted", None, None, 1.0, "", (one,), None, "Go.", ())

    push_plan.judge(made.to_json(), 20.0, "ants", resumes=True)

    assert "Warning: a step may not fit" in capsys.readouterr().out


def test_a_batch_that_does_not_split_is_not_pushed(capsys):
    with pytest.raises(UsageError, match="batch=15 does not split"):
        judged(capsys, total=None, fits=False, why="batch=15 does not split over its 8 cores")


def test_an_input_that_is_a_little_slow_is_no_warning(capsys):
    assert "Warning" not in judged(capsys, left=20.0, input=verdict(1000, 600), why="input-bound")


def test_a_plan_that_knows_nothing_says_why(capsys):
    assert "unknown: the model is not built" in judged(
        capsys, total=None, spent=None, why="the model is not built"
    )


def planned(folder: Path, labelled: int | None) -> Path | None:
    """Plan a push of a table on the pair of T4, as `push-train` does; return the plan that is kept
    for the report of its run.
    """
    config = configs.load("breast_cancer")
    data = replace(config.data, labelled=labelled)
    config = replace(config, name="cancer", data=data, folds=5)
    path = folder / "cancer.py"
    path.write_text(
        f"from pipeline.config import from_json\nCONFIG = from_json({config.to_json()!r})\n"
    )
    made = push_plan.PushPlan(str(path), lambda preview: None, runs=folder)

    made(preview(machine_shape="NvidiaTeslaT4"))
    made.keep(Run("ann/cancer-train-tpu", 3, "", ""))
    return plan_command.kept(folder / "cancer-train-tpu-v3")


def test_a_plan_counts_the_rows_that_inspect_has_counted(tmp_path, capfd):
    kept = planned(tmp_path, 369)

    shown = capfd.readouterr().out
    assert "with 295 rows to train on in each of 5 folds (of the config's 369)" in shown
    assert kept is not None


def test_a_plan_of_rows_that_nobody_has_counted_says_so(tmp_path, capfd, monkeypatch):
    """It names no time, and nothing that a report would compare with what was."""
    monkeypatch.setattr(push_plan, "images_file", lambda config: tmp_path / "counted.json")
    kept = planned(tmp_path, None)

    shown = "".join(capfd.readouterr())
    command = f"invoke plan --config {tmp_path / 'cancer.py'} --input DIR"
    assert "how many rows there are is not known here" in shown and command in shown
    assert "assumed" not in shown and " min " not in shown and kept is None

    push_plan.keep_images("cancer", {"labelled": 400, "images_basis": "lines of train.csv"})
    planned(tmp_path, None)
    assert (
        "with 320 rows to train on in each of 5 folds (lines of train.csv)"
        in capfd.readouterr().out
    )
