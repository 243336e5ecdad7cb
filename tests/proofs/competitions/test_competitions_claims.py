"""What `invoke prove competitions` claims, in its short form."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_usual_data_is_read_and_ends_in_a_valid_submission():
    """An unseen competition, and a few of each family of mutants and attacks; no times."""
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "prove", "competitions", "--short", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    told = json.loads(done.stdout.splitlines()[-1])
    assert [row for row in told["rows"] if not row["passed"]] == []
    assert (done.returncode, told["subject"]) == (0, "competitions") and len(told["rows"]) == 9
