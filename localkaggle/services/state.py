"""State: what a local Kaggle holds, in one JSON file, so that it starts again with it.

Outputs, logs and files of datasets lie in folders beside the file. What only a process has is not
kept: sessions, downloads, uploads that no call has used yet.
"""

import importlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from kagglesdk.kaggle_object import KaggleObject

FILE = "state.json"
NOT_KEPT = {"kept": False}  # metadata of a field that only a process has
OURS = ("localkaggle.", "kagglesdk.")
Changes = Callable[[], AbstractContextManager[None]]


class State:
    """The attributes of some objects, and the file that they are kept in.

    Args:
        folder: of the file; paths below it are kept relative to it, so that it can be moved.
        parts: {name: (object, names of its attributes)}. A dictionary keeps its identity when it
            is loaded.
    """

    def __init__(self, folder: Path, parts: Mapping[str, tuple[object, tuple[str, ...]]]) -> None:
        self._folder, self._parts = folder, parts

    def load(self) -> None:
        """Give the attributes the values in the file, where it has any.

        Raises:
            ValueError: if it holds something else.
        """
        path = self._folder / FILE
        try:
            held = self._decoded(json.loads(path.read_text(encoding="utf-8")))
            for part, (owner, names) in self._parts.items():
                for name in names:
                    if name not in held.get(part, {}):
                        continue
                    value, now = held[part][name], getattr(owner, name)
                    if isinstance(now, dict):
                        now.clear()
                        now.update(value)
                    else:
                        setattr(owner, name, value)
        except (ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
            raise ValueError(f"{path} is not what this version writes: {error}") from error

    def save(self) -> None:
        """Write the file, whole or not at all; nobody else on this machine may read it.

        Raises:
            OSError: if it cannot be written.
        """
        held = {
            part: {name: self._encoded(getattr(owner, name)) for name in names}
            for part, (owner, names) in self._parts.items()
        }
        part = self._folder / f".{FILE}.part"
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(held, file)
        part.replace(self._folder / FILE)

    def _encoded(self, value: Any) -> Any:
        """Return a value as JSON has it; what JSON lacks becomes {"is": what, "value": …}."""
        if isinstance(value, Path):
            if value.is_relative_to(self._folder):
                value = value.relative_to(self._folder)
            return {"is": "path", "value": str(value)}
        if isinstance(value, datetime):
            return {"is": "datetime", "value": value.isoformat()}
        if isinstance(value, threading.Event):
            return {"is": "event", "value": value.is_set()}
        if isinstance(value, Enum):
            return {"is": _name(value), "value": value.name}
        if isinstance(value, KaggleObject):
            return {"is": _name(value), "value": value.to_dict()}
        if is_dataclass(value):
            kept = [item.name for item in fields(value) if item.metadata.get("kept", True)]
            return {
                "is": _name(value),
                "value": {name: self._encoded(getattr(value, name)) for name in kept},
            }
        if isinstance(value, dict):  # keys may be numbers or tuples
            pairs = [[self._encoded(key), self._encoded(each)] for key, each in value.items()]
            return {"is": "dict", "value": pairs}
        if isinstance(value, tuple | set):
            return {"is": type(value).__name__, "value": [self._encoded(each) for each in value]}
        if isinstance(value, list):
            return [self._encoded(each) for each in value]
        return value

    def _decoded(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._decoded(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "is" not in value:  # the outer two levels
            return {name: self._decoded(each) for name, each in value.items()}
        kind, content = value["is"], value["value"]
        if kind == "path":
            return self._folder / content
        if kind == "datetime":
            return datetime.fromisoformat(content)
        if kind == "event":
            event = threading.Event()
            if content:
                event.set()
            return event
        if kind == "dict":
            return {self._decoded(key): self._decoded(each) for key, each in content}
        if kind in ("tuple", "set"):
            return {"tuple": tuple, "set": set}[kind](self._decoded(content))
        module, _, name = kind.partition(":")
        if not module.startswith(OURS):
            raise ValueError(f"it has a {kind}")
        cls = getattr(importlib.import_module(module), name)
        if issubclass(cls, Enum):
            return cls[content]
        if issubclass(cls, KaggleObject):
            return cls.from_dict(content)
        return cls(**{field: self._decoded(each) for field, each in content.items()})


def _name(value: object) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"
