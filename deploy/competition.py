"""A competition: what it takes, whether its rules were accepted, and the submission of a run.

Reads  what Kaggle says of the competition, and what a run wrote, checked against its sample
Gives  a `Competition`, or an error that says where the rules are; a `Submission` with its score

Kaggle lists the files of most competitions for everybody. It gives a file only to those who
accepted the rules. It also says what the competition takes: a notebook, which it runs again on the
hidden test set, or a file. Then the pulled submission.csv is uploaded. A submission is spent only
after the file was checked and the user has agreed, and only once: its description names the run,
so an earlier or unanswered submission of the same run is found again. After one that failed, which
was spent too, another is only by `again`, or where the error was Kaggle's own. A pulled file that
was changed is refused: it is not what the run wrote.
"""

import csv
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from deploy import errors, failures, gate, output
from deploy.calls import Competition, Scored
from deploy.client import Kaggle
from deploy.errors import Denied, NoQuota, NotFound, Refused, RelayError, RunFailed, UsageError
from deploy.events import Ask, Note, Steps
from deploy.journal import SUBMIT, Absent, Ended, Made, Request, Sending
from deploy.polling import Polls
from deploy.project import INFER, Project
from deploy.records import Records
from deploy.runs import Run
from formats import checksums
from formats.sealed_folder import MANIFEST

Check = Callable[[Path, Path], object]

SAMPLE = "sample_submission.csv"
FILE = "submission.csv"
FAILED = "ERROR"  # Kaggle's word for a submission without a score
DECLINED = "Nothing was submitted."
LOOKS = 3  # at the list, for a submission whose answer was lost
NAMED = "[run "  # begins the part of a description that names the run
# What Kaggle says of a notebook that ran for too long.
TOO_LONG = re.compile(r"runtime of \d+ minutes exceeds this competition's (\w+) max of (\d+)")
NO_VERSION = "could not find provided notebook"
LATER = {  # when the same submission may be made, by Kaggle's words
    "submission allowance": "after midnight UTC",
    "being processed": "once the submission before has its score",
}
KAGGLES = "kaggle error"  # its own
# Kaggle's list of what it says when the rerun fails, with the usual cause and the edit.
CAUSES = {
    "timeout": "The hidden test set takes longer than the notebook may. Predict in larger batches,"
    " or with a smaller model.",
    "threw exception": "Something that holds for the public files does not for the hidden ones: a"
    " number of rows, a folder, an image that cannot be read. Read all of it from the mounted"
    " files, then rehearse it:\n{rehearse}",
    "exceeded allowed compute": "Memory or disk ran out on the hidden test set. Predict in smaller"
    " batches, and keep nothing.",
    "csv not found": "The rerun wrote no submission.csv into the working directory. Write it on"
    " every path through the notebook.",
    "scoring error": "The rows, ids or types of the rerun's file are not those of the hidden"
    " sample. Take them from the mounted sample_submission.csv, never from the public one.",
    KAGGLES: "Something failed at Kaggle's end. Submit the same run again later:\n{again}",
}


@dataclass(frozen=True)
class Spending:
    """What a submission would spend, and on what.

    Attributes:
        rows: of the file, without its header.
        uploaded: whether the file is submitted, and not the notebook.
        left: how many submissions are left, in words.
        validation: what the training's validation said of the model; "": not known here.
        failed: the last submission of this run that failed, in words; "": there is none.
    """

    run: Run
    competition: str
    rows: int
    uploaded: bool
    left: str
    validation: str
    failed: str = ""

    def lines(self) -> list[str]:
        """Return it as lines for a person."""
        how = "uploads the file" if self.uploaded else "runs the notebook on the hidden test set"
        return [
            f"submit      {FILE} of {self.run}, {self.rows:,} rows; {how}",
            f"competition {self.competition}: {self.left}",
            f"validation  {self.validation or 'not known here'}",
            *([f"before      {self.failed}"] if self.failed else []),
        ]


@dataclass(frozen=True)
class Submission:
    """A scored submission.

    Attributes:
        score: the public one; None: the competition hides it.
        uploaded: whether the file was submitted, and not the notebook.
    """

    ref: int
    score: float | None
    status: str
    uploaded: bool = False

    def __str__(self) -> str:
        return "complete, score hidden" if self.score is None else f"score {self.score}"


# What Kaggle says of a competition


def rules_address(competition: str) -> str:
    """Return the page on which the rules are accepted."""
    return f"https://www.kaggle.com/competitions/{competition}/rules"


def look(kaggle: Kaggle, competition: str) -> Competition:
    """Return what Kaggle says of a competition that this account takes part in.

    Raises:
        UsageError: if Kaggle knows no such competition.
        Denied: if this account has not accepted its rules, or Kaggle does not show it.
    """
    with _explained(competition, f"show the competition {competition!r} (403)"):
        found = kaggle.competition(competition)
    if found.entered:
        return found
    heading = f"This account has not entered the competition {competition!r}: its rules are not"
    # After its end it takes late submissions of everybody who accepts the rules.
    if _past(found.entry_ends) and not _past(found.ends):
        end = f", {_day(found.ends)}" if found.ends else ""
        raise Denied(
            f"{heading} accepted. It takes nobody new since {_day(found.entry_ends)}.\nExpected one"
            f" that still does. After its end{end}, it may take late submissions."
        )
    raise Denied(
        f"{heading} accepted.\nAccept them at {rules_address(competition)}, then run the same"
        " command again."
    )


def files(kaggle: Kaggle, competition: str) -> list[str]:
    """Return names of the competition's files, not all of them. Raises as `look`."""
    with _explained(competition, f"show the competition {competition!r} (403)"):
        return kaggle.competition_files(competition)


def require_rules(kaggle: Kaggle, competition: str, names: Sequence[str]) -> str:
    """Return the name of a file that Kaggle gives; "" if there is none to try.

    Raises:
        Denied: if the rules were not accepted.
    """
    name = SAMPLE if SAMPLE in names else next(iter(names), "")
    refused = f"give {name} of the competition {competition!r} (403): its rules are not accepted"
    # A name that is not found is listed otherwise than it is asked for, and says nothing of them.
    with _explained(competition, refused), suppress(NotFound):
        if name:
            kaggle.open_competition_file(competition, name)
            return name
    return ""


def require(kaggle: Kaggle, competition: str) -> Steps[Competition]:
    """Return what Kaggle says of a competition. Raises as `look` and `require_rules` do.

    A note says if the competition takes no submissions, or has ended.
    """
    found = look(kaggle, competition)
    require_rules(kaggle, competition, files(kaggle, competition))
    yield from _warnings(found, competition)
    return found


def foresee(kaggle: Kaggle, competition: str) -> Steps[None]:
    """Note that no submission is left, where that is so, before a run that is to be submitted."""
    try:
        limits = kaggle.submission_limits(competition)
    except errors.UNTOLD:
        return  # a push says more of the rules and the slug, and a submission asks again
    if limits.allowed_now < 1 and (limits.today or limits.total):
        yield Note(
            f"Warning: no submission to {competition} is left now, so what runs gets no score yet."
            f" {limits.next}"
        )


def in_words(found: Competition) -> str:
    """Return what a competition takes and until when, for a person."""
    parts = [f"takes {'uploaded files' if found.takes_files else 'notebooks'}"]
    if found.daily:
        parts.append(f"{found.daily} submissions a day")
    if found.teams_end is not None:
        parts.append(f"teams may merge until {_day(found.teams_end)}")
    if found.ends is not None:
        parts.append(f"ends on {_day(found.ends)}")
    return ", ".join(parts)


@contextmanager
def _explained(competition: str, refused: str) -> Iterator[None]:
    """Say what helps where Kaggle answers that there is no such competition, or with a 403.

    Args:
        refused: what Kaggle does not do then.
    """
    try:
        yield
    except NotFound as error:
        raise UsageError(
            f"Kaggle knows no competition {competition!r}.\nExpected the last part of its address,"
            " https://www.kaggle.com/competitions/<slug>. Correct the slug."
        ) from error
    except Denied as error:
        if error.gate not in ("", failures.RULES):
            raise  # the account lacks something else, such as a verified phone
        raise Denied(
            f"Kaggle does not {refused}.\nExpected a competition whose rules you accepted. Accept"
            f" them at {rules_address(competition)}, or correct the slug; then run the same command"
            " again."
        ) from error


def _warnings(found: Competition, competition: str) -> Iterator[Note]:
    if found.closed:
        yield Note(f"Warning: {competition} takes no submissions now, so a run cannot be scored.")
    elif _past(found.ends):
        ended = f"{competition} ended on {_day(found.ends)}"
        yield Note(f"Warning: {ended}; a score counts for nothing.")


def _past(moment: datetime | None) -> bool:
    return moment is not None and moment < datetime.now(UTC)


def _day(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


# One submission


def submit(
    kaggle: Kaggle,
    records: Records,
    run: Run,
    inferred: Path,
    check: Check,
    *,
    now: bool = False,
    again: bool = False,
) -> Steps[Submission]:
    """Submit what a run wrote, record it, and return its score.

    Args:
        inferred: the pulled folder of the run.
        check: is called with its submission.csv and the competition's sample, before anything is
            spent; raises to stop.
        now: submit at once: without a look whether Kaggle has the file, and without the wait of
            some minutes after the pull.
        again: submit also if a submission of this run failed before, whyever. One that did not fail
            is followed all the same.

    Raises:
        Unverified: if the file was pulled, and is not what the run wrote.
        UsageError: if there is no submission.csv, the check stops it, the run took more hours
            than the competition gives, or a secret seems to be in the config's name.
        Detached: if the user declines what would be spent, or presses Ctrl-C.
        NoQuota: if no submission is left today.
        Refused, CredentialError: if Kaggle refuses, or the rules are not accepted.
        RunFailed: if the scored rerun failed, now or before; with Kaggle's word for it, its usual
            cause, and the edit.
        DeadlinePassed: if there is no score in time; the same command follows this submission. Or
            if Kaggle does not have the file among the run's outputs; then nothing was sent.
        Ambiguous: if no answer came, and the submission is not in the list either.
    """
    journal, project = records.journal, records.project
    attempt = _Attempt(kaggle, records, run, inferred, now=now, again=again)
    before = last_sent(records, run)
    request = journal.intend(
        Request(SUBMIT, project.name, run.handle, project.competition, kernel_version=run.version)
    )
    with journal.ended_by_errors(request):
        about = yield from attempt.checked(check)
        made, when = (yield from attempt.made_before(before)), "before"
        failed = attempt.failed_before(made)
        if made is None or failed:
            token = yield from attempt.agreed(about, failed)
            # Another command may have submitted while this one asked or waited.
            made, when = attempt.in_list(), "meanwhile"
            failed = attempt.failed_before(made)
        if made is not None and not failed:
            ref = made.ref
            yield Note(f"{run} was submitted {when}, as {ref}; following that submission.")
        else:
            request = journal.note(request, sha256=checksums.sha256(attempt.file))
            request = journal.record(request, Sending(0))
            ref = yield from attempt.sent(token)
        request = journal.record(request, Made(ref, {}))
        scored = yield from attempt.scored(ref)
        ended = _score(scored)
        journal.record(request, Ended(scored.status, {"score": ended}))
        if scored.status == FAILED:
            raise RunFailed(attempt.failure(scored))
        return Submission(ref, ended, scored.status, about.takes_files)


def last_sent(records: Records, run: Run) -> Request | None:
    """Return the last submission of a run that Kaggle has, as far as the journal knows, or None."""
    entries = records.journal.requests(SUBMIT, handle=run.handle, kernel_version=run.version)
    return next((entry for entry in entries if entry.is_made or entry.is_open), None)


def underway(records: Records, named: str) -> bool:
    """Return whether the journal has a submission of a run that is not known to have failed.

    Args:
        named: the run; "": the last inference that was pushed from here.
    """
    try:
        last = last_sent(records, records.find_run(named, INFER))
    except UsageError:  # told later, by what needs the run
        return False
    return last is not None and last.status != FAILED


def rows(submission: Path) -> int:
    """Return how many rows a submission.csv has below its header."""
    csv.field_size_limit(sys.maxsize)  # a mask has more characters
    with submission.open(encoding="utf-8", newline="") as lines:
        return sum(1 for row in csv.reader(lines) if row) - 1


@dataclass(frozen=True)
class _Attempt:
    """An attempt to have a run scored. Attributes: as the arguments of `submit`."""

    kaggle: Kaggle
    records: Records
    run: Run
    inferred: Path
    now: bool
    again: bool

    @property
    def project(self) -> Project:
        """The project, for what it says of the competition, and for the commands in messages."""
        return self.records.project

    @property
    def file(self) -> Path:
        """What is submitted."""
        return self.inferred / FILE

    @property
    def command(self) -> str:
        """The command that submits this run, or follows its submission."""
        return self.project.command(f"submit --run {self.run}")

    @property
    def name(self) -> str:
        """The words by which a submission of this run is found again."""
        return f"{NAMED}{self.run}]"

    def checked(self, check: Check) -> Steps[Competition]:
        """Return what Kaggle says of the competition, once the file may be submitted to it."""
        if not self.file.is_file():
            raise UsageError(
                f"{self.file} is missing; expected what {self.run} wrote. A training writes none:"
                " submit the inference that came after it.\n"
                f"{self.project.command(f'pull --run {self.run}')}"
            )
        gate.check_text("the submission's description", self.project.name)
        try:
            listed = output.unchanged(self.inferred, FILE, str(self.run))
        except errors.Unverified as error:
            raise errors.Unverified(
                f"{error}\nTo submit other labels, change the notebook and push it: only what a"
                " run wrote is submitted."
            ) from error
        about = look(self.kaggle, self.project.competition)
        if not listed:
            scored = "it" if about.takes_files else "the run's own"
            yield Note(
                f"{self.inferred} holds no list of what a run wrote: this file's origin is not"
                f" known, and {scored} is scored."
            )
        self._require_fit(check)
        return about

    def _require_fit(self, check: Check) -> None:
        """Raise `UsageError` if the competition's sample of today does not let the file pass."""
        competition, sample = self.project.competition, self.project.sample
        with tempfile.TemporaryDirectory(prefix="relay-sample-") as folder:
            path = Path(folder) / Path(sample).name
            try:
                self.kaggle.download_competition_file(competition, sample, path)
            except NotFound as error:
                names = ", ".join(self.kaggle.competition_files(competition)[:12])
                raise UsageError(
                    f"The competition {competition} has no file {sample!r}; it has, among others:"
                    f" {names}.\nExpected the one that shows what a submission looks like. Set"
                    " data.sample_submission in the config."
                ) from error
            try:
                check(self.file, path)
            except Exception as error:
                if isinstance(error, RelayError) or getattr(error, "exit_code", None) != 1:
                    raise  # it says nothing of the submission
                said = str(error).replace(str(path), f"{sample} of the competition {competition}")
                raise UsageError(
                    f"{said}\nIf Kaggle's files have changed since the inference ran, run it again"
                    f" with them:\n{self.project.command('push-infer --again')}"
                ) from error

    def made_before(self, before: Request | None) -> Steps[Scored | None]:
        """Return a submission of this run that Kaggle has, or None.

        Args:
            before: the last one that the journal has.
        """
        made = None
        if before is not None and before.number:
            try:
                made = self.kaggle.get_submission(before.number)
            except NotFound:
                self.records.journal.record(before, Absent())
                yield Note(
                    f"The journal has submission {before.number} of {self.run}, and Kaggle does"
                    " not. It no longer counts."
                )
            except Denied as error:
                yield Note(f"{str(error).splitlines()[0]} The list of submissions decides.")
        # A Kaggle that was restarted gives the same numbers again.
        if made is not None and NAMED in made.description and self.name not in made.description:
            made = None
        for look in range(LOOKS if before is not None and before.is_open else 1):
            if _counts(made):
                break
            if look:
                time.sleep(self.kaggle.pace.first)
            made = self.in_list() or made
        return made

    def in_list(self) -> Scored | None:
        """Return a submission of this run that did not fail, or else the last that did, or None."""
        listed = self.kaggle.list_submissions(self.project.competition)
        ours = [one for one in listed if self.name in one.description]
        return next(filter(_counts, ours), next(iter(ours), None))

    def failed_before(self, made: Scored | None) -> str:
        """Return in words that a submission of this run failed; "" if none did.

        Raises:
            RunFailed: if it failed for another reason than an error of Kaggle's, and nobody said
                `again`.
        """
        if made is None or _counts(made):
            return ""
        if not self.again and KAGGLES not in _reason(made).lower():
            raise RunFailed(
                f"{self.failure(made)}\nThe same again would spend another submission, and most"
                " likely fail as well. To submit it all the same:\n"
                f"{self.project.command(f'submit --run {self.run} --again')}"
            )
        return f"submission {made.ref} of this run failed: {_reason(made)}"

    def agreed(self, about: Competition, failed: str) -> Steps[str]:
        """Return the token of the uploaded file, or "" for a notebook, once the user has agreed to
        spend a submission, and Kaggle has what is submitted.

        Args:
            failed: as in `Spending`.
        """
        left = self._left(about)
        yield from _warnings(about, self.project.competition)
        if not about.takes_files and not self.now:
            anyway = self.project.command(f"submit --run {self.run} --now")
            yield from output.require(self.kaggle, self.run, FILE, anyway)
            size = self.file.stat().st_size
            warning = output.size_warning(self.kaggle, self.run, FILE, size)
            if warning:
                yield Note(warning)
        validation = _validation(self.project, self.inferred)
        place, count = (self.run, self.project.competition), rows(self.file)
        spending = Spending(*place, count, about.takes_files, left, validation, failed)
        if not (yield Ask(spending, "Submit it?", DECLINED)):
            raise errors.Detached(DECLINED)
        if about.takes_files:
            return self.kaggle.upload_submission(self.project.competition, self.file)
        if not self.now:
            yield from self._stored()
        return ""

    def _left(self, about: Competition) -> str:
        """Return how many submissions are left, in words; raise unless this one can be made now."""
        competition, hours = self.project.competition, self.project.infer_hours
        if hours is not None and not about.takes_files:
            seconds = self.kaggle.kernel_seconds(self.run.handle, self.run.version) or 0.0
            if seconds > 3600 * hours:
                raise UsageError(
                    f"{self.run} was not submitted: its runtime of {seconds / 60:.0f} minutes"
                    f" exceeds this competition's GPU max of {60 * hours:.0f} minutes"
                    f" (infer_hours={hours:g} in the config). Kaggle would refuse it.\nPush the"
                    " inference again, which then keeps to that time, or correct infer_hours:\n"
                    f"{self.project.command('push-infer')}"
                )
        if about.closed:
            raise Refused(
                f"The competition {competition} takes no submissions now.\nExpected one that does."
                f" Look at its page:\nhttps://www.kaggle.com/competitions/{competition}"
            )
        limits = self.kaggle.submission_limits(competition)
        if (limits.today, limits.total, limits.allowed_now) == (0, 0, 0):
            return "Kaggle knows no team of yours there: have you accepted its rules?"
        if limits.allowed_now < 1:
            none = (
                f"No submission to {competition} is left now ({limits.today} today, {limits.total}"
                f" in all).\nExpected at least one. {limits.next}"
            )
            if limits.by_total:
                raise Refused(none)
            raise NoQuota(f"{none} Then:\n{self.command}")
        count = (
            "1 submission is"
            if limits.allowed_now == 1
            else f"{limits.allowed_now} submissions are"
        )
        return f"{count} left {'in all' if limits.by_total else 'today'}"

    def _stored(self) -> Steps[None]:
        """Wait until Kaggle has surely stored the output: a submission before it is lost."""
        note = output.noted(self.inferred)
        pulled = datetime.fromisoformat(note.at) if note else datetime.now(UTC)
        left = self.kaggle.pace.settled - (datetime.now(UTC) - pulled).total_seconds()
        if left > 0:
            yield Note(
                f"Waiting {left:.0f} s, until Kaggle has stored the output of {self.run}; to skip"
                " this: --now"
            )
            time.sleep(min(left, self.kaggle.pace.settled))

    def sent(self, token: str) -> Steps[int]:
        """Submit, and return the number of the submission.

        Args:
            token: of the uploaded file; "": the notebook is submitted.
        """
        run, competition, words = (
            self.run,
            self.project.competition,
            f"{self.project.name} {self.name}",
        )
        try:
            if token:
                return self.kaggle.submit_file(competition, token, description=words)
            return self.kaggle.submit_code(
                competition, run.handle, run.version, file_name=FILE, description=words
            )
        except errors.Ambiguous as error:
            for _ in range(LOOKS):
                time.sleep(self.kaggle.pace.first)
                try:
                    made = self.in_list()
                except RelayError:  # it says nothing of the submission
                    break
                if made is not None and _counts(made):
                    lost = f"The answer was lost ({str(error).splitlines()[0]})"
                    yield Note(f"{lost}, and the submission is there: {made.ref}.")
                    return made.ref
            raise
        except (NoQuota, Refused) as error:
            heading = str(error).splitlines()[0]
            advice = self._advice(heading)
            if not advice:
                raise
            raise type(error)(f"{heading}\n{advice}") from error

    def _advice(self, said: str) -> str:
        """Return what helps against a refusal, by Kaggle's words; "" if that is not known."""
        push = self.project.command("push-infer")
        too_long = TOO_LONG.search(said)
        if too_long and int(too_long[2]):
            return (
                f"Write infer_hours={int(too_long[2]) / 60:g} into the config, so that the"
                f" inference keeps to it, and push again:\n{push}"
            )
        if too_long:
            return (
                f"This competition takes no notebook with a {too_long[1]}. Ask for another machine"
                f" in kernels/infer-gpu/kernel-metadata.json, and push again:\n{push}"
            )
        if NO_VERSION in said.lower():
            return (
                f"Kaggle does not offer {self.run} for a submission, although it ran. A new version"
                " of the same notebook helps: push it, and then watch, pull and submit that one:\n"
                f"{self.project.command('push-infer --again')}"
            )
        when = next((when for words, when in LATER.items() if words in said.lower()), "")
        return f"Try again {when}:\n{self.command}" if when else ""

    def scored(self, ref: int) -> Steps[Scored]:
        """Follow a submission, and return what Kaggle says of it at its end."""
        kaggle, seconds = self.kaggle, self.project.deadline_seconds
        polls = Polls(kaggle.pace, time.monotonic() + seconds)
        attach = f"To follow submission {ref} again, without spending another:\n{self.command}"
        try:
            while True:
                now = kaggle.get_submission(ref)
                if polls.changed(now.status):
                    yield Note(f"submission {ref} of {self.run}: {now.status}")
                hidden = time.monotonic() - polls.changed_at >= kaggle.pace.hidden
                told = _score(now) is not None or hidden
                if now.status == FAILED or (now.status == "COMPLETE" and told):
                    return now
                polls.wait(
                    f"Submission {ref} of {self.run} is {now.status}, score {now.public_score!r},"
                    f" after {seconds:.0f} seconds; expected COMPLETE and a number.\n{attach}"
                )
        except KeyboardInterrupt:
            raise errors.Detached(f"Detached from submission {ref}.\n{attach}") from None
        except errors.Unreachable as error:
            error.args = (f"{error}\n{attach}",)
            raise

    def failure(self, made: Scored) -> str:
        """Return that a submission failed, with Kaggle's word, its usual cause, and the edit."""
        said = _reason(made)
        causes = (text for word, text in CAUSES.items() if word in said.lower())
        cause = next(causes, "Look at the submission on kaggle.com.").format(
            rehearse=f"{self.project.command('dry-run')} --input DIR", again=self.command
        )
        return f"Submission {made.ref} of {self.run} failed: {said}\nExpected a score. {cause}"


def _validation(project: Project, inferred: Path) -> str:
    """Return the validation score of each model that an inference accepted, as the trainings that
    were pulled say; "" if none does.
    """
    expect = output.json_object(inferred / output.BUNDLE).get("expect") or {}
    told = {}
    for path in project.runs.glob(f"*/{output.ARTIFACT}/{MANIFEST}"):
        manifest = output.json_object(path)
        name, metrics = manifest.get("metric"), manifest.get("metrics")
        score = metrics.get(f"validation_{name}") if isinstance(metrics, dict) else None
        if isinstance(score, int | float):
            told[manifest.get("weights_sha256")] = f"{name} {score:.4f}"
    wanted = [one.get("weights_sha256") for one in expect.get("members") or [expect]]
    return ", ".join(told[weights] for weights in wanted if weights in told)


def _counts(made: Scored | None) -> bool:
    """Return whether there is a submission, and it has not failed."""
    return made is not None and made.status != FAILED


def _score(made: Scored) -> float | None:
    """Return the public score of a submission; None: it is not there yet, or hidden."""
    with suppress(ValueError):
        score = float(made.public_score)
        return score if math.isfinite(score) else None
    return None


def _reason(made: Scored) -> str:
    """Return why Kaggle says that a submission failed."""
    return failures.plain(made.error).strip() or "no reason was given"
