"""Have one finished kernel version scored by the competition.

Reads  a run, its submission.csv, and a function that checks it against the competition's sample
Gives  a `Submission` with its score

Kaggle says what the competition takes: a notebook, which it runs again on the hidden test set, or
a file. Then the pulled submission.csv is uploaded. A submission is spent only after the file was
checked, and only once: its description names the run, so an earlier or unanswered submission of the
same run is found again. A pulled file that was changed is refused: it is not what the run wrote.
"""

import re
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from deploy.bundle import push_rules
from deploy.client.client import Kaggle
from deploy.client.responses import Competition
from deploy.errors import (
    Ambiguous,
    Denied,
    NoQuota,
    NotFound,
    Refused,
    RelayError,
    Unverified,
    UsageError,
)
from deploy.journal import DONE, NOT_MADE
from deploy.kernel import artifact_manifest, listing, output
from deploy.kernel.push_and_watch import Run, Show
from deploy.project import Project
from deploy.relay import competition_rules, score
from deploy.relay.last_runs import EVERY_ROW
from deploy.relay.score import Submission as Submission

Check = Callable[[Path, Path], object]

LOOKS = 3  # at the list, for a submission whose answer was lost
FILE = "submission.csv"
NAMED = "[run "  # begins the part of a description that names the run
# What Kaggle says of a notebook that ran for too long.
TOO_LONG = re.compile(r"runtime of \d+ minutes exceeds this competition's (\w+) max of (\d+)")


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
    sample: str = competition_rules.SAMPLE,
    hours: float | None = None,
    now: bool = False,
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
        sample: its name among the competition's files.
        hours: that the competition gives a notebook with a GPU; None: as many as Kaggle.
        now: submit as soon as Kaggle lists the file, and not some minutes after the pull.
        earlier: the number of an earlier submission of this run; 0 if the journal has none.
        unclear: whether an earlier call may have been made and nobody knows what came of it.
        sending: is called with the file's sha256 right before the one call that spends.
        sent: is called with the number as soon as Kaggle has given it.

    Raises:
        Unverified: if the file was pulled, and is not what the run wrote.
        UsageError: if there is no submission.csv, the run took more hours than the competition
            gives, or a secret seems to be in the message.
        NoQuota: if no submission is left today.
        Refused, CredentialError: if Kaggle refuses, or the rules are not accepted.
        RunFailed: if the scored rerun failed; with Kaggle's word for it, its usual cause, and the
            edit.
        DeadlinePassed: if there is no score in time; the same command follows this submission. Or
            if Kaggle does not list the file; then nothing was sent.
        Ambiguous: if no answer came, and the submission is not in the list either.
    """
    if not submission.is_file():
        raise UsageError(
            f"{submission} is missing; expected what {run} wrote. A training writes none: submit"
            f" the inference that came after it.\ninvoke pull --run {run}"
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
    with tempfile.TemporaryDirectory(prefix="relay-sample-") as folder:
        shown = Path(folder) / Path(sample).name
        try:
            kaggle.download_competition_file(competition, sample, shown)
        except NotFound as error:
            names = ", ".join(kaggle.competition_files(competition)[:12])
            raise UsageError(
                f"The competition {competition} has no file {sample!r}; it has, among others:"
                f" {names}.\nExpected the one that shows what a submission looks like. Set"
                " data.sample_submission in the config."
            ) from error
        check(submission, shown)
    ref = _still_there(kaggle, earlier, run, show)
    looks = LOOKS if unclear else 1
    while not ref and looks:
        ref, looks = _earlier(kaggle, competition, run), looks - 1
        if not ref and looks:
            time.sleep(kaggle.pace.first)
    if ref:
        show(f"{run} was submitted before, as {ref}; following that submission.")
    else:
        if not about.takes_files:
            _require_short(kaggle, run, hours)
        _require_open(kaggle, competition, about, show)
        send = partial(kaggle.submit_code, competition, run.handle, run.version, file_name=FILE)
        waited = False
        if about.takes_files:
            token = kaggle.upload_submission(competition, submission)
            send = partial(kaggle.submit_file, competition, token)
        else:
            waited = _settle(kaggle, run, submission, now=now, show=show)
        if waited:  # another command may have waited, too
            ref = _earlier(kaggle, competition, run)
        if ref:
            show(f"{run} was submitted meanwhile, as {ref}; following that submission.")
        else:
            sending(artifact_manifest.sha256(submission))
            ref = _send(kaggle, run, competition, f"{message} {_name(run)}".strip(), send, show)
    sent(ref)
    return score.follow(kaggle, ref, run, deadline_seconds, show, uploaded=about.takes_files)


def submit_and_record(
    kaggle: Kaggle,
    project: Project,
    run: Run,
    submission: Path,
    *,
    check: Check,
    show: Show,
    now: bool = False,
) -> Submission:
    """Submit as `submit` does, and record what was sent and its score."""
    journal = project.journal()
    of_this_run = {"handle": run.handle, "kernel_version": run.version}
    made = journal.recent("submissions", EVERY_ROW, **of_this_run)
    last = next((row for row in made if row["sent"] or row["ref"]), None)
    with journal.recording(
        "submissions", config=project.name, competition=project.competition, **of_this_run
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
            message=project.name,
            deadline_seconds=project.deadline_seconds,
            show=show,
            earlier=(last["ref"] or 0) if last else 0,
            unclear=last is not None and last["outcome"] not in (DONE, *NOT_MADE),
            sending=lambda sha256: note(sent=1, sha256=sha256),
            sent=lambda ref: note(ref=ref),
        )
        outcome.update(ref=scored.ref, status=scored.status, score=scored.score)
    return scored


def _as_written(submission: Path, run: Run) -> bool:
    """Return whether a list says what the run wrote; raise `Unverified` if it was not this file."""
    try:
        return output.unchanged(submission, submission.parent, FILE, str(run))
    except Unverified as error:
        raise Unverified(
            f"{error}\nTo submit other labels, change the notebook and push it: only what a"
            " run wrote is submitted."
        ) from error


def _still_there(kaggle: Kaggle, ref: int, run: Run, show: Show) -> int:
    """Return that number if it is still a submission of this run that did not fail, or 0."""
    if not ref:
        return 0
    try:
        found = kaggle.get_submission(ref)
    except NotFound:
        show(
            f"The journal has submission {ref} of {run}, and Kaggle does not. It no longer counts."
        )
        return 0
    except Denied as error:
        show(f"{str(error).splitlines()[0]} The list of submissions decides.")
        return 0
    # A Kaggle that was restarted gives the same numbers again.
    another = NAMED in found.description and _name(run) not in found.description
    return 0 if another or found.status == "ERROR" else ref


def _name(run: Run) -> str:
    """Return the words by which a submission of this run is found again."""
    return f"{NAMED}{run}]"


def _earlier(kaggle: Kaggle, competition: str, run: Run) -> int:
    """Return the number of a submission of this run that did not fail, or 0."""
    rows = kaggle.list_submissions(competition)
    ours = (row for row in rows if _name(run) in row.description and row.status != "ERROR")
    return next((row.ref for row in ours), 0)


def _require_open(kaggle: Kaggle, competition: str, about: Competition, show: Show) -> None:
    """Raise unless the competition takes a submission of ours now."""
    if about.closed:
        raise Refused(
            f"The competition {competition} takes no submissions now.\nExpected one that does."
            f" Look at its page:\nhttps://www.kaggle.com/competitions/{competition}"
        )
    limits = kaggle.submission_limits(competition)
    if (limits.today, limits.total, limits.allowed_now) == (0, 0, 0):
        show(f"Kaggle knows no team of yours in {competition}: have you accepted its rules?")
    elif limits.allowed_now < 1:
        raise NoQuota(
            f"No submission to {competition} is left now ({limits.today} today, {limits.total} in"
            " all).\nExpected at least one. Try again after midnight UTC:\ninvoke submit"
        )
    else:
        count = limits.allowed_now
        left = "1 submission is" if count == 1 else f"{count} submissions are"
        show(f"{left} left in {competition}; spending one.")


def _require_short(kaggle: Kaggle, run: Run, hours: float | None) -> None:
    """Raise `UsageError` if the run took more hours than the competition gives."""
    seconds = kaggle.kernel_seconds(run.handle, run.version) if hours is not None else None
    if hours is not None and seconds is not None and seconds > 3600 * hours:
        raise UsageError(
            f"{run} was not submitted: its runtime of {seconds / 60:.0f} minutes exceeds this"
            f" competition's GPU max of {60 * hours:.0f} minutes (infer_hours={hours:g} in the"
            " config). Kaggle would refuse it.\nPush the inference again, which then keeps to that"
            " time, or correct infer_hours:\ninvoke push-infer"
        )


def _settle(kaggle: Kaggle, run: Run, submission: Path, *, now: bool, show: Show) -> bool:
    """Wait until Kaggle has surely stored what the run wrote: a submission before it is lost.
    Return whether it took time.
    """
    if now:
        return False
    waited = listing.require(kaggle, run, FILE, submission.stat().st_size, show)
    note = output.noted(submission.parent)
    pulled = datetime.fromisoformat(note.at) if note else datetime.now(UTC)
    left = kaggle.pace.settled - (datetime.now(UTC) - pulled).total_seconds()
    if left <= 0:
        return waited
    show(f"Waiting {left:.0f} s, until Kaggle has stored the output of {run}; to skip this: --now")
    time.sleep(min(left, kaggle.pace.settled))
    return True


def _send(
    kaggle: Kaggle,
    run: Run,
    competition: str,
    description: str,
    send: Callable[..., int],
    show: Show,
) -> int:
    try:
        return send(description=description)
    except Ambiguous as error:
        for _ in range(LOOKS):
            time.sleep(kaggle.pace.first)
            try:
                ref = _earlier(kaggle, competition, run)
            except RelayError:  # it says nothing of the submission
                break
            if ref:
                first = str(error).splitlines()[0]
                show(f"The answer was lost ({first}), and the submission is there: {ref}.")
                return ref
        raise
    except Refused as error:
        too_long = TOO_LONG.search(str(error))
        if too_long is None:
            raise
        raise Refused(f"{error}\n{_shorter(too_long[1], int(too_long[2]))}") from error


def _shorter(machine: str, minutes: int) -> str:
    """Return the edit against a notebook that ran for too long."""
    if not minutes:
        return (
            f"This competition takes no notebook with a {machine}. Ask for another machine in"
            " kernels/infer-gpu/kernel-metadata.json, and push again:\ninvoke push-infer"
        )
    return (
        f"Write infer_hours={minutes / 60:g} into the config, so that the inference keeps to it,"
        " and push again:\ninvoke push-infer"
    )
