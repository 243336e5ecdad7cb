"""A task that is killed or interrupted at any instant is reconciled by the same command."""

import os
import random
import signal
import threading
from contextlib import suppress

import pytest

from tests.faults.matrix import CALLS
from tests.faults.world import MADE, litter, settle, temporary

WRITING = ("push-train", "pull", "publish", "submit")
ENDS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130}
STOPS = [
    (task, call, sent, when)
    for task in WRITING
    for call in sorted(CALLS[task])
    for sent in ENDS
    for when in ("before", "after", "later")
]
SAMPLE = {
    ("push-train", "SaveKernel", signal.SIGKILL, "after"),
    ("push-train", "SaveKernel", signal.SIGINT, "after"),
    ("pull", "storage", signal.SIGKILL, "after"),
    ("publish", "upload", signal.SIGINT, "before"),
    ("publish", "CreateDataset", signal.SIGKILL, "after"),
    ("submit", "CreateCodeSubmission", signal.SIGKILL, "after"),
    ("submit", "CreateCodeSubmission", signal.SIGINT, "later"),
}


@pytest.mark.parametrize(
    ("task", "call", "sent", "when"),
    [pytest.param(*stop, marks=[] if stop in SAMPLE else [pytest.mark.slow]) for stop in STOPS],
)
def test_a_stopped_task_is_reconciled_by_the_same_command(launcher, task, call, sent, when, seed):
    """Before a call happens, after that, or up to a fiftieth of a second later."""
    later = random.Random(f"{seed} {task} {call}").random() / 50  # noqa: S311 - guards nothing

    def kill(number):
        with suppress(ProcessLookupError):  # it has ended by then
            os.kill(number, sent)

    def stop(number):
        if when == "later":
            threading.Timer(later, kill, [number]).start()
        else:
            kill(number)

    with temporary(task) as world:
        code, said = launcher.stopped(world, task, call, stop, after=when != "before")

        assert code == ENDS[sent] or (when == "later" and code == 0), said
        assert code != 130 or ("\ninvoke " in said and "Traceback" not in said)
        settle(world, task)
        assert world.counts() == MADE[task] and not litter(world)


def test_ctrl_c_says_how_to_go_on(launcher):
    """K07."""
    with temporary("watch") as world:
        code, said = launcher.stopped(
            world,
            "watch",
            "GetKernelSessionStatus",
            lambda number: os.kill(number, signal.SIGINT),
            after=True,
        )

    assert code == 130 and "invoke watch --run" in said
