"""Scoring: a submission, and the thread in which it is scored."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from localkaggle.competitions import Competition, ScoringError
from localkaggle.services.state import NOT_KEPT, Changes
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
    session: Session | None = field(default=None, metadata=NOT_KEPT)
    thread: threading.Thread | None = field(default=None, repr=False, metadata=NOT_KEPT)

    def start(
        self, competition: Competition, written: Callable[[], Path], changes: Changes
    ) -> None:
        """Score the file that `written` returns, in a thread."""
        arguments = (competition, written, changes)
        self.thread = threading.Thread(target=self._score, args=arguments, daemon=True)
        self.thread.start()

    def _score(
        self, competition: Competition, written: Callable[[], Path], changes: Changes
    ) -> None:
        score, said = None, ""
        try:
            score = competition.judge(written())
        except RerunError as error:
            said = str(error)
        except ScoringError as error:
            said = f"Submission Scoring Error: {error}"
        except Exception as error:
            # Not the notebook's error. Kaggle names only itself; the type helps to fix this server.
            said = f"Kaggle Error: {type(error).__name__}"
        with changes():
            self.score = score
            self.end(said)

    def end(self, error: str) -> None:
        """End it, with an error unless that is an empty text."""
        self.error, self.status = error, "ERROR" if error else "COMPLETE"


def rerun(session: Session) -> Path:
    """Run a notebook on the hidden test set and return what it wrote."""
    outcome = session.run()
    if not outcome.ok:
        raise RerunError(ERRORS[outcome.reason])
    if not (session.working / FILE).is_file():
        raise RerunError(NOT_FOUND)
    return session.working / FILE
