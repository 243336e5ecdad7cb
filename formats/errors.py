"""Errors that a person can fix, of both sides.

A message says what happened, what was expected, and the command or edit that fixes it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class KnownError(Exception):
    """The base class of the errors of both sides; `exit_code` is that of docs/dev/design.md."""

    exit_code = 1


class DiskError(KnownError):
    """The local disk is full or cannot be written."""

    exit_code = 8


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a disk error while `path` is written into a `DiskError` with advice."""
    try:
        yield
    except OSError as error:
        # Connection errors are OSErrors too; those of requests have no number.
        if error.errno is None or isinstance(error, ConnectionError | TimeoutError):
            raise
        raise DiskError(
            f"Could not write {path}: {error.strerror or error}.\n"
            "Expected a folder with free space in which this user may write.\n"
            "Free some space or choose another folder, then run the same command again; everything"
            " saved earlier is still there."
        ) from error
