"""Every status of Kaggle is a success, a named failure, or waited with; so is an unknown one, and
none. A new status of a newer client fails here until somebody decides what it means.
"""

import itertools
import json
from functools import partial

import pytest
from kagglesdk.competitions.types.submission_status import SubmissionStatus
from kagglesdk.datasets.types.dataset_enums import DatabundleVersionStatus
from kagglesdk.kernels.types.kernels_enums import KernelWorkerStatus

from deploy import output, watch
from deploy.connection import Pace
from deploy.errors import BadAnswer, DeadlinePassed, RunFailed, Unreachable
from deploy.runs import Run
from tests.deploy import steps
from tests.deploy.services import GONE, at, published, records_in, scores_all, submitted, takes_all

SUCCESS, WAITS = "success", "waits"
SECONDS = 0.1  # of patience, where a word is waited with
RUN = Run("ann/digits-infer-gpu", 2, "", "")
STATUS = "GetKernelSessionStatus"


@pytest.fixture(autouse=True)
def hurry(kaggle):
    """A question without a usable answer is not repeated for long."""
    kaggle.pace = Pace(first=0.01, most=0.05, patience=SECONDS)


KERNEL = {
    "QUEUED": WAITS,
    "RUNNING": WAITS,
    "COMPLETE": SUCCESS,
    "ERROR": "ended as ERROR",
    "CANCEL_REQUESTED": WAITS,  # it has not ended yet
    "CANCEL_ACKNOWLEDGED": "was cancelled on kaggle.com",
    "NEW_SCRIPT": "was saved but not run",
}
ON_ITS_WAY = (
    *("NOT_YET_PERSISTED", "BLOBS_RECEIVED", "BLOBS_DECOMPRESSED", "BLOBS_COPIED_TO_SDS"),
    *("INDIVIDUAL_BLOBS_COMPRESSED", "REPROCESSING"),
)
DATASET = {
    **dict.fromkeys(ON_ITS_WAY, WAITS),
    "READY": SUCCESS,
    "FAILED": "is FAILED",
    "DELETED": "is DELETED",
}
SUBMISSION = {"PENDING": WAITS, "COMPLETE": SUCCESS, "ERROR": "Notebook Timeout"}
# Beside the client's words: one that it does not know, and answers without any, which it reads as
# the first of its words.
ODD = [{"status": "A_WORD_OF_2027"}, {"status": ""}, {}]


def answers(words):
    """Give each word, and each answer without one that is known, beside what is promised."""
    known = [pytest.param({"status": word}, end, id=word) for word, end in words.items()]
    odd = [pytest.param(answer, WAITS, id=json.dumps(answer)) for answer in ODD]
    return pytest.mark.parametrize(("answer", "end"), known + odd)


def ended(task):
    """Return how a task ends: success, waiting until its patience is over, or its message.

    An answer that cannot be read is asked for again. The third in a row is told, or on a slow
    machine that there was no better one in time.
    """
    try:
        task()
    except (DeadlinePassed, BadAnswer, Unreachable):
        return WAITS
    except RunFailed as error:
        assert error.exit_code == 1
        return str(error)
    return SUCCESS


def test_every_word_of_the_installed_client_is_decided():
    """A new status is waited with."""
    for words, handled in (
        (KernelWorkerStatus, KERNEL),
        (DatabundleVersionStatus, DATASET),
        (SubmissionStatus, SUBMISSION),
    ):
        assert {word.name for word in words} == set(handled)


@answers(KERNEL)
def test_watch_and_pull_know_what_a_word_means(kaggle, between, tmp_path, answer, end):
    """An active run is not reported as ended, nor the other way round. Its output so far would look
    complete; that of a failed run is pulled.
    """
    between.always(STATUS, (200, answer))
    listed = {"files": [{"fileName": "a.txt", "url": between.serve("a.txt", b"a")}], "log": ""}
    between.always("ListKernelSessionOutput", listed)

    records = records_in(tmp_path, deadline_seconds=SECONDS)
    assert end in ended(lambda: steps.done(watch.watch(kaggle, records, RUN)))
    outcome = ended(lambda: steps.done(output.pull(kaggle, RUN, tmp_path)))

    assert outcome == (WAITS if end == WAITS else SUCCESS)
    there = [path.name for path in tmp_path.iterdir() if path.name.endswith("-v2")]
    assert there == ["digits-infer-gpu-v2"] * (outcome == SUCCESS)


@answers(DATASET)
def test_publish_knows_what_a_word_means(kaggle, between, artifact, shown, answer, end):
    """Only a ready dataset can be mounted."""
    takes_all(between, artifact)
    between.say("GetDataset", itertools.chain([GONE], itertools.repeat(at(1))))
    between.say("GetDatasetStatus", itertools.chain([GONE], itertools.repeat((200, answer))))

    seconds = SECONDS if end == WAITS else 60
    assert end in ended(lambda: published(kaggle, artifact, shown, seconds))
    assert between.count("CreateDataset") == 1


SCORE = {"ref": 7, "errorDescription": "Notebook Timeout"}
# Complete without a number is waited with: a blank score once cost nineteen hours.
UNSCORED = [({"status": "COMPLETE", "publicScore": each}, WAITS) for each in ("", "nan", "pending")]


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        *(({"status": word, "publicScore": "0.5"}, end) for word, end in SUBMISSION.items()),
        *(({"publicScore": "0.5", **odd}, WAITS) for odd in ODD),
        *UNSCORED,
    ],
)
def test_submit_knows_what_a_word_means(kaggle, between, tmp_path, shown, answer, end):
    """The score counts only with the status, and a failure comes with its reason."""
    scores_all(between)
    between.always("GetSubmission", (200, {**SCORE, **answer}))
    path = tmp_path / "submission.csv"
    path.write_text("id,label\n1,0\n")

    submit = partial(submitted, kaggle, RUN, path, shown, deadline_seconds=SECONDS)
    assert end in ended(submit)
    assert between.count("CreateCodeSubmission") == 1
