"""The journal shows clearly which commands sent or spent something."""

import pytest

from deploy import status
from deploy.errors import Ambiguous, DeadlinePassed, NoQuota, Refused
from deploy.journal import (
    PUBLISH,
    PUSH,
    SUBMIT,
    Journal,
    Request,
    State,
    after,
    failed,
)
from deploy.records import Records
from tests.deploy import steps
from tests.deploy.small import recorded

SENT, LOST, MADE = (
    (State.SENT, {"before": 2}),
    Ambiguous("Silence."),
    (State.VERSION, {"number": 3}),
)
UNKNOWN = "may have spent a submission (still running, or interrupted)"
SCORED = (State.ENDED, {"status": "COMPLETE", "score": 0.99})


@pytest.mark.parametrize(
    ("kind", "answers", "words"),
    [
        (PUSH, [SENT, MADE, (State.ENDED, {"status": "COMPLETE"})], "pushed; COMPLETE"),
        (PUSH, [MADE], "already existed, so nothing was sent"),
        (PUSH, [SENT, LOST, (State.ABSENT, {})], "created nothing: the request was never received"),
        (PUSH, [SENT, MADE, (State.ABSENT, {})], "no longer exists on this Kaggle server"),
        (PUSH, [SENT, NoQuota("None is left.")], "created nothing: None is left."),
        (PUBLISH, [SENT, MADE, (State.ENDED, {"status": "READY"})], "published"),
        (PUBLISH, [DeadlinePassed("It is late.")], "nothing was sent: It is late."),
        (PUBLISH, [SENT, LOST], "unknown (Silence); the next command will check it"),
        (SUBMIT, [SENT, MADE, SCORED], "submission 3, score 0.99"),
        (SUBMIT, [MADE, SCORED], "followed submission 3, score 0.99; spent nothing"),
        (SUBMIT, [NoQuota("None is left.")], "spent nothing: None is left."),
        (SUBMIT, [SENT, Refused("No.")], "spent nothing: No."),
        (SUBMIT, [SENT], f"{UNKNOWN}; the next submit will check it"),
    ],
)
def test_each_result_of_a_command_is_described_differently(kind, answers, words):
    """A refused submission once looked like a spent one."""
    request = Request(kind, "digits", "ann/digits")
    for answer in answers:
        if isinstance(answer, Exception):
            request = failed(request, answer)
        else:
            request = after(request, answer[0], **answer[1])

    assert status.what_came(request) == words


def test_each_command_is_a_line(ours):
    """The newest first; none of another Kaggle's."""
    journal, handle = Records(ours).journal, "ann/digits-infer-gpu"
    submitted = Request(SUBMIT, "digits", handle, kernel_version=1)
    recorded(journal, submitted, 7, status="COMPLETE", score=0.5)
    pushed = journal.intend(Request(PUSH, "digits", handle))
    journal.fail(journal.record(pushed, State.SENT, before=0), Refused("no"))
    Journal(journal.path, "api.kaggle.com").intend(Request(PUBLISH, "digits", handle))

    head, names, *lines = steps.journal_lines(ours)

    assert head == f"Sent to {journal.server}"
    place = names.index("result")
    ends = ["created nothing: no", "submission 7, score 0.5"]
    assert [line[place:] for line in lines] == ends
    assert [line.split()[3] for line in lines] == [handle, f"{handle}/1"]
