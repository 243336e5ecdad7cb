"""A run is submitted as its competition takes it, within what that allows, agreed to, and once."""

import hashlib
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy import auth, competition, errors, output
from deploy.client import Kaggle
from deploy.competition import Submission
from deploy.connection import Pace
from deploy.events import Ask, Event, Note, completed
from deploy.journal import SUBMIT, Made, Request, Sending, State
from deploy.records import Records
from deploy.runs import Run
from formats.sealed_folder import MANIFEST
from localkaggle.facts import Facts
from localkaggle.faults import edited, instead
from localkaggle.server import LocalKaggle
from localkaggle.sessions.session import Outcome
from pipeline.infer import submission
from tests.deploy.sending import done, inferred, trained
from tests.deploy.services import GONE, records_in, scores_all, submitted
from tests.deploy.small import QUICK, connect
from tests.faults import world
from tests.faults.recorded_session import Recorded

RUN = Run("ann/digits-infer-gpu", 3, "", "b1")
OURS = {"ref": 4, "description": f"digits [run {RUN}]"}
OTHER = {"ref": 4, "description": f"digits [run {RUN}3]", "status": "COMPLETE", "publicScore": "0"}
RULES = "https://www.kaggle.com/competitions/digits/rules"
SPENT = (
    "Your team has used its daily Submission allowance (5) today, please try again tomorrow UTC"
    " (3 hours from now)."
)
PROCESSED = "Your team has 1 submission being processed"
LOST = "Could not find provided notebook"


# What Kaggle may answer


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
    """Return the records that `submit` writes."""
    return records_in(tmp_path)


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

    with pytest.raises(errors.UsageError, match="invoke pull"):
        submit()

    assert not scores.seen


@pytest.mark.parametrize(
    ("call", "answer", "kind", "sent", "state"),
    [
        ("GetSubmissionLimits", {"numToday": 5, "numTotal": 9}, errors.NoQuota, 0, State.NOT_SENT),
        (
            "CreateCodeSubmission",
            (400, {"code": 400, "message": "has ended"}),
            errors.Refused,
            1,
            State.REFUSED,
        ),
        ("CreateCodeSubmission", {"message": "no number"}, errors.Ambiguous, 1, State.UNKNOWN),
    ],
)
def test_what_is_not_submitted_is_sent_once_at_most(
    submit, scores, records, call, answer, kind, sent, state
):
    """Without submissions left nothing is sent; one that cannot be found is left open."""
    scores.say(call, [answer])

    with pytest.raises(kind):
        submit()

    assert scores.count("CreateCodeSubmission") == sent
    made = records.journal.last(SUBMIT)
    assert (made.state, made.before) == (state, 0 if sent else None)
    assert (competition.last_sent(records, RUN) is not None) == (state == State.UNKNOWN)


def test_all_zeros_mean_a_team_that_is_not_known_yet(submit, scores, shown):
    """Kaggle answers so before the first submission; only it can say whether the rules were
    accepted.
    """
    scores.say("GetSubmissionLimits", [{}])

    assert submit().score == 0.987
    assert any("accepted its rules" in line for line in shown)


def test_the_same_run_is_not_submitted_twice(submit, scores, records):
    """After Ctrl-C, or a deadline, the same command follows the same submission."""
    scores.say("ListSubmissions", [{"submissions": [{**OTHER, "ref": 3}, OURS]}])

    assert submit().ref == 4
    assert scores.count("CreateCodeSubmission") == scores.count("GetSubmissionLimits") == 0
    made = records.journal.last(SUBMIT)
    assert (made.state, made.number, made.is_ours) == (State.ENDED, 4, False)


def test_a_submission_whose_answer_was_lost_is_looked_for_more_than_once(submit, scores, records):
    """The list may show it late."""
    lost = records.journal.intend(Request(SUBMIT, "digits", RUN.handle, kernel_version=3))
    records.journal.record(lost, Sending(0))
    scores.say("ListSubmissions", [{"submissions": []}, {"submissions": [OURS]}])

    assert submit().ref == 4
    assert scores.count("CreateCodeSubmission") == 0


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
    kaggle.pace = Pace(first=0.01, most=0.05, patience=60)  # the third such answer ends it
    scores.always("ListSubmissions", {"submissions": [row]})

    with pytest.raises(errors.BadAnswer):
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
def test_each_failure_of_the_rerun_comes_with_its_usual_cause(
    submit, scores, records, said, advice
):
    """Kaggle shows two words and no log."""
    scores.say("GetSubmission", [{"ref": 7, "status": "ERROR", "errorDescription": said}])

    with pytest.raises(errors.RunFailed, match=advice):
        submit()

    made = records.journal.last(SUBMIT)
    assert (made.state, made.status, made.number) == (State.ENDED, "ERROR", 7)


def test_ctrl_c_leaves_a_submission_that_is_followed(kaggle, submit, scores, records, file):
    """Exit code 130; the same command spends no other."""
    scores.say("GetSubmission", [{"ref": 7, "status": "PENDING"}])

    def tell(event: Event) -> bool:
        if event == Note(f"submission 7 of {RUN}: PENDING"):
            raise KeyboardInterrupt
        return True

    with pytest.raises(errors.Detached, match=rf"(?s)follow submission 7 again.*--run {RUN}"):
        completed(competition.submit(kaggle, records, RUN, file.parent, lambda *_: None), tell)

    made = records.journal.last(SUBMIT)
    assert (made.state, made.number) == (State.VERSION, 7)
    ended = {**OURS, "ref": 7, "status": "COMPLETE", "publicScore": "0.987"}
    scores.always("GetSubmission", ended)
    assert (submit().score, scores.count("CreateCodeSubmission")) == (0.987, 1)


def test_a_pulled_file_that_was_changed_is_refused_before_any_call(submit, scores, file):
    """An edited label was once checked and submitted; Kaggle scores the run's own file."""
    told = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "size": file.stat().st_size}
    (file.parent / "outputs.json").write_text(json.dumps({"files": {file.name: told}}))
    assert submit().score == 0.987
    asked = len(scores.seen)
    file.write_text("id,label\n1,1\n")

    with pytest.raises(errors.Unverified, match=rf"(?s)not what .*invoke pull --run {RUN}"):
        submit()

    assert len(scores.seen) == asked


def test_a_sealed_run_whose_list_is_gone_is_refused(submit, file):
    """Nobody can tell whether the file is what it wrote."""
    (file.parent / "bundle.json").write_text('{"sealed": true}')

    with pytest.raises(errors.Unverified, match=r"(?s)has no outputs.json.*invoke pull"):
        submit()


@pytest.mark.parametrize("there", [GONE, OTHER])
def test_a_submission_of_before_a_restart_is_not_followed(submit, scores, records, shown, there):
    """A local Kaggle on the same port has none of the old ones, or counts from 1 again."""
    old = records.journal.intend(Request(SUBMIT, "digits", RUN.handle, kernel_version=3))
    records.journal.record(records.journal.record(old, Sending(0)), Made(4, {}))
    found = {"ref": 7, "status": "COMPLETE", "publicScore": "0.987"}
    scores.say("GetSubmission", itertools.chain([there], itertools.repeat(found)))

    scored = submit()

    assert (scored.ref, scored.score) == (7, 0.987)
    assert any("no longer counts" in line for line in shown) == (there == GONE)
    (before,) = records.journal.requests(SUBMIT, id=old.id)
    assert before.state == (State.GONE if there == GONE else State.VERSION)


# On a Kaggle


class Throws(Recorded):
    """A notebook that runs on the public files, and throws on the hidden ones."""

    def __init__(self, *place: Any, rerun: bool = False, **rest: Any) -> None:
        super().__init__(*place, **rest)
        self._rerun = rerun

    def run(self) -> Outcome:
        """End as the rerun of such a notebook ends."""
        ended = super().run()
        return Outcome("exception", "It threw", 0.0) if self._rerun else ended


@dataclass
class Inferred:
    """An inference that ran and was pulled, on a Kaggle of its own.

    Attributes:
        shown: the lines that submitting it has shown.
    """

    local: LocalKaggle
    records: Records
    run: Run
    folder: Path
    shown: list[str]

    def submit(
        self,
        pace: Pace = QUICK,
        agree: Callable[[Ask], bool] = lambda ask: True,
        check: competition.Check = lambda given, sample: None,
        **more: bool,
    ) -> Submission:
        """Submit it, as `invoke submit` does.

        Args:
            more: as `competition.submit` has them.
        """
        kaggle, records = connect(pace=pace), Records(self.records.project)
        steps = competition.submit(kaggle, records, self.run, self.folder, check, **more)
        return done(steps, self.shown, agree)

    def offered(self, pace: Pace = QUICK, **more: bool) -> list[str]:
        """Return what a user is asked to agree to, who then declines."""
        before = len(self.shown)
        with pytest.raises(errors.Detached, match=r"Nothing was submitted\."):
            self.submit(pace, lambda ask: False, **more)
        told = self.shown[before:]
        return told[next(at for at, line in enumerate(told) if line.startswith("submit ")) :]

    @property
    def spent(self) -> int:
        """How many submissions there are."""
        return len(self.local.submissions.submissions)

    @property
    def calls(self) -> list[str]:
        """The calls that the server has answered."""
        return [name for name, *_ in self.local.journal]

    @property
    def warnings(self) -> list[str]:
        """The warnings that were shown."""
        return [line for line in self.shown if line.startswith("Warning")]


Begin = Callable[..., Inferred]


@pytest.fixture
def begin(host: Callable[..., LocalKaggle], tmp_path: Path) -> Begin:
    """Return what starts a Kaggle with such a competition, and runs and pulls an inference."""
    numbers = itertools.count()

    def make(session: type = Recorded, facts: Facts | None = None, **more: Any) -> Inferred:
        hosted = [world.competition(**more)]
        local = host(session=session, facts=facts or Facts(), competitions=hosted)
        records = records_in(tmp_path / f"project-{next(numbers)}")
        run, folder = inferred(local, connect(), records)
        return Inferred(local, records, run, folder, [])

    return make


def test_a_competition_that_takes_files_gets_the_pulled_file(begin):
    """Checked, byte by byte that of the run in question, and its sha256 is in the journal."""
    one = begin(takes_files=True)
    checked = []

    scored = one.submit(check=lambda given, sample: checked.append(given))

    (made,) = one.local.submissions.submissions.values()
    (blob,) = one.local.uploads.blobs.values()
    content = (one.folder / "submission.csv").read_bytes()
    assert (scored.ref, scored.score, scored.uploaded) == (made.ref, 0.5, True)
    assert checked == [one.folder / "submission.csv"]
    assert (made.file_name, made.description) == ("submission.csv", f"digits [run {one.run}]")
    assert blob.path.read_bytes() == content and not [*one.local.folder.rglob("rerun-*")]
    row = one.records.journal.last(SUBMIT, number=made.ref)
    assert (row.sha256, row.score) == (hashlib.sha256(content).hexdigest(), 0.5)


def test_the_same_run_is_submitted_once(begin):
    """The same command follows the submission that is there, with the journal and without. It
    asks nobody, and `underway` says so beforehand.
    """
    one = begin(takes_files=True)
    assert not competition.underway(one.records, "")
    first = one.submit()

    assert competition.underway(one.records, "") and competition.underway(one.records, str(one.run))
    assert one.submit(agree=lambda ask: False) == first and first.uploaded
    one.records.journal.path.rename(one.folder / "journal.before")
    assert (one.submit(agree=lambda ask: False), one.spent) == (first, 1)


# What a competition allows


@pytest.mark.parametrize(
    ("gpu_seconds", "advice"),
    [(7200, "max of 120.*Write that maximum"), (0, "takes no notebook with that machine")],
)
def test_a_limit_that_nobody_wrote_down_is_learned_from_the_refusal(begin, gpu_seconds, advice):
    """Kaggle tells it only then."""
    one = begin(gpu_seconds=gpu_seconds)
    one.local.kernels.version(one.run.handle, one.run.version).seconds = 233 * 60.0

    with pytest.raises(errors.Refused, match=rf"(?s)runtime of 233 minutes exceeds.*{advice}"):
        one.submit()

    assert one.spent == 0


def test_a_competition_that_is_closed_is_named_before_a_submission_is_spent(begin):
    """A training may be of use all the same."""
    one, told = begin(closed=True), []

    with pytest.raises(errors.Refused, match="takes no submissions now"):
        one.submit()

    assert done(competition.require(connect(), "digits"), told).closed
    assert "takes no submissions now" in told[0] and "CreateCodeSubmission" not in one.calls


@pytest.mark.parametrize(
    ("in_all", "kind", "when"),
    [(False, errors.NoQuota, "midnight UTC"), (True, errors.Refused, "no later day")],
)
def test_that_no_submission_is_left_is_foreseen(begin, in_all, kind, when):
    """It was found when the training and the inference had run; and no midnight brings another one
    where the competition limits how many there are in all.
    """
    one = begin()
    none = edited(numToday=1, numTotal=40, numAllowedNow=0, limitedByTotal=in_all)
    one.local.faults.say("GetSubmissionLimits", itertools.repeat(none))

    done(competition.foresee(connect(), "digits"), one.shown)
    with pytest.raises(kind, match=when) as caught:
        one.submit()

    assert "no submission to digits is left" in one.shown[0] and when in one.shown[0]
    assert (one.spent, "midnight" in str(caught.value)) == (0, not in_all)


def test_limits_that_kaggle_does_not_tell_keep_no_chain_from_beginning(begin):
    one = begin()
    one.local.faults.say("GetSubmissionLimits", itertools.repeat("500"))
    kaggle = connect(pace=replace(QUICK, patience=0.1))

    done(competition.foresee(kaggle, "digits"), one.shown)

    assert one.shown == []


# What Kaggle lists late, or never


@pytest.mark.parametrize(
    ("now", "pulled", "settled", "waits"),
    [(False, 60, 0.2, True), (True, 60, 0.2, False), (False, 0, 1e-4, False)],
)
def test_a_submission_waits_some_more_after_the_pull_unless_it_is_told_not_to(
    begin, now, pulled, settled, waits
):
    """Where the pull was longer ago, there is nothing to wait for. To be sure of the first, its
    clock is a minute ahead.
    """
    one = begin()
    at = (datetime.now(UTC) + timedelta(seconds=pulled)).isoformat()
    note = {"run": str(one.run), "server": auth.address(), "at": at}
    (one.folder / output.NOTE).write_text(json.dumps(note))

    assert one.submit(replace(QUICK, settled=settled), now=now).score == 0.5

    assert any("to skip this: --now" in line for line in one.shown) == waits


def test_an_upload_waits_for_no_listing(begin):
    """The file is here."""
    one = begin(takes_files=True)
    one.local.kernels.version(one.run.handle, one.run.version).listed_at = math.inf

    assert one.submit(replace(QUICK, settled=60)).score == 0.5


def test_a_hidden_score_ends_the_wait_as_a_success(begin):
    """Some competitions show none until they end; the journal says so."""
    one = begin(facts=Facts(scores=False))

    scored = one.submit(replace(QUICK, hidden=0.2))

    assert (scored.score, str(scored)) == (None, "complete, score hidden")
    row = one.records.journal.last(SUBMIT)
    assert (row.state, row.status, row.score) == (State.ENDED, "COMPLETE", None)


def test_a_file_that_is_not_among_the_outputs_is_submitted_only_with_now(begin):
    """Exit code 5; the message ends with the command that submits it all the same."""
    one = begin()
    one.local.faults.say("ListKernelSessionOutput", itertools.repeat("an older answer"))

    with pytest.raises(errors.DeadlinePassed, match=r"no submission\.csv among the") as caught:
        one.submit()

    anyway = f"invoke submit --run {one.run} --now --config digits"
    assert str(caught.value).splitlines()[-1] == anyway
    assert one.offered(now=True) and one.spent == 0


# What is agreed to


def test_a_sample_that_kaggle_has_replaced_asks_for_another_inference(begin):
    """Exit code 2. The rows that the run wrote stay what they are, however often they are sent."""
    one = begin()
    sample = one.local.competitions.folder("digits") / "sample_submission.csv"
    content = sample.read_bytes()
    sample.unlink()  # it is a link
    sample.write_bytes(content + b"c,0\n")

    with pytest.raises(errors.UsageError) as raised:
        one.submit(check=submission.check)

    said = str(raised.value)
    assert "sample_submission.csv" in said and "relay-sample" not in said
    assert said.endswith("\ninvoke push-infer --again --config digits")
    row = one.records.journal.last(SUBMIT)
    assert (row.state, one.spent) == (State.NOT_SENT, 0)


def test_what_a_submission_spends_is_shown_before_the_question(begin):
    """File, rows, run, competition, what is left today, and what validation said."""
    one = begin(daily_submissions=5)
    _, pulled = trained(one.records)
    path = pulled / output.ARTIFACT / MANIFEST
    manifest = json.loads(path.read_text())
    told = {"metric": "accuracy", "metrics": {"validation_accuracy": 0.98765}}
    path.write_text(json.dumps(manifest | told))
    expect = {"expect": {"weights_sha256": manifest["weights_sha256"]}}
    bundle = one.folder / output.BUNDLE
    bundle.write_text(json.dumps(expect))
    (one.folder / output.OUTPUTS).unlink()

    assert one.offered() == [
        f"submit      submission.csv of {one.run}, 2 rows; runs the notebook on the hidden test"
        " set",
        "competition digits: submissions left today: 5",
        "validation  accuracy 0.9877",
    ]
    assert one.spent == 0


@pytest.mark.parametrize(
    ("code", "said", "kind", "advice"),
    [
        (400, SPENT, errors.NoQuota, "Try again after midnight UTC:\ninvoke submit --run {run}"),
        (400, PROCESSED, errors.NoQuota, "before has its score:\ninvoke submit --run {run}"),
        (
            404,
            LOST,
            errors.NotFound,
            "A new version (.|\n)*invoke push-infer --config digits --again",
        ),
    ],
)
def test_a_submission_that_is_refused_says_what_helps(begin, code, said, kind, advice):
    """No file has to be corrected. The same command is right later, or never."""
    one = begin()
    refusal = instead(code, {"code": code, "message": f"Submission not allowed: {said}"})
    one.local.faults.say("CreateCodeSubmission", [refusal])

    with pytest.raises(kind, match=advice.format(run=one.run)) as caught:
        one.submit()

    assert type(caught.value) is kind and "Correct what it names" not in str(caught.value)


def test_a_file_that_is_declined_is_not_uploaded(begin):
    """Where the competition takes files. After its end a submission counts for nothing."""
    one = begin()
    over = edited(isKernelsSubmissionsOnly=False, deadline="2020-01-09T23:59:00Z")
    one.local.faults.say("GetCompetition", [over])

    assert "uploads the file" in one.offered()[0]
    assert "StartSubmissionUpload" not in one.calls
    (warning,) = one.warnings
    assert "digits ended on 2020-01-09 23:59 UTC" in warning and "counts for nothing" in warning


def test_a_run_that_was_submitted_while_the_question_stood_is_submitted_once(begin):
    """In another window."""
    one, other = begin(), []

    def agree(ask: Ask) -> bool:
        other.append(one.submit())
        return True

    assert [one.submit(agree=agree)] == other and one.spent == 1
    assert any("was submitted meanwhile" in line for line in one.shown)


def test_a_run_whose_submission_failed_is_submitted_again_only_if_that_is_said(begin):
    """The same command once spent one more submission each time that it was given."""
    one = begin(session=Throws)
    for _ in range(2):
        with pytest.raises(errors.RunFailed, match="Notebook Threw Exception") as caught:
            one.submit()
        assert one.spent == 1
    last = f"invoke submit --run {one.run} --again --config digits"
    assert str(caught.value).splitlines()[-1] == last
    assert not competition.underway(one.records, "")

    (ref,) = one.local.submissions.submissions
    assert one.offered(again=True)[-1] == (
        f"before      submission {ref} of this run failed: Notebook Threw Exception"
    )
    with pytest.raises(errors.RunFailed):
        one.submit(again=True)
    assert one.spent == 2


# What an account lacks


@pytest.mark.parametrize(
    "answer",
    [
        {"userHasEntered": False},
        # Kaggle lists the files to everybody, and gives them only to who accepted.
        {},
    ],
    ids=["not entered", "no file"],
)
def test_who_has_not_accepted_the_rules_is_sent_there(host, answer):
    """Exit code 3, with the address of the rules."""
    local = host(facts=Facts(gate="" if answer else "rules"))
    local.faults.say("GetCompetition", [edited(**answer)] if answer else [])

    with pytest.raises(errors.Denied, match=RULES) as caught:
        done(competition.require(connect(), "digits"), [])

    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("takes_files", "gate", "said"),
    [
        (False, "phone", "phone is not verified.*kaggle.com/settings"),
        (False, "identity", "identity is not verified.*kaggle.com/settings"),
        (True, "captcha", "CAPTCHA.*browser"),
    ],
)
def test_what_only_a_person_can_do_is_named(begin, takes_files, gate, said):
    """Exit code 3; nothing is spent, and nothing else is blamed."""
    one = begin(takes_files=takes_files, facts=Facts(gate=gate))

    with pytest.raises(errors.RelayError, match=rf"(?s){said}") as caught:
        one.submit()

    assert (caught.value.exit_code, one.spent) == (3, 0)


def test_an_answer_that_describes_no_competition_is_asked_for_again(begin):
    """All of its values would be defaults: a competition for files, not entered."""
    one = begin()
    one.local.faults.say("GetCompetition", ["an empty object"])

    assert not one.submit().uploaded


SLUG = "verify-phone-prices"
ASKED: dict[str, Callable[[Kaggle], object]] = {
    "GetCompetition": lambda kaggle: competition.look(kaggle, SLUG),
    "ListDataFiles": lambda kaggle: competition.files(kaggle, SLUG),
    "DownloadDataFile": lambda kaggle: competition.require_rules(kaggle, SLUG, ["a.csv"]),
}


@pytest.mark.parametrize("call", ASKED)
def test_who_has_to_verify_something_is_not_sent_to_the_rules(kaggle, between, call):
    """Nor is anybody sent to the phone by a slug, which our own text names."""
    refusal = {"code": 403, "message": "Permission denied"}
    verify = {"code": 403, "message": "You must verify your phone number"}

    for said, told, other in ((refusal, "/rules", "phone is"), (verify, "phone is", "/rules")):
        between.always(call, (403, said))
        with pytest.raises(errors.Denied, match=told) as caught:
            ASKED[call](kaggle)
        assert other not in str(caught.value)
