"""The chain as a state machine: hypothesis chooses the next task and its faults."""

from contextlib import ExitStack

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from localkaggle.faults import KINDS
from tests.faults.matrix import CELLS, DRIP
from tests.faults.world import CHAIN, MADE, attempt, litter, settle, temporary

FAULTS = {
    name: [cell[1:] for cell in CELLS if cell[0] == task and cell[2] in KINDS and cell[2] != DRIP]
    for name in CHAIN
    for task in [name.removesuffix(" infer")]
}
NAMES = list(CHAIN)
MOST = [MADE["push-train"]] * 3 + [MADE["publish"]] + [MADE["push-infer"]] * 3 + [MADE["submit"]]


class Chain(RuleBasedStateMachine):
    """One world from the first push on. Tasks may be repeated at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.done, self.tried = 0, -1  # tasks that reported success; the last one tried
        self.made = (0, 0, 0)
        self.stack = ExitStack()
        self.world = self.stack.enter_context(temporary())

    @rule(back=st.integers(0, 2), drawn=st.lists(st.integers(0, 2**16 - 1), max_size=3))
    def a_task_runs(self, back, drawn):
        """Run the next task or an earlier one, with up to three faults.

        No draw depends on earlier results, which may differ on a busy machine.
        """
        place = min(max(self.done - back, 0), len(NAMES) - 1)
        faults: dict[str, list[str | None]] = {}
        known = FAULTS[NAMES[place]]
        for call, kind in (known[number * len(known) >> 16] for number in drawn):
            faults.setdefault(call, []).append(kind)
        # Where a task runs again, or the answers have nothing to change, it may not meet any.
        sure = [kind for kinds in faults.values() for kind in kinds if not KINDS[kind].only]
        self.world.ended()
        with self.world.failing(faults, least=bool(sure and place > self.tried)):
            code = attempt(self.world, NAMES[place])
        self.tried = max(self.tried, place)
        if code == 0:
            self.done = max(self.done, place + 1)

    @invariant()
    def nothing_is_made_twice_and_nothing_is_lost(self):
        """The server's counts never fall, and do not exceed what was asked for."""
        before, self.made = self.made, self.world.counts()
        most = MOST[max(self.tried, 0)]
        assert all(a <= b <= c for a, b, c in zip(before, self.made, most, strict=True)), self.made

    @invariant()
    def nothing_is_half_written_or_outside(self):
        """In the project and around it, except what an interrupted publish resumes from."""
        left = [path.name for path in litter(self.world)]
        assert all(name.startswith(".publish.") for name in left), left

    def teardown(self):
        """The rest of the chain succeeds once nothing fails."""
        with self.stack:
            for name in NAMES[self.done :]:
                self.world.ended()
                settle(self.world, name)
            if litter(self.world):  # of a publish that ran again, and lost Kaggle
                settle(self.world, "publish")
            assert self.world.counts() == MADE["submit"] and not litter(self.world)


class TestSomeChains(Chain.TestCase):
    """The quick ones."""

    settings = settings(max_examples=3, stateful_step_count=6)


@pytest.mark.slow
class TestManyChains(Chain.TestCase):
    """Fresh ones each time."""

    settings = settings(max_examples=60, stateful_step_count=10)
