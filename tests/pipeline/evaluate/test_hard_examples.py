"""The rows that a model is most wrong about are kept, with what they look like."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import ReportError
from pipeline.evaluate import hard_examples


@given(st.lists(st.floats(0, 10) | st.just(float("nan")), max_size=40), st.integers(1, 30))
@settings(max_examples=30)
def test_no_row_that_is_left_out_cost_more_than_one_that_is_kept(losses, most):
    """A loss that is no number is the worst of all."""
    values = np.array(losses)

    chosen = hard_examples.worst(values, most)

    costs = np.where(np.isnan(values), 1e9, values)
    assert costs[chosen].tolist() == sorted(costs, reverse=True)[:most]
    assert len(chosen) == len(set(chosen.tolist()))


def kept(folder, rows, losses, inputs, **more):
    path = hard_examples.keep_examples(folder, np.array(rows), np.array(losses), inputs, **more)
    assert [one.name for one in folder.iterdir()] == ["examples.npz"]
    return hard_examples.load(path, rows=51)


def test_each_picture_stays_with_its_row(tmp_path):
    """Wherever the rows lie in validation.csv, and in whatever order they come; those of a table
    have none.
    """
    rows, losses = [50, 3, 7, 20], [1.0, 3.0, 0.5, 2.0]
    inputs = (np.array(rows)[:, None, None, None] * np.ones((1, 8, 6, 3))).astype(np.uint8)

    found = kept(tmp_path, rows, losses, inputs, most=3)

    assert found.indices.tolist() == [3, 20, 50]
    assert found.pixels[:, 0, 0, 0].tolist() == [3, 20, 50]
    assert kept(tmp_path, rows, losses, None, most=2).pixels is None


@pytest.mark.parametrize(
    ("shape", "small"), [((600, 400, 3), (256, 171, 3)), ((10, 2000, 1), (1, 256, 1))]
)
def test_a_large_picture_is_made_smaller_and_keeps_its_form(tmp_path, shape, small):
    """A page with two dozen of them can still be sent to somebody."""
    found = kept(tmp_path, [0, 1], [1.0, 1.0], np.full((2, *shape), 200, np.uint8))

    assert found.pixels.shape == (2, *small) and (found.pixels == 200).all()


@pytest.mark.parametrize(
    "arrays",
    [
        {"indices": np.array([0, 9])},
        {"indices": np.array([0.5])},
        {"indices": np.array([0]), "pixels": np.zeros((2, 8, 8, 1), np.uint8)},
        {"indices": np.array([0], object)},
    ],
)
def test_another_file_of_that_name_is_refused(tmp_path, arrays):
    """It is of another run, or somebody else's; and nothing in it is run."""
    np.savez(tmp_path / "examples.npz", **arrays)

    with pytest.raises(ReportError, match=r"examples\.npz is not what keep_examples writes"):
        hard_examples.load(tmp_path / "examples.npz", rows=5)
