"""A lock for one process at a time."""

import errno
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
def locked(path: Path, busy: str) -> Iterator[None]:
    """Keep other processes out while the body runs. The lock ends with its process.

    Args:
        path: of the lock's file, which is created if it does not exist. On a file system without
            locks, such as some network drives, it keeps nobody out, and says so on stderr.
        busy: the message for a second process.

    Raises:
        Busy: if another process holds the lock.
    """
    if sys.platform == "win32":  # it has no such locks
        yield
        return
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
            if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
                raise
            print(f"Warning: {path} cannot be locked: run one command at a time.", file=sys.stderr)
        yield
