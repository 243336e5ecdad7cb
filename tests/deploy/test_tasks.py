"""The commands end with the documented exit codes, and with one JSON object where that was asked for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from localkaggle.server import LocalKaggle

ROOT = Path(__file__).resolve().parents[2]
TASKS = [
    "build",
    "check",
    "doctor",
    "dry-run",
    "init",
    "prove",
    "publish",
    "pull",
    "push-infer",
    "push-train",
    "relay",
    "status",
    "submit",
    "watch",
]


def invoke(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "invoke", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


def test_every_task_is_listed_and_nothing_heavy_is_started_for_it():
    """`invoke --list` is the first thing that one types."""
    code = (
        "import sys, tasks; heavy = {'kaggle', 'kagglesdk', 'requests', 'pandas', 'numpy', 'keras', 'jax', 'tensorflow',"
        " 'jupytext', 'pipeline', 'localkaggle', 'deploy'}; sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )

    listed = invoke("--list")
    started = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert [line.split()[0] for line in listed.stdout.splitlines() if line[:2] == "  " and line[2] != " "] == TASKS
    assert (started.returncode, started.stderr) == (0, "")


@pytest.mark.parametrize("task", TASKS)
def test_the_help_of_a_task_has_an_example(task):
    """One that can be copied."""
    assert f"Example: invoke {task}" in " ".join(invoke("--help", task).stdout.split()).replace("- ", "-")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["push-train"], 3, "No Kaggle credentials"),
        (["push-train", "--config", "no-such"], 2, "digits"),
        (["dry-run", "--config", "no-such"], 2, "digits"),
        (["watch", "--run", "nonsense"], 2, "owner/slug/version"),
    ],
)
def test_an_error_is_a_message_an_exit_code_and_a_json_object(arguments, code, said):
    """No traceback: the message says what to do."""
    done = invoke(*arguments, "--json")

    told = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, told["exit_code"]) == (code, code)
    assert said in done.stderr and said in told["error"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("hours", ["abc", "nan", "-1", "1e9", "inf"])
def test_a_number_that_makes_no_sense_is_refused(hours):
    """A wait that never ends is none."""
    done = invoke("watch", "--run", "ann/digits-train-tpu/1", "--hours", hours)

    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "--hours" in done.stderr


@pytest.mark.parametrize("run", ["ann/x/0", "ann/x/" + "9" * 5000, "ann/" + "x" * 300 + "/1", "a b/c/1", "../../etc/1"])
def test_a_run_that_cannot_be_is_refused(run):
    """Before anybody is asked about it."""
    done = invoke("watch", "--run", run)

    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert len(done.stderr) < 500


def test_a_push_is_not_made_where_nobody_can_be_asked(tmp_path, monkeypatch):
    """A script has to say that it means it."""
    with LocalKaggle(tmp_path / "kaggle", offline=True) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)

        done = invoke("push-train", "--json")

        assert (done.returncode, not local.kernels.kernels) == (2, True)
    assert "--yes" in done.stderr and "hours are left this week" in done.stdout


def test_a_task_ends_at_its_deadline_though_kaggle_stays_silent(tmp_path, monkeypatch):
    """A byte now and then keeps a connection alive for ever; the timer of the system does not care."""
    with LocalKaggle(tmp_path / "kaggle", offline=True) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        local.faults.plan({0: "one byte a second"})

        done = invoke("status", "--minutes", "0.05", "--json")

    assert done.returncode == 5
    assert "longer than 0.05 minutes" in json.loads(done.stdout.splitlines()[-1])["error"]
