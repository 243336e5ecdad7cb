"""What `invoke prove bench` claims in its short form, and that its rows can miss."""

import pytest

from pipeline.bench import published_grid
from proofs.bench import published
from tests.proofs.short_rows import short_rows

OTHER = "tpu 64 7: 2.8 832.7 774.3 5.1 15546.7, 3.5 889.2 798.4"


def test_the_short_proof_holds():
    """The benchmark of 2018 comes out of its rows."""
    rows = short_rows("bench")

    assert [row for row in rows if not row.passed] == []
    assert len(rows) == 3


@pytest.mark.parametrize(
    ("row", "was", "edited"),
    [
        (published.headlines, "tpu 256 3: 0.9 394.3 234.6", "tpu 256 3: 0.9 394.3 235.1"),
        (published.totals, "tpu 64 7: 2.8 832.7 774.3 5.1 15546.7, 3.5 889.2 797.4", OTHER),
        (published.law, "0.2 166.9 58.2", "0.2 166.9 61.2"),
    ],
)
def test_a_figure_of_2018_that_is_another_is_a_miss(row, was, edited, monkeypatch):
    before = published_grid.GRID, published_grid.FED
    after = [text.replace(was, edited) for text in before]
    monkeypatch.setattr(published_grid, "GRID", after[0])
    monkeypatch.setattr(published_grid, "FED", after[1])

    assert tuple(after) != before

    assert not row().passed
