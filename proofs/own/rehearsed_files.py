"""What a rehearsal writes: which files, with which columns and keys."""

import csv
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Of a step, an epoch, a fold or a version; and the hash that names what XLA compiled.
NUMBER = re.compile(r"[0-9a-f]{32,}|\d+")


def contents(folder: Path) -> dict[str, set[str]]:
    """Return {name of a file: what it holds}, with # for numbers; equal names are one.

    Of a CSV that is the columns, of JSON the keys, of a .npz file the arrays.
    """
    found: dict[str, set[str]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = NUMBER.sub("#", path.relative_to(folder).as_posix())
        fields = {NUMBER.sub("#", field) for field in _fields(path)}
        found[name] = found.get(name, set()) | fields
    return found


def differences(one: dict[str, set[str]], other: dict[str, set[str]]) -> list[str]:
    """Return the files, columns and keys that only one of two has."""
    files = sorted(one.keys() ^ other.keys())
    both = sorted(one.keys() & other.keys())
    fields = [f"{name}: {field}" for name in both for field in sorted(one[name] ^ other[name])]
    return files + fields


def _fields(path: Path) -> Iterator[str]:
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            yield from next(csv.reader(file), [])
    elif path.suffix == ".npz":
        with zipfile.ZipFile(path) as arrays:
            yield from arrays.namelist()
    elif path.suffix == ".json":
        yield from _keys(json.loads(path.read_text("utf-8")))
    elif path.suffix == ".jsonl":
        for line in path.read_text("utf-8").splitlines():
            yield from _keys(json.loads(line))


def _keys(value: Any, above: str = "") -> Iterator[str]:
    """Yield the path of every key.

    >>> sorted(_keys({"a": [{"b": 1}], "c": {}}))
    ['a', 'a.b', 'c']
    """
    if isinstance(value, dict):
        for name, inside in value.items():
            yield f"{above}{name}"
            yield from _keys(inside, f"{above}{name}.")
    elif isinstance(value, list):
        for inside in value:
            yield from _keys(inside, above)
