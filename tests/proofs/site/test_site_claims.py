"""What `invoke prove site` claims in its short form."""

from tests.proofs.short_rows import short_rows


def test_the_short_proof_holds():
    """Pushes, submissions and outputs on a Kaggle that behaves as was reported."""
    rows = short_rows("site")

    assert [row for row in rows if not row.passed] == []
    assert len(rows) == 15
