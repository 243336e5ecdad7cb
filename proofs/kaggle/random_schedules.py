"""The chain as a state machine: Hypothesis chooses the next task and what goes wrong in it."""

from contextlib import ExitStack, redirect_stdout
from io import StringIO

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from localkaggle.fault_kinds import KINDS
from proofs.kaggle.fault_schedules import STUCK, TRIES, Verdict, attempt, count
from tests.faults.world import CHAIN, temporary

CALLS_AT_MOST = 14
STEPS = 8
MADE = (2, 1, 1)  # kernel versions, dataset versions and submissions of the whole chain
FAULTS = st.dictionaries(st.integers(0, CALLS_AT_MOST), st.sampled_from(sorted(KINDS)), max_size=3)


class Chain(RuleBasedStateMachine):
    """One world, from the first push on. A task can run again at any time, and a later one only
    after those before it.
    """

    verdicts: list[Verdict]  # of the class that `explore` makes

    def __init__(self) -> None:
        super().__init__()
        self.verdict = Verdict(())
        self.done = 0  # tasks of the chain that reported success
        self._stack = ExitStack()
        self.world = self._stack.enter_context(temporary())

    @rule(back=st.integers(0, 2), faults=FAULTS)
    def run_task(self, back: int, faults: dict[int, str]) -> None:
        """Run the next task, or one of those before it again, with these faults."""
        place = min(max(self.done - back, 0), len(CHAIN) - 1)
        self.verdict.steps += ((list(CHAIN)[place], tuple(faults.items())),)
        self._attempt(place, faults)

    def _attempt(self, place: int, faults: dict[int, str]) -> bool:
        self.world.local.faults.plan(faults)
        name, kinds = list(CHAIN)[place], list(faults.values())
        with redirect_stdout(StringIO()):
            succeeded = attempt(self.world, name, self.verdict, CHAIN, kinds)
        self.verdict.struck += [kind for _, kind, _ in self.world.local.faults.struck]
        if succeeded:
            self.done = max(self.done, place + 1)
        count(self.world, MADE, self.verdict)
        return succeeded

    def teardown(self) -> None:
        """Run the rest without faults: nothing may be lost, and nothing made twice."""
        with self._stack:
            for place in range(self.done, len(CHAIN)):
                if not any(self._attempt(place, {}) for _ in range(TRIES)):
                    self.verdict.wrong.append(f"{list(CHAIN)[place]}: {STUCK}")
                    break
            if not self.verdict.wrong and self.world.counts() != MADE:
                self.verdict.wrong.append(f"lost: {self.world.counts()} are there at the end")
        self.verdicts.append(self.verdict)


def explore(number: int, examples: int) -> list[Verdict]:
    """Run that many schedules, generated from that seed, and return the verdict on each."""
    verdicts: list[Verdict] = []
    explored = seed(number)(type("Explored", (Chain,), {"verdicts": verdicts}))
    run_state_machine_as_test(
        explored,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return verdicts
