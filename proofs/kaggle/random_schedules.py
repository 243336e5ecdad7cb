"""Machine: the chain as a state machine. Hypothesis chooses which task comes next and what goes
wrong in it.
"""

import os
import shutil
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from localkaggle.faults import KINDS
from proofs.kaggle.fault_schedules import TRIES, Verdict, attempt
from proofs.kaggle.world import CHAIN, World

CALLS_AT_MOST = 14
STEPS = 8


class Chain(RuleBasedStateMachine):
    """One world, from the first push on. A task can be given again at any time; a later one only
    after those before it.
    """

    verdicts: list[Verdict]  # of the class that `explore` makes

    def __init__(self) -> None:
        super().__init__()
        self.verdict = Verdict(())
        self.done = 0  # tasks of the chain that said success
        self._folder = Path(tempfile.mkdtemp(prefix="prove-chain-"))
        self._environment = dict(os.environ)
        self.world = World(self._folder / "world").__enter__()

    @rule(
        back=st.integers(0, 2),
        faults=st.dictionaries(
            st.integers(0, CALLS_AT_MOST), st.sampled_from(sorted(KINDS)), max_size=3
        ),
    )
    def give(self, back: int, faults: dict[int, str]) -> None:
        """Give the next task, or one of those before it again, with these faults."""
        place = min(max(self.done - back, 0), len(CHAIN) - 1)
        self.verdict.steps += ((list(CHAIN)[place], tuple(faults.items())),)
        self._attempt(place, faults)

    def _attempt(self, place: int, faults: dict[int, str]) -> bool:
        self.world.local.faults.plan(faults)
        with redirect_stdout(StringIO()):
            said = attempt(self.world, list(CHAIN)[place], self.verdict, CHAIN)
        self.verdict.struck += [kind for _, kind, _ in self.world.local.faults.struck]
        if said:
            self.done = max(self.done, place + 1)
        self._count()
        return said

    def _count(self) -> None:
        for what, there, most in zip(
            ("kernel version", "dataset version", "submission"),
            self.world.counts(),
            (2, 1, 1),
            strict=True,
        ):
            if there > most:
                self.verdict.wrong.append(
                    f"duplicate {what}: {there} are there, {most} were asked for"
                )

    def teardown(self) -> None:
        """Go through to the end without faults: nothing may have been lost, and nothing made twice."""
        try:
            for place in range(self.done, len(CHAIN)):
                if not any(self._attempt(place, {}) for _ in range(TRIES)):
                    self.verdict.wrong.append(
                        f"{list(CHAIN)[place]}: never went through, although nothing fails any more"
                    )
                    break
            if not self.verdict.wrong and self.world.counts() != (2, 1, 1):
                self.verdict.wrong.append(f"lost: {self.world.counts()} are there at the end")
        finally:
            self.world.__exit__(None, None, None)
            os.environ.clear()
            os.environ.update(self._environment)
            shutil.rmtree(self._folder, ignore_errors=True)
            self.verdicts.append(self.verdict)


def explore(number: int, examples: int) -> list[Verdict]:
    """Run that many schedules, generated from that seed, and return what came of each."""
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
