"""Follow a submission to its score, or to why it has none."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from deploy import failure_messages
from deploy.client import Kaggle
from deploy.errors import DeadlinePassed, Detached, RunFailed, Unreachable
from deploy.push_and_watch import Run, Show
from deploy.responses import Scored

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


def follow(
    kaggle: Kaggle,
    ref: int,
    run: Run,
    deadline_seconds: float,
    show: Show,
    command: Callable[[str], str],
    *,
    uploaded: bool,
) -> Submission:
    """Return the score of a submission, once it has one.

    Args:
        command: as `Project.command`, for the messages.

    Raises:
        RunFailed: if the scored rerun failed; with Kaggle's word for it, its usual cause, and the
            edit.
        DeadlinePassed: if there is no score in time.
    """
    attach = (
        f"To follow submission {ref} again, without spending another:\n"
        f"{command(f'submit --run {run}')}"
    )
    began, pause, last = time.monotonic(), kaggle.pace.first, ""
    changed = began
    try:
        while True:
            now = kaggle.get_submission(ref)
            if now.status != last:
                show(f"submission {ref} of {run}: {now.status}")
                last, pause, changed = now.status, kaggle.pace.first, time.monotonic()
            if now.status == "ERROR":
                raise RunFailed(failed(now, run, command))
            score = _score(now)
            hidden = time.monotonic() - changed >= kaggle.pace.hidden
            if now.status == "COMPLETE" and (score is not None or hidden):
                return Submission(ref, score, now.status, uploaded)
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
        error.args = (f"{error}\n{attach}",)
        raise


def _score(item: Scored) -> float | None:
    try:
        score = float(item.public_score)
    except ValueError:
        return None  # not there yet
    return score if math.isfinite(score) else None


def reason(item: Scored) -> str:
    """Return why Kaggle says that a submission failed."""
    return failure_messages.plain(item.error).strip() or "no reason was given"


def is_kaggles(item: Scored) -> bool:
    """Return whether it failed at Kaggle's end: the same may be submitted again."""
    return KAGGLES in reason(item).lower()


def failed(item: Scored, run: Run, command: Callable[[str], str]) -> str:
    """Return that a submission failed, with Kaggle's word for it, its usual cause, and the edit.

    Args:
        command: as `Project.command`.
    """
    said = reason(item)
    causes = (text for word, text in CAUSES.items() if word in said.lower())
    cause = next(causes, "Look at the submission on kaggle.com.").format(
        rehearse=f"{command('dry-run')} --input DIR", again=command(f"submit --run {run}")
    )
    return f"Submission {item.ref} of {run} failed: {said}\nExpected a score. {cause}"
