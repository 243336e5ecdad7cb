"""Every word that Kaggle has for a state ends as a success, as a named failure, or is waited with;
so does a new one, and none.

The words are those of the installed client: one that a newer client adds fails here until somebody
has decided what it means.
"""

import itertools
import json
from pathlib import Path

import pytest
from kagglesdk.competitions.types.submission_status import SubmissionStatus
from kagglesdk.datasets.types.dataset_enums import DatabundleVersionStatus
from kagglesdk.kernels.types.kernels_enums import KernelWorkerStatus

from deploy.client.retries import Pace
from deploy.errors import BadAnswer, DeadlinePassed, RunFailed
from deploy.kernel import output, push_and_watch
from deploy.kernel.push_and_watch import Run
from deploy.relay import publish as datasets
from deploy.relay import submit as submissions
from tests.deploy.between import Between

ROOT = Path(__file__).resolve().parents[3]
SUCCESS, WAITS = "success", "waits"
SECONDS = 0.1  # of patience, where a word is waited with
RUN = Run("ann/digits-infer-gpu", 2, "", "")


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
    "NEW_SCRIPT": "was saved and not run",
}
DATASET = {
    "NOT_YET_PERSISTED": WAITS,
    "BLOBS_RECEIVED": WAITS,
    "BLOBS_DECOMPRESSED": WAITS,
    "BLOBS_COPIED_TO_SDS": WAITS,
    "INDIVIDUAL_BLOBS_COMPRESSED": WAITS,
    "READY": SUCCESS,
    "FAILED": "is FAILED",
    "DELETED": "is DELETED",
    "REPROCESSING": WAITS,
}
SUBMISSION = {"PENDING": WAITS, "COMPLETE": SUCCESS, "ERROR": "Notebook Timeout"}
# Beside the client's words: one that it does not know, and answers without any, which it reads as
# the first of its words.
ODD = [{"status": "A_WORD_OF_2027"}, {"status": ""}, {"status": None}, {}]


def answers(words: dict[str, str]) -> list[object]:
    """Return (answer, what is promised) for every word and for what is none."""
    known = [pytest.param({"status": word}, end, id=word) for word, end in words.items()]
    return known + [pytest.param(answer, WAITS, id=json.dumps(answer)) for answer in ODD]


def ended(task) -> str:
    """Return how a task ends: success, waiting until its patience is over, or its message.

    An answer that cannot be read is asked for again, and the third in a row is told.
    """
    try:
        task()
    except (DeadlinePassed, BadAnswer) as error:
        assert error.exit_code in (5, 4)
        return WAITS
    except RunFailed as error:
        assert error.exit_code == 1
        return str(error)
    return SUCCESS


@pytest.mark.parametrize(
    ("words", "handled"),
    [
        (KernelWorkerStatus, KERNEL),
        (DatabundleVersionStatus, DATASET),
        (SubmissionStatus, SUBMISSION),
    ],
    ids=["KernelWorkerStatus", "DatabundleVersionStatus", "SubmissionStatus"],
)
def test_every_word_of_the_installed_client_is_decided(words, handled):
    """A word that is new here is waited with, and somebody should know."""
    assert {word.name for word in words} == set(handled)


@pytest.mark.parametrize(("answer", "end"), answers(KERNEL))
def test_watch_knows_what_a_word_means(kaggle, between, shown, answer, end):
    """A run that is not over is not called over, and the other way round."""
    between.always("GetKernelSessionStatus", (200, answer))
    between.always("ListKernelSessionOutput", {"log": ""})

    assert end in ended(
        lambda: push_and_watch.watch(kaggle, RUN, deadline_seconds=SECONDS, show=shown.append)
    )


@pytest.mark.parametrize(("answer", "end"), answers(KERNEL))
def test_pull_takes_the_output_of_what_has_ended_alone(kaggle, between, tmp_path, answer, end):
    """What a run has written until now would look like all of it. Of one that failed, all that is
    there.
    """
    between.always("GetKernelSessionStatus", (200, answer))
    listed = {"files": [{"fileName": "a.txt", "url": between.serve("a.txt", b"a")}]}
    between.always("ListKernelSessionOutput", listed)

    outcome = ended(lambda: output.pull(kaggle, RUN, tmp_path))

    assert outcome == (WAITS if end == WAITS else SUCCESS)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith("-v2")] == [
        "digits-infer-gpu-v2"
    ] * (outcome == SUCCESS)


@pytest.mark.parametrize(("answer", "end"), answers(KERNEL))
def test_a_bundle_that_is_there_is_pushed_again_only_after_a_failure(
    kaggle, between, built, answer, end
):
    """A second session is one too many, and cannot be stopped."""
    metadata = {"currentVersionNumber": 7, "competitionDataSources": ["digits"]}
    between.always("GetKernel", {"metadata": metadata, "blob": {"source": built.sha256}})
    between.always("GetKernelSessionStatus", (200, answer))
    between.say("SaveKernel", [{"versionNumber": 8}])

    ended(lambda: push_and_watch.push(kaggle, built, timeout_seconds=3600))

    stopping = answer.get("status") == "CANCEL_REQUESTED"  # it will not be a success
    assert between.count("SaveKernel") == (1 if end not in (SUCCESS, WAITS) or stopping else 0)


def takes_all(between: Between, artifact: Path) -> None:
    """Let a dataset service take every upload and give the same bytes back."""
    between.always("StartBlobUpload", {"token": "t", "createUrl": "http://localhost/put/x"})
    between.always("put", (200, b""))
    between.say("CreateDataset", [{"status": "ok"}])
    between.say("CreateDatasetVersion", [{"status": "ok"}])
    names = ("manifest.json", "weights.npz")
    sizes = [{"name": name, "totalBytes": (artifact / name).stat().st_size} for name in names]
    between.always("ListDatasetFiles", {"datasetFiles": sizes})
    urls = {name: between.serve(name, (artifact / name).read_bytes()) for name in names}

    def located():
        while True:
            yield 302, {}, {"Location": urls[between.bodies("DownloadDataset")[-1]["fileName"]]}

    between.say("DownloadDataset", located())


def publish(kaggle, artifact, shown, end):
    # What ends by itself has all the time it needs.
    seconds = SECONDS if end == WAITS else 60
    return datasets.publish(
        kaggle,
        artifact,
        "ann/digits-artifact",
        title="Digits Artifact",
        deadline_seconds=seconds,
        show=shown.append,
    )


@pytest.mark.parametrize(("answer", "end"), answers(DATASET))
def test_publish_knows_what_a_word_means_for_the_version_that_it_made(
    kaggle, between, artifact, shown, answer, end
):
    """Ready is what can be mounted, and nothing else."""
    takes_all(between, artifact)
    absent = (404, {"code": 404, "message": "Not found"})
    between.say(
        "GetDataset",
        itertools.chain([absent], itertools.repeat({"currentVersionNumber": 1, "isPrivate": True})),
    )
    between.say("GetDatasetStatus", itertools.chain([absent], itertools.repeat((200, answer))))

    assert end in ended(lambda: publish(kaggle, artifact, shown, end))
    assert between.count("CreateDataset") == 1


@pytest.mark.parametrize(("answer", "end"), answers(DATASET))
def test_publish_adds_no_version_while_another_is_on_its_way(
    kaggle, between, artifact, shown, answer, end
):
    """Behind one that failed the one before it is current, and its bytes decide: here they are
    ours.
    """
    takes_all(between, artifact)
    between.always("GetDataset", {"currentVersionNumber": 4, "isPrivate": True})
    between.always("GetDatasetStatus", (200, answer))

    outcome = ended(lambda: publish(kaggle, artifact, shown, end))

    assert outcome == (WAITS if end == WAITS else SUCCESS)
    assert between.count("CreateDatasetVersion") == 0


def submit(kaggle, file, shown, **more):
    return submissions.submit(
        kaggle,
        RUN,
        "digits",
        submission=file,
        check=lambda given, sample: None,
        message="digits",
        deadline_seconds=SECONDS,
        show=shown.append,
        command="invoke {}".format,
        **more,
    )


@pytest.fixture
def file(tmp_path: Path, between: Between) -> Path:
    """What is submitted to a competition that takes it."""
    url = between.serve("sample_submission.csv", b"id,label\n1,0\n")
    competition = {"id": 1, "isKernelsSubmissionsOnly": True, "userHasEntered": True}
    between.always("GetCompetition", competition)
    between.always(
        "ListKernelSessionOutput", {"files": [{"fileName": "submission.csv", "url": url}]}
    )
    between.always("ListKernelFiles", {"files": [{"name": "submission.csv", "size": 13}]})
    between.always("DownloadDataFile", (302, {}, {"Location": url}))
    between.always("GetSubmissionLimits", {"numToday": 3, "numTotal": 9, "numAllowedNow": 2})
    between.always("ListSubmissions", {"submissions": []})
    between.say("CreateCodeSubmission", [{"message": "ok", "ref": 7}])
    path = tmp_path / "submission.csv"
    path.write_text("id,label\n1,0\n")
    return path


@pytest.mark.parametrize(("answer", "end"), answers(SUBMISSION))
def test_submit_knows_what_a_word_means(kaggle, between, file, shown, answer, end):
    """The score counts with the word alone, and the failure comes with its reason."""
    answered: dict[str, object] = {"ref": 7, "errorDescription": "Notebook Timeout", **answer}
    answered |= {"publicScore": "0.5"} if answer.get("status") != "ERROR" else {}
    between.always("GetSubmission", (200, answered))

    assert end in ended(lambda: submit(kaggle, file, shown))
    assert between.count("CreateCodeSubmission") == 1


@pytest.mark.parametrize("score", [None, "", "nan", "inf", "pending"])
def test_complete_without_a_number_is_waited_with(kaggle, between, file, shown, score):
    """A blank score once cost nineteen hours."""
    between.always("GetSubmission", {"ref": 7, "status": "COMPLETE", "publicScore": score})

    assert ended(lambda: submit(kaggle, file, shown)) == WAITS


@pytest.mark.parametrize(("answer", "end"), answers(SUBMISSION))
def test_no_second_submission_is_spent(kaggle, between, file, shown, answer, end):
    """Whatever the list says of the first: also where it failed, or cannot be read."""
    listed = {"ref": 4, "description": f"digits [run {RUN}]", **answer}
    between.always("ListSubmissions", {"submissions": [listed]})
    between.always("GetSubmission", {"ref": 7, "status": "COMPLETE", "publicScore": "0.5"})

    ended(lambda: submit(kaggle, file, shown))

    assert between.count("CreateCodeSubmission") == 0
