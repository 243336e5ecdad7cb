"""A benchmark's cells: eight patterns, three feeds, two ways, the most informative first."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from pipeline.bench import cells
from pipeline.bench.cells import (
    FEEDS,
    FIT,
    OURS,
    OWN_FEED,
    PATTERNS,
    UNSCALED,
    WAYS,
    Cell,
)
from pipeline.errors import ConfigError

NUMBERS = some.sets(some.sampled_from(sorted(PATTERNS)), min_size=1)
SIZES = some.sets(some.integers(1, 4096), min_size=1, max_size=5)


@given(NUMBERS, SIZES)
def test_a_grid_has_every_possible_cell_once(numbers, sizes):
    """Those of fit by its feeds; ours has one feed, and takes every core in place of workers."""
    found = cells.grid(numbers, sizes)

    feeds = (*FEEDS, OWN_FEED)
    asked = [
        Cell(way, number, feed, size)
        for way in WAYS
        for number in numbers
        for feed in feeds
        for size in sizes
    ]
    assert len(found) == len(set(found))
    first = next(number for number in cells.ORDER if number in numbers)
    assert set(found) == {
        cell
        for cell in asked
        if cells.possible(cell) and (cell.way != UNSCALED or cell.pattern == first)
    }


@given(NUMBERS, SIZES)
def test_a_grid_that_is_cut_has_compared_both_ways(numbers, sizes):
    """Each cell of ours follows the same one of fit; the smallest batch comes first."""
    found = cells.grid(numbers, sizes)

    for place, cell in enumerate(found):
        if cell.way != FIT:
            before = found[place - 1]
            order = {OURS: FIT, UNSCALED: OURS}
            assert before.way == order[cell.way]
            assert (before.pattern, before.batch) == (cell.pattern, cell.batch)
    assert found[0].batch == min(sizes)


@pytest.mark.parametrize(
    ("read", "texts", "said"),
    [
        (cells.read_patterns, "0 9 1..9 3..1 x 1,,2 .. -1", "numbers from 1 to 8"),
        (cells.read_batches, "0 64, x 64.5 -64", "images a step"),
    ],
)
def test_a_pattern_or_batch_that_is_none_is_named_with_the_edit(read, texts, said):
    for text in ["", *texts.split()]:
        with pytest.raises(ConfigError, match=rf"expected {said}(.|\n)*--(pattern|batch) \d"):
            read(text)
