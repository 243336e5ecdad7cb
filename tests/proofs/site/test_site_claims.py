"""What `invoke prove site` claims in its short form."""

from tests.proofs.short_rows import short_rows


def test_the_short_proof_holds():
    """Both kinds of competition, their limits, late listings, hidden scores, and gates."""
    rows = short_rows("site")

    assert [row for row in rows if not row.passed] == []
    assert len(rows) == 5
