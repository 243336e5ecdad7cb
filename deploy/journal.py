"""Journal of requests to Kaggle and their results, stored in SQLite so that it survives crashes.

Kaggle's responses move a request from one state to the next:

    INTENDED → SENT → VERSION → ENDED → PULLED

Each change is committed before the next call. SENT therefore means that the call may have been
made, and INTENDED means that it was not. The journal contains no secrets.

Each entry stores the Kaggle server that it belongs to. Only entries for the current server are
returned, because version 1 of a rehearsal is not version 1 on kaggle.com.
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

FORMAT = 5  # increase this when columns or states change
PUSH, PUBLISH, SUBMIT = "push", "publish", "submit"  # kinds of requests


class State(StrEnum):
    """Progress of a request."""

    INTENDED = "intended"  # nothing has been sent
    SENT = "sent"  # the call may have been made
    UNKNOWN = "unknown"  # there is no response that shows whether it was made; see `why`
    VERSION = "version"  # Kaggle created it; see `number`
    ENDED = "ended"  # the run has ended, the dataset is ready or the score is known; see `status`
    PULLED = "pulled"  # its output is in `folder`
    NOT_SENT = "not sent"  # an error occurred before the call
    REFUSED = "refused"  # Kaggle refused it
    INCOMPLETE = "incomplete"  # Kaggle runs it without one of its sources, so it is useless
    ABSENT = "absent"  # Kaggle never received it
    GONE = "gone"  # it was created and later deleted


# Errors that Kaggle returns for calls that had no effect.
REFUSALS = (errors.Refused, errors.NoQuota, errors.CredentialError, errors.UsageError)


@dataclass(frozen=True)
class Request:
    """A journal entry. Unknown text values are "" and unknown numbers are 0.

    Attributes:
        kind: PUSH, PUBLISH or SUBMIT.
        handle: owner/slug of the kernel or dataset, as assigned by Kaggle.
        kernel: folder of a pushed kernel, such as train-tpu.
        asked: handle that a push requested.
        code_sha256: SHA-256 of the code and the config. `bundle_sha256` also covers everything else
            that affects a run.
        decoding: see `Project`.
        base, route: version that a training run resumes from, and how its output is mounted.
        step, left: progress of a run, once it is known.
        run_id, weights_sha256: identity of the published artifact or checkpoint.
        kernel_version, sha256: for a submission, the version to score and the SHA-256 of its file.
        score, private: public and private score of a submission, or None if unknown.
        at: time at which the request was recorded, in UTC.
        why: first line of the error that ended the command.
        before: version before the call, or None if nothing was sent.
        number: version of the kernel or dataset, or number of the submission.
        status: Kaggle's final status.
        folder: folder to which the run was pulled.
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
        """Whether Kaggle fulfilled the request and, as far as we know, its result still exists."""
        return self.state in MADE

    @property
    def is_open(self) -> bool:
        """Whether the request may have been sent and its result is unknown."""
        return self.state in OPEN

    @property
    def is_ours(self) -> bool:
        """Whether this request created the version, rather than finding an existing one."""
        return self.before is not None and self.number > self.before

    @property
    def age(self) -> float:
        return (datetime.now(UTC) - datetime.fromisoformat(self.at)).total_seconds()


MADE = (State.VERSION, State.ENDED, State.PULLED)
OPEN = (State.SENT, State.UNKNOWN)
# Allowed previous states of each state.
FOLLOWS = {
    State.SENT: (State.INTENDED,),
    State.VERSION: (State.INTENDED, *OPEN),
    State.ENDED: (State.VERSION, State.ENDED),
    State.PULLED: MADE,
    State.ABSENT: OPEN,
    State.GONE: MADE,
}


def after(request: Request, state: State, **known: Any) -> Request:
    """Return the request in a new state. Invalid transitions leave it unchanged.

    Pass the current version as `before` with SENT, `number` with VERSION, `status` with ENDED, and
    `folder` with PULLED. SENT is recorded right before the call. ABSENT means that, according to a
    404 or a list, the requested item does not exist. If it existed before, the state becomes GONE.

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
    """A journal file, which is created if it does not exist, and then kept open.

    Entries are written and read for the Kaggle server given by `at`, which defaults to the current
    server.

    Raises:
        DiskError: if the file cannot be created, or is not a journal in this format.
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
            with self._base:  # another process may be creating it at the same time
                self._base.execute("BEGIN IMMEDIATE")
                self._make()

    def intend(self, request: Request) -> Request:
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
        return self._change(request, after(request, state, **known))

    def fail(self, request: Request, error: BaseException) -> Request:
        return self._change(request, failed(request, error))

    def note(self, request: Request, **columns: Any) -> Request:
        return self._change(request, replace(request, **columns))

    def requests(self, kind: str, **where: Any) -> list[Request]:
        """Return the entries for this Kaggle server that have these values, newest first."""
        wanted = _redacted({"server": self.server, "kind": kind, **where})
        names = " AND ".join(f"{name} = ?" for name in wanted)
        with self._told():
            rows = self._base.execute(
                f"SELECT * FROM requests WHERE {names} ORDER BY id DESC",  # noqa: S608
                list(wanted.values()),
            ).fetchall()
        return [_request(dict(row)) for row in rows]

    def last(self, kind: str, **where: Any) -> Request | None:
        return next(iter(self.requests(kind, **where)), None)

    @contextmanager
    def ended_by_errors(self, request: Request) -> Iterator[None]:
        """If the body raises an error, record it with the request's state at that time."""
        try:
            yield
        except BaseException as error:
            (now,) = self.requests(request.kind, id=request.id)
            self.fail(now, error)
            raise

    def locked(self) -> AbstractContextManager[None]:
        """Prevent other processes from pushing from this project. They raise `Busy`."""
        busy = (
            "Another process is pushing from this project. It may be waiting for an answer in its"
            " terminal.\nNothing was sent. When it has finished, run the same command again. To see"
            " what is running:\ninvoke status"
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
                f"The journal {self.path} has format {found}; expected {FORMAT}. Another version of"
                " this project wrote it. Move the file away, and specify its runs with"
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
                "Expected a SQLite file that this user can write to.\n"
                "Free some space, or move the file away and specify versions with --run."
            ) from error


def _redacted(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: redact(value) if isinstance(value, str) else value for name, value in columns.items()
    }


def _request(row: Mapping[str, Any]) -> Request:
    return Request(**{**row, "state": State(row["state"])})
