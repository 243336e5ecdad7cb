"""Each row of the proof of scaling can miss. The rows themselves take too long for the tests."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from proofs.training import scaled_rate

ROOT = Path(__file__).resolve().parents[3]
ARM = {"gap": 1.0, "epoch": 9, "ratio": 1.0, "spread": 1.0, "holds": True}
SLOW = {**ARM, "gap": 40.0, "ratio": None, "holds": False}
CHECKED = {"scaled": ARM, "unscaled": SLOW, "limits": {"gap": 2.0, "ratio": 1.15, "spread": 3.0}}


def test_a_rule_that_holds_and_a_check_that_can_tell_pass():
    assert [row.passed for row in scaled_rate.judged(CHECKED)] == [True, True]


@pytest.mark.parametrize(
    ("arm", "value", "expected"),
    [("scaled", SLOW, [False, True]), ("unscaled", ARM, [True, False])],
)
def test_what_must_not_be_is_told(arm, value, expected):
    spoiled = {**CHECKED, arm: value}

    assert [row.passed for row in scaled_rate.judged(spoiled)] == expected


def test_a_competition_without_data_here_needs_a_folder():
    """CIFAR-100 is not embedded."""
    words = ("invoke", "scale-check", "--config", "cifar100_wrn", "--json")
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 2
    assert (
        "invoke scale-check --config cifar100_wrn --input DIR"
        in json.loads(done.stdout.splitlines()[-1])["error"]
    )
