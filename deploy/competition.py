"""A competition: its rules, what it takes, and the submission of a run.

Reads  the competition on Kaggle, and a run's submission.csv, which is checked against the sample
Gives  a `Competition`, or an error with the address of its rules; a `Submission` with its score

A competition takes a notebook, which Kaggle runs again on the hidden test set, or a file: then the
pulled submission.csv is uploaded. A submission is spent only after the file was checked and the
user has agreed, and only once: its description names the run, so an earlier submission of the same
run is found, also if its answer was lost. After a failed submission, which was spent too, another
one needs `again`. A pulled file that was changed is refused.
"""

import csv
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from deploy import errors, failures, gate, output
from deploy.calls import Competition, Scored
from deploy.client import Kaggle
from deploy.connection import Polls
from deploy.errors import Denied, NoQuota, NotFound, Refused, RelayError, RunFailed, UsageError
from deploy.events import Ask, Note, Steps
from deploy.journal import SUBMIT, Request, State
from deploy.project import INFER, Project
from deploy.records import Records
from deploy.runs import Run
from formats import checksums
from formats.errors import KnownError
from formats.sealed_folder import MANIFEST

Check = Callable[[Path, Path | None], object]

FILE = "submission.csv"
FAILED = "ERROR"  # Kaggle's word for a submission without a score
DECLINED = "Nothing was submitted."
LOOKS = 3  # at the list, for a submission whose answer was lost
NAMED = "[run "  # starts the part of a description that names the run
# What helps after a refusal, by Kaggle's words.
REFUSALS = {
    "minutes exceeds .* max of 0": "This competition takes no notebook with that machine. Choose"
    " another one in kernels/infer-gpu/kernel-metadata.json, and push again:\n{push}",
    "minutes exceeds": "Write that maximum in hours into the config, for example infer_hours=9, and"
    " push again:\n{push}",
    "could not find provided notebook": "Kaggle does not offer this version for a submission. Push"
    " a new version of the same notebook, then watch, pull and submit it:\n{push} --again",
    "submission allowance": "Try again after midnight UTC:\n{submit}",
    "being processed": "Try again once the submission before it has its score:\n{submit}",
}
# Kaggle's words for a failed rerun, with the usual cause and the edit.
CAUSES = {
    "timeout": "The hidden test set takes too long. Predict in larger batches, or with a smaller"
    " model.",
    "threw exception": "The code assumes something that is not true of the hidden files, such as a"
    " number of rows. Read it from the mounted files, then rehearse it:\n{rehearse}",
    "exceeded allowed compute": "Memory or disk ran out on the hidden test set. Predict in smaller"
    " batches, and write no other files.",
    "csv not found": "The rerun wrote no submission.csv. Write it on every path through the"
    " notebook.",
    "scoring error": "The rows, ids or types of the rerun's file differ from the hidden sample."
    " Take them from the mounted sample_submission.csv, never from the public one.",
    "kaggle error": "Something failed at Kaggle: the same run may get a score later.",
    "": "Look at the submission on kaggle.com.",
}


@dataclass(frozen=True)
class Submission:
    """A scored submission.

    Attributes:
        score: the public score; None if the competition hides it.
        uploaded: whether the file was submitted, and not the notebook.
    """

    ref: int
    score: float | None
    uploaded: bool = False

    def __str__(self) -> str:
        return "complete, score hidden" if self.score is None else f"score {self.score}"


# A competition and its rules


def rules_address(competition: str) -> str:
    """Return the page where the rules are accepted."""
    return f"https://www.kaggle.com/competitions/{competition}/rules"


def look(kaggle: Kaggle, competition: str) -> Competition:
    """Return a competition that this account has entered.

    Raises:
        UsageError: if there is no such competition.
        Denied: if this account has not accepted its rules, or cannot see it.
    """
    try:
        found = kaggle.competition(competition)
    except NotFound as error:
        raise UsageError(
            f"Kaggle has no competition {competition!r}.\nCorrect the slug, the last part of its"
            " address: https://www.kaggle.com/competitions/<slug>"
        ) from error
    except Denied as error:
        if error.gate not in ("", failures.RULES):
            raise  # the account lacks something else, such as a verified phone
        found = None
    if found is None or not found.entered:
        # The page of the rules shows whether it takes nobody new.
        raise Denied(
            f"This account has not entered the competition {competition!r}, or may not see it.\n"
            f"Accept its rules at {rules_address(competition)}, or correct the slug; then run the"
            " same command again."
        )
    return found


def require(kaggle: Kaggle, competition: str) -> Steps[Competition]:
    """Return what `look` does, and note if the competition takes no submissions, or has ended."""
    found = look(kaggle, competition)
    if found.closed:
        yield Note(f"Warning: {competition} takes no submissions now, so a run cannot be scored.")
    elif found.ends is not None and found.ends < datetime.now(UTC):
        yield Note(
            f"Warning: {competition} ended on {_day(found.ends)}; scores no longer count for the"
            " leaderboard."
        )
    return found


def in_words(found: Competition) -> str:
    """Return what a competition takes and when it ends, for a person."""
    parts = [f"takes {'uploaded files' if found.takes_files else 'notebooks'}"]
    if found.daily:
        parts.append(f"{found.daily} submissions per day")
    if found.ends is not None:
        parts.append(f"ends on {_day(found.ends)}")
    return ", ".join(parts)


def _day(moment: datetime) -> str:
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
    """Submit a run, record it, and return its score.

    Args:
        inferred: the pulled folder of the run.
        check: called with its submission.csv and the competition's sample, None if it has none,
            before anything is spent; raises to stop.
        now: submit at once, without the wait of some minutes after the pull.
        again: submit even if a submission of this run failed before. One that did not fail is
            followed anyway.

    Raises:
        Unverified: if the pulled file is not what the run wrote.
        UsageError: if there is no submission.csv, the check stops it, or the config's name seems to
            contain a secret.
        Detached: if the user declines, or presses Ctrl-C.
        NoQuota: if no submission is left today.
        Refused, CredentialError: if Kaggle refuses, or the rules are not accepted.
        RunFailed: if the scored rerun failed, now or before; with Kaggle's words, the usual cause,
            and the edit.
        DeadlinePassed: if there is no score in time; the same command follows this submission.
        Ambiguous: if no answer came, and the list does not have the submission either.
    """
    journal, project = records.journal, records.project
    attempt = _Attempt(kaggle, project, run, inferred, project.command(f"submit --run {run}"))
    before = last_sent(records, run)
    request = journal.intend(
        Request(SUBMIT, project.name, run.handle, project.competition, kernel_version=run.version)
    )
    with journal.ended_by_errors(request):
        about = yield from attempt.checked(check)
        made, when = attempt.made_before(before), "before"
        failed = attempt.failed_before(made, again=again)
        if made is None or failed:
            token = yield from attempt.agreed(about, failed, now=now)
            # Another command may have submitted while this one waited.
            made, when = attempt.in_list(), "meanwhile"
            failed = attempt.failed_before(made, again=again)
        if made is not None and not failed:
            ref = made.ref
            yield Note(f"{run} was submitted {when}, as {ref}; following that submission.")
        else:
            request = journal.note(request, sha256=checksums.sha256(inferred / FILE))
            request = journal.record(request, State.SENT, before=0)
            ref = yield from attempt.sent(token)
        request = journal.record(request, State.VERSION, number=ref)
        scored = yield from attempt.scored(ref)
        scores = {"score": _score(scored), "private": _number(scored.private_score)}
        journal.record(request, State.ENDED, status=scored.status, **scores)
        if scored.status == FAILED:
            raise RunFailed(attempt.failure(scored))
        return Submission(ref, _score(scored), about.takes_files)


def last_sent(records: Records, run: Run) -> Request | None:
    """Return the last submission of a run that was made, by the journal, or None."""
    entries = records.journal.requests(SUBMIT, handle=run.handle, kernel_version=run.version)
    return next((entry for entry in entries if entry.is_made or entry.is_open), None)


def underway(records: Records, named: str) -> bool:
    """Return whether the journal has a submission of a run that has not failed as far as is known.

    Args:
        named: the run; "" for the last inference that was pushed from here.
    """
    try:
        last = last_sent(records, records.find_run(named, INFER))
    except UsageError:  # raised later, where the run is needed
        return False
    return last is not None and last.status != FAILED


def rows(submission: Path) -> int:
    """Return the number of rows of a submission.csv, without its header."""
    csv.field_size_limit(sys.maxsize)  # a mask is longer than the default
    with submission.open(encoding="utf-8", newline="") as lines:
        return sum(1 for row in csv.reader(lines) if row) - 1


@dataclass(frozen=True)
class _Attempt:
    """An attempt to submit a run.

    Attributes:
        inferred: the pulled folder of the run.
        command: submits this run, or follows its submission.
    """

    kaggle: Kaggle
    project: Project
    run: Run
    inferred: Path
    command: str

    def checked(self, check: Check) -> Steps[Competition]:
        """Check the file against the competition's current sample; return the competition."""
        if not (self.inferred / FILE).is_file():
            raise UsageError(
                f"{self.inferred / FILE} is missing; expected the pulled output of an inference.\n"
                f"{self.project.command(f'pull --run {self.run}')}"
            )
        competition, sample = self.project.competition, self.project.sample
        gate.check_text("the submission's description", self.project.name)
        output.unchanged(self.inferred, FILE, str(self.run))
        about = yield from require(self.kaggle, competition)
        with tempfile.TemporaryDirectory(prefix="relay-sample-") as folder:
            path = Path(folder) / Path(sample).name if sample else None
            if sample and path and not self._has(sample, path):
                raise UsageError(
                    f"The competition {competition} has no file {sample}.\nSet"
                    f" data.sample_submission in the config {self.project.name} to its name there,"
                    " or to None without one."
                )
            try:
                check(self.inferred / FILE, path)
            except KnownError as error:
                if error.exit_code != 1:
                    raise  # it is not about the submission
                where = f"{sample} of the competition {competition}"
                why = str(error).replace(str(path), where) if path else str(error)
                raise UsageError(
                    f"{why}\nIf Kaggle's files have changed since the inference ran, run it again"
                    f" with them:\n{self.project.command('push-infer --again')}"
                ) from error
        return about

    def _has(self, sample: str, path: Path) -> bool:
        """Download the sample to a path, or an archive of it; return whether it exists."""
        for name in (sample, f"{sample}.zip", str(Path(sample).with_suffix(".zip"))):
            with suppress(NotFound):
                self.kaggle.download_competition_file(self.project.competition, name, path)
                return True
        return False

    def made_before(self, before: Request | None) -> Scored | None:
        """Return a submission of this run that Kaggle has, or None.

        Args:
            before: the last one in the journal.
        """
        made = None
        if before is not None and before.number:
            with suppress(NotFound):
                made = self.kaggle.get_submission(before.number)
        if _counts(made):
            return made
        return self.in_list(LOOKS if before is not None and before.is_open else 1) or made

    def in_list(self, looks: int = 1) -> Scored | None:
        """Return a submission of this run that did not fail, or the last that did, or None.

        Args:
            looks: at Kaggle's list, which may have it late.
        """
        made = None
        for again in range(looks):
            if again:
                time.sleep(self.kaggle.pace.first)
            listed = self.kaggle.list_submissions(self.project.competition)
            ours = list(filter(self._is_ours, listed))
            made = next(filter(_counts, ours), next(iter(ours), None))
            if _counts(made):
                break
        return made

    def _is_ours(self, made: Scored) -> bool:
        return f"{NAMED}{self.run}]" in made.description

    def failed_before(self, made: Scored | None, *, again: bool) -> str:
        """Return in words that a submission of this run failed; "" if none did.

        Raises:
            RunFailed: if it failed, without `again`.
        """
        if made is None or _counts(made):
            return ""
        if not again:
            raise RunFailed(
                f"{self.failure(made)}\nTo spend another submission on the same file:\n"
                f"{self.project.command(f'submit --run {self.run} --again')}"
            )
        return f"submission {made.ref} of this run failed: {_reason(made)}"

    def agreed(self, about: Competition, failed: str, *, now: bool) -> Steps[str]:
        """Ask the user, and wait until Kaggle has stored the output. Return the token of the
        uploaded file, or "" for a notebook.

        Args:
            failed: an earlier failed submission of this run, in words, or "".
            now: as in `submit`.
        """
        file, competition = self.inferred / FILE, self.project.competition
        left = self._left(about)
        how = (
            "uploads the file" if about.takes_files else "runs the notebook on the hidden test set"
        )
        lines = [
            f"submit      {FILE} of {self.run}, {rows(file):,} rows; {how}",
            f"competition {competition}: {left}",
            f"validation  {_validation(self.project, self.inferred) or 'not known here'}",
            *([f"before      {failed}"] if failed else []),
        ]
        if not (yield Ask(lines, "Submit it?")):
            raise errors.Detached(DECLINED)
        if about.takes_files:
            return self.kaggle.upload_submission(competition, file)
        if not now:
            yield from self._stored()
        return ""

    def _left(self, about: Competition) -> str:
        """Return in words how many submissions are left; raise if none can be made now."""
        competition = self.project.competition
        if about.closed:
            raise Refused(
                f"The competition {competition} takes no submissions now.\nLook at its page:"
                f" https://www.kaggle.com/competitions/{competition}"
            )
        limits = self.kaggle.submission_limits(competition)
        if (limits.today, limits.total, limits.allowed_now) == (0, 0, 0):
            return "Kaggle does not know your team there: have you accepted its rules?"
        if limits.allowed_now < 1:
            none = (
                f"No submission to {competition} is left now ({limits.today} today, {limits.total}"
                f" in all). {limits.next}"
            )
            raise Refused(none) if limits.by_total else NoQuota(f"{none} Then:\n{self.command}")
        return f"submissions left {'in all' if limits.by_total else 'today'}: {limits.allowed_now}"

    def _stored(self) -> Steps[None]:
        """Wait until Kaggle has certainly stored the output: an earlier submission is lost."""
        note, settled = output.noted(self.inferred), self.kaggle.pace.settled
        pulled = datetime.fromisoformat(note.at) if note else datetime.now(UTC)
        left = min(settled - (datetime.now(UTC) - pulled).total_seconds(), settled)
        if left > 0:
            yield Note(
                f"Waiting {left:.0f} s, until Kaggle has stored the output of {self.run}; to skip"
                " this: --now"
            )
            time.sleep(left)

    def sent(self, token: str) -> Steps[int]:
        """Submit, and return the number of the submission.

        Args:
            token: of the uploaded file; "" for a notebook.
        """
        run, competition = self.run, self.project.competition
        words = f"{self.project.name} {NAMED}{run}]"
        try:
            if token:
                ref = self.kaggle.submit_file(competition, token, description=words)
            else:
                ref = self.kaggle.submit_code(
                    competition, run.handle, run.version, file_name=FILE, description=words
                )
            if ref < 1:
                raise errors.Ambiguous(
                    f"Kaggle accepted the submission of {run} and gave no number; expected one.\n"
                    f"{failures.LOOK}"
                )
            return ref
        except errors.Ambiguous:
            made = None
            time.sleep(self.kaggle.pace.first)  # the list may be late
            with suppress(RelayError):  # it is not about the submission
                made = self.in_list(LOOKS)
            if made is None or not _counts(made):
                raise
            yield Note(f"The answer was lost, but the submission is there: {made.ref}.")
            return made.ref
        except (NoQuota, Refused) as error:
            heading = str(error).splitlines()[0]
            advice = self._advice(REFUSALS, heading)
            if not advice:
                raise
            raise type(error)(f"{heading}\n{advice}") from error

    def _advice(self, known: Mapping[str, str], said: str) -> str:
        """Return what helps, by Kaggle's words and a table; "" if that is unknown."""
        advice = (text for words, text in known.items() if re.search(words, said, re.IGNORECASE))
        return next(advice, "").format(
            push=self.project.command("push-infer"),
            rehearse=f"{self.project.command('dry-run')} --input DIR",
            submit=self.command,
        )

    def scored(self, ref: int) -> Steps[Scored]:
        """Follow a submission to its end, and return it."""
        kaggle, seconds = self.kaggle, self.project.deadline_seconds
        polls = Polls(kaggle.pace, time.monotonic() + seconds)
        attach = f"To follow submission {ref} again, without spending another:\n{self.command}"
        try:
            while True:
                now = kaggle.get_submission(ref)
                if polls.changed(now.status):
                    yield Note(f"submission {ref} of {self.run}: {now.status}")
                hidden = time.monotonic() - polls.changed_at >= kaggle.pace.hidden
                is_final = hidden or _score(now) is not None
                if now.status == FAILED or (now.status == "COMPLETE" and is_final):
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
        """Return the message about a failed submission: Kaggle's words, the cause and the edit."""
        reason = _reason(made)
        cause = self._advice(CAUSES, reason)
        return f"Submission {made.ref} of {self.run} failed: {reason}\nExpected a score. {cause}"


def _validation(project: Project, inferred: Path) -> str:
    """Return the validation score of each model of an inference, from the pulled trainings; "" if
    none has one.
    """
    expect = output.json_object(inferred / output.BUNDLE).get("expect") or {}
    wanted = [one.get("weights_sha256") for one in expect.get("members") or [expect]]
    scores = {}
    for path in project.runs.glob(f"*/{output.ARTIFACT}/{MANIFEST}"):
        manifest = output.json_object(path)
        name, metrics = manifest.get("metric"), manifest.get("metrics") or {}
        score = metrics.get(f"validation_{name}")
        if isinstance(score, int | float):
            scores[manifest.get("weights_sha256")] = f"{name} {score:.4f}"
    return ", ".join(scores[weights] for weights in wanted if weights in scores)


def _counts(made: Scored | None) -> bool:
    """Return whether there is a submission, and it has not failed."""
    return made is not None and made.status != FAILED


def _score(made: Scored) -> float | None:
    """Return the public score of a submission; None if it is not there yet, or hidden."""
    return _number(made.public_score)


def _number(text: str) -> float | None:
    """Return a finite number; None for any other text."""
    with suppress(ValueError):
        score = float(text)
        return score if math.isfinite(score) else None
    return None


def _reason(made: Scored) -> str:
    """Return Kaggle's reason for a failed submission."""
    return failures.plain(made.error).strip() or "no reason was given"
