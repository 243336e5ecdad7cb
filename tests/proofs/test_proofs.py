"""A table of results keeps what was missed."""

from dataclasses import replace
from pathlib import Path

import pytest

from proofs.shared import results_table
from proofs.shared.results_table import Later, Row, Table

ROOT = Path(__file__).resolve().parents[2]


def test_a_miss_is_told_by_the_exit_code_and_stays_in_the_table(tmp_path):
    """No figure is edited away."""
    results = tmp_path / "results.md"
    results.write_text("# Results\n<!-- prove x -->\nold\n<!-- end x -->\n")
    missed = Table(
        "x",
        (
            Row("It is fast", "≤ 1 s", "2 s | slow", False, 7),
            Row("It is right", "yes", "yes", True),
        ),
        {"date": "d"},
    )

    results_table.record(missed, results)

    assert not missed.passed and "old" not in results.read_text()
    assert "| It is fast | ≤ 1 s | 2 s \\| slow | 7 | MISS |" in results.read_text()


def test_a_row_that_is_measured_again_replaces_its_own_line_alone(tmp_path):
    """Its commit stands beside it, since the others are of another one."""
    results, slow = tmp_path / "results.md", Row("It is fast", "≤ 1 s", "2 s", False)
    results.write_text("<!-- prove x -->\n<!-- end x -->\n")
    results_table.record(Table("x", (slow, Row("It is right", "yes", "yes", True)), {}), results)
    before = results.read_text()
    made = [Later("It is fast", lambda: replace(slow, figure="1 s", passed=True)), slow]

    again = results_table.measure(
        "x", made[:1], ROOT, command="prove x", show=lambda line: None, only="fast"
    )
    results_table.record(again, results, only="fast")

    when = f"{again.where['date']}, commit {again.where['commit']}"
    line = "| It is fast | ≤ 1 s | 2 s |  | MISS |"
    assert results.read_text() == before.replace(
        line, f"| It is fast | ≤ 1 s | 1 s ({when}) |  | pass |"
    )
    other = results_table.measure("x", made, ROOT, command="", show=lambda line: None, only="odd")
    with pytest.raises(ValueError, match="no row 'odd' to record"):
        results_table.record(other, results, only="odd")


def test_rows_are_recorded_one_by_one_in_an_empty_section(tmp_path):
    """As where all of them take longer than a session has."""
    results = tmp_path / "results.md"
    results.write_text("<!-- prove x -->\n<!-- end x -->\n# Next\n")
    for claim in ("It is fast", "It is right"):
        table = Table("x", (Row(claim, "yes", "yes", True),), {"date": "d", "commit": "c"})
        results_table.record(table, results, only=claim)
    assert results.read_text().splitlines() == [
        "<!-- prove x -->",
        "date d, commit c.",
        "",
        "| claim | target | figure | seed | |",
        "|---|---|---|---|---|",
        "| It is fast | yes | yes (d, commit c) |  | pass |",
        "| It is right | yes | yes (d, commit c) |  | pass |",
        "<!-- end x -->",
        "# Next",
    ]


def test_a_subject_without_a_place_in_the_results_is_refused(tmp_path):
    """Rather than lost."""
    (tmp_path / "results.md").write_text("# Results\n")

    with pytest.raises(ValueError, match="expected 1"):
        results_table.record(Table("x", (), {}), tmp_path / "results.md")


def test_a_table_without_rows_proves_nothing():
    """An empty list of failures is no success."""
    assert not Table("x", (), {}).passed
