"""Lock files, which prevent two processes from doing the same thing at the same time."""

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
    """Hold a lock while the body runs. It is also released if the process is killed.

    If the file system does not support locks, as with some network drives, this only prints a
    warning to stderr. If another process holds the lock, `Busy` is raised with the message `busy`.
    """
    if sys.platform == "win32":  # fcntl is not available
        yield
        return
    with writing(path):
        file = path.open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not path.exists() or path.stat().st_ino != os.fstat(file.fileno()).st_ino:
                raise BlockingIOError  # the previous holder has just deleted the file
        except BlockingIOError as error:
            raise Busy(busy) from error
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
                raise
            print(f"Warning: {path} cannot be locked. Run one command at a time.", file=sys.stderr)
        yield
