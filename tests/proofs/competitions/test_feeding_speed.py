"""What the proof of feeding claims in its short form, and that each of its rows can miss."""

import numpy as np
import pytest

from pipeline.data.dataset import Batches
from proofs.competitions import feeding_speed

GOOD = {
    "images_per_second": {
        "ours": 130_000, "theirs": 10_000, "ready": 10**6, "fit_ours": 100_000,
        "fit_theirs": 10_000, "fit_ready": 200_000,
    },
    "images": 24_576, "wrong": 0, "parameters": 40, "cores": 2,
}  # fmt: skip


def test_an_image_that_comes_twice_is_counted(monkeypatch):
    monkeypatch.setattr(Batches, "order", lambda self, epoch: np.arange(len(self)) // 2)

    found = feeding_speed.counted(((40, 8),))

    assert (found["wrong"], found["strayed"]) == (3 * 40, 0)
    assert not feeding_speed.counted_row(found).passed


def test_ten_and_thirteen_times_as_fast_pass():
    assert [row.passed for row in feeding_speed.judged(GOOD)] == [True, True]


@pytest.mark.parametrize(
    ("rates", "others", "expected"),
    [
        ({"ours": 129_000}, {}, [False, True]),
        ({"fit_ours": 99_000}, {}, [True, False]),
        ({"fit_ready": 99_000}, {}, [True, False]),
        ({}, {"wrong": 1}, [False, False]),
    ],
    ids=[
        "a slow loader",
        "a slow fit",
        "a model that is slower than the feed",
        "an image that came twice",
    ],
)
def test_what_must_not_be_is_a_miss(rates, others, expected):
    found = {**GOOD, **others, "images_per_second": {**GOOD["images_per_second"], **rates}}

    assert [row.passed for row in feeding_speed.judged(found)] == expected
