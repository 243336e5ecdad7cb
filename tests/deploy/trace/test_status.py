"""The journal is shown so that nobody mistakes a command that sent nothing for one that spent."""

import pytest

from deploy.errors import NoQuota, Refused
from deploy.journal import ABSENT, COLUMNS, DONE, GONE, INTENDED, Journal, Outcome
from deploy.trace import status

MADE = {"outcome": DONE, "version": 3}
LOST, TAKEN = {"outcome": Outcome.NO_ANSWER}, {"outcome": INTENDED, "sent": 1}
NOT_KNOWN = "not known whether one was spent: still running, or interrupted"
FAILED = {"outcome": Outcome.FAILED, "sent": 1, "ref": 7}
SCORED = {"outcome": DONE, "ref": 7, "score": 0.99}


def row(table: str, **values: object) -> dict[str, object]:
    return {"at": "2026-11-21T09:00:00+00:00", **dict.fromkeys(COLUMNS[table]), **values}


@pytest.mark.parametrize(
    ("table", "values", "words"),
    [
        ("pushes", MADE | {"before": 2}, "pushed"),
        ("pushes", MADE | {"before": 2, "status": "COMPLETE"}, "pushed; COMPLETE"),
        ("pushes", MADE, "was there already, nothing was sent"),
        ("pushes", {"outcome": ABSENT}, "made nothing: it never arrived"),
        ("pushes", MADE | {"outcome": GONE}, "is not at this Kaggle any more"),
        ("pushes", {"outcome": Outcome.NO_QUOTA}, "made no version to use: no quota was left"),
        ("pushes", LOST, "not known: no answer came; the next command finds out"),
        ("publishes", MADE | {"before": 0}, "published"),
        ("publishes", MADE, "was there already, nothing was sent"),
        ("publishes", {"outcome": Outcome.LATE}, "nothing was sent: its time was up"),
        (
            "publishes",
            LOST | {"before": 0},
            "not known: no answer came; the next publish finds out",
        ),
        ("submissions", SCORED | {"sent": 1}, "submission 7, score 0.99"),
        ("submissions", FAILED, "submission 7, no score: the run failed"),
        ("submissions", SCORED, "followed submission 7, score 0.99; spent nothing"),
        ("submissions", {"outcome": Outcome.NO_QUOTA}, "spent nothing: no quota was left"),
        ("submissions", {"outcome": Outcome.UNCLEAR}, "spent nothing: an error ended it"),
        (
            "submissions",
            TAKEN | {"outcome": Outcome.REFUSED},
            "Kaggle took no submission: Kaggle refused",
        ),
        ("submissions", TAKEN, f"{NOT_KNOWN}; the next submit finds out"),
    ],
)
def test_each_end_of_a_command_has_words_of_its_own(table, values, words):
    """A row of a submission that was refused here looked like one that was spent."""
    assert status.outcome_of(table, row(table, **values)) == words


def test_the_table_has_its_columns_below_each_other(ours):
    """One line a command, the newest first, no key=value."""
    journal = ours.journal()
    handle = "ann/digits-infer-gpu"
    with journal.recording("submissions", config="digits", handle=handle, kernel_version=1) as done:
        done.update(sent=1, ref=7, score=0.5)
    with (
        pytest.raises(NoQuota),
        journal.recording("submissions", config="digits", handle=handle, kernel_version=12),
    ):
        raise NoQuota("none left")
    with pytest.raises(Refused), journal.recording("pushes", config="digits", handle=handle):
        raise Refused("no")

    head, names, *lines = status.journal_lines(ours)

    assert head == f"Asked of {journal.server}"
    place = names.index("what came of it")
    assert [line[place:] for line in lines] == [
        "made no version to use: Kaggle refused",
        "spent nothing: no quota was left",
        "submission 7, score 0.5",
    ]
    assert all(line[place - 2 : place] == "  " and "=" not in line for line in lines)
    assert [line.split()[3] for line in lines] == [handle, f"{handle}/12", f"{handle}/1"]


def test_what_is_left_out_is_counted(ours):
    """In the singular, too."""
    path = ours.journal().path
    for _ in range(2):
        with Journal(path, "127.0.0.1:4001").recording("pushes", config="digits"):
            pass
    with Journal(path, "api.kaggle.com").recording("publishes", config="digits"):
        pass

    head, *rest = status.journal_lines(ours)

    assert head.endswith("nothing yet")
    assert rest == [
        "2 entries of the journal are about another Kaggle, 127.0.0.1:4001, and are left out.",
        "1 entry of the journal is about another Kaggle, api.kaggle.com, and is left out.",
    ]


def test_the_state_is_shown_with_what_is_left_of_the_week():
    """An hour is one hour."""
    found = {"runs": {"ann/digits-train-tpu/3": "RUNNING"}, "hours_left": {"TPU": 1.0, "GPU": None}}

    assert status.state_lines(found) == [
        "now             ann/digits-train-tpu/3  RUNNING",
        "left this week  TPU                     1.0 hour",
        "left this week  GPU                     not known",
    ]
