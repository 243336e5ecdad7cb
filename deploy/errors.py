"""Errors of the Kaggle client. See docs/dev/design.md for their exit codes.

Each message states what went wrong, what was expected, and which command to run next.
"""

from formats.errors import KnownError


class RelayError(KnownError):
    """Base class for all errors in this package."""


class RunFailed(RelayError):
    """A kernel run or a submission failed."""


class NotMounted(RunFailed):
    """The notebook could not find one of its sources. Kaggle may mount it on the next run."""

    words = "Kaggle has not mounted"  # as in pipeline/runtime/mounts.py


class Unverified(RunFailed):
    """Some files do not match their manifest."""


class UsageError(RelayError):
    """An argument or a project file is invalid. Nothing was sent."""

    exit_code = 2


class SourceMissing(UsageError):
    """A dataset or model does not exist on Kaggle. See `SourcesRefused` for `kinds`."""

    def __init__(self, message: str, kinds: tuple[str, ...] = ("dataset_sources",)) -> None:
        super().__init__(message)
        self.kinds = kinds


class CredentialError(RelayError):
    """The credentials are missing, expired or insufficient."""

    exit_code = 3


class Denied(CredentialError):
    """Kaggle responded with a 403, which may also mean that the item does not exist.

    `gate` describes what the user must do on kaggle.com, if the response says so.
    """

    def __init__(self, message: str, gate: str = "") -> None:
        super().__init__(message)
        self.gate = gate


class Unknown(Denied):
    """Kaggle responded with a 403 about our own notebook or dataset, which may or may not exist."""

    def __init__(self, message: str, page: str) -> None:
        super().__init__(message)
        self.page = page


class Refused(RelayError):
    """Kaggle rejected a valid request."""

    exit_code = 4


class NotFound(Refused):
    """Kaggle responded with a 404."""


class SourcesRefused(Refused):
    """Kaggle started a run even though one of its sources was missing.

    Args:
        version: version of the run, or 0 if Kaggle did not return one.
        kinds: kinds of the missing sources, as in kernel-metadata.json.
    """

    def __init__(self, message: str, version: int = 0, kinds: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.version, self.kinds = version, kinds


class BadAnswer(Refused):
    """Kaggle's response is missing a field, or contains an unsafe name or URL."""


class DeadlinePassed(RelayError):
    """The wait timed out. The run itself continues."""

    exit_code = 5


class Unreachable(RelayError):
    """Kaggle did not respond."""

    exit_code = 6


class Ambiguous(Unreachable):
    """There was no response to a call that makes changes, so the changes may have been made."""


class Expired(Unreachable):
    """The storage server rejected a signed URL. A new URL may work."""


class Limited(Unreachable):
    """Kaggle kept responding with a 429 until we gave up. The same call may succeed later."""

    exit_code = 7


class NoQuota(RelayError):
    """The quota is used up, or all slots are taken. The same call may succeed later."""

    exit_code = 7


class NoSlot(NoQuota):
    """The maximum number of concurrent sessions is already running."""


class Busy(RelayError):
    """Another process is already pushing, pulling or publishing the same thing. Try again later."""

    exit_code = 7


class Detached(RelayError):
    """The user pressed Ctrl-C. Runs on Kaggle continue."""

    exit_code = 130


# Errors that leave the result of a read unknown. They do not include expired logins.
UNTOLD = (Denied, Refused, NoQuota, Unreachable)
