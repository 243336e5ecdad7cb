"""What `invoke prove custom` claims in its short form, and that its row can miss."""

import json
import subprocess
import sys
from pathlib import Path

from proofs.custom import broken_files, claims

ROOT = Path(__file__).resolve().parents[3]


def test_the_short_proof_holds():
    """Each own file that cannot work is refused with file, line and edit."""
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "prove", "custom", "--short", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    told = json.loads(done.stdout.splitlines()[-1])
    assert [row for row in told["rows"] if not row["passed"]] == []
    assert (done.returncode, told["subject"]) == (0, "custom") and len(told["rows"]) == 1


def test_a_broken_file_that_is_taken_or_told_without_its_name_is_a_miss(tmp_path):
    name = "loss with a mean"
    said = dict.fromkeys(broken_files.CASES, "")
    assert not claims.judged(said).passed

    told = broken_files.refusal(tmp_path, name)
    assert name not in claims.judged(said | {name: told}).figure
    assert name in claims.judged(said | {name: told.replace("digits_own", "it")}).figure
