"""Runs the catalogue of known failures between a client and Kaggle, each of which must end as
documented.

The rows are in `proofs.kaggle.failure_cases`. `rows` runs each once; `proofs.kaggle.wrong_weights`
repeats those two that once gave plausible scores of wrong weights.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from deploy.client.deadline import within
from deploy.errors import RelayError
from proofs.kaggle.failure_cases import CASES, Case
from proofs.kaggle.wrong_weights import SEED, hybrids
from tests.faults.world import PATIENT_SECONDS, ROOT, TASKS, World

ROWS = tuple(f"K{number:02d}" for number in range(1, 51))
IMPATIENT = (6, 7)  # exit codes of tasks that may meet only failures until their patience ends
READS = ("watch", "pull", "submit")  # tasks after which the same world serves another case
# Rows that no command at home meets: why, and the test of each.
ELSEWHERE = {
    "K24": (
        "The notebook finds its mounts",
        "tests/pipeline/runtime/test_mounts.py::test_an_artifact_is_found_wherever_it_is_mounted",
    ),
    "K42": (
        "The notebook builds the model from shared code",
        "tests/pipeline/inference/test_inference.py::"
        "test_a_model_that_answers_otherwise_than_when_it_was_trained_is_refused",
    ),
    "K43": (
        "The notebook alone asks whether it is on Kaggle, and never by KAGGLE_*",
        "tests/pipeline/runtime/test_mounts.py::"
        "test_the_root_is_kaggle_s_own_unless_the_local_kaggle_says_otherwise",
    ),
}


@dataclass(frozen=True)
class Outcome:
    """The result of one row. `expected`, `got`: exit code and words, or the test of it."""

    id: str
    what: str
    expected: str
    got: str
    passed: bool


def rows() -> list[Outcome]:
    """Run every row, and return the results in the order of their numbers."""
    found = [
        *outcomes(CASES),
        *(elsewhere(name, *test) for name, test in ELSEWHERE.items()),
        _killed_upload(),
    ]
    return sorted(found, key=lambda outcome: outcome.id)


def outcomes(cases: Iterable[Case]) -> list[Outcome]:
    """Run these cases."""
    with _Worlds() as worlds, redirect_stdout(StringIO()):
        return [_outcome(case, worlds.fitting(case)) for case in cases]


def elsewhere(name: str, why: str, test: str) -> Outcome:
    """Look whether that test, `path::function`, exists."""
    path, _, function = test.partition("::")
    text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
    there = f"\ndef {function}(" in text
    return Outcome(name, why, test, test if there else "There is no such test", there)


def _killed_upload() -> Outcome:
    ((wrong, killed),) = hybrids(1, SEED)
    expected = "exit 0, the new artifact whole"
    what = f"an upload killed ({killed}), and other bytes of the same sizes and times"
    return Outcome("K29", what, expected, wrong or expected, not wrong)


class _Worlds:
    """Worlds, each made when a case needs it. Those that only read share one."""

    def __enter__(self) -> "_Worlds":
        self._folder = Path(tempfile.mkdtemp(prefix="prove-catalogue-"))
        self._environment = dict(os.environ)
        self._stack = contextlib.ExitStack()
        self._kept: dict[str, World] = {}
        self._count = 0
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        os.environ.clear()
        os.environ.update(self._environment)
        shutil.rmtree(self._folder, ignore_errors=True)

    def fitting(self, case: Case) -> World:
        """Return a world that is prepared for the case's task; the environment names its Kaggle."""
        stage = "pull" if case.task == "watch" else case.task
        shared = stage in READS and not case.own
        world = self._kept.get(stage) if shared else None
        if world is None:
            os.environ.clear()
            os.environ.update(self._environment)
            self._count += 1
            world = self._stack.enter_context(World(self._folder / str(self._count)))
            TASKS[stage].before(world)
            if shared:
                self._kept[stage] = world
        os.environ.clear()
        os.environ.update({**self._environment, **world.local.environment})
        return world


def _outcome(case: Case, world: World) -> Outcome:
    """Run the case's task in this world, and restore what other cases need of the world."""
    kernels = world.local.kernels.kernels.values()
    versions = [version for kernel in kernels for version in kernel.versions]
    kept = [(version, version.status, version.log) for version in versions]
    patience, world.hurried = world.deadline_seconds, case.code in IMPATIENT
    world.local.faults.plan({})
    case.arrange(world)
    world.shown.clear()
    before = len(world.local.faults.seen)
    code, said = case.child(world) if case.child else _run(case, world)
    made, so = world.counts(), case.so(world)
    alone = not case.child and case.code != 2 and len(world.local.faults.seen) == before
    world.local.faults.plan({})
    for version, status, log in kept:
        version.status, version.log = status, log
    world.deadline_seconds = patience
    checks = {
        f"exit {code}": code == case.code,
        f"without {case.word!r}: {said[:400]!r}": case.word in said,
        f"made {made}": made == case.made,
        "something else is not so": so,
        "nobody was asked": not alone,
    }
    wrong = [words for words, good in checks.items() if not good]
    expected = f"exit {case.code}, {case.word!r}"
    return Outcome(case.id, case.what, expected, "; ".join(wrong) or expected, not wrong)


def _run(case: Case, world: World) -> tuple[int, str]:
    """Run the task as `tasks.py` does; return its exit code, and its message or what it showed."""
    task = TASKS[case.task]
    try:
        with within(PATIENT_SECONDS, "It hangs."):
            result = (case.body or task.body)(world, world.connect())
    except RelayError as error:
        return error.exit_code, str(error)
    if case.body is None and not task.truth(world, result):
        return 0, "It said success, and it is not so"
    return 0, "\n".join([*world.shown, str(result)])
