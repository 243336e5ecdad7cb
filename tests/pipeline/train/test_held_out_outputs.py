"""Epochs are compared by the competition's metric, and by the loss where it has no value."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.labels import Target
from pipeline.evaluate import metrics
from pipeline.evaluate.held_out_rows import EpochScore


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
    assert told[0].startswith("Warning: auc has no value for these 2 rows")
