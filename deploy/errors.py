"""Everything that can go wrong on purpose, on the Kaggle side.

RelayError            the root; each class carries its exit code, those of docs/design.md
├── RunFailed       1: the kernel or the submission ended, and not well
│   └── Unverified     what came back is not what its manifest says
├── UsageError      2: an argument or a file of this project cannot work; nothing was sent
├── CredentialError 3: no credentials, expired ones, or no permission
│   └── Denied         Kaggle answered 403, which may also mean that the thing does not exist
├── Refused         4: Kaggle understood and said no
│   ├── NotFound       Kaggle answered 404
│   ├── SourcesRefused it started the run without one of its sources
│   └── BadAnswer      Kaggle's answer cannot be accepted: a field is missing, or a name or address is unsafe
├── DeadlinePassed  5: our patience ended; the run is still alive
├── Unreachable     6: no answer; what happened at Kaggle's end is unknown
│   ├── Ambiguous      the unanswered call was one that changes something
│   └── Expired        the storage does not take the address that Kaggle gave
├── NoQuota         7: no quota or no free slot; the same call may succeed later
├── DiskError       8: the local disk is full, or cannot be written
└── Detached      130: Ctrl-C while waiting; what runs on Kaggle goes on

Each message says what was received, what was expected, and the edit that fixes it.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RelayError(Exception):
    """The root: catch this to catch all of them."""

    exit_code = 1


class RunFailed(RelayError):
    """The kernel or the submission ended, and not well."""


class Unverified(RunFailed):
    """What came back is not what its manifest says."""


class UsageError(RelayError):
    """An argument or a file of this project cannot work; nothing was sent."""

    exit_code = 2


class CredentialError(RelayError):
    """No credentials, expired ones, or no permission."""

    exit_code = 3


class Denied(CredentialError):
    """Kaggle answered 403, which may also mean that the thing does not exist."""


class Refused(RelayError):
    """Kaggle understood and said no."""

    exit_code = 4


class NotFound(Refused):
    """Kaggle answered 404."""


class SourcesRefused(Refused):
    """Kaggle started the run without one of its sources. `kinds`: of which, as in
    kernel-metadata.json; `version`: of that run.
    """

    def __init__(self, message: str, version: int = 0, kinds: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.version, self.kinds = version, kinds


class BadAnswer(Refused):
    """Kaggle's answer cannot be accepted: a field is missing, or a name or an address is unsafe."""


class DeadlinePassed(RelayError):
    """Our patience ended; the run is still alive."""

    exit_code = 5


class Unreachable(RelayError):
    """No answer; what happened at Kaggle's end is unknown."""

    exit_code = 6


class Ambiguous(Unreachable):
    """The unanswered call was one that changes something: it may have happened."""


class Expired(Unreachable):
    """The storage does not take the address that Kaggle gave; another one may do."""


class NoQuota(RelayError):
    """No quota or no free slot; the same call may succeed later."""

    exit_code = 7


class DiskError(RelayError):
    """The local disk is full, or cannot be written."""

    exit_code = 8


class Detached(RelayError):
    """Ctrl-C while waiting; what runs on Kaggle goes on."""

    exit_code = 130


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn "no space", "read-only" and "permission denied" while writing `path` into a `DiskError`
    that says what to do.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EFBIG,
            errno.EROFS,
            errno.EACCES,
            errno.EPERM,
        ):
            raise
        raise DiskError(
            f"Could not write {path}: {error.strerror}.\n"
            "Expected a folder with free space that this user may write.\n"
            "Free some space, or correct the permissions, and give the same command again."
        ) from error
