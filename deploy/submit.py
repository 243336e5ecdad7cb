"""Have one finished kernel version scored by the competition.

Reads  a run, its submission.csv, and a function that checks it against the competition's sample
Gives  a `Submission` with its score

Kaggle says what the competition takes: a notebook, which it runs again on the hidden test set, or
a file. Then the pulled submission.csv is uploaded. A submission is spent only after the file was
checked and the user has agreed, and only once: its description names the run, so an earlier or
unanswered submission of the same run is found again. After one that failed, which was spent too,
another is only by `again`, or where the error was Kaggle's own. A pulled file that was changed is
refused: it is not what the run wrote.
"""

import csv
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from deploy import artifact_manifest, competition_rules, listing, output, push_rules, score
from deploy.client import Kaggle
from deploy.errors import (
    Ambiguous,
    Denied,
    NoQuota,
    NotFound,
    Refused,
    RelayError,
    RunFailed,
    Unverified,
    UsageError,
)
from deploy.journal import DONE, NOT_MADE, Journal, Outcome
from deploy.last_runs import EVERY_ROW, Pushes
from deploy.project import INFER, Project
from deploy.push_and_watch import Run, Show
from deploy.responses import Competition, Scored
from deploy.score import Submission as Submission
from formats import checksums

Check = Callable[[Path, Path], object]
Command = Callable[[str], str]  # as `Project.command`

LOOKS = 3  # at the list, for a submission whose answer was lost
FILE = "submission.csv"
NAMED = "[run "  # begins the part of a description that names the run
# What Kaggle says of a notebook that ran for too long.
TOO_LONG = re.compile(r"runtime of \d+ minutes exceeds this competition's (\w+) max of (\d+)")

NO_VERSION = "could not find provided notebook"
LATER = {  # when the same submission may be made, by Kaggle's words
    "submission allowance": "after midnight UTC",
    "being processed": "once the submission before has its score",
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


def rows(submission: Path) -> int:
    """Return how many rows a submission.csv has below its header."""
    csv.field_size_limit(sys.maxsize)  # a mask has more characters
    with submission.open(encoding="utf-8", newline="") as lines:
        return sum(1 for row in csv.reader(lines) if row) - 1


def submit(
    kaggle: Kaggle,
    run: Run,
    competition: str,
    *,
    submission: Path,
    check: Check,
    message: str,
    deadline_seconds: float,
    show: Show,
    command: Command,
    agree: Callable[[Spending], object] | None = None,
    validation: str = "",
    sample: str = competition_rules.SAMPLE,
    hours: float | None = None,
    now: bool = False,
    again: bool = False,
    earlier: int = 0,
    unclear: bool = False,
    sending: Callable[[str], None] = lambda sha256: None,
    sent: Callable[[int], None] = lambda ref: None,
) -> Submission:
    """Submit what the run wrote, and return its score.

    Args:
        submission: the run's submission.csv, as pulled.
        check: is called with it and the competition's sample, before anything is spent; raises to
            stop.
        message: for the submission's description, before the name of the run.
        command: returns the command that runs a task with this config, for the messages.
        agree: is called with what would be spent, before anything is; raises to stop. None: it is
            shown.
        validation: as in `Spending`.
        sample: its name among the competition's files.
        hours: that the competition gives a notebook with a GPU; None: as many as Kaggle.
        now: submit at once: without a look whether Kaggle has the file, and without the wait of
            some minutes after the pull.
        again: submit also if a submission of this run failed before, whyever. One that did not fail
            is followed all the same.
        earlier: the number of an earlier submission of this run; 0 if the journal has none.
        unclear: whether an earlier call may have been made and nobody knows what came of it.
        sending: is called with the file's sha256 right before the one call that spends.
        sent: is called with the number as soon as Kaggle has given it.

    Raises:
        Unverified: if the file was pulled, and is not what the run wrote.
        UsageError: if there is no submission.csv, the check stops it, the run took more hours
            than the competition gives, or a secret seems to be in the message.
        NoQuota: if no submission is left today.
        Refused, CredentialError: if Kaggle refuses, or the rules are not accepted.
        RunFailed: if the scored rerun failed, now or before; with Kaggle's word for it, its usual
            cause, and the edit.
        DeadlinePassed: if there is no score in time; the same command follows this submission. Or
            if Kaggle does not have the file among the run's outputs; then nothing was sent.
        Ambiguous: if no answer came, and the submission is not in the list either.
    """
    if not submission.is_file():
        raise UsageError(
            f"{submission} is missing; expected what {run} wrote. A training writes none: submit"
            f" the inference that came after it.\n{command(f'pull --run {run}')}"
        )
    push_rules.without_secrets("the submission's description", message)
    listed = _as_written(submission, run)
    about = competition_rules.look(kaggle, competition)
    if not listed:
        scored = "it" if about.takes_files else "the run's own"
        show(
            f"{submission.parent} holds no list of what a run wrote: this file's origin is not"
            f" known, and {scored} is scored."
        )
    competition_rules.require_fit(
        kaggle, competition, sample, partial(check, submission), command("push-infer --again")
    )
    made = _still_there(kaggle, earlier, run, show)
    looks = LOOKS if unclear else 1
    while not _counts(made) and looks:
        made, looks = _earlier(kaggle, competition, run) or made, looks - 1
        if not _counts(made) and looks:
            time.sleep(kaggle.pace.first)
    failed = _failed_before(made, run, command, again=again)
    if made is not None and not failed:
        ref = made.ref
        show(f"{run} was submitted before, as {ref}; following that submission.")
    else:
        if not about.takes_files:
            _require_short(kaggle, run, hours, command)
        left = _left(kaggle, competition, about, command(f"submit --run {run}"))
        competition_rules.show_end(about, competition, show)
        settle = not about.takes_files and not now
        if settle:
            listing.require(kaggle, run, FILE, command(f"submit --run {run} --now"), show)
            warning = listing.size_warning(kaggle, run, FILE, submission.stat().st_size)
            if warning:
                show(warning)
        spending = Spending(
            *(run, competition, rows(submission), about.takes_files, left, validation, failed)
        )
        if agree is not None:
            agree(spending)
        else:
            for line in spending.lines():
                show(line)
        send = partial(kaggle.submit_code, competition, run.handle, run.version, file_name=FILE)
        if about.takes_files:
            token = kaggle.upload_submission(competition, submission)
            send = partial(kaggle.submit_file, competition, token)
        if settle:
            _settle(kaggle, run, submission, show)
        # Another command may have submitted while this one asked or waited.
        made = _earlier(kaggle, competition, run)
        if made is not None and not _failed_before(made, run, command, again=again):
            ref = made.ref
            show(f"{run} was submitted meanwhile, as {ref}; following that submission.")
        else:
            sending(checksums.sha256(submission))
            described = f"{message} {_name(run)}".strip()
            ref = _send(kaggle, run, competition, described, send, command, show)
    sent(ref)
    uploaded = about.takes_files
    return score.follow(kaggle, ref, run, deadline_seconds, show, command, uploaded=uploaded)


def submit_and_record(
    kaggle: Kaggle,
    project: Project,
    run: Run,
    submission: Path,
    *,
    check: Check,
    show: Show,
    agree: Callable[[Spending], object] | None = None,
    now: bool = False,
    again: bool = False,
) -> Submission:
    """Submit as `submit` does, and record what was sent and its score."""
    journal = project.journal()
    last = last_sent(journal, run)
    with journal.recording(
        "submissions",
        config=project.name,
        competition=project.competition,
        handle=run.handle,
        kernel_version=run.version,
    ) as outcome:
        note = partial(journal.note, "submissions", outcome["id"])
        scored = submit(
            kaggle,
            run,
            project.competition,
            submission=submission,
            check=check,
            sample=project.sample,
            hours=project.infer_hours,
            now=now,
            again=again,
            message=project.name,
            deadline_seconds=project.deadline_seconds,
            show=show,
            command=project.command,
            agree=agree,
            validation=_validation(project, submission.parent),
            earlier=(last["ref"] or 0) if last else 0,
            unclear=last is not None and last["outcome"] not in (DONE, *NOT_MADE),
            sending=lambda sha256: note(sent=1, sha256=sha256),
            sent=lambda ref: note(ref=ref),
        )
        outcome.update(ref=scored.ref, status=scored.status, score=scored.score)
    return scored


def last_sent(journal: Journal, run: Run) -> dict[str, Any] | None:
    """Return the journal's last entry of a submission of this run that was sent, or None."""
    of_this_run = {"handle": run.handle, "kernel_version": run.version}
    made = journal.recent("submissions", EVERY_ROW, **of_this_run)
    return next((row for row in made if row["sent"] or row["ref"]), None)


def underway(project: Project, named: str) -> bool:
    """Return whether the journal has a submission of a run that is not known to have failed.

    Args:
        named: the run; "": the last inference that was pushed from here.
    """
    pushes = Pushes(project)
    try:
        row = last_sent(pushes.journal, pushes.find_run(named, INFER))
    except UsageError:  # told later, by what needs the run
        return False
    if row is None or row["outcome"] == Outcome.FAILED:
        return False
    return bool(row["ref"]) or row["outcome"] not in NOT_MADE


def _validation(project: Project, inferred: Path) -> str:
    """Return the validation score of each model that an inference accepted, as the trainings that
    were pulled say; "" if none does.
    """
    expect = output.json_object(inferred / output.BUNDLE).get("expect") or {}
    told = {}
    for path in project.runs.glob(f"*/{output.ARTIFACT}/{artifact_manifest.NAME}"):
        held = output.json_object(path)
        name, metrics = held.get("metric"), held.get("metrics")
        score = metrics.get(f"validation_{name}") if isinstance(metrics, dict) else None
        if isinstance(score, int | float):
            told[held.get("weights_sha256")] = f"{name} {score:.4f}"
    wanted = [one.get("weights_sha256") for one in expect.get("members") or [expect]]
    return ", ".join(told[weights] for weights in wanted if weights in told)


def _as_written(submission: Path, run: Run) -> bool:
    """Return whether a list says what the run wrote; raise `Unverified` if it was not this file."""
    try:
        return output.unchanged(submission, submission.parent, FILE, str(run))
    except Unverified as error:
        raise Unverified(
            f"{error}\nTo submit other labels, change the notebook and push it: only what a"
            " run wrote is submitted."
        ) from error


def _still_there(kaggle: Kaggle, ref: int, run: Run, show: Show) -> Scored | None:
    """Return the submission of that number if it is still one of this run, or None."""
    if not ref:
        return None
    try:
        found = kaggle.get_submission(ref)
    except NotFound:
        show(
            f"The journal has submission {ref} of {run}, and Kaggle does not. It no longer counts."
        )
        return None
    except Denied as error:
        show(f"{str(error).splitlines()[0]} The list of submissions decides.")
        return None
    # A Kaggle that was restarted gives the same numbers again.
    another = NAMED in found.description and _name(run) not in found.description
    return None if another else found


def _name(run: Run) -> str:
    """Return the words by which a submission of this run is found again."""
    return f"{NAMED}{run}]"


def _earlier(kaggle: Kaggle, competition: str, run: Run) -> Scored | None:
    """Return a submission of this run that did not fail, or else the last that did, or None."""
    rows = kaggle.list_submissions(competition)
    ours = [row for row in rows if _name(run) in row.description]
    return next(filter(_counts, ours), next(iter(ours), None))


def _counts(made: Scored | None) -> bool:
    """Return whether there is a submission, and it has not failed."""
    return made is not None and made.status != "ERROR"


def _failed_before(made: Scored | None, run: Run, command: Command, *, again: bool) -> str:
    """Return in words that a submission of this run failed; "" if none did.

    Raises:
        RunFailed: if it failed for another reason than an error of Kaggle's, and nobody said
            `again`.
    """
    if made is None or _counts(made):
        return ""
    if not again and not score.is_kaggles(made):
        raise RunFailed(
            f"{score.failed(made, run, command)}\nThe same again would spend another"
            " submission, and most likely fail as well. To submit it all the same:\n"
            f"{command(f'submit --run {run} --again')}"
        )
    return f"submission {made.ref} of this run failed: {score.reason(made)}"


def _left(kaggle: Kaggle, competition: str, about: Competition, again: str) -> str:
    """Return how many submissions are left, in words; raise unless one can be made now.

    Args:
        again: the command that tries again.
    """
    if about.closed:
        raise Refused(
            f"The competition {competition} takes no submissions now.\nExpected one that does."
            f" Look at its page:\nhttps://www.kaggle.com/competitions/{competition}"
        )
    limits = kaggle.submission_limits(competition)
    if (limits.today, limits.total, limits.allowed_now) == (0, 0, 0):
        return "Kaggle knows no team of yours there: have you accepted its rules?"
    if limits.allowed_now < 1:
        none = (
            f"No submission to {competition} is left now ({limits.today} today, {limits.total} in"
            f" all).\nExpected at least one. {limits.next}"
        )
        raise Refused(none) if limits.by_total else NoQuota(f"{none} Then:\n{again}")
    count = limits.allowed_now
    when = "in all" if limits.by_total else "today"
    return f"{'1 submission is' if count == 1 else f'{count} submissions are'} left {when}"


def _require_short(kaggle: Kaggle, run: Run, hours: float | None, command: Command) -> None:
    """Raise `UsageError` if the run took more hours than the competition gives."""
    seconds = kaggle.kernel_seconds(run.handle, run.version) if hours is not None else None
    if hours is not None and seconds is not None and seconds > 3600 * hours:
        raise UsageError(
            f"{run} was not submitted: its runtime of {seconds / 60:.0f} minutes exceeds this"
            f" competition's GPU max of {60 * hours:.0f} minutes (infer_hours={hours:g} in the"
            " config). Kaggle would refuse it.\nPush the inference again, which then keeps to that"
            f" time, or correct infer_hours:\n{command('push-infer')}"
        )


def _settle(kaggle: Kaggle, run: Run, submission: Path, show: Show) -> None:
    """Wait until Kaggle has surely stored what the run wrote: a submission before it is lost."""
    note = output.noted(submission.parent)
    pulled = datetime.fromisoformat(note.at) if note else datetime.now(UTC)
    left = kaggle.pace.settled - (datetime.now(UTC) - pulled).total_seconds()
    if left <= 0:
        return
    show(f"Waiting {left:.0f} s, until Kaggle has stored the output of {run}; to skip this: --now")
    time.sleep(min(left, kaggle.pace.settled))


def _send(
    kaggle: Kaggle,
    run: Run,
    competition: str,
    description: str,
    send: Callable[..., int],
    command: Command,
    show: Show,
) -> int:
    try:
        return send(description=description)
    except Ambiguous as error:
        for _ in range(LOOKS):
            time.sleep(kaggle.pace.first)
            try:
                made = _earlier(kaggle, competition, run)
            except RelayError:  # it says nothing of the submission
                break
            if made is not None and _counts(made):
                first = str(error).splitlines()[0]
                show(f"The answer was lost ({first}), and the submission is there: {made.ref}.")
                return made.ref
        raise
    except (NoQuota, Refused) as error:
        heading = str(error).splitlines()[0]
        advice = _advice(heading, run, command)
        if not advice:
            raise
        raise type(error)(f"{heading}\n{advice}") from error


def _advice(said: str, run: Run, command: Command) -> str:
    """Return what helps against a refusal, by Kaggle's words; "" if that is not known."""
    too_long = TOO_LONG.search(said)
    if too_long:
        return _shorter(too_long[1], int(too_long[2]), command)
    if NO_VERSION in said.lower():
        return (
            f"Kaggle does not offer {run} for a submission, although it ran. A new version of the"
            " same notebook helps: push it, and then watch, pull and submit that one:\n"
            f"{command('push-infer --again')}"
        )
    for words, when in LATER.items():
        if words in said.lower():
            return f"Try again {when}:\n{command(f'submit --run {run}')}"
    return ""


def _shorter(machine: str, minutes: int, command: Command) -> str:
    """Return the edit against a notebook that ran for too long."""
    if not minutes:
        return (
            f"This competition takes no notebook with a {machine}. Ask for another machine in"
            f" kernels/infer-gpu/kernel-metadata.json, and push again:\n{command('push-infer')}"
        )
    return (
        f"Write infer_hours={minutes / 60:g} into the config, so that the inference keeps to it,"
        f" and push again:\n{command('push-infer')}"
    )
