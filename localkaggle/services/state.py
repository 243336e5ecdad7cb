"""State: what a local Kaggle holds, saved as one JSON file, so that it can be restarted.

Outputs, logs and the files of datasets lie in folders beside it. Sessions, downloads, and uploads
that no call has used yet end with the process.
"""

import importlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from kagglesdk.kaggle_object import KaggleObject

FILE = "state.json"
NOT_KEPT = {"kept": False}  # metadata of a field that ends with the process
OURS = ("localkaggle.", "kagglesdk.")


class State:
    """The attributes of some objects, the file that keeps them, and the lock of both.

    Args:
        folder: the folder of the file; paths below it are saved relative to it, so it can be moved.

    Attributes:
        lock: is held while something changes.
        disk_full: the error of a write that failed on a full disk; "": none failed.
    """

    def __init__(self, folder: Path) -> None:
        self.lock = threading.RLock()
        self.disk_full = ""
        self._folder = folder
        self._parts: Mapping[str, Any] = {}

    def load(self, parts: Mapping[str, Any]) -> None:
        """Restore the parts from the file, unless it is empty, and save them from now on. Each
        part lists in `KEPT` the attributes to save.

        Raises:
            ValueError: if the file holds something else.
        """
        self._parts = parts
        path = self._folder / FILE
        try:
            kept = json.loads(path.read_text(encoding="utf-8"), object_hook=self._decoded)
            for name, part in parts.items() if kept != {} else ():
                for attribute in part.KEPT:
                    setattr(part, attribute, kept[name][attribute])
        except (ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
            raise ValueError(f"{path} is not what this version writes: {error}") from error

    def save(self) -> None:
        """Write the file atomically; no other user may read it.

        Raises:
            OSError: if it cannot be written.
        """
        kept = {
            name: {attribute: getattr(part, attribute) for attribute in part.KEPT}
            for name, part in self._parts.items()
        }
        aside = self._folder / f".{FILE}.part"
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(kept, file, default=self._encoded)
        aside.replace(self._folder / FILE)

    @contextmanager
    def changes(self) -> Iterator[None]:
        """Change something outside a call; it is saved before any call can report it."""
        with self.lock:
            yield
            try:
                self.save()
            except OSError as error:  # no call can report it
                self.disk_full = str(error)

    def _encoded(self, value: Any) -> dict[str, Any]:
        """Return a path, a request or a dataclass as {"is": its class, "value": its contents}."""
        if isinstance(value, Path):
            if value.is_relative_to(self._folder):
                value = value.relative_to(self._folder)
            return {"is": "path", "value": str(value)}
        kind = f"{type(value).__module__}:{type(value).__qualname__}"
        if isinstance(value, KaggleObject):
            return {"is": kind, "value": value.to_dict()}
        names = [item.name for item in fields(value) if item.metadata.get("kept", True)]
        return {"is": kind, "value": {name: getattr(value, name) for name in names}}

    def _decoded(self, value: dict[str, Any]) -> Any:
        """Undo `_encoded`; in any other object, keys of digits become numbers."""
        if "is" not in value:
            return {int(name) if name.isdecimal() else name: each for name, each in value.items()}
        kind, content = value["is"], value["value"]
        if kind == "path":
            return self._folder / content
        if not kind.startswith(OURS):
            raise ValueError(f"it has a {kind}")
        module, _, name = kind.partition(":")
        cls = getattr(importlib.import_module(module), name)
        return cls.from_dict(content) if issubclass(cls, KaggleObject) else cls(**content)
