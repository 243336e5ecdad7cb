"""The journal: our requests to Kaggle and what came of them, in SQLite, to survive crashes.

Kaggle's answers move a request from state to state:

    INTENDED → SENT → VERSION → ENDED → PULLED

`after` defines the transitions. Each change is committed before the next call. So SENT means that
the call may have been made, and INTENDED that it was not. The journal holds no secrets.

Each entry has the address of its Kaggle, and only entries of the same Kaggle are returned, since
version 1 of a rehearsal is not version 1 on kaggle.com.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from deploy import auth, errors
from deploy.locks import locked
from deploy.secrets import redact
from formats.errors import DiskError, writing

FORMAT = 5  # goes up when columns or states change
PUSH, PUBLISH, SUBMIT = "push", "publish", "submit"  # kinds of requests


class State(StrEnum):
    """How far a request got."""

    INTENDED = "intended"  # nothing was sent
    SENT = "sent"  # the call may have been made
    UNKNOWN = "unknown"  # no answer says whether it was made; `why` has the error
    VERSION = "version"  # Kaggle made it: `number`
    ENDED = "ended"  # the run has ended, the dataset is ready or the score is there: `status`
    PULLED = "pulled"  # into `folder`
    NOT_SENT = "not sent"  # an error came before the call
    REFUSED = "refused"  # by Kaggle
    INCOMPLETE = "incomplete"  # Kaggle runs it without one of its sources, so it is worthless
    ABSENT = "absent"  # it never arrived
    GONE = "gone"  # it was made, and was deleted since


# Errors which prove that a call made nothing: they are Kaggle's answer to it.
REFUSALS = (errors.Refused, errors.NoQuota, errors.CredentialError, errors.UsageError)


@dataclass(frozen=True)
class Request:
    """An entry of the journal. Unknown texts are "" and unknown numbers 0.

    Attributes:
        kind: PUSH, PUBLISH or SUBMIT.
        handle: owner/slug of the kernel or the dataset.
        kernel: of a push: its folder, such as train-tpu.
        asked: the address that a push asked for; `handle` is the one that Kaggle gave.
        code_sha256: of code and config alone; `bundle_sha256` covers everything that a run does.
        decoding: as in `Project`.
        base, route: of a training: the version that it resumes from, and how it is mounted.
        step, left: how far a run got, once that is known.
        run_id, weights_sha256: of what is published.
        kernel_version, sha256: of a submission: the version to score, and the sha256 of its file.
        score, private: its public and private score; None if unknown.
        at: when it was intended, in UTC.
        server: the address of the Kaggle.
        why: the first line of the error that ended the command.
        before: the version before the call; None if nothing was sent.
        number: the version of the kernel or dataset, or the number of the submission.
        status: Kaggle's final status.
        folder: where it was pulled to.
    """

    kind: str
    config: str
    handle: str
    competition: str = ""
    kernel: str = ""
    asked: str = ""
    url: str = ""
    bundle_sha256: str = ""
    code_sha256: str = ""
    git_commit: str = ""
    machine_shape: str = ""
    decoding: str = ""
    base: int = 0
    route: str = ""
    step: int = 0
    left: str = ""
    run_id: str = ""
    weights_sha256: str = ""
    kernel_version: int = 0
    sha256: str = ""
    score: float | None = None
    private: float | None = None
    id: int = 0
    at: str = ""
    server: str = ""
    state: State = State.INTENDED
    why: str = ""
    before: int | None = None
    number: int = 0
    status: str = ""
    folder: str = ""

    @property
    def is_made(self) -> bool:
        """Whether it was made, and still exists as far as is known."""
        return self.state in MADE

    @property
    def is_open(self) -> bool:
        """Whether it is unknown if it was made."""
        return self.state in OPEN

    @property
    def is_ours(self) -> bool:
        """Whether this request made the version, and did not find it there."""
        return self.before is not None and self.number > self.before

    @property
    def age(self) -> float:
        """Seconds since it was intended."""
        return (datetime.now(UTC) - datetime.fromisoformat(self.at)).total_seconds()


MADE = (State.VERSION, State.ENDED, State.PULLED)
OPEN = (State.SENT, State.UNKNOWN)
# The states that each state may follow.
FOLLOWS = {
    State.SENT: (State.INTENDED,),
    State.VERSION: (State.INTENDED, *OPEN),
    State.ENDED: (State.VERSION, State.ENDED),
    State.PULLED: MADE,
    State.ABSENT: OPEN,
    State.GONE: MADE,
}


def after(request: Request, state: State, **known: Any) -> Request:
    """Return the request in another state. A state that may not follow changes nothing.

    Args:
        state: SENT, right before the call, with `before`, the current version; VERSION with its
            `number`; ENDED with its `status`; PULLED with its `folder`; ABSENT if Kaggle shows by a
            404 or a list that it does not exist, which becomes GONE if it was made.
        known: columns of `Request`.

    >>> lost = failed(after(Request(PUSH, "digits", "ann/x"), State.SENT, before=0), TimeoutError())
    >>> lost.state, after(lost, State.VERSION, number=1).state, after(lost, State.ABSENT).state
    (<State.UNKNOWN: 'unknown'>, <State.VERSION: 'version'>, <State.ABSENT: 'absent'>)
    """
    if state == State.ABSENT and request.is_made:
        state = State.GONE
    if request.state not in FOLLOWS[state]:
        return request
    why = "" if state in (State.VERSION, State.ENDED) else request.why
    return replace(request, state=state, why=why, **known)


def failed(request: Request, error: BaseException) -> Request:
    """Return the request after an error that ended the command."""
    why = str(error).partition("\n")[0] or type(error).__name__
    state, number, sent = request.state, request.number, request.state == State.SENT
    if state == State.INTENDED:
        state = State.NOT_SENT
    elif sent and isinstance(error, errors.SourcesRefused):
        state, number = State.INCOMPLETE, error.version
    elif sent and isinstance(error, REFUSALS) and not isinstance(error, errors.BadAnswer):
        state = State.REFUSED
    elif request.is_open:
        state = State.UNKNOWN
    elif state != State.VERSION:
        return request
    return replace(request, state=state, why=why, number=number)


class Journal:
    """The journal at a path. The file is created if it does not exist, and stays open.

    Args:
        at: the address of the Kaggle whose entries are written and read; by default the one that
            this process talks to.

    Raises:
        DiskError: if the file cannot be created, or is not a journal of this format.
    """

    def __init__(self, path: Path, at: str | None = None) -> None:
        self.path = path
        self.server = auth.address() if at is None else at
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._told():
            self._base = sqlite3.connect(path, timeout=10, isolation_level=None)
            self._base.row_factory = sqlite3.Row
            self._base.execute("PRAGMA synchronous = FULL")
            with self._base:  # another process may make it at the same time
                self._base.execute("BEGIN IMMEDIATE")
                self._make()

    def intend(self, request: Request) -> Request:
        """Commit a request that is about to be sent, and return it with its id."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        kept = _redacted(asdict(replace(request, at=at, server=self.server)))
        del kept["id"]
        names, marks = ", ".join(kept), ", ".join("?" * len(kept))
        with self._told():
            cursor = self._base.execute(
                f"INSERT INTO requests ({names}) VALUES ({marks})",  # noqa: S608
                list(kept.values()),
            )
        return _request({**kept, "id": cursor.lastrowid})

    def record(self, request: Request, state: State, **known: Any) -> Request:
        """Commit what `after` returns, and return it."""
        return self._change(request, after(request, state, **known))

    def fail(self, request: Request, error: BaseException) -> Request:
        """Commit what `failed` returns, and return it."""
        return self._change(request, failed(request, error))

    def note(self, request: Request, **columns: Any) -> Request:
        """Commit other values of a request, and return it."""
        return self._change(request, replace(request, **columns))

    def requests(self, kind: str, **where: Any) -> list[Request]:
        """Return the entries of this Kaggle with these values, newest first."""
        wanted = _redacted({"server": self.server, "kind": kind, **where})
        names = " AND ".join(f"{name} = ?" for name in wanted)
        with self._told():
            rows = self._base.execute(
                f"SELECT * FROM requests WHERE {names} ORDER BY id DESC",  # noqa: S608
                list(wanted.values()),
            ).fetchall()
        return [_request(dict(row)) for row in rows]

    def last(self, kind: str, **where: Any) -> Request | None:
        """Return the newest entry of this Kaggle with these values, or None."""
        return next(iter(self.requests(kind, **where)), None)

    @contextmanager
    def ended_by_errors(self, request: Request) -> Iterator[None]:
        """Record an error of the body, in whatever state the request is by then."""
        try:
            yield
        except BaseException as error:
            (now,) = self.requests(request.kind, id=request.id)
            self.fail(now, error)
            raise

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from pushing from this project; they raise `Busy`."""
        busy = (
            "Another process is pushing from this project; it may be waiting for an answer in its"
            " terminal.\nNothing was sent. When it is done, run the same command again; to see what"
            " runs:\ninvoke status"
        )
        return locked(self.path.with_name("push.lock"), busy)

    def _change(self, before: Request, now: Request) -> Request:
        kept = _redacted(asdict(now))
        changed = {name: value for name, value in kept.items() if value != getattr(before, name)}
        if changed:
            names = ", ".join(f"{name} = ?" for name in changed)
            with self._told():
                self._base.execute(
                    f"UPDATE requests SET {names} WHERE id = ?",  # noqa: S608
                    [*changed.values(), before.id],
                )
        return _request(kept)

    def _make(self) -> None:
        (found,) = self._base.execute("PRAGMA user_version").fetchone()
        (tables,) = self._base.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if tables and found != FORMAT:
            raise DiskError(
                f"The journal {self.path} has format {found}; expected {FORMAT}: another version of"
                " this project wrote it. Move the file away, and name its runs with"
                " --run owner/slug/version."
            )
        if not tables:
            columns = ", ".join(field.name for field in fields(Request) if field.name != "id")
            self._base.execute(f"CREATE TABLE requests (id INTEGER PRIMARY KEY, {columns})")
            self._base.execute(f"PRAGMA user_version = {FORMAT}")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise DiskError(
                f"The journal {self.path} cannot be used: {error}.\n"
                "Expected a SQLite file that this user may write to.\n"
                "Free some space, or move the file away and name versions with --run."
            ) from error


def _redacted(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without secrets, as they are stored and looked up."""
    return {
        name: redact(value) if isinstance(value, str) else value for name, value in columns.items()
    }


def _request(row: Mapping[str, Any]) -> Request:
    return Request(**{**row, "state": State(row["state"])})
