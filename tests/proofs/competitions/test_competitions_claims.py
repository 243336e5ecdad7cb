"""What `invoke prove competitions` claims, in its short form."""

from tests.proofs.short_rows import short_rows


def test_usual_data_is_read_and_ends_in_a_valid_submission():
    """An unseen competition, and the counts of the feed; no times."""
    rows = short_rows("competitions")

    assert [row for row in rows if not row.passed] == []
    assert len(rows) == 3
