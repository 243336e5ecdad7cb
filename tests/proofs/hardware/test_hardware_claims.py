"""What `invoke prove hardware` claims in its short form, and that its rows can miss."""

from importlib.util import find_spec

import pytest

from proofs.hardware import compiled, feeding, half, resident, updates
from tests.proofs.short_rows import short_rows


@pytest.mark.skipif(not find_spec("libtpu"), reason="libtpu is for Linux on x86-64")
def test_the_short_proof_holds():
    """Updates as Keras makes them, equal batches on all devices, and a step compiled for a TPU."""
    rows = short_rows("hardware")

    assert [row for row in rows if not row.passed] == []
    assert len(rows) == 4


def told(memory=1e9, traffic=1e9, reduces=5, gathered=0):
    return {
        "memory": memory,
        "traffic": traffic,
        "collectives": {"all-reduce": reduces},
        "gathered": gathered,
    }


@pytest.mark.parametrize(
    ("case", "change", "missed"),
    [
        ("", {}, []),
        (compiled.GROUPS, {"memory": 4.3e9}, [0]),
        (compiled.GROUPS, {"traffic": 1.06e9}, [1]),
        (compiled.GROUPS, {"reduces": 6}, [2]),
        (compiled.HELD, {"gathered": 1}, [2]),
        ("digits", {"memory": 17e9}, [3]),
    ],
)
def test_a_step_that_takes_too_much_is_a_miss(case, change, missed):
    names = compiled.GROUPS, compiled.ONE_GROUP, compiled.HELD
    found = {name: told() for name in (*names, *compiled.SHIPPED, *compiled.NETWORKS)}
    found |= {case: told(**change)} if case else {}

    rows = list(compiled.judged(found))

    assert [place for place, row in enumerate(rows) if not row.passed] == missed


def test_slow_feeds_and_other_updates_are_misses():
    rates = {"ours one": 1, "copyto one": 2, "ours two": 1, "copyto two": 2}
    arms = {"ours": 199, "tf.data": 100, "Grain": 90}
    slow = {
        "gather": rates,
        "shares": {"one": 0.79, "two": 0.8},
        "augmented": {"flip": arms},
        "given back": {},
    }
    assert [row.passed for row in feeding.judged(slow)] == [False, True, False]

    exact = {"apart": 1e-13, "moved": 1.0}
    for change in ({"apart": 1e-11}, {"moved": 0.0}):
        found = {"float64": {"sgd": exact | change}, "float32": {"sgd": {"apart": 3.0, "ulp": 1.0}}}
        assert [row.passed for row in updates.judged(found)] == [False]

    same = {"compared": 4, "differing": 1, "steps": 1, "distinct": 1}
    assert not resident.judged_same(same).passed
    accuracy = {"float32": 0.9, "mixed_float16": 0.9}
    agreed = {"rows": 12_000, "agree": 0.998, "apart": 0.1, "golden": 0.1, "accuracy": accuracy}
    assert not half.judged(agreed).passed and half.judged(agreed | {"agree": 0.9991}).passed
