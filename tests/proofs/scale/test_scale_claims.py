"""What `invoke prove scale` claims in its short form, and that its rows can miss."""

from dataclasses import replace

import pytest

from pipeline.config import Data
from proofs.scale import adam, noisy_table, shipped, two_processes
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
    """Two processes of four devices compute what one of eight does, and no config goes too far."""
    rows = short_rows("scale")

    assert [row for row in rows if not row.passed] == []
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("kind", "name", "times", "rows", "beyond"),
    [
        ("table", "adam", 8, 64 * 64, False),
        ("table", "adamw", 8, 64 * 64 - 1, True),
        ("table", "adam", 9, 10**6, True),
        ("images", "adam", 2, 10**6, True),
        ("images", "adam", 1, 10, False),
        ("images", "sgd", 8, 10, False),
        ("images", "sgd", 9, 10**6, True),
    ],
)
def test_a_rate_that_is_scaled_beyond_what_was_seen_is_a_miss(kind, name, times, rows, beyond):
    config = noisy_table.config("adam", times, 0)
    data = config.data if kind == "table" else Data(height=8, width=8, channels=1)
    optimizer = replace(config.optimizer, name=name)
    small = replace(config, data=data, optimizer=optimizer)

    assert shipped.beyond_what_was_seen(small, rows) is beyond


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
