"""A competition that the local Kaggle does not host is made by a function, and nothing else is
taken for one.
"""

import pytest

from localkaggle.competitions import foreign
from localkaggle.server import LocalKaggle


def test_the_unseen_competition_is_served_for_one_run(tmp_path):
    """Its labels are nowhere below the folder that is served."""
    made = foreign.make("proofs.competitions.unseen:unseen")

    with LocalKaggle(tmp_path / "kaggle", competitions=[made], offline=True) as local:
        hidden = local.competitions.folder("varieties", hidden=True)

    assert made.slug == "varieties" and len(list((hidden / "images_test").iterdir())) == 200
    placeholders = {
        line.split(",")[1]
        for line in (hidden / "submission_format.csv").read_text().splitlines()[1:]
    }
    assert placeholders == {"leaves"}


@pytest.mark.parametrize(
    "address",
    [
        "",
        "nonsense",
        "no.such.module:f",
        "proofs.competitions.unseen:no",
        "proofs.competitions.unseen:TRAIN",
        ":",
        "..:x",
    ],
)
def test_what_makes_no_competition_is_refused(address):
    with pytest.raises(ValueError, match="expected"):
        foreign.make(address)
