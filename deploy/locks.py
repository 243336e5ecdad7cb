"""A lock for one process at a time."""

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
def locked(path: Path, busy: str) -> Iterator[str]:
    """Let no other process in meanwhile; give a warning where the file cannot be locked, or "".

    The lock ends with its process, however that ends.

    Args:
        path: of the file; made if it is not there. NFS locks no folders, and no file that is only
            read.
        busy: the message for a second process.

    Raises:
        Busy: if another process holds it.
    """
    if sys.platform == "win32":  # which has no such locks
        yield ""
        return
    warning = ""
    with writing(path):
        file = path.open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not path.exists() or path.stat().st_ino != os.fstat(file.fileno()).st_ino:
                raise BlockingIOError  # the process that held it has removed it meanwhile
        except BlockingIOError as error:
            raise Busy(busy) from error
        except OSError as error:
            warning = f"{path} cannot be locked ({error.strerror}): do not run the same from two"
            warning += " windows at a time."
        yield warning
