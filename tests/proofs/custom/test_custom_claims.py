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


def test_an_option_that_depends_on_the_devices_or_does_nothing_is_a_miss():
    fine = {"apart": 2e-7, "ulp": 3e-7, "without": 1e-2}
    assert claims.judged_options({"rotate": fine}).passed

    for change in ({"apart": 4e-6}, {"without": 2e-5}, {"ulp": 2e-4}, {"apart": float("nan")}):
        row = claims.judged_options({"rotate": fine, "clip_norm": fine | change})
        assert not row.passed and "1 of 2" in row.figure and "not: clip_norm" in row.figure


def missed(rows) -> list[int]:
    """Return the places of the rows that miss."""
    return [place for place, row in enumerate(rows) if not row.passed]


def test_each_row_of_a_warm_start_can_miss():
    """A second stage that never gets there is one, too."""
    whole = {"same": 5, "arrays": 5, "scratch": 80, "warm": 40, "ends": [0.1, 0.2]}
    said = {"large": "cannot work: 2 arrays have other shapes: stem/kernel has (1,) there"}

    def judged(change, refused=said) -> list[int]:
        stages = [whole, whole | change]
        return missed(claims.warmed({"loss": 0.2, "stages": stages, "refused": refused}))

    assert judged({}) == []
    assert judged({"same": 4}) == [0]
    assert judged({"warm": 80}) == judged({"warm": None}) == [1]
    assert judged({}, {"large": ""}) == [2]
