"""Another machine, a browser or another window pushes, too: it is seen, and nothing is sent
twice.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import Busy, NoQuota
from deploy.project import PAIR, Project
from deploy.relay import relay
from localkaggle.server import LocalKaggle
from proofs.kaggle.world import competition
from tests.deploy.trainer import Script

HANDLE = "rehearsal/digits-train-tpu"
ROOT = Path(__file__).resolve().parents[3]
Start = Callable[..., tuple[LocalKaggle, Kaggle]]


@pytest.fixture
def ours(root: Path) -> Project:
    return Project(
        root, "digits", "digits", "dataset", root / "runs", root / "build", deadline_seconds=60
    )


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts a Kaggle whose runs wait in a queue for ever, and logs in."""
    with ExitStack() as stack:

        def begin(queue_seconds: float = 3600.0) -> tuple[LocalKaggle, Kaggle]:
            local = stack.enter_context(
                LocalKaggle(
                    tmp_path / "kaggle",
                    competitions=[competition()],
                    offline=True,
                    queue_seconds=queue_seconds,
                    session=Script(),  # type: ignore[arg-type]
                )
            )
            for name, value in local.environment.items():
                monkeypatch.setenv(name, value)
            local.faults.plan({})
            return local, Kaggle.connect(pace=Pace(first=0.01, most=0.05, patience=60))

        yield begin


def push(kaggle: Kaggle, project: Project, **more: Any) -> Any:
    return relay.push(kaggle, project, relay.TRAIN, **{"show": lambda line: None, **more})


def elsewhere(ours: Project, slug: str = "other") -> Project:
    """Return the project on another machine: another journal, and another notebook."""
    return replace(ours, runs=ours.root / "other runs", slug=slug)


# Runs that were started elsewhere


def test_a_run_of_another_machine_counts_before_a_push(start, ours):
    """Kaggle allows one session on a TPU: a push would be refused, and leave its traces."""
    local, kaggle = start()
    other = push(kaggle, elsewhere(ours))
    before = list(local.faults.seen)

    with pytest.raises(NoQuota, match=f"active: {other}.*\n.*\ninvoke watch --run {other}"):
        push(kaggle, ours)

    asked = local.faults.seen[len(before) :]
    assert asked.count("ListKernels") == 1 == asked.count("GetKernelSessionStatus")
    assert local.faults.seen.count("SaveKernel") == 1


def test_a_run_of_another_machine_on_other_hardware_does_not_count(start, ours):
    """A GPU is no TPU."""
    _, kaggle = start()
    push(kaggle, replace(elsewhere(ours), runtime=PAIR))
    plans: list[Any] = []

    push(kaggle, ours, agree=plans.append)

    assert (plans[0].active, plans[0].unasked) == ((), ())


def test_runs_that_kaggle_does_not_list_are_said_to_be_unknown(start, ours):
    """A limited token: the push goes on, and the plan says what is not known."""
    local, kaggle = start()
    local.faults.say("ListKernels", ["403"])
    plans: list[Any] = []

    push(kaggle, ours, agree=plans.append)

    assert plans[0].active == () and any(
        line.startswith("not asked   runs that were started elsewhere: Kaggle refused to list")
        for line in plans[0].lines()
    )


# Another machine of Kaggle's


def test_the_pair_of_gpus_is_asked_for_while_the_tpu_version_waits(start, ours, shown):
    """It is another push; the plan says what becomes of the first."""
    local, kaggle = start()
    first = push(kaggle, ours)
    plans: list[Any] = []

    second = push(kaggle, replace(ours, runtime=PAIR), agree=plans.append, show=shown.append)

    assert (first.version, second.version) == (1, 2)
    assert second.machine_shape == "NvidiaTeslaT4" and not any("already" in one for one in shown)
    said = "\n".join(plans[0].lines())
    assert f"beside      {first} is QUEUED on TpuV5E8: it keeps its place" in said
    assert f"its page can: https://www.kaggle.com/code/{HANDLE}" in said
    for project, run in ((ours, first), (replace(ours, runtime=PAIR), second)):
        assert push(kaggle, project, show=shown.append) == run
    assert local.faults.seen.count("SaveKernel") == 2
    on = {first: "QUEUED on TpuV5E8", second: "QUEUED on NvidiaTeslaT4"}
    assert shown[-2:] == [
        f"{run} holds this bundle already, {state}; nothing was sent. To run it once more: --again"
        for run, state in on.items()
    ]


# Two windows


def test_two_pushes_of_one_project_at_a_time_send_one(start, ours):
    """Also with --again: the second says who is at it."""
    local, kaggle = start()

    def in_another_window(plan: Any) -> None:
        with pytest.raises(Busy, match=r"pushes from this project: push-train, process \d+, since"):
            push(kaggle, ours, again=True)

    push(kaggle, ours, agree=in_another_window)

    assert local.faults.seen.count("SaveKernel") == 1 and Busy.exit_code == 7


def test_a_push_that_was_killed_locks_nobody_out(start, ours):
    """The lock is its process's own."""
    _, kaggle = start()
    ours.runs.mkdir()
    code = (
        "import sys; from pathlib import Path; from deploy.journal import Journal\n"
        "with Journal(Path(sys.argv[1])).locked('push-train'): print('held', flush=True), input()"
    )
    command = [sys.executable, "-c", code, str(ours.journal().path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(Busy, match=f"process {holder.pid}"):
            push(kaggle, ours)
        holder.kill()

    assert push(kaggle, ours).version == 1
