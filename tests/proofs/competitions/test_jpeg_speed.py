"""Each row of the proof of JPEGs can miss, and the photographs that it makes are the same each
time.
"""

import hashlib
from copy import deepcopy

import pytest
from PIL import Image

from proofs.competitions import jpeg_speed

GOOD = {
    "500x375": {
        "compared": 40,
        "differs": {
            "full": {"mean": 0.3, "max": 1.0, "psnr": 58.0},
            "reduced": {"mean": 1.9, "max": 60.0, "psnr": 37.0},
            "keras": {"mean": 3.1, "max": 84.0, "psnr": 32.0},
        },
        "images_per_second": {"full": 900, "reduced": 2700, "keras": 2000, "cached": 11_000},
        "images": 400,
        "cores": 2,
    }
}


def verdicts(found):
    return [row.passed for row in jpeg_speed.judged(found)]


def test_nearer_and_faster_and_cached_pass():
    assert verdicts(GOOD) == [True, True, True]


def test_without_times_there_is_a_row_of_pixels_alone():
    found = deepcopy(GOOD)
    del found["500x375"]["images_per_second"]

    assert verdicts(found) == [True]


def test_a_large_photograph_that_both_decode_alike_passes():
    found = deepcopy(GOOD)
    found["500x375"]["differs"]["reduced"] = dict(found["500x375"]["differs"]["full"])

    assert verdicts(found) == [True, True, True]


@pytest.mark.parametrize(
    ("where", "name", "value", "expected"),
    [
        ("reduced", "mean", 3.2, [False, True, True]),
        ("reduced", "max", 84.0, [False, True, True]),
        ("reduced", "psnr", 32.0, [False, True, True]),
        ("full", "mean", 2.0, [False, True, True]),
        (None, "reduced", 2599, [True, False, True]),
        (None, "cached", 4499, [True, True, False]),
    ],
)
def test_what_must_not_be_is_a_miss(where, name, value, expected):
    found = deepcopy(GOOD)
    one = found["500x375"]
    (one["differs"][where] if where else one["images_per_second"])[name] = value

    assert verdicts(found) == expected


def test_the_photographs_are_made_once_and_the_same(tmp_path):
    made = [jpeg_speed.make(tmp_path / name, 500, 375, 3) for name in ("a", "a", "b")]

    sums = [[hashlib.sha256(path.read_bytes()).hexdigest() for path in paths] for paths in made]
    assert sums[0] == sums[1] == sums[2]
    assert Image.open(made[0][2]).size == (500, 375)
