"""What a smoke test made on Kaggle, on disk before and after each call that makes something.

So a test that was killed finds it again, makes nothing twice, and deletes all of it.
"""

import json
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deploy.errors import UsageError
from formats.errors import writing


class MadeThings:
    """The record of one smoke test.

    Args:
        path: of the file; one that is there is continued.
        user: the name of the account.

    Attributes:
        suffix: of all names; drawn for each test.
        began: when the test began, in seconds of `time.time`.
    """

    def __init__(self, path: Path, user: str) -> None:
        self._path = path
        if path.is_file():
            self._held = _read(path)
            if self._held["user"] != user:
                raise UsageError(
                    f"{path} is the unfinished smoke test of {self._held['user']}, and you are"
                    f" {user}.\nLog in as {self._held['user']} to finish it; or delete the"
                    f" notebooks and the dataset with {self._held['suffix']} in their names by"
                    " hand, and then this file."
                )
        else:
            suffix = f"k{uuid.uuid4().hex[:7]}"
            self._held = {"user": user, "suffix": suffix, "began": time.time(), "calls": {}}
            self._held |= {"done": [], "agreed": [], "deleted": []}
            self._write()
        self.suffix, self.began = str(self._held["suffix"]), float(self._held["began"])

    def call(self, name: str) -> dict[str, Any] | None:
        """Return what is known of a call; None: it was never sent."""
        found = self._held["calls"].get(name)
        return dict(found) if found is not None else None

    def note(self, name: str, **known: Any) -> None:
        """Keep what is known of a call: before it, what it makes; after it, what came of it."""
        self._held["calls"].setdefault(name, {}).update(known)
        self._write()

    def kernels(self) -> list[str]:
        """Return the handles of the kernels that may be there."""
        return self._there("kernel")

    def datasets(self) -> list[str]:
        """Return the handles of the datasets that may be there."""
        return self._there("dataset")

    def add(self, what: str, name: str) -> None:
        """Keep that a step is "done" or "agreed" to, or that a handle is "deleted"."""
        if name not in self._held[what]:
            self._held[what].append(name)
            self._write()

    def has(self, what: str, name: str) -> bool:
        """Return whether it was kept so."""
        return name in self._held[what]

    def forget(self) -> None:
        """Remove the record: nothing is there any more."""
        with writing(self._path):
            self._path.unlink(missing_ok=True)

    def _there(self, kind: str) -> list[str]:
        found: Iterable[Any] = (known.get(kind) for known in self._held["calls"].values())
        handles = dict.fromkeys(handle for handle in found if handle)
        return [handle for handle in handles if handle not in self._held["deleted"]]

    def _write(self) -> None:
        with writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps(self._held), encoding="utf-8")
            part.replace(self._path)


def _read(path: Path) -> dict[str, Any]:
    try:
        held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if {"user", "suffix", "began", "calls", "done", "agreed", "deleted"} <= held.keys():
            return held
    except (OSError, ValueError, AttributeError):
        pass
    raise UsageError(
        f"{path} cannot be read; expected the record of a smoke test.\n"
        "Delete what begins with `relay-live-` on https://www.kaggle.com/work, and then this file."
    )
