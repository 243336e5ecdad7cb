"""Held-out outputs are those of every row, whatever stops the session, and are computed once; and
epochs are compared by the competition's metric, and by the loss where it has no value.
"""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.labels import Target
from pipeline.evaluate import metrics
from pipeline.evaluate.held_out_rows import EpochScore
from pipeline.train import held_out_outputs

INPUTS = np.random.default_rng(0).integers(0, 256, (50, 3), np.uint8)
ROWS = np.random.default_rng(1).permutation(50)[:37]


def scoring(name, labels, show=print):
    target = Target("classes", ("a", "b"))
    return EpochScore(metrics.find(name, "classes"), target, np.array(labels, np.int32), show)


@given(*[st.tuples(st.none() | st.floats(0, 1), st.floats(0, 9)) for _ in range(2)])
def test_the_better_epoch_has_the_better_score_and_of_equals_the_smaller_loss(one, other):
    """Whether greater is better depends on the metric."""
    for name, sign in (("auc", 1), ("log_loss", -1)):
        score = scoring(name, [0, 1])

        def order(value, loss, name=name, score=score):
            measured = {} if value is None else {f"validation_{name}": value}
            return score.order(measured | {"validation_loss": loss})

        better = order(*one) > order(*other)
        (ours, loss), (theirs, other_loss) = one, other
        if ours is None or theirs is None:
            expected = loss < other_loss if ours is theirs else theirs is None
        else:
            ahead = sign * (ours - theirs)
            expected = loss < other_loss if ours == theirs else ahead > 0
        assert better == expected


def test_a_metric_without_a_value_is_a_warning_and_no_score():
    told: list[str] = []
    outputs = np.array([[2.0, 0], [0, 1]], np.float32)

    assert scoring("auc", [0, 1], told.append).of(outputs) == {"validation_auc": 1.0}
    assert told == []
    assert scoring("auc", [0, 0], told.append).of(outputs) == {}
    assert len(told) == 1
    assert told[0].startswith("Warning: auc has no value for 2 validation rows after")


class Clock:
    """A session that ends after it was asked this many times."""

    def __init__(self, asked=10**6):
        self.asked, self.steps = asked, 0

    def progress(self):
        """Count what is done."""
        self.steps += 1

    def over(self, reserve):
        """Return a reason once it was asked often enough."""
        self.asked -= 1
        return "the end" if self.asked < 0 else None


def computed(folder, clock=None, run="a", devices=None, batches=None):
    """Return the outputs: three numbers of each row."""
    mesh = devices and jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("batch",))

    def forward(batch):
        if batches is not None:
            batches.append(len(batch))
        return jax.numpy.asarray(batch, "float32") * 2

    return held_out_outputs.compute(
        forward, INPUTS, ROWS, mesh=mesh, batch=8, folder=folder, run=run, session=clock or Clock()
    )


@pytest.mark.parametrize("devices", [None, 4])
def test_each_row_has_its_outputs(tmp_path, devices):
    """And the watchdog hears of each batch."""
    clock = Clock()

    found = computed(tmp_path, clock, devices=devices)

    assert np.array_equal(found, INPUTS[ROWS] * np.float32(2)) and clock.steps == 5


@pytest.mark.parametrize("asked", range(4))
def test_a_session_that_ends_computes_none_and_the_next_one_all_of_them_once(tmp_path, asked):
    batches: list[int] = []
    assert computed(tmp_path, Clock(asked)) is None

    assert np.array_equal(computed(tmp_path, batches=batches), INPUTS[ROWS] * np.float32(2))
    assert len(batches) == 5
    computed(tmp_path, batches=batches)
    assert len(batches) == 5  # all is saved


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(b"PK\x03"), None])
def test_outputs_of_other_weights_or_in_a_corrupt_file_are_not_used(tmp_path, spoil):
    computed(tmp_path)
    if spoil is not None:
        spoil(tmp_path / held_out_outputs.FILE)
    batches: list[int] = []

    computed(tmp_path, run="a" if spoil else "b", batches=batches)

    assert len(batches) == 5
