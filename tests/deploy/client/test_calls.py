"""Kaggle's answers are read strictly: anything unexpected is an error that names the call."""

from datetime import UTC, datetime

import pytest

from deploy import calls
from deploy.decoding import camel_case
from deploy.errors import BadAnswer

COMPETITION, QUOTA = "GetCompetition", "GetAcceleratorQuotaStatistics"
QUESTIONS = {
    COMPETITION: lambda kaggle: kaggle.competition("digits"),
    QUOTA: lambda kaggle: kaggle.quota(),
    "ListSubmissions": lambda kaggle: kaggle.list_submissions("digits"),
}


@pytest.mark.parametrize(
    "call",
    [one for one in vars(calls).values() if isinstance(one, calls.Call)],
    ids=lambda call: call.method,
)
def test_a_value_of_a_request_is_called_in_json_as_kagglesdk_does(call):
    """It would silently drop a value of another name."""
    names = {field.field_name: field.json_name for field in call.request({})._fields}

    assert names == {name: camel_case(name) for name in names}


@pytest.mark.parametrize(
    ("method", "answer", "said"),
    [
        (COMPETITION, {"id": None, "ref": "digits"}, "no id"),
        (COMPETITION, {"id": True}, "id: expected int, got bool"),
        (COMPETITION, {"id": 1, "deadline": "long ago"}, "deadline: expected datetime, got str"),
        (COMPETITION, (200, [1]), "list"),
        (COMPETITION, {"code": "404", "message": "a code that is a text"}, "not supported"),
        (QUOTA, {"tpuQuota": [1]}, "tpuQuota"),
        (QUOTA, {"tpuQuota": {"timeUsed": "1h"}}, "timeUsed: expected float, got str"),
        ("ListSubmissions", {"submissions": [None]}, "submissions: expected Scored, got NoneType"),
    ],
)
def test_a_malformed_answer_is_reported_after_three_tries(kaggle, between, method, answer, said):
    between.always(method, answer)

    with pytest.raises(BadAnswer, match=rf"Could not (?s:.)*{said}"):
        QUESTIONS[method](kaggle)

    assert between.count(method) == 3


def test_what_kaggle_omits_is_nothing_and_what_it_adds_is_ignored(kaggle, between):
    between.say(COMPETITION, [{"id": 1, "deadline": None, "hostName": "", "new": [{}]}])
    between.say(QUOTA, [{"gpuQuota": {}}])

    competition, quota = kaggle.competition("digits"), kaggle.quota()

    assert (competition.ends, competition.daily, competition.takes_files) == (None, 0, True)
    assert (quota.gpu_seconds, quota.reserved, quota.paid) == (None, {}, ())


def test_times_and_durations_are_read(kaggle, between):
    time = {"timeUsed": "1800.5s", "totalTimeAllowed": "72000s", "timeReserved": "60s"}
    between.say(QUOTA, [{"quotaRefreshTime": "2030-01-05T01:00:00.123456789Z", "tpuQuota": time}])

    quota = kaggle.quota()

    assert (quota.tpu_seconds, quota.tpu_allowed, quota.reserved) == (70199.5, 72000, {"TPU": 60})
    assert quota.renewed == datetime(2030, 1, 5, 1, 0, 0, 123456, UTC)


def test_a_state_is_a_word_however_it_is_written(kaggle, between):
    said = ["complete", "cancelAcknowledged", "NOT_COMPLETE", None]  # Kaggle omits the first word
    between.say("GetKernelSessionStatus", [{"status": word} for word in said])

    found = [kaggle.kernel_status("ann/x-train-tpu", 1).name for _ in said]

    assert found == ["COMPLETE", "CANCEL_ACKNOWLEDGED", "NOT_COMPLETE", "QUEUED"]
