"""Each fault in each call of each task, once, three times or for ever."""

import random

import pytest

from localkaggle.faults import KINDS
from tests.faults.matrix import CALLS, CELLS, DRIP, ENDED, LATER, LOST, MUTATING, ended_token
from tests.faults.world import (
    MADE,
    PACE,
    PATIENT_SECONDS,
    TASKS,
    attempt,
    litter,
    log_in,
    settle,
    temporary,
)

# For a fault that keeps a task busy for ever; longer if a busy machine met no fault by then.
DEADLINES_SECONDS = (2.0, 20.0, PATIENT_SECONDS)
# After these nobody knows whether the call took effect.
UNSURE = {(call, kind) for call in MUTATING for kind in LOST}
# By default each kind strikes one call: those above a call that makes something, the others a call
# of a quick task.
SAMPLE = {
    ("push-train", "SaveKernel", "500 after"),
    ("publish", "CreateDataset", "reset after"),
    ("publish the next", "CreateDatasetVersion", "HTML after"),
    ("submit", "CreateCodeSubmission", "a field is missing"),
    ("submit a file", "CreateSubmission", "reset"),
    ("submit a file", "CreateSubmission", "reset after"),
}
SHUFFLED = random.Random(1).sample(CELLS, len(CELLS))  # noqa: S311 - guards nothing
SHUFFLED.sort(key=lambda cell: cell[0] in ("watch", "pull", "status", "publish again"))
SAMPLE |= {cell for kind, cell in {cell[2]: cell for cell in SHUFFLED}.items() if kind not in LOST}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_without_faults_a_task_makes_the_expected_calls(task):
    with temporary(task) as world:
        world.local.faults.clear()

        assert attempt(world, task) == 0

        assert set(world.local.faults.seen) == CALLS[task]
        assert world.counts() == MADE[task] and not litter(world)


@pytest.mark.parametrize(
    ("task", "call", "kind"),
    [pytest.param(*cell, marks=[] if cell in SAMPLE else [pytest.mark.slow]) for cell in CELLS],
)
def test_after_a_fault_no_task_lies_loses_or_repeats_anything(task, call, kind, seed):
    """The task ends as documented, and the same command succeeds once nothing fails."""
    draw = random.Random(f"{seed} {task} {call} {kind}")  # noqa: S311 - guards nothing
    often = draw.choice([1, 3, 0])
    if (task, call) in LATER and kind in KINDS and KINDS[kind].only:
        often = 0
    if (task, kind) == ("publish again", "other bytes"):
        often = often or 3  # a version with other bytes for ever has to be made again
    with temporary(task) as world:
        strikes = kind
        if kind == ENDED:
            log_in(world.local)
            strikes = ended_token(world)
        pace = {"pace": PACE} if kind == DRIP else {}
        with world.failing({call: [strikes] * max(often, 1)}, ever=not often, **pace):
            endless = kind == DRIP or (not often and call not in MUTATING)
            for seconds in DEADLINES_SECONDS if endless else (PATIENT_SECONDS,):
                code = attempt(world, task, seconds)
                if code != 5 or world.local.faults.struck:
                    break

        assert code == 5 or kind != DRIP
        assert code in (0, 6) or (call, kind) not in UNSURE
        settle(world, task)
        assert world.counts() == MADE[task] and not litter(world)
