"""Watch the run of a pushed version until it ends.

Only a run's status determines whether the run has ended. Its log is followed in the background to
show the progress. If that connection breaks, the log is read again from the start.
"""

import json
import math
import re
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

from deploy import failures, runs
from deploy.client import Kaggle
from deploy.connection import UNREADABLE
from deploy.errors import (
    BadAnswer,
    CredentialError,
    DeadlinePassed,
    Denied,
    Detached,
    NotFound,
    NotMounted,
    RelayError,
    RunFailed,
    Unknown,
    Unreachable,
)
from deploy.events import Status, Steps
from deploy.journal import State
from deploy.records import Records
from deploy.runs import ENDED, NOT_MOUNTED, SAVED, Run

LINE_AT_MOST = 10_000
PROGRESS_PAUSES = 5  # number of pauses between two progress-only lines in a pipe
NOT_YET = "NOT_THERE_YET"
# Log lines that are not meant for the user: %%writefile, JSON fragments and paths.
NO_WORDS = re.compile(r"""(Over)?[wW]riting \S+$|["'{}\]]|\[["'{]|Versions: |\S*/\S*$""")


class Log:
    """A run's log, which is followed in the background inside a `with` block.

    Attributes:
        words: last line that is readable text.
        progress: progress lines, oldest first.
    """

    def __init__(self, kaggle: Kaggle, run: Run) -> None:
        self._kaggle, self._run = kaggle, run
        self._closed = threading.Event()
        self._rest = ""
        self._place = 0  # index of the next progress line
        self.words = ""
        self.progress: list[Mapping[str, Any]] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._follow, daemon=True, name=f"log of {self._run}").start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()  # do not join the thread, which may be waiting for data

    def _follow(self) -> None:
        pause = self._kaggle.pace.first
        while not self._closed.is_set():
            self._rest, self._place = "", 0  # the log is sent from the start
            try:
                for stream, data in self._kaggle.follow_log(self._run.handle, self._run.version):
                    pause = self._kaggle.pace.first
                    if self._closed.is_set():
                        return
                    if stream != "stderr":  # libraries write to stderr
                        self._read(data)
            except (RelayError, *UNREADABLE, OSError):
                pause = min(pause * 2, self._kaggle.pace.most)
            self._closed.wait(pause)

    def _read(self, data: str) -> None:
        *lines, self._rest = (self._rest + data)[-LINE_AT_MOST:].split("\n")
        for text in lines:
            line = failures.plain(text).strip()
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict) and "step" in value:
                self.progress[self._place : self._place + 1] = [value]
                self._place += 1
            elif any(map(str.isalpha, line)) and not NO_WORDS.match(line):
                self.words = line[:160]


def watch(kaggle: Kaggle, records: Records, run: Run) -> Steps[str]:
    """Watch a run until it ends, record its final status, and return "COMPLETE".

    A `Status` is yielded whenever the status or the progress changes. The progress is checked more
    often than the status.

    Raises:
        NotFound, Denied: if the run does not exist, or this user has no access to it.
        RunFailed: if the run failed. `NotMounted` is raised if a source could not be found.
        DeadlinePassed: after the project's deadline.
        Unreachable: if Kaggle does not respond for `kaggle.pace.patience` seconds.
        BadAnswer: after several consecutive malformed responses.
        Detached: on Ctrl-C.
    """
    project, pace = records.project, kaggle.pace
    # Runs pushed from other machines can be watched, too. They have no journal entry.
    row = records.push_of(run)
    attach = f"The run continues. To watch it again:\ninvoke watch --run {run}"
    name = ""
    try:
        with Log(kaggle, run) as log:
            told = _Told(kaggle, run, log, row.age if row is not None and row.is_ours else None)
            pause = pace.first
            while True:
                last, watched = name, told.watched
                # Kaggle may not find a new version at first, and then report it as a draft.
                new = bool(run.bundle_sha256) and watched < pace.unseen
                name, failure = _look(kaggle, run, new=new)
                yield from told.news(name)
                starts = name == SAVED and run.bundle_sha256 and watched < pace.unstarted
                if name in ENDED and not starts:
                    error = None if name == "COMPLETE" else _failure(kaggle, run, name, failure)
                    if row is not None:
                        status = NOT_MOUNTED if isinstance(error, NotMounted) else name
                        records.journal.record(row, State.ENDED, status=status)
                    if error is not None:
                        raise error
                    return name
                # Check the status frequently again after it has changed.
                pause = pace.first if name != last else min(pause * 1.5, pace.most)
                allowed, waited, passed = project.deadline_seconds, "running", told.ran
                if passed is None:
                    allowed = project.queue_seconds or allowed
                    waited, passed = "waiting for a machine", told.watched
                if passed + pause > allowed:
                    raise DeadlinePassed(
                        f"{run} is still {name} after {in_clock(told.watched)} ({waited}), but"
                        f" should have ended by now.\n{attach}"
                    )
                end = time.monotonic() + pause
                while (left := end - time.monotonic()) > 0:
                    time.sleep(min(left, pace.first))
                    yield from told.news(name)
    except KeyboardInterrupt:
        raise Detached(f"Detached from {run}.\n{attach}") from None
    except (Unreachable, CredentialError, BadAnswer) as error:
        known = isinstance(error, Unknown) or name not in ("", NOT_YET)
        if isinstance(error, Denied) and not known:
            raise  # the run does not exist
        error.args = (f"{error}\n{attach}",)
        raise


class _Told:
    """Keeps track of what has already been reported about a run.

    `age` is the time since the push in seconds, or None if the run was pushed from another machine.
    """

    def __init__(self, kaggle: Kaggle, run: Run, log: Log, age: float | None) -> None:
        self._often = PROGRESS_PAUSES * kaggle.pace.most
        self._run, self._log, self._age = run, log, age
        self._quota = _quota(kaggle, run)
        self._began = time.monotonic()
        self._running: float | None = None
        self._state: object = None
        self._name, self._at = "", -math.inf

    @property
    def watched(self) -> float:
        return time.monotonic() - self._began

    @property
    def ran(self) -> float | None:
        """Seconds since the run was first seen running, or None if it has not started."""
        return None if self._running is None else time.monotonic() - self._running

    def news(self, name: str) -> Iterator[Status]:
        """Yield the run's state if it has changed.

        If only the progress has changed, `often` is set in the `Status`. It is not set if nothing
        has been reported for a while.
        """
        if name == "RUNNING" and self._running is None:
            self._running = time.monotonic()
        progress, words = tuple(self._log.progress), self._log.words
        state = (name, (progress[-1:], words) if self._running is not None else None)
        if state == self._state:
            return
        now, changed = time.monotonic(), name != self._name
        often = not changed and now < self._at + self._often
        self._state, self._name = state, name
        if not changed and not often:
            self._at = now
        yield Status(
            run=str(self._run),
            status=name,
            seconds=self.watched + max(self._age or 0.0, 0.0),
            ran_seconds=self.ran,
            words=words,
            progress=progress,
            accelerator=self._run.accelerator,
            left=self._quota[0],
            allowed=self._quota[1],
            pushed=self._age is not None,
            often=often,
        )


def _failure(kaggle: Kaggle, run: Run, name: str, failure: str) -> RunFailed:
    then = f"To pull what it wrote before it ended:\ninvoke pull --run {run}"
    message = runs.failed(kaggle, run, name, failure, then)
    late = name == "ERROR" and NotMounted.words in message
    return (NotMounted if late else RunFailed)(message)


def _quota(kaggle: Kaggle, run: Run) -> tuple[float | None, float | None]:
    if run.accelerator == "CPU":
        return None, None
    try:
        quota = kaggle.quota(patience=0)
    except RelayError:
        return None, None  # the quota is only displayed
    if run.accelerator == "TPU":
        return quota.tpu_seconds, quota.tpu_allowed
    return quota.gpu_seconds, quota.gpu_allowed


def _look(kaggle: Kaggle, run: Run, *, new: bool) -> tuple[str, str]:
    try:
        status = kaggle.kernel_status(run.handle, run.version)
    except (NotFound, Denied) as error:
        if new:
            return NOT_YET, ""
        raise runs.missing(kaggle, run, error) from error
    return status.name, status.failure


def in_clock(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds.

    >>> in_clock(7265.9)
    '2:01:05'
    """
    minutes, rest = divmod(math.floor(seconds), 60)
    return f"{minutes // 60:d}:{minutes % 60:02d}:{rest:02d}"
