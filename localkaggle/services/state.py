"""Save the state of a local Kaggle in a JSON file, so that the server can be restarted.

Outputs, logs and dataset files are stored in folders next to this file. Sessions, downloads and
unused uploads are lost when the process exits.
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
NOT_KEPT = {"kept": False}  # metadata of fields that are not saved
OURS = ("localkaggle.", "kagglesdk.")


class State:
    """Saves attributes of objects in a file, and restores them from it.

    Paths inside the folder are saved relative to it, so that the folder can be moved.

    Attributes:
        lock: held while the state changes.
        disk_full: error message if a file could not be written because the disk is full, otherwise
            "".
    """

    def __init__(self, folder: Path) -> None:
        self.lock = threading.RLock()
        self.disk_full = ""
        self._folder = folder
        self._parts: Mapping[str, Any] = {}

    def load(self, parts: Mapping[str, Any]) -> None:
        """Restore objects from the state file, unless it is empty, and save them from now on.

        Each object's `KEPT` lists the names of the attributes to save.

        Raises:
            ValueError: if the file is invalid.
        """
        self._parts = parts
        path = self._folder / FILE
        try:
            kept = json.loads(path.read_text(encoding="utf-8"), object_hook=self._decoded)
            for name, part in parts.items() if kept != {} else ():
                for attribute in part.KEPT:
                    setattr(part, attribute, kept[name][attribute])
        except (ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
            raise ValueError(f"{path} was not written by this version: {error}") from error

    def save(self) -> None:
        """Write the state file atomically. Only the current user can read it."""
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
        """A context manager for changes to the state that are not made by an API call.

        The changes are saved before any call can report them.
        """
        with self.lock:
            yield
            try:
                self.save()
            except OSError as error:  # there is no call that could report the error
                self.disk_full = str(error)

    def _encoded(self, value: Any) -> dict[str, Any]:
        """Encode a path, a request or a dataclass as {"is": its class, "value": its contents}."""
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
        """Decode an object that was encoded by `_encoded`.

        In all other objects, convert numeric keys to integers.
        """
        if "is" not in value:
            return {int(name) if name.isdecimal() else name: each for name, each in value.items()}
        kind, content = value["is"], value["value"]
        if kind == "path":
            return self._folder / content
        if not kind.startswith(OURS):
            raise ValueError(f"it contains a {kind}")
        module, _, name = kind.partition(":")
        cls = getattr(importlib.import_module(module), name)
        return cls.from_dict(content) if issubclass(cls, KaggleObject) else cls(**content)
