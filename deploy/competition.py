"""Check the requirements of a competition, and submit runs to it.

Some competitions accept notebooks, which Kaggle reruns on the hidden test set. Others accept files,
so the pulled submission.csv is uploaded instead. Before a submission is used up, the file is
compared with the competition's sample submission, and the user is asked for confirmation.

Each run is submitted only once. The submission's description names the run, so an earlier
submission is found even if its response was lost. Failed submissions count against the limit.
"""

import csv
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
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
FAILED = "ERROR"  # Kaggle's status of a submission that failed
DECLINED = "Nothing was submitted."
LOOKS = 3  # how many times to look for a submission whose response was lost
NAMED = "[run "  # start of the text that identifies the run in a submission's description
# Advice after a refusal, keyed by a pattern of Kaggle's message.
REFUSALS = {
    "minutes exceeds .* max of 0": "This competition does not accept notebooks that run on"
    " this type of machine. Choose another machine in kernels/infer-gpu/kernel-metadata.json, and"
    " push again:\n{push}",
    "minutes exceeds": "Set that maximum in hours in the config, for example infer_hours=9, and"
    " push again:\n{push}",
    "could not find provided notebook": "Kaggle cannot submit this version. Push a new"
    " version of the same notebook, then watch, pull and submit it:\n{push} --again",
    "submission allowance": "Try again after midnight UTC:\n{submit}",
    "being processed": "Try again when the previous submission has its score:\n{submit}",
}
# Usual causes of failed reruns and their fixes, keyed by a pattern of Kaggle's message.
CAUSES = {
    "timeout": "Predicting the hidden test set takes too long. Predict in larger batches, or use a"
    " smaller model.",
    "threw exception": "The code may assume something that is not true for the hidden files, such"
    " as the number of rows. Read it from the mounted files, then rehearse:\n{rehearse}",
    "exceeded allowed compute": "The run on the hidden test set exhausted its memory or disk"
    " space. Predict in smaller batches, and do not write any other files.",
    "csv not found": "The rerun did not write submission.csv. Make sure that the notebook always"
    " writes this file.",
    "scoring error": "The rows, ids or types in the rerun's file differ from those in the hidden"
    " sample. Read them from the mounted sample_submission.csv, not from the public one.",
    "kaggle error": "Kaggle had an internal error. Submitting the same run later may succeed.",
    "": "Check the submission on kaggle.com.",
}


@dataclass(frozen=True)
class Submission:
    """A scored submission. `score` is the public score, or None if the competition hides it."""

    ref: int
    score: float | None
    uploaded: bool = False

    def __str__(self) -> str:
        return "complete, score hidden" if self.score is None else f"score {self.score}"


# A competition and its rules


def rules_address(competition: str) -> str:
    return f"https://www.kaggle.com/competitions/{competition}/rules"


def look(kaggle: Kaggle, competition: str) -> Competition:
    """Return a competition's details, and check that this account has joined it.

    Raises:
        UsageError: if the competition does not exist.
        Denied: if this account has not accepted its rules, or has no access to it.
    """
    try:
        found = kaggle.competition(competition)
    except NotFound as error:
        raise UsageError(
            f"The competition {competition!r} does not exist on Kaggle.\nCorrect the slug, which is"
            " the last part of the competition's URL: https://www.kaggle.com/competitions/<slug>"
        ) from error
    except Denied as error:
        if error.gate not in ("", failures.RULES):
            raise  # something else is missing, such as a verified phone
        found = None
    if found is None or not found.entered:
        # The rules page shows whether new participants are accepted.
        raise Denied(
            f"This account has not joined the competition {competition!r}, or cannot see it.\n"
            f"Accept its rules at {rules_address(competition)}, or correct the slug. Then run the"
            " same command again."
        )
    return found


def require(kaggle: Kaggle, competition: str) -> Steps[Competition]:
    found = look(kaggle, competition)
    if found.closed:
        yield Note(
            f"Warning: {competition} is not accepting submissions, so submitted runs will not be"
            " scored."
        )
    elif found.ends is not None and found.ends < datetime.now(UTC):
        yield Note(
            f"Warning: {competition} ended on {_day(found.ends)}. Scores no longer count towards"
            " the leaderboard."
        )
    return found


def require_no_rerun(kaggle: Kaggle, project: Project, members: Sequence[str]) -> None:
    """Raise `UsageError` if Kaggle reruns notebooks on a hidden test set.

    Ensemble members from CSV files cannot predict that test set. See `look` for other errors.
    """
    if not look(kaggle, project.competition).takes_files:
        raise UsageError(
            f"The predictions of {', '.join(members)} come from CSV files, but Kaggle reruns the"
            f" notebooks of {project.competition} on a hidden test set.\nAll members must be"
            " trained models. Find the weights again without --csv:\n"
            "python -m pipeline ensemble OUT OUT --output DIR"
        )


def in_words(found: Competition) -> str:
    parts = [f"accepts {'uploaded files' if found.takes_files else 'notebooks'}"]
    if found.daily:
        parts.append(f"allows {found.daily} submissions per day")
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
    """Submit a run, record the submission, and return its score.

    Args:
        inferred: folder to which the run was pulled.
        check: function that raises an error to prevent the submission. Its arguments are the paths
            of the run's submission.csv and of the competition's sample, which is None if there is
            no sample.
        now: skip the wait of several minutes after the pull.
        again: submit even if an earlier submission of this run failed. If the earlier submission
            did not fail, this waits for its result and does not submit again.

    Raises:
        Unverified: if the pulled file is not the one written by the run.
        UsageError: if submission.csv is missing, the check fails, or the config's name seems to
            contain a secret.
        Detached: if the user declines or presses Ctrl-C.
        NoQuota: if no submissions are left today.
        Refused, CredentialError: if Kaggle refuses the submission, or the rules are not accepted.
        RunFailed: if this submission failed, or an earlier one of the same run did.
        Ambiguous: if Kaggle did not respond and its list does not contain the submission either.
    """
    journal, project = records.journal, records.project
    attempt = _Attempt(kaggle, project, run, inferred, project.command(f"submit --run {run}"))
    before = last_sent(records, run)
    request = journal.intend(
        Request(SUBMIT, project.name, run.handle, project.competition, kernel_version=run.version)
    )
    with journal.ended_by_errors(request):
        about = yield from attempt.checked(check)
        made, when = attempt.made_before(before), "already"
        failed = attempt.failed_before(made, again=again)
        if made is None or failed:
            token = yield from attempt.agreed(about, failed, now=now)
            # Another command may have submitted it during the wait.
            made, when = attempt.in_list(), "meanwhile"
            failed = attempt.failed_before(made, again=again)
        if made is not None and not failed:
            ref = made.ref
            yield Note(f"{run} was {when} submitted, as {ref}. Following that submission.")
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
    entries = records.journal.requests(SUBMIT, handle=run.handle, kernel_version=run.version)
    return next((entry for entry in entries if entry.is_made or entry.is_open), None)


def underway(records: Records, named: str) -> bool:
    try:
        last = last_sent(records, records.find_run(named, INFER))
    except UsageError:  # raised again later, when the run is needed
        return False
    return last is not None and last.status != FAILED


def rows(submission: Path) -> int:
    csv.field_size_limit(sys.maxsize)  # masks exceed the default limit
    with submission.open(encoding="utf-8", newline="") as lines:
        return sum(1 for row in csv.reader(lines) if row) - 1


@dataclass(frozen=True)
class _Attempt:
    """An attempt to submit a run whose output was pulled to the folder `inferred`.

    `command` is the command that submits the run or waits for the result of its submission.
    """

    kaggle: Kaggle
    project: Project
    run: Run
    inferred: Path
    command: str

    def checked(self, check: Check) -> Steps[Competition]:
        if not (self.inferred / FILE).is_file():
            raise UsageError(
                f"{self.inferred / FILE} is missing; expected the output of an inference run.\n"
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
                    f"The competition {competition} has no file named {sample}.\n"
                    f"In the config {self.project.name}, set data.sample_submission to the name of"
                    " the competition's sample submission, or to None if it does not have one."
                )
            try:
                check(self.inferred / FILE, path)
            except KnownError as error:
                if error.exit_code != 1:
                    raise  # the error is not about the submission
                where = f"{sample} of the competition {competition}"
                why = str(error).replace(str(path), where) if path else str(error)
                raise UsageError(
                    f"{why}\nIf Kaggle's files have changed since the inference run, run it again"
                    f" with the new files:\n{self.project.command('push-infer --again')}"
                ) from error
        return about

    def _has(self, sample: str, path: Path) -> bool:
        for name in (sample, f"{sample}.zip", str(Path(sample).with_suffix(".zip"))):
            with suppress(NotFound):
                self.kaggle.download_competition_file(self.project.competition, name, path)
                return True
        return False

    def made_before(self, before: Request | None) -> Scored | None:
        made = None
        if before is not None and before.number:
            with suppress(NotFound):
                made = self.kaggle.get_submission(before.number)
        if _counts(made):
            return made
        return self.in_list(LOOKS if before is not None and before.is_open else 1) or made

    def in_list(self, looks: int = 1) -> Scored | None:
        """Return this run's submission from Kaggle's list, or None if the list does not contain
        one.

        This is the latest submission that did not fail, or the latest one if all of them failed.
        The list is fetched up to `looks` times, because it may be out of date.
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
        """Return a description of this run's submission if it failed, otherwise "".

        If it failed and `again` is not set, this raises `RunFailed` instead.
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
        """Ask the user for confirmation, and wait until Kaggle has stored the output.

        Return the token of an uploaded file, or "" for a notebook. `failed` describes an earlier
        failed submission of this run.
        """
        file, competition = self.inferred / FILE, self.project.competition
        left = self._left(about)
        how = (
            "uploads the file" if about.takes_files else "runs the notebook on the hidden test set"
        )
        lines = [
            f"submit      {FILE} of {self.run}, {rows(file):,} rows; {how}",
            f"competition {competition}: {left}",
            f"validation  {_validation(self.project, self.inferred) or 'unknown'}",
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
        competition = self.project.competition
        if about.closed:
            raise Refused(
                f"The competition {competition} is not accepting submissions.\nCheck its page:"
                f" https://www.kaggle.com/competitions/{competition}"
            )
        limits = self.kaggle.submission_limits(competition)
        if (limits.today, limits.total, limits.allowed_now) == (0, 0, 0):
            return "Kaggle does not recognize your team yet. Have you accepted the rules?"
        if limits.allowed_now < 1:
            none = (
                f"No submissions to {competition} are left ({limits.today} made today,"
                f" {limits.total} in total). {limits.next}"
            )
            raise Refused(none) if limits.by_total else NoQuota(f"{none} Then:\n{self.command}")
        return f"submissions left {'overall' if limits.by_total else 'today'}: {limits.allowed_now}"

    def _stored(self) -> Steps[None]:
        # Submissions made before Kaggle has stored the output would be lost.
        note, settled = output.noted(self.inferred), self.kaggle.pace.settled
        pulled = datetime.fromisoformat(note.at) if note else datetime.now(UTC)
        left = min(settled - (datetime.now(UTC) - pulled).total_seconds(), settled)
        if left > 0:
            yield Note(
                f"Waiting {left:.0f} s for Kaggle to store the output of {self.run}. To skip this"
                " wait: --now"
            )
            time.sleep(left)

    def sent(self, token: str) -> Steps[int]:
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
                    f"Kaggle accepted the submission of {run} but did not return a submission"
                    f" number.\n{failures.LOOK}"
                )
            return ref
        except errors.Ambiguous:
            made = None
            time.sleep(self.kaggle.pace.first)  # the list may be delayed
            with suppress(RelayError):  # if this call fails, the submission may still exist
                made = self.in_list(LOOKS)
            if made is None or not _counts(made):
                raise
            yield Note(f"The response was lost, but the submission exists: {made.ref}.")
            return made.ref
        except (NoQuota, Refused) as error:
            heading = str(error).splitlines()[0]
            advice = self._advice(REFUSALS, heading)
            if not advice:
                raise
            raise type(error)(f"{heading}\n{advice}") from error

    def _advice(self, known: Mapping[str, str], said: str) -> str:
        advice = (text for words, text in known.items() if re.search(words, said, re.IGNORECASE))
        return next(advice, "").format(
            push=self.project.command("push-infer"),
            rehearse=f"{self.project.command('dry-run')} --input DIR",
            submit=self.command,
        )

    def scored(self, ref: int) -> Steps[Scored]:
        kaggle, seconds = self.kaggle, self.project.deadline_seconds
        polls = Polls(kaggle.pace, time.monotonic() + seconds)
        attach = f"To follow submission {ref} again without spending another:\n{self.command}"
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
                    f"After {seconds:.0f} seconds, submission {ref} of {self.run} has the status"
                    f" {now.status} and the score {now.public_score!r}. The status should be"
                    f" COMPLETE, and the score a number.\n{attach}"
                )
        except KeyboardInterrupt:
            raise errors.Detached(f"Detached from submission {ref}.\n{attach}") from None
        except errors.Unreachable as error:
            error.args = (f"{error}\n{attach}",)
            raise

    def failure(self, made: Scored) -> str:
        reason = _reason(made)
        cause = self._advice(CAUSES, reason)
        return f"Submission {made.ref} of {self.run} failed and has no score: {reason}\n{cause}"


def _validation(project: Project, inferred: Path) -> str:
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
    return made is not None and made.status != FAILED


def _score(made: Scored) -> float | None:
    return _number(made.public_score)


def _number(text: str) -> float | None:
    with suppress(ValueError):
        score = float(text)
        return score if math.isfinite(score) else None
    return None


def _reason(made: Scored) -> str:
    return failures.plain(made.error).strip() or "no reason was given"
