"""Each row of the proof of scaling can miss. The rows themselves take too long for the tests."""

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest

from proofs.training import scaled_rate

ROOT = Path(__file__).resolve().parents[3]
ARM = {"gap": 1.0, "epoch": 9, "ratio": 1.0, "spread": 1.0, "holds": True}
SLOW = {**ARM, "gap": 40.0, "ratio": None, "holds": False}
CHECKED = {"scaled": ARM, "unscaled": SLOW, "limits": {"gap": 2.0, "ratio": 1.15, "spread": 3.0}}
NOISE = {"ours": {"scale": 120.0, "steps": 50}, "reference": {"scale": 130.0, "steps": 500}}


def test_a_rule_that_holds_and_a_check_that_can_tell_pass():
    assert [row.passed for row in scaled_rate.judged(CHECKED)] == [True, True]


@pytest.mark.parametrize(
    ("arm", "value", "expected"),
    [("scaled", SLOW, [False, True]), ("unscaled", ARM, [True, False])],
)
def test_what_must_not_be_is_told(arm, value, expected):
    spoiled = {**CHECKED, arm: value}

    assert [row.passed for row in scaled_rate.judged(spoiled)] == expected


@pytest.mark.parametrize(
    ("which", "name", "value"),
    [
        ("ours", "scale", 170.0), ("ours", "scale", 90.0), ("ours", "scale", None),
        ("reference", "scale", None),
        ("ours", "scale", 0.0), ("reference", "steps", 50),
    ],
)  # fmt: skip
def test_a_noise_scale_that_is_off_is_told(which, name, value):
    assert scaled_rate.noisy(NOISE).passed
    found = deepcopy(NOISE)
    found[which][name] = value

    assert not scaled_rate.noisy(found).passed


def test_a_competition_without_data_here_needs_a_folder():
    """CIFAR-100 is not embedded."""
    words = ("invoke", "scale-check", "--config", "cifar100_wrn", "--json")
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 2
    assert (
        "invoke scale-check --config cifar100_wrn --input DIR"
        in json.loads(done.stdout.splitlines()[-1])["error"]
    )
