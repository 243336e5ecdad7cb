"""What `invoke prove training` claims, in its short form, and that each row can miss."""

from copy import deepcopy

import pytest

from proofs.training import claims, killed_runs
from proofs.training.killed_runs import Run
from tests.proofs.short_rows import short_rows

STEPS = killed_runs.EPOCHS * killed_runs.IMAGES * 9 // 10 // killed_runs.BATCH


def test_training_can_be_stopped_anywhere_and_moved_anywhere():
    """A sample of the kills, crash states and moves that the full proof makes."""
    rows = short_rows("training")

    assert [row for row in rows if not row.passed] == []
    assert len(rows) >= 7


def good() -> list[Run]:
    """Return an unbroken run, and enough killed ones that ended as it did."""
    batches = {str(step): f"hash {step}" for step in range(STEPS)}
    kills = [(100 + 2 * number, number % 2 == 0) for number in range(6)]
    return [Run([], "sum", batches)] + [Run(list(kills), "sum", dict(batches)) for _ in range(35)]


def verdicts(runs: list[Run]) -> list[bool]:
    return [row.passed for row in claims.judged(runs, short=False)]


def test_runs_that_end_as_the_unbroken_one_pass():
    assert verdicts(good()) == [True, True]


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda runs: setattr(runs[3], "weights", "other"), [False, True]),
        (lambda runs: setattr(runs[3], "weights", ""), [False, True]),
        (lambda runs: runs[3].batches.update({"7": "other"}), [False, True]),
        (lambda runs: runs[3].batches.update({"7": None}), [False, True]),
        (lambda runs: runs[3].batches.pop("7"), [False, True]),
        (lambda runs: [run.batches.pop("7") for run in runs], [False, True]),
        (lambda runs: setattr(runs[3], "lost", 1), [True, False]),
        (lambda runs: runs[3].unrecoverable.append("Traceback"), [True, False]),
        (lambda runs: runs.__delitem__(slice(20, None)), [False, True]),
        (lambda runs: [run.kills.__setitem__(slice(None), [(s, False) for s,
        _ in run.kills]) for run in runs], [False, True]),
        (lambda runs: [run.kills.__delitem__(slice(4, None)) for run in runs], [False, True]),
    ],
    ids=[
        "other weights", "no end", "another batch", "a batch of two kinds", "a missing step",
        "a step that none made", "an older step",
        "a life that fails", "few kills", "none inside a save", "few in one run",
    ],
)  # fmt: skip
def test_what_must_not_be_is_told(spoil, expected):
    runs = deepcopy(good())

    spoil(runs)

    assert verdicts(runs) == expected
