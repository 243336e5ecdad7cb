"""The benchmark of 2018, retold: its ratios to the printed digit, its totals to their rounding."""

import pytest

from pipeline.bench import published_grid
from pipeline.bench.published_grid import row

ROUNDED = 0.05  # seconds: its columns have one digit behind the point


def test_its_headlines_come_out_of_its_rows():
    """24.31 and 21.93 against a GPU at its slowest batch; 3.17 and 3.07 at the same batch."""
    slow, fast = row("gpu", 64, 3), row("tpu", 4096, 3)
    equal = row("gpu", 256, 3), row("tpu", 256, 3)

    ratios = [slow.mean / fast.mean, slow.measured / fast.measured]
    ratios += [equal[0].mean / equal[1].mean, equal[0].measured / equal[1].measured]

    assert [f"{ratio:.2f}" for ratio in ratios] == ["24.31", "21.93", "3.17", "3.07"]


@pytest.mark.parametrize("one", [*published_grid.rows(), *published_grid.fed()], ids=str)
def test_each_total_is_the_sum_of_its_epochs(one):
    """As far as rounding lets it: that of each column, and of the mean nineteen times."""
    assert abs(one.total(20) - one.measured) <= (1 + 1 + 19 + 1) * ROUNDED


def test_all_of_its_rows_are_here():
    """Ten batches of two devices in eight patterns, and five in three feeds."""
    found = {(one.device, one.batch, one.pattern) for one in published_grid.rows()}

    assert (len(found), len(published_grid.fed())) == (80, 15)
