"""A benchmark's cells: eight patterns, three feeds, two ways, the most informative first."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pipeline.bench import cells
from pipeline.bench.cells import FEEDS, FIT, OURS, OWN_FEED, PATTERNS, UNSCALED, WAYS, Cell
from pipeline.errors import ConfigError

NUMBERS = some.sets(some.sampled_from(sorted(PATTERNS)), min_size=1)
SIZES = some.sets(some.integers(1, 4096), min_size=1, max_size=5)


@settings(max_examples=20)
@given(NUMBERS, SIZES)
def test_a_grid_has_every_possible_cell_once_and_compares_both_ways_if_it_is_cut(numbers, sizes):
    """Each cell of ours follows the same of fit, the unscaled rate is for one pattern alone, and
    the smallest batch comes first.
    """
    found = cells.grid(numbers, sizes)

    asked = (Cell(*each) for each in product(WAYS, numbers, (*FEEDS, OWN_FEED), sizes))
    possible = {cell for cell in asked if cells.possible(cell)}
    left_out = possible - set(found)
    assert len(found) == len(set(found)) and set(found) <= possible
    assert {cell.way for cell in left_out} <= {UNSCALED}
    assert len({cell.pattern for cell in found if cell.way == UNSCALED}) <= 1
    assert found[0].batch == min(sizes)
    for before, cell in zip([None, *found], found, strict=False):
        if cell.way != FIT:
            assert before.way == {OURS: FIT, UNSCALED: OURS}[cell.way]
            assert (before.pattern, before.batch) == (cell.pattern, cell.batch)


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
