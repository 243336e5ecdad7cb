"""Submit: nothing is spent on a file that would be refused, and nothing is spent twice."""

import hashlib
import itertools
import json
from pathlib import Path

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import (
    Ambiguous,
    BadAnswer,
    DeadlinePassed,
    NoQuota,
    Refused,
    RunFailed,
    Unverified,
    UsageError,
)
from deploy.kernel.push_and_watch import Run
from deploy.relay import submit as submissions
from tests.deploy.between import RESET, Between

RUN = Run("ann/digits-infer-gpu", 3, "", "b1")
CODE = {"id": 1, "isKernelsSubmissionsOnly": True, "userHasEntered": True}
LISTED = {"name": "submission.csv", "size": 13}


@pytest.fixture
def server(between: Between) -> Between:
    """A competition that has its sample, two submissions left, and a score for everyone."""
    url = between.serve("sample_submission.csv", b"id,label\n1,0\n")
    between.say("DownloadDataFile", itertools.repeat((302, {}, {"Location": url})))
    between.say("GetCompetition", itertools.repeat(CODE))
    files = [{"fileName": "submission.csv", "url": url}]
    between.say("ListKernelSessionOutput", itertools.repeat({"files": files}))
    between.say("ListKernelFiles", itertools.repeat({"files": [LISTED]}))
    between.say("ListSubmissions", itertools.repeat({"submissions": []}))
    between.say(
        "GetSubmissionLimits", itertools.repeat({"numToday": 3, "numTotal": 9, "numAllowedNow": 2})
    )
    between.say("CreateCodeSubmission", [{"message": "ok", "ref": 7}])
    between.say(
        "GetSubmission", itertools.repeat({"ref": 7, "status": "COMPLETE", "publicScore": "0.987"})
    )
    return between


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "submission.csv"
    path.write_text("id,label\n1,0\n")
    return path


def seal(file: Path) -> None:
    """Write what the run's last cell would have written beside its submission."""
    told = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "size": file.stat().st_size}
    (file.parent / "outputs.json").write_text(json.dumps({"files": {file.name: told}}))


def submit(kaggle, file, shown, check=lambda given, sample: None, deadline: float = 60, **more):
    return submissions.submit(
        kaggle,
        RUN,
        "digits",
        submission=file,
        check=check,
        message="digits",
        deadline_seconds=deadline,
        show=shown.append,
        command="invoke {} --config leaves".format,
        **more,
    )


def test_a_checked_file_is_submitted_by_version_and_scored(kaggle, server, file, shown):
    """The check sees the competition's own sample."""
    judged = []

    scored = submit(
        kaggle, file, shown, lambda given, sample: judged.append((given, sample.read_bytes()))
    )

    sent = server.bodies("CreateCodeSubmission")[0]
    assert (scored.ref, scored.score) == (7, 0.987)
    assert judged == [(file, b"id,label\n1,0\n")]
    assert (sent["kernelOwner"], sent["kernelSlug"], sent["kernelVersion"]) == (
        "ann",
        "digits-infer-gpu",
        3,
    )
    assert sent["fileName"] == "submission.csv"


def test_a_file_that_does_not_pass_spends_nothing(kaggle, server, file, shown):
    """One of the day's submissions is worth a local check."""

    def check(given, sample):
        raise ValueError("column label is missing")

    with pytest.raises(ValueError, match="label"):
        submit(kaggle, file, shown, check)

    assert server.count("CreateCodeSubmission") == 0


def test_a_missing_file_is_named_before_any_call(kaggle, server, tmp_path, shown):
    """Pull comes first."""
    with pytest.raises(UsageError, match="invoke pull"):
        submit(kaggle, tmp_path / "submission.csv", shown)

    assert not server.seen


def test_without_submissions_left_nothing_is_sent(kaggle, server, file, shown):
    """Exit code 7."""
    server.say("GetSubmissionLimits", [{"numToday": 5, "numTotal": 9}])

    with pytest.raises(NoQuota):
        submit(kaggle, file, shown)

    assert server.count("CreateCodeSubmission") == 0


def test_all_zeros_mean_a_team_that_is_not_known_yet(kaggle, server, file, shown):
    """Kaggle answers so before the first submission; only it can say whether the rules were
    accepted.
    """
    server.say("GetSubmissionLimits", [{}])

    assert submit(kaggle, file, shown).score == 0.987
    assert any("accepted its rules" in line for line in shown)


@pytest.mark.parametrize("lost", [RESET, {"message": "no number"}, (500, b"")])
def test_a_submission_that_cannot_be_found_is_left_open(kaggle, server, file, shown, lost):
    """Exit code 6."""
    server.say("CreateCodeSubmission", [lost])

    with pytest.raises(Ambiguous):
        submit(kaggle, file, shown)

    assert server.count("CreateCodeSubmission") == 1


def test_the_same_run_is_not_submitted_twice(kaggle, server, file, shown):
    """After Ctrl-C, or a deadline, the same command follows the same submission."""
    mine = {"ref": 4, "description": f"digits [run {RUN}]"}
    older = {"ref": 3, "description": "digits [run ann/digits-infer-gpu/33]", "status": "COMPLETE"}
    server.say("ListSubmissions", [{"submissions": [older, mine]}])

    assert submit(kaggle, file, shown).ref == 4
    assert server.count("CreateCodeSubmission") == 0


@pytest.mark.parametrize(
    "row", [{"status": "ARCHIVED"}, {"status": ""}, {"status": None}, {"date": "long ago"}]
)
def test_an_older_row_that_the_client_cannot_read_stops_nobody(kaggle, server, file, shown, row):
    """One word that it did not know, on somebody's first submission, once ended every later one as
    exit code 6.
    """
    server.say(
        "ListSubmissions",
        itertools.repeat({"submissions": [{"ref": 1, "description": "by hand", **row}]}),
    )

    assert submit(kaggle, file, shown).ref == 7
    assert server.count("ListSubmissions") == 2  # at the start, and right before it submits


@pytest.mark.parametrize("word", ["ARCHIVED", "", None])
def test_our_own_row_with_a_word_that_nobody_knows_is_followed_and_no_success(
    kaggle, server, file, shown, word
):
    """Whatever it means, this run was submitted: no second one is spent."""
    ours = {"ref": 4, "description": f"digits [run {RUN}]", "status": word, "publicScore": "0.5"}
    server.say("ListSubmissions", itertools.repeat({"submissions": [ours]}))
    server.say("GetSubmission", itertools.repeat(ours))

    with pytest.raises(DeadlinePassed, match=f"Submission 4 .* is UNKNOWN.{word}"):
        submit(kaggle, file, shown, deadline=0.2)

    assert server.count("CreateCodeSubmission") == 0


@pytest.mark.parametrize(
    "row", [None, {"ref": 1, "description": ["ours?"]}, {"ref": "1", "description": "ours?"}]
)
def test_a_row_that_does_not_tell_whose_it_is_may_be_ours(server, file, shown, row):
    """It cannot be read, and nothing is spent."""
    kaggle = Kaggle.connect(pace=Pace(first=0.01, most=0.05, patience=0.1))
    server.say("ListSubmissions", itertools.repeat({"submissions": [row]}))

    with pytest.raises(BadAnswer):
        submit(kaggle, file, shown)

    assert server.count("CreateCodeSubmission") == 0


def test_a_run_that_failed_by_a_kaggle_error_is_submitted_again(kaggle, server, file, shown):
    """It is nobody's fault."""
    failed = {"ref": 4, "description": f"digits [run {RUN}]", "status": "ERROR"}
    failed["errorDescription"] = "Kaggle Error"
    server.say("ListSubmissions", itertools.repeat({"submissions": [failed]}))

    assert submit(kaggle, file, shown).ref == 7
    assert "before      submission 4 of this run failed: Kaggle Error" in shown


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Notebook Timeout", "larger batches"),
        ("Notebook Threw Exception", "hidden"),
        ("Notebook Exceeded Allowed Compute", "smaller batches"),
        ("Submission CSV Not Found", "submission.csv"),
        ("Submission Scoring Error", "rows, ids or types"),
        ("Kaggle Error", "again later"),
        ("A new word", "kaggle.com"),
    ],
)
def test_each_failure_of_the_rerun_comes_with_its_usual_cause(
    kaggle, server, file, shown, said, advice
):
    """Kaggle shows two words and no log."""
    server.say("GetSubmission", [{"ref": 7, "status": "ERROR", "errorDescription": said}])

    with pytest.raises(RunFailed, match=advice):
        submit(kaggle, file, shown)


@pytest.mark.parametrize(
    "answer",
    [
        {"ref": 7},
        {"ref": 7, "status": "COMPLETE"},
        {"ref": 7, "status": "NEW"},
        {"ref": 7, "status": "COMPLETE", "publicScore": "nan"},
    ],
)
def test_no_number_is_no_score(kaggle, server, file, shown, answer):
    """A blank score once meant nineteen lost hours."""
    server.say("GetSubmission", itertools.repeat(answer))

    with pytest.raises(DeadlinePassed, match="without spending another"):
        submit(kaggle, file, shown, deadline=0.2)


def test_a_refusal_of_kaggle_is_shown(kaggle, server, file, shown):
    """Exit code 4, in its words."""
    server.say(
        "CreateCodeSubmission", [(400, {"code": 400, "message": "This competition has ended"})]
    )

    with pytest.raises(Refused, match="has ended"):
        submit(kaggle, file, shown)


def test_a_pulled_file_that_was_changed_is_refused_before_any_call(kaggle, server, file, shown):
    """An edited label was once checked and submitted; Kaggle scores the run's own file."""
    seal(file)
    assert submit(kaggle, file, shown).score == 0.987
    asked = len(server.seen)
    file.write_text("id,label\n1,1\n")

    with pytest.raises(
        Unverified,
        match=rf"(?s)not what the run wrote.*invoke pull --run {RUN}.*change the notebook",
    ):
        submit(kaggle, file, shown)

    assert len(server.seen) == asked


def test_a_sealed_run_whose_list_is_gone_is_refused(kaggle, server, file, shown):
    """Nobody can tell whether the file is what it wrote."""
    (file.parent / "bundle.json").write_text('{"sealed": true}')

    with pytest.raises(Unverified, match=r"(?s)has no outputs.json.*invoke pull"):
        submit(kaggle, file, shown)


def test_a_file_beside_no_list_is_said_to_be_of_unknown_origin(kaggle, server, file, shown):
    """A notebook of one's own may keep none; then it is the user who knows."""
    submit(kaggle, file, shown)

    assert "origin is not known" in shown[0]


def test_one_submission_is_one(kaggle, server, file, shown):
    order = []
    server.say("GetSubmissionLimits", [{"numToday": 4, "numTotal": 9, "numAllowedNow": 1}])

    submit(
        kaggle,
        file,
        shown,
        sending=lambda sha256: order.append(server.count("CreateCodeSubmission")),
    )

    assert "competition digits: 1 submission is left today" in shown
    assert order == [0]


def test_a_submission_that_kaggle_does_not_have_any_more_is_not_followed(
    kaggle, server, file, shown
):
    """A local Kaggle that was restarted on the same port has none of the old ones."""
    found = {"ref": 7, "status": "COMPLETE", "publicScore": "0.987"}
    server.say("GetSubmission", [(404, {"code": 404, "message": "Not found"}), found])

    assert submit(kaggle, file, shown, earlier=4).ref == 7
    assert any("submission 4" in line and "no longer counts" in line for line in shown)


def test_the_number_of_another_run_s_submission_is_not_followed(kaggle, server, file, shown):
    """It was restarted, and counts from 1 again."""
    other = {
        "ref": 4,
        "description": "digits [run ann/digits-infer-gpu/33]",
        "status": "COMPLETE",
        "publicScore": "0.1",
    }
    found = {"ref": 7, "status": "COMPLETE", "publicScore": "0.987"}
    server.say("GetSubmission", [other, found])

    assert submit(kaggle, file, shown, earlier=4).score == 0.987
