"""Journal: what was asked of Kaggle, and what came of it, in one SQLite file that outlives a crash.

Reads  and gives rows of three tables: pushes, publishes, submissions

The intent is committed before the call and the outcome after it, so an entry that stays "intended"
tells that we do not know. `watch`, `pull`, `publish`, `push-infer` and `submit` take the version
that we made ourselves from here. No secrets.

Each entry has the address of the Kaggle that was asked, and only entries of the same Kaggle are
given: version 1 of a rehearsal is not version 1 of the site. An entry without an address is older
than that column, and is believed nowhere.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deploy.client import server_address
from deploy.client.secrets import redact
from deploy.errors import DiskError, writing

# `before`: the version before the call; noted right before it where nothing else tells that it was
# made. `sent`: 1 from then on. Of a training, `base`: the version that it went on from, `route`:
# how that came to it; `step`, `left`: how far it got, once that was seen.
COLUMNS = {
    "pushes": (
        "server",
        "kernel",
        "config",
        "competition",
        "handle",
        "bundle_sha256",
        "git_commit",
        "before",
        "version",
        "url",
        "status",
        "base",
        "route",
        "step",
        "left",
    ),
    "publishes": ("server", "config", "handle", "run_id", "weights_sha256", "before", "version"),
    "submissions": (
        "server",
        "config",
        "competition",
        "handle",
        "kernel_version",
        "sent",
        "ref",
        "status",
        "score",
    ),
}
INTENDED, DONE = "intended", "done"
# Ends of a call after which it is known that nothing was made; after any other, and without one, it
# may have been.
ABSENT, GONE = (
    "not made",
    "gone",
)  # found out later: it never arrived; it was there, and is not any more
NOT_MADE = (
    *(
        ABSENT,
        GONE,
        "CredentialError",
        "Denied",
        "DiskError",
        "NoQuota",
        "NotFound",
        "Refused",
        "SourcesRefused",
    ),
    "UsageError",
)


class Journal:
    """The journal at that path, made on first use.

    Args:
        at: the address of the Kaggle whose entries are written and read; default: the one that this
            process speaks to.

    Raises:
        DiskError: if the file cannot be made, or is no journal.
    """

    def __init__(self, path: Path, at: str | None = None) -> None:
        self.path = path
        self.server = server_address.address() if at is None else at
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as base:
            for table, columns in COLUMNS.items():
                base.execute(
                    f"CREATE TABLE IF NOT EXISTS {table} "
                    f"(id INTEGER PRIMARY KEY, at TEXT NOT NULL, outcome TEXT NOT NULL, {', '.join(columns)})"
                )
                there = {row["name"] for row in base.execute(f"PRAGMA table_info({table})")}
                for column in (
                    name for name in columns if name not in there
                ):  # written by an older version of this file
                    base.execute(f"ALTER TABLE {table} ADD COLUMN {column}")

    @contextmanager
    def recording(self, table: str, **intent: Any) -> Iterator[dict[str, Any]]:
        """Commit the intent, give a dict to put the outcome into, and commit that; after an
        exception, its kind.
        """
        at = datetime.now(UTC).isoformat(timespec="seconds")
        entry = self._insert(table, {**intent, "at": at, "outcome": INTENDED})
        outcome: dict[str, Any] = {"id": entry}
        try:
            yield outcome
        except BaseException as error:
            self.note(table, entry, outcome=type(error).__name__)
            raise
        self.note(table, entry, **{**outcome, "outcome": DONE})

    def note(self, table: str, entry: int, **values: Any) -> None:
        """Change columns of an entry."""
        values.pop("id", None)
        names = self._known(table, values)
        with self._open() as base:
            changes = ", ".join(f"{name} = ?" for name in names)
            base.execute(f"UPDATE {table} SET {changes} WHERE id = ?", [*_told(values), entry])  # noqa: S608 - checked names

    def last(self, table: str, **where: Any) -> dict[str, Any] | None:
        """Return the newest entry with these values, or None."""
        found = self.recent(table, 1, **where)
        return found[0] if found else None

    def recent(self, table: str, count: int, **where: Any) -> list[dict[str, Any]]:
        """Return the newest entries of this Kaggle with these values, newest first."""
        where = {"server": self.server, **where}
        names = self._known(table, where)
        condition = " AND ".join(["1", *(f"{name} = ?" for name in names)])
        with self._open() as base:
            rows = base.execute(
                f"SELECT * FROM {table} WHERE {condition} ORDER BY id DESC LIMIT ?",  # noqa: S608 - checked names
                [*_told(where), count],
            )
            return [dict(row) for row in rows]

    def elsewhere(self) -> dict[str, int]:
        """Return how many entries speak of other Kaggles: {address: number}; "" for those that do
        not say of which.
        """
        found: dict[str, int] = {}
        with self._open() as base:
            for table in COLUMNS:
                count = f"SELECT server, COUNT(*) AS number FROM {table} GROUP BY server"  # noqa: S608 - ours
                rows = base.execute(count)
                for row in rows:
                    found[row["server"] or ""] = found.get(row["server"] or "", 0) + row["number"]
        found.pop(self.server, None)
        return found

    def _insert(self, table: str, values: dict[str, Any]) -> int:
        values = {"server": self.server, **values}
        names = self._known(table, values)
        with self._open() as base:
            marks = ", ".join("?" * len(names))
            cursor = base.execute(
                f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})",  # noqa: S608 - checked names
                _told(values),
            )
            return int(cursor.lastrowid or 0)

    def _known(self, table: str, values: dict[str, Any]) -> list[str]:
        """Return the names, after they were found in the list above: they become part of a
        statement.
        """
        allowed = {*COLUMNS[table], "at", "outcome"}
        unknown = set(values) - allowed
        if unknown:
            raise KeyError(
                f"{table} has no columns {sorted(unknown)}; expected some of {sorted(allowed)}"
            )
        return list(values)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=10)) as base, base:
                base.row_factory = sqlite3.Row
                base.execute("PRAGMA synchronous = FULL")
                yield base
        except sqlite3.Error as error:
            raise DiskError(
                f"The journal {self.path} cannot be used: {error}.\nExpected a SQLite file that this user may write.\n"
                "Free some space, or move the file away; versions can then be named with --run."
            ) from error


def _told(values: dict[str, Any]) -> list[Any]:
    """Return the values as they are kept and looked for: without secrets, as nothing else can be
    kept.
    """
    return [redact(value) if isinstance(value, str) else value for value in values.values()]
