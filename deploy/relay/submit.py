"""Have one finished kernel version scored by the competition.

Reads  a run, its submission.csv, and a function that checks it against the competition's sample
Gives  a `Submission` with its score

A submission is spent only after the file was checked, and only once: its description names the run,
so an earlier or unanswered submission of the same run is found again. Kaggle scores what the run
writes, never a local file. So a pulled file that was changed is refused: what is checked would not
be what is scored.
"""

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.bundle import push_rules
from deploy.client import failure_messages
from deploy.client.client import Kaggle
from deploy.client.responses import Scored
from deploy.errors import (
    Ambiguous,
    DeadlinePassed,
    Denied,
    Detached,
    NoQuota,
    NotFound,
    RunFailed,
    Unreachable,
    Unverified,
    UsageError,
)
from deploy.kernel import output
from deploy.kernel.push_and_watch import Run, Show

Check = Callable[[Path, Path], object]

LOOKS = 3  # at the list, for a submission whose answer was lost
FILE = "submission.csv"
SAMPLE = "sample_submission.csv"
NAMED = "[run "  # begins the part of a description that names the run
# Kaggle's list of what it says when the rerun fails, with the usual cause and the edit.
CAUSES = {
    "timeout": "The hidden test set takes longer than the notebook may. Predict in larger batches,"
    " or with a smaller model.",
    "threw exception": "Something that holds for the public files does not for the hidden ones: a"
    " number of rows, a folder, an image that cannot be read. Read all of it from the mounted"
    " files, then try:\ninvoke dry-run",
    "exceeded allowed compute": "Memory or disk ran out on the hidden test set. Predict in smaller"
    " batches, and keep nothing.",
    "csv not found": "The rerun wrote no submission.csv into the working directory. Write it on"
    " every path through the notebook.",
    "scoring error": "The rows, ids or types of the rerun's file are not those of the hidden"
    " sample. Take them from the mounted sample_submission.csv, never from the public one.",
    "kaggle error": "Something failed at Kaggle's end. Submit the same run again later.",
}


@dataclass(frozen=True)
class Submission:
    """A scored submission. `score`: the public one."""

    ref: int
    score: float
    status: str


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
    sample: str = SAMPLE,
    earlier: int = 0,
    unclear: bool = False,
    sending: Callable[[], None] = lambda: None,
    sent: Callable[[int], None] = lambda ref: None,
) -> Submission:
    """Submit what the run wrote, and return its score.

    Args:
        submission: the run's submission.csv, as pulled.
        check: is called with it and the competition's sample, before anything is spent; raises to
            stop.
        message: for the submission's description, before the name of the run.
        sample: its name among the competition's files.
        earlier: the number of an earlier submission of this run; 0 if the journal has none.
        unclear: whether an earlier call may have been made and nobody knows what came of it.
        sending: is called right before the one call that spends.
        sent: is called with the number as soon as Kaggle has given it.

    Raises:
        Unverified: if the file was pulled, and is not what the run wrote.
        UsageError: if there is no submission.csv, or a secret seems to be in the message.
        NoQuota: if no submission is left today.
        Refused, CredentialError: if Kaggle refuses.
        RunFailed: if the scored rerun failed; with Kaggle's word for it, its usual cause, and the
            edit.
        DeadlinePassed: if there is no score in time; the same command follows this submission.
        Ambiguous: if no answer came, and the submission is not in the list either.
    """
    if not submission.is_file():
        raise UsageError(
            f"{submission} is missing; expected what {run} wrote. A training writes none: submit"
            f" the inference that came after it.\ninvoke pull --run {run}"
        )
    push_rules.without_secrets("the submission's description", message)
    if not _as_written(submission, run):
        show(
            f"{submission.parent} holds no list of what a run wrote: this file's origin is not"
            " known, and the run's own is scored."
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
        ref = _send(kaggle, run, competition, message, show, sending)
    sent(ref)
    return _follow(kaggle, ref, run, deadline_seconds, show)


def _as_written(submission: Path, run: Run) -> bool:
    """Return whether a list says what the run wrote; raise `Unverified` if it was not this file."""
    try:
        return output.unchanged(submission, submission.parent, FILE, str(run))
    except Unverified as error:
        raise Unverified(
            f"{error}\nTo submit other labels, change the notebook and push it: Kaggle scores what"
            " the run writes."
        ) from error


def _still_there(kaggle: Kaggle, ref: int, run: Run, show: Show) -> int:
    """Return that number if it is still a submission of this run that did not fail, or 0."""
    if not ref:
        return 0
    try:
        found = kaggle.get_submission(ref)
    except (NotFound, Denied):
        show(
            f"The journal has submission {ref} of {run}, and Kaggle does not. It no longer counts."
        )
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


def _send(
    kaggle: Kaggle,
    run: Run,
    competition: str,
    message: str,
    show: Show,
    sending: Callable[[], None],
) -> int:
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
    description = f"{message} {_name(run)}".strip()
    sending()
    try:
        return kaggle.submit_code(
            competition, run.handle, run.version, file_name=FILE, description=description
        )
    except Ambiguous as error:
        for _ in range(LOOKS):
            time.sleep(kaggle.pace.first)
            ref = _earlier(kaggle, competition, run)
            if ref:
                first = str(error).splitlines()[0]
                show(f"The answer was lost ({first}), and the submission is there: {ref}.")
                return ref
        raise


def _follow(kaggle: Kaggle, ref: int, run: Run, deadline_seconds: float, show: Show) -> Submission:
    attach = f"To follow submission {ref} again, without spending another:\ninvoke submit"
    began, pause, last = time.monotonic(), kaggle.pace.first, ""
    try:
        while True:
            now = kaggle.get_submission(ref)
            if now.status != last:
                show(f"submission {ref} of {run}: {now.status}")
                last, pause = now.status, kaggle.pace.first
            if now.status == "ERROR":
                raise RunFailed(_failed(now, run))
            score = _score(now)
            if now.status == "COMPLETE" and score is not None:
                return Submission(ref, score, now.status)
            if time.monotonic() - began + pause > deadline_seconds:
                raise DeadlinePassed(
                    f"Submission {ref} of {run} is {now.status}, score {now.public_score!r}, after"
                    f" {deadline_seconds:.0f} seconds; expected COMPLETE and a number.\n{attach}"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, kaggle.pace.most)
    except KeyboardInterrupt:
        raise Detached(f"Detached from submission {ref}.\n{attach}") from None
    except Unreachable as error:
        raise Unreachable(f"{error}\n{attach}") from error


def _score(item: Scored) -> float | None:
    try:
        score = float(item.public_score)
    except ValueError:
        return None  # not there yet
    return score if math.isfinite(score) else None


def _failed(item: Scored, run: Run) -> str:
    reason = failure_messages.plain(item.error).strip() or "no reason was given"
    causes = (text for word, text in CAUSES.items() if word in reason.lower())
    cause = next(causes, "Look at the submission on kaggle.com.")
    return f"Submission {item.ref} of {run} failed: {reason}\nExpected a score. {cause}"
