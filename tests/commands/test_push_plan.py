"""The plan before a push stops what cannot fit, and warns of what would be regretted."""

import json
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from commands import push_plan
from deploy.bundle import Bundle, Code
from deploy.calls import Quota
from deploy.errors import UsageError
from deploy.preview import Preview
from tests.shipped import shipped, written
from workbench import __main__ as command_line
from workbench.plan import plan, plan_command
from workbench.plan.accelerators import RUNTIMES, cost
from workbench.plan.laws import Interval, Verdict
from workbench.plan.operation_counts import Counts
from workbench.plan.outlook import Outlook
from workbench.plan.plan import Inference, Plan

HOUR = 3600.0
ONE = Outlook(
    "tpu-v5e-8", "Kaggle TPU v5e-8", "", 128, "mixed_bfloat16", 16e9, 2e9,
    memory_basis="compiled", fits=True, total=Interval(HOUR, 2 * HOUR, 4 * HOUR),
    spent=cost(RUNTIMES["tpu-v5e-8"], 2 * HOUR), input=Verdict(1000, 2000, 0.0),
)  # fmt: skip


def judged(capsys, left=None, resumes=False, note="", **changes):
    """Return what a plan shows."""
    one = replace(ONE, **changes)
    sizes, infers = (Counts(1, 1, 1.0), 1.0), Inference(None, None, None, None)
    made = Plan(
        "ants", 64, 3, 1, 10, 9, "counted", *sizes, 1.0, "", (one,), infers, "Go.", note=note
    )
    push_plan.judge(made.to_json(), left, resumes=resumes)
    return capsys.readouterr().out


NO_FIT = {"fits": False, "why": "set micro_batch=4"}


@pytest.mark.parametrize(
    ("changes", "left", "said"),
    [
        (NO_FIT | {"memory_basis": "estimated"}, 20.0, "a step may not fit: set micro_batch=4"),
        (NO_FIT | {"resumes": True}, 20.0, "a step may not fit: set micro_batch=4"),
        ({}, 1.0, "2 hours, but only 1 are left this week. The run needs 1 sessions in 2 weeks"),
        (
            {"input": Verdict(1000, 400, 0.6), "why": "input-bound: 4 CPUs"},
            20.0,
            "input-bound: 4 CPUs",
        ),
        ({}, 20.0, ""),
    ],
)
def test_a_push_that_would_be_regretted_gets_a_warning(capsys, changes, left, said):
    """A training that resumes already fits."""
    first, *warnings = judged(capsys, left=left, **changes).splitlines()

    assert first.startswith("plan        2 h (60 min to 4 h) in all")
    assert first.endswith(", with 9 images to train on (counted)")
    assert ("part of which is done" in first) == ("resumes" in changes)
    assert len(warnings) == bool(said)
    assert all(one.startswith("Warning: ") and said in one for one in warnings)


def test_a_training_whose_images_grow_takes_less_than_its_plan(capsys):
    assert "in all, or less because images start small" in judged(capsys, note=plan.GROWS)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (NO_FIT, "does not fit in memory: set micro_batch=4"),
        ({"total": None, "fits": False, "why": "batch=15 does not split"}, "batch=15 does not"),
    ],
)
def test_a_step_that_cannot_run_is_not_pushed(capsys, changes, said):
    with pytest.raises(UsageError, match=said):
        judged(capsys, **changes)


def pushed(folder: Path, labelled: int | None, kernel: str = "train-tpu") -> Path | None:
    """Plan the push of a table to two T4, like `push-train`, and return the plan kept for the
    report of the run.
    """
    config = shipped("breast_cancer")
    data = replace(config.data, labelled=labelled)
    config = replace(config, name="cancer", data=data, folds=5)
    path = written(folder, config)
    made = push_plan.PushPlan(str(path), bool, runs=folder)
    code = Code({"kernel": kernel}, {}, (), {}, "", False)
    built = Bundle(folder, code, {"machine_shape": "NvidiaTeslaT4"}, expect={})
    made.show(Preview(built, 0, (), "GPU", Quota(0.0, 30 * HOUR), (), (), "", "", 0))
    made.keep("ann/cancer-train-tpu/3")
    return plan_command.kept(folder / "cancer-train-tpu-v3")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make plans in this process, which is faster."""

    def run(module: str, *words: str, **options: Any) -> Any:
        with redirect_stdout(StringIO()) as shown:
            command_line.main([*words, "--json"])
        return json.loads(shown.getvalue().splitlines()[-1])

    monkeypatch.setattr(push_plan, "in_a_process", run)


def test_a_plan_of_counted_rows_is_kept_beside_its_run(tmp_path, capsys, in_this_process):
    """Without a count it shows no time and is not kept; an inference has no plan."""
    assert pushed(tmp_path, None) is None
    shown = capsys.readouterr().out
    assert "time cannot be predicted" in shown and "data.labelled" in shown
    assert "assumed" not in shown and " min " not in shown
    assert pushed(tmp_path, 400, "infer-gpu") is None and not capsys.readouterr().out

    kept = pushed(tmp_path, 400)

    said = "with 320 rows to train on in each of 5 folds (data.labelled=400)"
    assert said in capsys.readouterr().out
    (one,) = plan.from_json(json.loads(kept.read_bytes())).outlooks
    assert (one.runtime, one.precision) == ("gpu-t4x2", "float32")
