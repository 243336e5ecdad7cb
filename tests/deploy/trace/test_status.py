"""The journal is shown so that nobody mistakes a command that sent nothing for one that spent."""

import pytest

from deploy import status
from deploy.errors import Refused
from deploy.journal import ABSENT, COLUMNS, DONE, GONE, INTENDED, Journal, Outcome

MADE = {"outcome": DONE, "version": 3}
LOST, TAKEN = {"outcome": Outcome.NO_ANSWER}, {"outcome": INTENDED, "sent": 1}
NOT_KNOWN = "not known whether one was spent: still running, or interrupted"
LOST_WORDS = "not known: no answer came; the next"
REFUSED = {"outcome": Outcome.REFUSED, "sent": 1}
SCORED = {"outcome": DONE, "ref": 7, "score": 0.99}


def row(table: str, **values: object) -> dict[str, object]:
    return {"at": "2026-11-21T09:00:00+00:00", **dict.fromkeys(COLUMNS[table]), **values}


@pytest.mark.parametrize(
    ("table", "values", "words"),
    [
        ("pushes", MADE | {"before": 2, "status": "COMPLETE"}, "pushed; COMPLETE"),
        ("pushes", MADE, "was there already, nothing was sent"),
        ("pushes", {"outcome": ABSENT}, "made nothing: it never arrived"),
        ("pushes", MADE | {"outcome": GONE}, "is not at this Kaggle any more"),
        ("pushes", {"outcome": Outcome.NO_QUOTA}, "made no version to use: no quota was left"),
        ("pushes", LOST, f"{LOST_WORDS} command finds out"),
        ("publishes", MADE | {"before": 0}, "published"),
        ("publishes", {"outcome": Outcome.LATE}, "nothing was sent: its time was up"),
        ("publishes", LOST | {"before": 0}, f"{LOST_WORDS} publish finds out"),
        ("submissions", SCORED | {"sent": 1}, "submission 7, score 0.99"),
        ("submissions", SCORED, "followed submission 7, score 0.99; spent nothing"),
        ("submissions", {"outcome": Outcome.NO_QUOTA}, "spent nothing: no quota was left"),
        ("submissions", REFUSED, "Kaggle took no submission: Kaggle refused"),
        ("submissions", TAKEN, f"{NOT_KNOWN}; the next submit finds out"),
    ],
)
def test_each_end_of_a_command_has_words_of_its_own(table, values, words):
    """A row of a submission that was refused here looked like one that was spent."""
    assert status.outcome_of(table, row(table, **values)) == words


def test_each_command_is_a_line_and_what_is_left_out_is_counted(ours):
    """The newest first; of another Kaggle's, how many there are."""
    journal, handle = ours.journal(), "ann/digits-infer-gpu"
    with journal.recording("submissions", config="digits", handle=handle, kernel_version=1) as done:
        done.update(sent=1, ref=7, score=0.5)
    with pytest.raises(Refused), journal.recording("pushes", config="digits", handle=handle):
        raise Refused("no")
    with Journal(journal.path, "api.kaggle.com").recording("publishes", config="digits"):
        pass

    head, names, *lines, left_out = status.journal_lines(ours)

    assert head == f"Asked of {journal.server}"
    place = names.index("what came of it")
    ends = ["made no version to use: Kaggle refused", "submission 7, score 0.5"]
    assert [line[place:] for line in lines] == ends
    assert [line.split()[3] for line in lines] == [handle, f"{handle}/1"]
    assert left_out.startswith("1 entry of the journal is about another Kaggle, api.kaggle.com")
