"""The journal: what was asked of Kaggle and what came of it, in SQLite, to survive crashes.

It has three tables: pushes, publishes, submissions. The intent is committed before the call and
the outcome after it, so an entry that stays "intended" has an unknown outcome. It keeps no secrets.

Each entry has the address of the Kaggle that was asked. Only entries of the same Kaggle are
returned: version 1 of a rehearsal is not version 1 of the site.
"""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from deploy import errors, server_address
from deploy.deadline import TimeUp
from deploy.errors import Busy
from deploy.secrets import redact
from formats.errors import DiskError, writing

# `before`: the version before the call, noted where nothing else shows that a call was made.
# `sent`: 1 once a submission is sent; `sha256`: of its file. Of a training, `base`: the version
# that it resumes from, `route`: how that one is mounted; `step` and `left`: how far it got, once
# that is known. Of a preparation, `decoding`: as `Project` has it. `asked`: the address that a push
# asked for; Kaggle may have given another, `handle`. `machine_shape`: what was asked for.
# `kernel_id`: Kaggle's number of a kernel, which stays when its address changes.
COLUMNS = {
    "pushes": (
        *("server", "kernel", "config", "competition", "handle", "bundle_sha256", "git_commit"),
        *("before", "version", "url", "status", "base", "route", "step", "left", "decoding"),
        *("machine_shape", "asked", "kernel_id"),
    ),
    "publishes": ("server", "config", "handle", "run_id", "weights_sha256", "before", "version"),
    "submissions": (
        *("server", "config", "competition", "handle", "kernel_version"),
        *("sent", "sha256", "ref", "status", "score"),
    ),
}
if sys.platform != "win32":
    import fcntl

FORMAT = 2  # of the file; goes up when columns or outcomes change


class Outcome(StrEnum):
    """What came of a call, in the words that the journal keeps."""

    INTENDED = "intended"
    DONE = "done"
    # Found out later: the call never arrived; what it made was deleted since.
    ABSENT = "not made"
    GONE = "gone"
    # Ended by an error that came before the call, or was Kaggle's answer to it.
    BAD_INPUT = "bad input"
    NO_CREDENTIALS = "no credentials"
    DENIED = "denied"
    NOT_FOUND = "not found"
    NO_QUOTA = "no quota"
    NO_SLOT = "no slot"
    REFUSED = "refused"
    SOURCES_REFUSED = "sources refused"
    DISK = "disk"
    # Ended otherwise: it may have happened.
    BAD_ANSWER = "bad answer"
    NO_ANSWER = "no answer"
    UNREACHABLE = "unreachable"
    LATE = "late"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    OTHER_BYTES = "other bytes"
    UNCLEAR = "unclear"


INTENDED, DONE, ABSENT, GONE = Outcome.INTENDED, Outcome.DONE, Outcome.ABSENT, Outcome.GONE
# They prove that the call made nothing, or nothing that is still there.
NOT_MADE = (
    *(ABSENT, GONE, Outcome.BAD_INPUT, Outcome.NO_CREDENTIALS, Outcome.DENIED, Outcome.NOT_FOUND),
    *(Outcome.NO_QUOTA, Outcome.NO_SLOT, Outcome.REFUSED, Outcome.SOURCES_REFUSED, Outcome.DISK),
)
# The first that an error is of counts.
_OF_ERRORS: tuple[tuple[type[BaseException], Outcome], ...] = (
    (errors.BadAnswer, Outcome.BAD_ANSWER),
    (errors.SourcesRefused, Outcome.SOURCES_REFUSED),
    (errors.NotFound, Outcome.NOT_FOUND),
    (errors.Refused, Outcome.REFUSED),
    (errors.NoSlot, Outcome.NO_SLOT),
    (errors.NoQuota, Outcome.NO_QUOTA),
    (errors.Denied, Outcome.DENIED),
    (errors.CredentialError, Outcome.NO_CREDENTIALS),
    (errors.UsageError, Outcome.BAD_INPUT),
    (DiskError, Outcome.DISK),
    (errors.Ambiguous, Outcome.NO_ANSWER),
    (errors.Unreachable, Outcome.UNREACHABLE),
    (errors.DeadlinePassed, Outcome.LATE),
    (TimeUp, Outcome.LATE),
    (errors.Unverified, Outcome.OTHER_BYTES),
    (errors.RunFailed, Outcome.FAILED),
    (errors.Detached, Outcome.INTERRUPTED),
    (KeyboardInterrupt, Outcome.INTERRUPTED),
)


def outcome_of(error: BaseException) -> Outcome:
    """Return the word that the journal keeps for an error that ended a call."""
    found = (outcome for kind, outcome in _OF_ERRORS if isinstance(error, kind))
    return next(found, Outcome.UNCLEAR)


class Journal:
    """The journal at a path. The file is made on first use.

    Args:
        at: the address of the Kaggle whose entries are written and read; by default the one that
            this process speaks to.

    Raises:
        DiskError: if the file cannot be made, or is no journal of this format.
    """

    def __init__(self, path: Path, at: str | None = None) -> None:
        self.path = path
        self.server = server_address.address() if at is None else at
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as base:
            if _format(base) == FORMAT:
                return
            base.execute("BEGIN IMMEDIATE")  # another process may make it at the same time
            (tables,) = base.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            found = _format(base)
            if tables and found != FORMAT:
                raise DiskError(
                    f"The journal {path} has format {found}; expected {FORMAT}: another version of"
                    " this project wrote it. Move the file away, and name the runs that it knew"
                    " with --run owner/slug/version."
                )
            for table, columns in COLUMNS.items():
                base.execute(
                    f"CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY,"
                    f" at TEXT NOT NULL, outcome TEXT NOT NULL, {', '.join(columns)})"
                )
            base.execute(f"PRAGMA user_version = {FORMAT}")

    @contextmanager
    def recording(self, table: str, **intent: Any) -> Iterator[dict[str, Any]]:
        """Commit the intent, give a dict for the outcome, and commit that or the error's word.

        Whoever sets `made` in the dict says that the call was accepted: an error that follows
        proves nothing about it.
        """
        at = datetime.now(UTC).isoformat(timespec="seconds")
        values = {"server": self.server, **intent, "at": at, "outcome": INTENDED}
        names, marks = ", ".join(_checked_names(table, values)), ", ".join("?" * len(values))
        with self._open() as base:
            cursor = base.execute(
                f"INSERT INTO {table} ({names}) VALUES ({marks})",  # noqa: S608
                _redacted(values),
            )
        entry = int(cursor.lastrowid or 0)
        outcome: dict[str, Any] = {"id": entry}
        try:
            yield outcome
        except BaseException as error:
            made = outcome.get("made")
            self.note(table, entry, outcome=Outcome.UNCLEAR if made else outcome_of(error))
            raise
        outcome.pop("made", None)
        self.note(table, entry, **{**outcome, "outcome": DONE})

    def note(self, table: str, entry: int, **values: Any) -> None:
        """Change columns of an entry."""
        values.pop("id", None)
        names = _checked_names(table, values)
        with self._open() as base:
            changes = ", ".join(f"{name} = ?" for name in names)
            base.execute(
                f"UPDATE {table} SET {changes} WHERE id = ?",  # noqa: S608
                [*_redacted(values), entry],
            )

    def last(self, table: str, **where: Any) -> dict[str, Any] | None:
        """Return the newest entry with these values, or None."""
        found = self.recent(table, 1, **where)
        return found[0] if found else None

    def recent(self, table: str, count: int, **where: Any) -> list[dict[str, Any]]:
        """Return the newest entries of this Kaggle with these values, newest first."""
        where = {"server": self.server, **where}
        condition = " AND ".join(f"{name} = ?" for name in _checked_names(table, where))
        with self._open() as base:
            rows = base.execute(
                f"SELECT * FROM {table} WHERE {condition} ORDER BY id DESC LIMIT ?",  # noqa: S608
                [*_redacted(where), count],
            )
            return [{**row, "outcome": self._known(table, row)} for row in map(dict, rows)]

    def _known(self, table: str, row: dict[str, Any]) -> Outcome:
        try:
            return Outcome(row["outcome"])
        except ValueError as error:
            raise DiskError(
                f"Entry {row['id']} of {table} in the journal {self.path} has the outcome"
                f" {row['outcome']!r}; expected one of {', '.join(Outcome)}.\n"
                "Correct it, or move the file away and name versions with --run."
            ) from error

    def elsewhere(self) -> dict[str, int]:
        """Return {address: number of entries} of other Kaggles."""
        found: dict[str, int] = {}
        with self._open() as base:
            for table in COLUMNS:
                for server, number in base.execute(
                    f"SELECT server, COUNT(*) FROM {table} GROUP BY server"  # noqa: S608
                ):
                    found[server] = found.get(server, 0) + number
        found.pop(self.server, None)
        return found

    @contextmanager
    def locked(self, what: str, show: Callable[[str], object]) -> Iterator[None]:
        """Let no other process push from this project meanwhile.

        The lock ends with its process, however that ends.

        Args:
            what: is done, for the message to the other one.
            show: is given a line where the file system has no locks.

        Raises:
            Busy: if another process holds it.
        """
        if sys.platform == "win32":  # which has no such locks
            yield
            return
        path = self.path.with_name("push.lock")
        with writing(path):
            file = path.open("a+", encoding="utf-8")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                who = file.read() or "it has just begun"
                raise Busy(
                    f"Another process pushes from this project: {who}."
                    "\nNothing was sent. When it is done, run the same command again; to see what"
                    " runs:\ninvoke status"
                ) from error
            except OSError as error:
                show(
                    f"{path.parent} cannot be locked ({error.strerror}): do not push from two"
                    " windows at a time."
                )
            since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
            with writing(path):
                file.truncate(0)
                file.write(f"{what}, process {os.getpid()}, since {since}")
                file.flush()
            yield

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=10)) as base, base:
                base.row_factory = sqlite3.Row
                base.execute("PRAGMA synchronous = FULL")
                yield base
        except sqlite3.Error as error:
            raise DiskError(
                f"The journal {self.path} cannot be used: {error}.\n"
                "Expected a SQLite file that this user may write to.\n"
                "Free some space, or move the file away and name versions with --run."
            ) from error


def _format(base: sqlite3.Connection) -> int:
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def _checked_names(table: str, values: dict[str, Any]) -> list[str]:
    """Return the names of the values: only columns, since they become part of a statement."""
    allowed = {*COLUMNS[table], "at", "outcome"}
    unknown = set(values) - allowed
    if unknown:
        raise KeyError(
            f"{table} has no columns {sorted(unknown)}; expected some of {sorted(allowed)}"
        )
    return list(values)


def _redacted(values: dict[str, Any]) -> list[Any]:
    """Return the values without secrets, as they are stored and searched for."""
    return [redact(value) if isinstance(value, str) else value for value in values.values()]
