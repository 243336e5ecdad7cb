"""What `invoke prove custom` claims in its short form, and that its row can miss."""

import pytest

from proofs.custom import broken_files, claims
from tests.proofs.short_rows import short_rows


# One of the broken metrics gets no rows.
@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")
def test_the_short_proof_holds():
    """Each own file that cannot work is refused with file, line and edit."""
    rows = short_rows("custom")

    assert [row for row in rows if not row.passed] == []
    assert len(rows) == 1


def test_a_broken_file_that_is_taken_or_told_without_its_name_is_a_miss(tmp_path):
    name = "loss with a mean"
    said = dict.fromkeys(broken_files.CASES, "")
    assert not claims.judged(said).passed

    told = broken_files.refusal(tmp_path, name)
    assert name not in claims.judged(said | {name: told}).figure
    assert name in claims.judged(said | {name: told.replace("digits_own", "it")}).figure
