"""The journal is shown so that nobody mistakes a command that sent nothing for one that spent."""

import pytest

from deploy import status
from deploy.errors import Ambiguous, DeadlinePassed, NoQuota, Refused
from deploy.journal import (
    PUBLISH,
    PUSH,
    SUBMIT,
    Absent,
    Ended,
    Failed,
    Journal,
    Made,
    Request,
    Sending,
    after,
)
from deploy.records import Records
from tests.deploy import steps

SENT, LOST, MADE = Sending(2), Failed(Ambiguous("Silence.")), Made(3, {})
NOT_KNOWN = "not known whether one was spent (still running, or interrupted)"
SCORED = Ended("COMPLETE", {"score": 0.99})


@pytest.mark.parametrize(
    ("kind", "answers", "words"),
    [
        (PUSH, [SENT, MADE, Ended("COMPLETE", {})], "pushed; COMPLETE"),
        (PUSH, [MADE], "was there already, nothing was sent"),
        (PUSH, [SENT, LOST, Absent()], "made nothing: it never arrived"),
        (PUSH, [SENT, MADE, Absent()], "is not at this Kaggle any more"),
        (PUSH, [SENT, Failed(NoQuota("None is left."))], "made nothing: None is left."),
        (PUBLISH, [SENT, MADE, Ended("READY", {})], "published"),
        (PUBLISH, [Failed(DeadlinePassed("It is late."))], "nothing was sent: It is late."),
        (PUBLISH, [SENT, LOST], "not known (Silence); the next command finds out"),
        (SUBMIT, [SENT, MADE, SCORED], "submission 3, score 0.99"),
        (SUBMIT, [MADE, SCORED], "followed submission 3, score 0.99; spent nothing"),
        (SUBMIT, [Failed(NoQuota("None is left."))], "spent nothing: None is left."),
        (SUBMIT, [SENT, Failed(Refused("No."))], "spent nothing: No."),
        (SUBMIT, [SENT], f"{NOT_KNOWN}; the next submit finds out"),
    ],
)
def test_each_end_of_a_command_has_words_of_its_own(kind, answers, words):
    """A row of a submission that was refused here looked like one that was spent."""
    request = Request(kind, "digits", "ann/digits")
    for answer in answers:
        request = after(request, answer)

    assert status.what_came(request) == words


def test_each_command_is_a_line_and_what_is_left_out_is_counted(ours):
    """The newest first; of another Kaggle's, how many there are."""
    journal, handle = Records(ours).journal, "ann/digits-infer-gpu"
    submitted = journal.intend(Request(SUBMIT, "digits", handle, kernel_version=1))
    for answer in (Sending(0), Made(7, {}), Ended("COMPLETE", {"score": 0.5})):
        submitted = journal.record(submitted, answer)
    pushed = journal.record(journal.intend(Request(PUSH, "digits", handle)), Sending(0))
    journal.record(pushed, Failed(Refused("no")))
    Journal(journal.path, "api.kaggle.com").intend(Request(PUBLISH, "digits", handle))

    head, names, *lines, left_out = steps.journal_lines(ours)

    assert head == f"Asked of {journal.server}"
    place = names.index("what came of it")
    ends = ["made nothing: no", "submission 7, score 0.5"]
    assert [line[place:] for line in lines] == ends
    assert [line.split()[3] for line in lines] == [handle, f"{handle}/1"]
    assert left_out == "Left out: 1 of the journal about another Kaggle, api.kaggle.com."
