"""A planned fault strikes the call that it is planned for, in the way that its name says, and no
other.
"""

import kagglesdk.kernels.types.kernels_api_service as types
import pytest
import requests

from localkaggle import fault_kinds, faults
from localkaggle.fault_kinds import KINDS
from localkaggle.faults import Faults
from tests.localkaggle.pushed_notebooks import notebook, save, soon

FOR_EVER = 3600.0
BEFORE = sorted(name for name, kind in KINDS.items() if not kind.after)
AFTER = sorted(name for name, kind in KINDS.items() if kind.after)


@pytest.fixture
def kaggle(start):
    return start(queue_seconds=FOR_EVER)


@pytest.fixture
def push(kaggle, client):
    """Return a function that pushes once and returns what the client raised.

    The client gives up after half a second on a kind that never answers in full, and on no other.
    """
    connected = client(kaggle)
    http = connected.http_client()
    http._init_session()
    send = http._session.send

    def once(kind="500"):
        timeout = 0.5 if KINDS[kind].silence or KINDS[kind].drip else 60
        http._session.send = lambda request, **options: send(
            request, **{**options, "timeout": timeout}
        )
        try:
            save(connected, notebook("1"))
        except (
            requests.RequestException,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
        ) as error:
            return error
        return None

    return once


def versions(kaggle) -> int:
    return sum(len(kernel.versions) for kernel in kaggle.kernels.kernels.values())


def test_there_are_more_than_twenty_ways():
    """Half of them leave the caller in doubt whether it happened."""
    assert len(BEFORE) >= 10 and len(AFTER) >= 10


@pytest.mark.parametrize("kind", BEFORE)
def test_what_comes_before_the_call_keeps_it_from_happening(kaggle, push, kind):
    """The next call is answered as always."""
    kaggle.faults.plan({0: kind})

    push(kind)

    assert soon(lambda: kaggle.faults.struck) and kaggle.faults.struck == [(0, kind, "SaveKernel")]
    assert versions(kaggle) == 0
    assert push() is None and versions(kaggle) == 1


@pytest.mark.parametrize("kind", AFTER)
def test_what_comes_after_the_call_does_not(kaggle, push, kind):
    """It has happened, whatever the client hears; and where the answer has nothing to change, it is
    the true one.
    """
    kaggle.faults.plan({0: kind})

    error = push(kind)

    assert soon(lambda: kaggle.faults.struck or error is None)
    assert versions(kaggle) == 1
    assert kaggle.faults.struck == [(0, kind, "SaveKernel")] or error is None


@pytest.mark.parametrize(
    ("kind", "operation"),
    [("unknown word", "GetKernelSessionStatus"), ("an older answer", "GetKernelSessionStatus")],
)
def test_some_ways_change_what_an_answer_says(kaggle, client, push, kind, operation):
    """Each strikes where its field is."""
    push()
    version = kaggle.kernels.version("rehearsal/small-kernel", 1)
    version.status = "COMPLETE"
    request = types.ApiGetKernelSessionStatusRequest()
    request.user_name, request.kernel_slug = "rehearsal", "small-kernel"
    kaggle.faults.plan({0: kind})

    try:
        said = (
            client(kaggle).kernels.kernels_api_client.get_kernel_session_status(request).status.name
        )
    except KeyError as error:
        said = error.args[0]

    assert said != "COMPLETE" and kaggle.faults.struck[0][2] == operation


def test_an_unknown_way_is_refused():
    """A schedule with a slip of the pen would prove nothing."""
    with pytest.raises(ValueError, match="unknown kinds"):
        Faults().plan({0: "gremlins"})


def test_calls_are_counted_from_the_plan_on(kaggle, push):
    """So that every call of a task can be the one that fails."""
    push()
    kaggle.faults.plan({1: "500"})

    assert push() is None and push() is not None
    assert kaggle.faults.seen == ["SaveKernel", "SaveKernel"]


def test_what_is_said_strikes_one_operation_one_after_the_other(kaggle, push):
    """None lets a request through; another operation is not concerned."""
    kaggle.faults.plan({})
    kaggle.faults.say("SaveKernel", ["500", None, fault_kinds.instead(403, {"code": 403})])
    kaggle.faults.say("GetKernel", ["500"])

    assert [push() is None for _ in range(4)] == [False, True, False, True]
    assert [(index, name) for index, name, _ in kaggle.faults.struck] == [
        (0, "500"),
        (2, faults.OWN),
    ]


def test_an_answer_can_be_any_instead_of_the_true_one(kaggle, push):
    """And nothing has happened then."""
    kaggle.faults.plan({})
    kaggle.faults.say(
        "SaveKernel", [fault_kinds.instead(429, {"code": 429, "message": "m"}, Retry_After="7")]
    )

    error = push()

    assert (
        error.response.status_code,
        error.response.headers["Retry-After"],
        versions(kaggle),
    ) == (429, "7", 0)


def test_a_true_answer_can_be_edited_and_something_else_can_happen_meanwhile(kaggle, client):
    """It has happened then."""
    happened = []
    kaggle.faults.plan({})
    kaggle.faults.say(
        "SaveKernel",
        [
            fault_kinds.edited(versionNumber=9),
            fault_kinds.meanwhile(lambda: happened.append(versions(kaggle))),
        ],
    )

    connected = client(kaggle)

    answers = [
        save(connected, notebook("1"), slug=slug).version_number
        for slug in ("first-one", "second-one")
    ]

    assert (answers, happened, versions(kaggle)) == ([9, 1], [2], 2)


def test_a_new_plan_forgets_what_was_said(kaggle, push):
    """A schedule begins with nothing planned."""
    kaggle.faults.say("SaveKernel", ["500"])
    kaggle.faults.plan({})

    assert push() is None
