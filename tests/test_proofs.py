"""The short forms of what docs/results.md claims hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from proofs import table
from proofs.table import Row, Table

ROOT = Path(__file__).resolve().parent.parent


def test_the_kaggle_side_never_lies_and_never_loses():
    """A sample of the faults, schedules, kills and secrets that the full proof tries."""
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "prove", "kaggle", "--short", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    told = json.loads(done.stdout.splitlines()[-1])
    assert [row for row in told["rows"] if not row["passed"]] == []
    assert (done.returncode, told["subject"]) == (0, "kaggle") and len(told["rows"]) >= 6


def test_a_miss_is_told_by_the_exit_code_and_stays_in_the_table(tmp_path):
    """No figure is edited away."""
    results = tmp_path / "results.md"
    results.write_text("# Results\n<!-- prove x -->\nold\n<!-- end x -->\n")
    missed = Table(
        "x", (Row("It is fast", "≤ 1 s", "2 s | slow", False, 7), Row("It is right", "yes", "yes", True)), {"date": "d"}
    )

    table.record(missed, results)

    assert not missed.passed and "old" not in results.read_text()
    assert "| It is fast | ≤ 1 s | 2 s \\| slow | 7 | MISS |" in results.read_text()


def test_a_subject_without_a_place_in_the_results_is_refused(tmp_path):
    """Rather than lost."""
    (tmp_path / "results.md").write_text("# Results\n")

    with pytest.raises(ValueError, match="expected 1"):
        table.record(Table("x", (), {}), tmp_path / "results.md")


def test_a_table_without_rows_proves_nothing():
    """An empty list of failures is no success."""
    assert not Table("x", (), {}).passed
