"""Errors that users can fix, which can occur both locally and on Kaggle.

Each message states what went wrong, what was expected, and how to fix it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class KnownError(Exception):
    """Base class for errors that users can fix. docs/dev/design.md lists the `exit_code` values."""

    exit_code = 1


class DiskError(KnownError):
    """The local disk is full or cannot be written to."""

    exit_code = 8


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise disk errors that occur while `path` is written as `DiskError`, with added advice."""
    try:
        yield
    except OSError as error:
        # Connection errors are also OSErrors. If requests raised them, they have no number.
        if error.errno is None or isinstance(error, ConnectionError | TimeoutError):
            raise
        raise DiskError(
            f"Could not write {path}: {error.strerror or error}.\n"
            "Expected a folder with free space that this user can write to.\n"
            "Free some space or choose another folder, then run the same command again. Everything"
            " saved earlier is still there."
        ) from error
