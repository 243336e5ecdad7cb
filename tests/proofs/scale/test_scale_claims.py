"""What `invoke prove scale` claims in its short form, and that its rows can miss."""

import pytest

from proofs.scale import adam, two_processes
from tests.proofs.short_rows import short_rows

ARM = {"gap": 1.0, "ratio": 1.0, "spread": 1.0}
CHECKED = {
    "passed": True,
    "scaled": ARM,
    "unscaled": {**ARM, "ratio": None},
    "limits": {"gap": 2.0, "ratio": 1.15, "spread": 3.0},
}
END = (1, 1, 20.0, 30)


def test_the_short_proof_holds():
    """Two processes of four devices compute what one of eight does."""
    rows = short_rows("scale")

    assert [row for row in rows if not row.passed] == []
    assert len(rows) == 1


def test_a_check_that_fails_with_one_triple_of_seeds_is_a_miss():
    assert adam.judged("adam", 8, dict.fromkeys("036", CHECKED)).passed

    for missing in ({"3": {**CHECKED, "passed": False}}, {"9": CHECKED}):
        assert not adam.judged("adam", 8, dict.fromkeys("036", CHECKED) | missing).passed


@pytest.mark.parametrize(
    ("distance", "unit", "passed"),
    [(1e-6, 2e-7, True), (3e-6, 2e-7, False), (1e-7, 0.0, False), (1e-5, 2e-4, False)],
)
def test_processes_that_compute_something_else_are_a_miss(distance, unit, passed):
    assert two_processes.near("claim", distance, unit).passed is passed


@pytest.mark.parametrize(
    "change",
    [
        {"same": False},
        {"ends": [END, END]},
        {"ends": [END, (0, 0, 1.0, 40), END]},
        {"ends": [END, (0, 1, 61.0, 40), END]},
        {"ends": [END, (0, 1, 1.0, 20), END]},
        {"ends": [END, END, END]},
    ],
)
def test_a_kill_that_costs_more_than_its_steps_is_a_miss(change):
    found = {"same": True, "ends": [END, (0, 1, 1.0, 40), (1, 1, 19.0, 40)]}
    assert two_processes.judged(found, 3).passed

    assert not two_processes.judged(found | change, 3).passed
