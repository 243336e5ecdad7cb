"""What `invoke prove plan` claims in its short form, and that its rows can miss."""

from dataclasses import replace

import pytest

from pipeline.plan.accelerators import RUNTIMES
from proofs.plan import published_runs
from tests.proofs.short_rows import short_rows


def test_the_short_proof_holds():
    """Published epochs and prices follow from the plan's laws."""
    rows = short_rows("plan")

    assert [row for row in rows if not row.passed] == []
    assert len(rows) == 2


@pytest.mark.parametrize("batch", [3, 4])
def test_an_epoch_that_no_law_tells_is_a_miss(monkeypatch, batch):
    seconds, steps = published_runs.EPOCHS["generator"]
    slower = tuple(1.05 * one if at == batch else one for at, one in enumerate(seconds))
    monkeypatch.setitem(published_runs.EPOCHS, "generator", (slower, steps))

    assert not published_runs.law_row().passed


def test_a_price_that_differs_in_its_last_digit_is_a_miss(monkeypatch):
    dearer = replace(RUNTIMES["colab-t4"], units=2.05)
    monkeypatch.setitem(RUNTIMES, "colab-t4", dearer)

    assert not published_runs.prices().passed
