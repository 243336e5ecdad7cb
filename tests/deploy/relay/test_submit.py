"""A submission is spent on no file that would be refused, and not twice."""

import hashlib
import itertools
import json
from functools import partial

import pytest

from deploy.errors import Ambiguous, BadAnswer, NoQuota, Refused, RunFailed, Unverified, UsageError
from deploy.push_and_watch import Run
from deploy.retries import Pace
from tests.deploy.services import GONE, scores_all, submitted

RUN = Run("ann/digits-infer-gpu", 3, "", "b1")
OURS = {"ref": 4, "description": f"digits [run {RUN}]"}
OTHER = {"ref": 4, "description": f"digits [run {RUN}3]", "status": "COMPLETE", "publicScore": "0"}


@pytest.fixture
def scores(between):
    scores_all(between)
    return between


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "submission.csv"
    path.write_text("id,label\n1,0\n")
    return path


@pytest.fixture
def submit(kaggle, scores, file, shown):
    return partial(submitted, kaggle, RUN, file, shown)


def test_a_file_that_does_not_pass_spends_nothing(submit, scores):
    """One of the day's submissions is worth a local check."""

    def check(given, sample):
        raise ValueError("column label is missing")

    with pytest.raises(ValueError, match="label"):
        submit(check)

    assert scores.count("CreateCodeSubmission") == 0


def test_a_missing_file_is_named_before_any_call(submit, scores, file):
    """Pull comes first."""
    file.unlink()

    with pytest.raises(UsageError, match="invoke pull"):
        submit()

    assert not scores.seen


@pytest.mark.parametrize(
    ("call", "answer", "kind", "sent"),
    [
        ("GetSubmissionLimits", {"numToday": 5, "numTotal": 9}, NoQuota, 0),
        ("CreateCodeSubmission", (400, {"code": 400, "message": "has ended"}), Refused, 1),
        ("CreateCodeSubmission", {"message": "no number"}, Ambiguous, 1),
    ],
)
def test_what_is_not_submitted_is_sent_once_at_most(submit, scores, call, answer, kind, sent):
    """Without submissions left nothing is sent; one that cannot be found is left open."""
    scores.say(call, [answer])

    with pytest.raises(kind):
        submit()

    assert scores.count("CreateCodeSubmission") == sent


def test_all_zeros_mean_a_team_that_is_not_known_yet(submit, scores, shown):
    """Kaggle answers so before the first submission; only it can say whether the rules were
    accepted. A notebook of one's own may keep no list of what it wrote; then it is the user who
    knows.
    """
    scores.say("GetSubmissionLimits", [{}])

    assert submit().score == 0.987
    assert "origin is not known" in shown[0]
    assert any("accepted its rules" in line for line in shown)


def test_the_same_run_is_not_submitted_twice(submit, scores):
    """After Ctrl-C, or a deadline, the same command follows the same submission."""
    scores.say("ListSubmissions", [{"submissions": [{**OTHER, "ref": 3}, OURS]}])

    assert submit().ref == 4
    assert scores.count("CreateCodeSubmission") == scores.count("GetSubmissionLimits") == 0


@pytest.mark.parametrize("row", [{"status": "ARCHIVED"}, {"date": "long ago"}])
def test_an_older_row_that_the_client_cannot_read_stops_nobody(submit, scores, row):
    """One word that it did not know, on somebody's first submission, once ended every later one as
    exit code 6.
    """
    row = {"ref": 1, "description": "by hand", **row}
    scores.always("ListSubmissions", {"submissions": [row]})

    assert submit().ref == 7
    assert scores.count("ListSubmissions") == 2  # at the start, and right before it submits


@pytest.mark.parametrize("row", [None, {"ref": "1", "description": "ours?"}])
def test_a_row_that_does_not_tell_whose_it_is_may_be_ours(kaggle, submit, scores, row):
    """It cannot be read, and nothing is spent."""
    kaggle.pace = Pace(first=0.01, most=0.05, patience=0.1)
    scores.always("ListSubmissions", {"submissions": [row]})

    with pytest.raises(BadAnswer):
        submit()

    assert scores.count("CreateCodeSubmission") == 0


def test_a_run_that_failed_by_a_kaggle_error_is_submitted_again(submit, scores, shown):
    """It is nobody's fault."""
    failed = {**OURS, "status": "ERROR", "errorDescription": "Kaggle Error"}
    scores.always("ListSubmissions", {"submissions": [failed]})

    assert submit().ref == 7
    assert "before      submission 4 of this run failed: Kaggle Error" in shown


@pytest.mark.parametrize(
    ("said", "advice"), [("Notebook Timeout", "larger batches"), ("A new word", "kaggle.com")]
)
def test_each_failure_of_the_rerun_comes_with_its_usual_cause(submit, scores, said, advice):
    """Kaggle shows two words and no log."""
    scores.say("GetSubmission", [{"ref": 7, "status": "ERROR", "errorDescription": said}])

    with pytest.raises(RunFailed, match=advice):
        submit()


def test_a_pulled_file_that_was_changed_is_refused_before_any_call(submit, scores, file):
    """An edited label was once checked and submitted; Kaggle scores the run's own file."""
    told = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "size": file.stat().st_size}
    (file.parent / "outputs.json").write_text(json.dumps({"files": {file.name: told}}))
    assert submit().score == 0.987
    asked = len(scores.seen)
    file.write_text("id,label\n1,1\n")

    with pytest.raises(Unverified, match=rf"(?s)not what .*invoke pull --run {RUN}.*notebook"):
        submit()

    assert len(scores.seen) == asked


def test_a_sealed_run_whose_list_is_gone_is_refused(submit, file):
    """Nobody can tell whether the file is what it wrote."""
    (file.parent / "bundle.json").write_text('{"sealed": true}')

    with pytest.raises(Unverified, match=r"(?s)has no outputs.json.*invoke pull"):
        submit()


@pytest.mark.parametrize("there", [GONE, OTHER])
def test_a_submission_of_before_a_restart_is_not_followed(submit, scores, shown, there):
    """A local Kaggle on the same port has none of the old ones, or counts from 1 again."""
    found = {"ref": 7, "status": "COMPLETE", "publicScore": "0.987"}
    scores.say("GetSubmission", itertools.chain([there], itertools.repeat(found)))

    scored = submit(earlier=4)

    assert (scored.ref, scored.score) == (7, 0.987)
    assert any("no longer counts" in line for line in shown) == (there == GONE)
