"""A run is submitted once, as its competition takes it, within its limits, with the user's
agreement.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deploy import auth, competition, errors, output
from deploy.competition import Submission
from deploy.events import Event, Note, completed
from deploy.journal import SUBMIT, State
from deploy.runs import Run
from formats.sealed_folder import MANIFEST
from pipeline.infer import submission
from tests.deploy.between import RESET
from tests.deploy.services import records_in, scores_all
from tests.deploy.small import trained
from tests.deploy.steps import done
from tests.localkaggle.archived import zipped

RUN = Run("ann/digits-infer-gpu", 3, "", "b1")
COMMAND = f"invoke submit --run {RUN}"
OURS = {"ref": 4, "description": f"digits [run {RUN}]"}
OTHER = {"ref": 4, "description": f"digits [run {RUN}3]", "status": "COMPLETE", "publicScore": "0"}
SCORED = {**OURS, "ref": 7, "status": "COMPLETE", "publicScore": "0.987"}
ABOUT = {"id": 1, "isKernelsSubmissionsOnly": True, "userHasEntered": True}
SEND = "CreateCodeSubmission"
SPENT = (
    "Your team has used its daily Submission allowance (5) today, please try again tomorrow UTC"
    " (3 hours from now)."
)
LONG = "Notebook runtime of 233 minutes exceeds competition max"
Submit = Callable[..., Submission]


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
def records(tmp_path):
    return records_in(tmp_path)


@pytest.fixture
def submit(kaggle, scores, records, file, shown) -> Submit:
    """Return what submits the run, as `invoke submit` does: agreed to, without a check."""

    def submits(check=lambda *_: None, agree=shown.extend, **more: bool) -> Submission:
        steps = competition.submit(kaggle, records, RUN, file.parent, check, **more)
        return done(steps, shown.append, agree)

    return submits


def offered(submit: Submit, **more: bool) -> list[str]:
    """Return what a user is asked to agree to, who then declines."""
    asked: list[str] = []
    with pytest.raises(errors.Detached, match=r"Nothing was submitted\."):
        submit(agree=lambda lines: bool(asked.extend(lines)), **more)
    return asked


# What is submitted


def test_a_missing_file_is_named_before_any_call(submit, scores, file):
    file.unlink()

    with pytest.raises(errors.UsageError, match="invoke pull"):
        submit()

    assert not scores.seen


def test_a_pulled_file_that_was_changed_is_refused_before_any_call(submit, scores, file):
    """An edited label was once checked and submitted; Kaggle scores the run's own file."""
    told = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "size": file.stat().st_size}
    (file.parent / "outputs.json").write_text(json.dumps({"files": {file.name: told}}))
    assert submit().score == 0.987
    asked = len(scores.seen)
    file.write_text("id,label\n1,1\n")

    with pytest.raises(errors.Unverified, match=rf"(?s)not the file.*invoke pull --run {RUN}"):
        submit()

    assert len(scores.seen) == asked


def test_a_replaced_sample_needs_another_inference(submit, scores, records):
    """Exit code 2. The rows of the run do not change."""
    url = scores.serve("another", b"id,label\n1,0\n2,0\n")
    scores.always("DownloadDataFile", (302, {}, {"Location": url}))

    with pytest.raises(errors.UsageError) as raised:
        submit(submission.check)

    said = str(raised.value)
    assert "sample_submission.csv" in said and "relay-sample" not in said
    assert said.endswith("\ninvoke push-infer --again --config digits")
    assert records.journal.last(SUBMIT).state == State.NOT_SENT


@pytest.mark.parametrize("name", ["sample_submission.csv.zip", "sample_submission.zip"])
def test_a_sample_in_an_archive_is_compared_too(submit, scores, name):
    """As in a session."""
    url = scores.serve(name, zipped([("sample_submission.csv", b"id,label\n1,0\n2,0\n")]))
    missing = [(404, {"code": 404, "message": "Not found"})] * name.count("sample_submission")
    if name.count(".") == 1:
        missing *= 2
    scores.say("DownloadDataFile", [*missing, (302, {}, {"Location": url})])

    with pytest.raises(errors.UsageError, match="invoke push-infer --again"):
        submit(submission.check)


def test_no_sample_is_downloaded_for_a_competition_without_one(kaggle, scores, file, tmp_path):
    records = records_in(tmp_path, sample=None)
    scores.say(SEND, [{"message": "ok", "ref": 7}])
    checked: list[Any] = []

    done(
        competition.submit(
            kaggle, records, RUN, file.parent, lambda *given: checked.append(given), now=True
        )
    )

    assert checked == [(file, None)] and scores.count("DownloadDataFile") == 0


def test_a_competition_that_takes_files_gets_the_pulled_file(submit, scores, records, file):
    """After the check; its sha256 is in the journal."""
    scores.always("GetCompetition", ABOUT | {"isKernelsSubmissionsOnly": False})
    place = {"token": "t", "createUrl": "http://localhost/put/x"}
    scores.always("StartSubmissionUpload", place)
    scores.always("put", (200, b""))
    scores.say("CreateSubmission", [{"message": "ok", "ref": 7}])
    checked: list[Any] = []

    assert submit(lambda given, sample: checked.append(given)).uploaded

    (sent,) = scores.bodies("CreateSubmission")
    assert (sent["blobFileTokens"], sent["submissionDescription"]) == ("t", f"digits [run {RUN}]")
    assert checked == [file] and scores.count("put") == 1
    row = records.journal.last(SUBMIT, number=7)
    assert (row.sha256, row.score) == (hashlib.sha256(file.read_bytes()).hexdigest(), 0.987)


# Once


@pytest.mark.parametrize("number", [{}, {"ref": 0}])
def test_a_submission_that_cannot_be_found_is_sent_once_and_left_open(
    submit, scores, records, number
):
    """The answer had no number, and the list lacks it."""
    scores.say(SEND, [{"message": "no number", **number}])

    with pytest.raises(errors.Ambiguous):
        submit()

    made = records.journal.last(SUBMIT)
    assert (made.state, made.before, scores.count(SEND)) == (State.UNKNOWN, 0, 1)
    assert competition.last_sent(records, RUN) == made


def test_the_same_run_is_not_submitted_twice(submit, scores, records):
    """After Ctrl-C, or a deadline, the same command follows the same submission."""
    scores.say("ListSubmissions", [{"submissions": [{**OTHER, "ref": 3}, OURS]}])

    assert submit().ref == 4
    assert scores.count(SEND) == scores.count("GetSubmissionLimits") == 0
    made = records.journal.last(SUBMIT)
    assert (made.state, made.number, made.is_ours) == (State.ENDED, 4, False)


def test_a_lost_answer_does_not_matter_if_the_submission_is_there(submit, scores, shown):
    """Exit code 0, with its score."""
    scores.say(SEND, [RESET])
    scores.say("ListSubmissions", [*[{"submissions": []}] * 3, {"submissions": [OURS]}])

    assert (submit().ref, scores.count(SEND)) == (4, 1)
    assert "The response was lost, but the submission exists: 4." in shown


def test_a_failed_submission_is_repeated_only_with_again(submit, scores, records):
    """The same command once spent another submission each time."""
    failed = {**OURS, "status": "ERROR", "errorDescription": "Notebook Threw Exception"}
    scores.always("ListSubmissions", {"submissions": [failed]})

    with pytest.raises(errors.RunFailed, match="Notebook Threw Exception") as caught:
        submit()

    assert str(caught.value).splitlines()[-1] == f"{COMMAND} --again --config digits"
    before = "before      submission 4 of this run failed: "
    assert offered(submit, again=True)[-1] == f"{before}Notebook Threw Exception"
    assert scores.count(SEND) == 0 and submit(again=True).ref == 7


def test_ctrl_c_leaves_a_submission_that_is_followed(kaggle, submit, scores, records, file):
    """Exit code 130; the same command spends nothing more."""
    scores.say("GetSubmission", [{"ref": 7, "status": "PENDING"}])

    def tell(event: Event) -> bool:
        if event == Note(f"submission 7 of {RUN}: PENDING"):
            raise KeyboardInterrupt
        return True

    with pytest.raises(errors.Detached, match=rf"(?s)follow submission 7 again.*--run {RUN}"):
        completed(competition.submit(kaggle, records, RUN, file.parent, lambda *_: None), tell)

    made = records.journal.last(SUBMIT)
    assert (made.state, made.number) == (State.VERSION, 7)
    scores.always("GetSubmission", SCORED)
    assert (submit().score, scores.count(SEND)) == (0.987, 1)


# What a competition allows


@pytest.mark.parametrize(
    ("about", "in_all", "kind", "said"),
    [
        ({"submissionsDisabled": True}, False, errors.Refused, "is not accepting submissions"),
        ({}, False, errors.NoQuota, "midnight UTC"),
        ({}, True, errors.Refused, "you cannot submit any more"),
    ],
)
def test_a_submission_that_is_not_allowed_is_not_sent(
    submit, scores, records, about, in_all, kind, said
):
    """If the total is limited, midnight does not help."""
    scores.always("GetCompetition", ABOUT | about)
    limits = {"numToday": 5, "numTotal": 9, "limitedByTotal": in_all}
    scores.always("GetSubmissionLimits", limits)

    with pytest.raises(kind, match=said) as caught:
        submit()

    assert ("midnight" in str(caught.value)) == (said == "midnight UTC")
    assert (scores.count(SEND), records.journal.last(SUBMIT).state) == (0, State.NOT_SENT)


@pytest.mark.parametrize(
    ("now", "pulled", "settled", "waits"),
    [(False, 60, 0.2, True), (True, 60, 0.2, False), (False, 0, 1e-4, False)],
)
def test_a_submission_waits_after_the_pull_unless_told_not_to(
    kaggle, submit, file, shown, now, pulled, settled, waits
):
    """Not if the pull was long ago. The clock of the first case is a minute ahead."""
    at = (datetime.now(UTC) + timedelta(seconds=pulled)).isoformat()
    note = {"run": str(RUN), "server": auth.address(), "at": at}
    (file.parent / output.NOTE).write_text(json.dumps(note))
    kaggle.pace = replace(kaggle.pace, settled=settled)

    assert submit(now=now).score == 0.987

    assert any("To skip this wait: --now" in line for line in shown) == waits


def test_a_hidden_score_ends_the_wait_as_a_success(kaggle, submit, scores, records):
    """Some competitions show none until they end; the journal says so."""
    scores.always("GetSubmission", SCORED | {"publicScore": ""})
    kaggle.pace = replace(kaggle.pace, hidden=0.2)

    scored = submit()

    assert (scored.score, str(scored)) == (None, "complete, score hidden")
    row = records.journal.last(SUBMIT)
    assert (row.state, row.status, row.score) == (State.ENDED, "COMPLETE", None)


@pytest.mark.parametrize(("told", "kept"), [("0.981", 0.981), ("", None)])
def test_the_journal_keeps_the_private_score(submit, scores, records, told, kept):
    scores.always("GetSubmission", SCORED | {"privateScore": told})

    submit()

    row = records.journal.last(SUBMIT)
    assert (row.score, row.private) == (0.987, kept)


# What is agreed to


def test_the_question_shows_what_a_submission_spends(submit, scores, records):
    """File, rows, run, competition, what is left today, and what validation said."""
    _, pulled = trained(records.project)
    path = pulled / output.ARTIFACT / MANIFEST
    manifest = json.loads(path.read_text())
    told = {"metric": "accuracy", "metrics": {"validation_accuracy": 0.98765}}
    path.write_text(json.dumps(manifest | told))
    expect = {"expect": {"weights_sha256": manifest["weights_sha256"]}}
    (records.project.root / output.BUNDLE).write_text(json.dumps(expect))

    assert offered(submit) == [
        f"submit      submission.csv of {RUN}, 1 rows; runs the notebook on the hidden test set",
        "competition digits: submissions left today: 2",
        "validation  accuracy 0.9877",
    ]
    assert scores.count(SEND) == 0


def test_a_declined_file_is_not_uploaded(submit, scores, shown):
    """A competition that takes files, and has ended."""
    over = {"isKernelsSubmissionsOnly": False, "deadline": "2020-01-09T23:59:00Z"}
    scores.always("GetCompetition", ABOUT | over)

    assert "uploads the file" in offered(submit)[0]
    assert scores.count("StartSubmissionUpload") == 0
    warning = next(line for line in shown if line.startswith("Warning"))
    assert "digits ended on 2020-01-09 23:59 UTC" in warning and "no longer count" in warning


# What Kaggle refuses


@pytest.mark.parametrize(
    ("code", "said", "kind", "advice"),
    [
        (400, f"{LONG} of 120", errors.Refused, "233 minutes.*Set that maximum"),
        (400, f"{LONG} of 0", errors.Refused, "does not accept notebooks that run on this"),
        (400, SPENT, errors.NoQuota, f"Try again after midnight UTC:\n{COMMAND}"),
        (400, "1 submission being processed", errors.NoQuota, f"has its score:\n{COMMAND}"),
        (400, "it has ended", errors.Refused, "it has ended"),
        (404, "Could not find provided notebook", errors.NotFound, "a new version .* --again"),
    ],
)
def test_a_refused_submission_names_the_fix(submit, scores, records, code, said, kind, advice):
    """Nothing in the file has to be corrected."""
    scores.say(SEND, [(code, {"code": code, "message": f"Submission not allowed: {said}"})])

    with pytest.raises(kind, match=f"(?s){advice}") as caught:
        submit()

    assert type(caught.value) is kind
    assert records.journal.last(SUBMIT).state == State.REFUSED
