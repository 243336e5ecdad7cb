"""A lock on a folder, for one process at a time."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.errors import Busy
from formats.errors import writing

if sys.platform != "win32":
    import fcntl


@contextmanager
def locked(folder: Path, busy: str) -> Iterator[str]:
    """Let no other process in meanwhile; give a warning where the folder cannot be locked, or "".

    The lock ends with its process, however that ends.

    Raises:
        Busy: with the message `busy`, if another process holds it.
    """
    if sys.platform == "win32":  # which has no such locks
        yield ""
        return
    warning = ""
    with writing(folder):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy(busy) from error
        except OSError as error:
            warning = f"{folder} cannot be locked ({error.strerror}): do not run the same from two"
            warning += " windows at a time."
        yield warning
    finally:
        os.close(descriptor)
