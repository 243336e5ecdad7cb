"""Watch exactly the version that a push made, until it ends.

The run's status alone decides. Its log, which is followed in the background, tells the progress: if
that connection breaks, the log is read again from its beginning.
"""

import json
import math
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

from deploy import failures, runs
from deploy.client import Kaggle
from deploy.connection import UNREADABLE
from deploy.errors import (
    BadAnswer,
    Cancelled,
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
from deploy.journal import Ended
from deploy.push import noticing_renames
from deploy.records import Records
from deploy.runs import CANCELLED, NOT_MOUNTED, SAVED, Run

LINE_AT_MOST = 10_000
PROGRESS_AT_MOST = 20_000  # lines of progress; of those after them, the newest is kept
PROGRESS_PAUSES = 5  # the longest pauses between two lines of a pipe that tell progress alone
NOT_YET = "NOT_THERE_YET"
# Lines of a notebook that tell a person nothing: %%writefile, pieces of JSON, paths.
NO_WORDS = re.compile(r"""(Over)?[wW]riting \S+$|["'{}\]]|\[["'{]|\S*/\S*$""")


class Log:
    """The progress of a run. Use it in `with`; it follows the log until the block ends.

    Attributes:
        words: the last line that says something to a person.
    """

    def __init__(self, kaggle: Kaggle, run: Run) -> None:
        self._kaggle, self._run = kaggle, run
        self._closed = threading.Event()
        self._rest = ""
        self._progress: list[Mapping[str, Any]] = []
        self._place = 0  # of the next line of progress
        self.words = ""

    def __enter__(self) -> Self:
        threading.Thread(target=self._follow, daemon=True, name=f"log of {self._run}").start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()  # the thread may wait for bytes: it is not joined

    def status(self, name: str, quota: tuple[float | None, float | None]) -> Status:
        """Return what is known of the run, but for how long it takes.

        Args:
            name: of its status. quota: seconds left and allowed this week.
        """
        progress, run = tuple(self._progress), self._run
        return Status(str(run), name, 0.0, None, self.words, progress, run.accelerator, *quota)

    def _follow(self) -> None:
        pause = self._kaggle.pace.first
        while not self._closed.is_set():
            self._rest, self._place = "", 0  # the log starts from its beginning again
            try:
                for stream, data in self._kaggle.follow_log(self._run.handle, self._run.version):
                    pause = self._kaggle.pace.first
                    if self._closed.is_set():
                        return
                    if stream != "stderr":  # where libraries write
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
                self._progress[self._place : self._place + 1] = [value]
                self._place = min(self._place + 1, PROGRESS_AT_MOST)
            elif any(map(str.isalpha, line)) and not NO_WORDS.match(line):
                self.words = line[:160]


def watch(kaggle: Kaggle, records: Records, run: Run) -> Steps[str]:
    """Watch a run until it ends, record how it ended, and return "COMPLETE".

    A `Status` is yielded when the status or the progress has changed. The progress is looked at
    more often than Kaggle is asked for the status.

    Raises:
        NotFound, Denied: if there is no such run, or not for this user.
        RunFailed: if it failed; with Kaggle's message, the failing cell, its error and advice;
            `NotMounted`, if it found a source missing; `Cancelled`, if it was ended from outside.
        DeadlinePassed: after the project's deadline; the message says how to re-attach.
        Unreachable: if Kaggle stayed silent for `kaggle.pace.patience` seconds.
        BadAnswer: if its answers, several in a row, could not be read.
        Detached: on Ctrl-C; the message says how to re-attach.
    """
    # A run that somebody else pushed can be watched too, and has no record.
    row = records.push_of(run)
    try:
        with noticing_renames(kaggle, run):
            age = max(row.age, 0.0) if row is not None and row.is_ours else None
            status = yield from _watched(kaggle, records, run, age)
    except RunFailed as error:
        if row is not None:
            status = NOT_MOUNTED if isinstance(error, NotMounted) else "ERROR"
            status = CANCELLED if isinstance(error, Cancelled) else status
            records.journal.record(row, Ended(status, {}))
        raise
    if row is not None:
        records.journal.record(row, Ended(status, {}))
    return status


class _Clock:
    """How long a run has been watched and has run, and what was told of it.

    Attributes:
        pause: seconds until Kaggle is asked for the status again.
    """

    def __init__(self, kaggle: Kaggle, pushed_seconds: float | None) -> None:
        self._pace, self._pushed = kaggle.pace, pushed_seconds
        self._began = time.monotonic()
        self._running: float | None = None
        self._told: object = None
        self._told_at = -math.inf
        self.pause = kaggle.pace.first

    @property
    def watched(self) -> float:
        """Seconds since the watch began."""
        return time.monotonic() - self._began

    @property
    def ran(self) -> float | None:
        """Seconds since it was first seen running; None: not yet."""
        return None if self._running is None else time.monotonic() - self._running

    def saw(self, status: str, *, changed: bool) -> None:
        """Note a status. After a change of it, Kaggle is asked often again."""
        if status == "RUNNING" and self._running is None:
            self._running = time.monotonic()
        self.pause = self._pace.first if changed else min(self.pause * 1.5, self._pace.most)

    def news(self, shown: Status, *, changed: bool) -> Iterator[Status]:
        """Yield what is known of a run, if it differs from what was told before.

        Args:
            changed: whether the status has; else it is only the progress, of which a pipe is told
                now and then.
        """
        running = self.ran is not None
        state = (shown.status, *((shown.progress[-1:], shown.words) if running else ()))
        if state == self._told and shown.status != "COMPLETE":
            return
        now = time.monotonic()
        often = not changed and now < self._told_at + PROGRESS_PAUSES * self._pace.most
        self._told = state
        if not changed and not often:
            self._told_at = now
        yield replace(
            shown,
            seconds=self.watched + (self._pushed or 0.0),
            ran_seconds=self.ran,
            pushed=self._pushed is not None,
            often=often,
        )


def _watched(
    kaggle: Kaggle, records: Records, run: Run, pushed_seconds: float | None
) -> Steps[str]:
    project = records.project
    attach = f"The run continues. To watch it again:\ninvoke watch --run {run}"
    clock, last, quota = _Clock(kaggle, pushed_seconds), "", _quota(kaggle, run)
    try:
        with Log(kaggle, run) as log:
            while True:
                # Kaggle may not find a version after its push, and then call it saved only.
                since = clock.watched if run.bundle_sha256 else math.inf
                new = since < kaggle.pace.unseen
                name, failure = _look(kaggle, run, new=new, seen=last not in ("", NOT_YET))
                clock.saw(name, changed=name != last)
                yield from clock.news(log.status(name, quota), changed=name != last)
                last = name
                if name == "COMPLETE":
                    return name
                only_saved = name == SAVED and since >= kaggle.pace.unstarted
                if only_saved or name in ("ERROR", CANCELLED):
                    raise _failure(kaggle, run, name, failure)
                allowed, waited, passed = project.deadline_seconds, "running", clock.ran
                if passed is None:
                    allowed = project.queue_seconds or allowed
                    waited, passed = "waiting for a machine", clock.watched
                if passed + clock.pause > allowed:
                    raise DeadlinePassed(
                        f"{run} is {name} after {in_clock(clock.watched)}, {waited}; expected its"
                        f" end by now.\n{attach}"
                    )
                end = time.monotonic() + clock.pause
                while (left := end - time.monotonic()) > 0:
                    time.sleep(min(left, kaggle.pace.first))
                    yield from clock.news(log.status(name, quota), changed=False)
    except KeyboardInterrupt:
        raise Detached(f"Detached from {run}.\n{attach}") from None
    except (Unreachable, CredentialError, BadAnswer) as error:
        known = isinstance(error, Unknown) or last not in ("", NOT_YET)
        if isinstance(error, Denied) and not known:
            raise  # there is no run
        error.args = (f"{error}\n{attach}",)
        raise


def _failure(kaggle: Kaggle, run: Run, name: str, failure: str) -> RunFailed:
    then = f"To pull what it wrote until then, if anything:\ninvoke pull --run {run}"
    message = runs.failed(kaggle, run, name, failure, then)
    if name == CANCELLED:
        return Cancelled(message)
    return (NotMounted if NotMounted.words in message else RunFailed)(message)


def _quota(kaggle: Kaggle, run: Run) -> tuple[float | None, float | None]:
    """Return the seconds left and allowed this week for a run's accelerator; None: unknown."""
    if run.accelerator == "CPU":
        return None, None
    try:
        quota = kaggle.quota(patience=0)
    except RelayError:
        return None, None  # it is only shown
    if run.accelerator == "TPU":
        return quota.tpu_seconds, quota.tpu_allowed
    return quota.gpu_seconds, quota.gpu_allowed


def _look(kaggle: Kaggle, run: Run, *, new: bool, seen: bool) -> tuple[str, str]:
    """Return status and failure message. `new`: just pushed; `seen`: Kaggle found it before."""
    try:
        status = kaggle.kernel_status(run.handle, run.version)
    except (NotFound, Denied) as error:
        if new:
            return NOT_YET, ""
        if seen or isinstance(error, Unknown):
            raise
        raise _not_found(kaggle, run, error) from error
    return status.name, status.failure


def _not_found(kaggle: Kaggle, run: Run, error: RelayError) -> RelayError:
    """Return the error for a run that does not exist. Kaggle answers 403 for one of our own too."""
    if (theirs := runs.of_another(kaggle, run, error)) is not None:
        return theirs
    try:
        current = kaggle.get_kernel(run.handle)
        why = f"the newest version is {current.version}" if current else "there is no such notebook"
    except Unknown as denied:
        return denied
    except RelayError:
        why = "Kaggle knows none"
    return NotFound(
        f"There is no run {run}: {why}.\nExpected owner/slug/version of a run that was pushed. If"
        " its notebook was renamed on Kaggle, name it by its address now: --run owner/slug/version;"
        f" your notebooks: https://www.kaggle.com/{kaggle.username}/code\n"
        "To see what was pushed from here:\ninvoke status"
    )


def in_clock(seconds: float) -> str:
    """Return seconds as hours, minutes and seconds.

    >>> in_clock(7265.9)
    '2:01:05'
    """
    minutes, rest = divmod(math.floor(seconds), 60)
    return f"{minutes // 60:d}:{minutes % 60:02d}:{rest:02d}"
