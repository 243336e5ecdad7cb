"""Scoring: a submission, and the thread in which it is scored."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from localkaggle.competitions import Competition, ScoringError
from localkaggle.sessions.session import Session

FILE = "submission.csv"
NOT_FOUND = "Submission CSV Not Found"
ERRORS = {
    "time": "Notebook Timeout",
    "exception": "Notebook Threw Exception",
    "memory": "Notebook Exceeded Allowed Compute",
    "output": "Notebook Exceeded Allowed Compute",
    "cancelled": "Kaggle Error",
    "killed": "Notebook Exceeded Allowed Compute",
}


class RerunError(Exception):
    """A rerun that failed, with Kaggle's name for it."""


@dataclass
class Submission:
    """One submission and its state."""

    ref: int
    competition: str
    user: str
    description: str
    date: datetime
    file_name: str = FILE
    size: int = 0
    status: str = "PENDING"
    score: float | None = None
    error: str = ""
    session: Session | None = None
    thread: threading.Thread | None = field(default=None, repr=False)

    def start(self, competition: Competition, written: Callable[[], Path]) -> None:
        """Score the file that `written` returns, in a thread."""
        self.thread = threading.Thread(target=self._score, args=(competition, written), daemon=True)
        self.thread.start()

    def _score(self, competition: Competition, written: Callable[[], Path]) -> None:
        try:
            self.score = competition.judge(written())
        except RerunError as error:
            self.error = str(error)
        except ScoringError as error:
            self.error = f"Submission Scoring Error: {error}"
        except Exception as error:
            # Not the notebook's error. Kaggle names only itself; the type helps to fix this server.
            self.error = f"Kaggle Error: {type(error).__name__}"
        self.status = "ERROR" if self.error else "COMPLETE"


def rerun(session: Session) -> Path:
    """Run a notebook on the hidden test set and return what it wrote."""
    outcome = session.run()
    if not outcome.ok:
        raise RerunError(ERRORS[outcome.reason])
    if not (session.working / FILE).is_file():
        raise RerunError(NOT_FOUND)
    return session.working / FILE
