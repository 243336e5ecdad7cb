"""The benchmark of 2018, retold: its ratios to the printed digit, its totals to their rounding."""

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


def test_each_total_is_the_sum_of_its_epochs():
    """As far as rounding lets it: that of each column, and of the mean for each further epoch."""
    rows = published_grid.rows() + published_grid.fed()

    assert len(rows) == 80 + 15
    assert [one for one in rows if abs(one.total(20) - one.measured) > 22 * ROUNDED] == []
