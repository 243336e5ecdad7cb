"""The errors of the Kaggle side. docs/dev/design.md explains their exit codes.

A message says what happened, what was expected, and what to type now.
"""

from formats.errors import KnownError


class RelayError(KnownError):
    """The base class of every error here."""


class RunFailed(RelayError):
    """The kernel or the submission failed."""


class NotMounted(RunFailed):
    """The notebook did not find one of its sources. Kaggle may mount it in the next run."""

    words = "Kaggle has not mounted"  # as in pipeline/runtime/mounts.py


class Unverified(RunFailed):
    """Files differ from what their manifest says."""


class UsageError(RelayError):
    """An argument or a file of this project is wrong. Nothing was sent."""

    exit_code = 2


class SourceMissing(UsageError):
    """Kaggle has no such dataset or model. `kinds`: as in `SourcesRefused`."""

    def __init__(self, message: str, kinds: tuple[str, ...] = ("dataset_sources",)) -> None:
        super().__init__(message)
        self.kinds = kinds


class CredentialError(RelayError):
    """The credentials are missing or expired, or lack permission."""

    exit_code = 3


class Denied(CredentialError):
    """Kaggle answered 403, as it also does for what does not exist.

    Args:
        gate: what a person has to do on kaggle.com, if Kaggle names it; otherwise "".
    """

    def __init__(self, message: str, gate: str = "") -> None:
        super().__init__(message)
        self.gate = gate


class Unknown(Denied):
    """Kaggle answered 403 about something of ours, so it is unknown whether it exists.

    Args:
        page: its address on kaggle.com.
    """

    def __init__(self, message: str, page: str) -> None:
        super().__init__(message)
        self.page = page


class Refused(RelayError):
    """Kaggle understood the request and refused it."""

    exit_code = 4


class NotFound(Refused):
    """Kaggle answered 404."""


class SourcesRefused(Refused):
    """Kaggle started the run without one of its sources.

    Args:
        version: the run's version; 0 if Kaggle gave none.
        kinds: the kinds of the missing sources, as in kernel-metadata.json.
    """

    def __init__(self, message: str, version: int = 0, kinds: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.version, self.kinds = version, kinds


class BadAnswer(Refused):
    """Kaggle's answer lacks a field, or has an unsafe name or address."""


class DeadlinePassed(RelayError):
    """We stopped waiting. The run is still alive."""

    exit_code = 5


class Unreachable(RelayError):
    """Kaggle did not answer."""

    exit_code = 6


class Ambiguous(Unreachable):
    """A call that changes something got no answer, and may have taken effect."""


class Expired(Unreachable):
    """The storage refused the signed address. A new one may work."""


class Limited(Unreachable):
    """Kaggle answered 429 for as long as we retried. The same call may succeed later."""

    exit_code = 7


class NoQuota(RelayError):
    """There is no quota left, or no free slot. The same call may succeed later."""

    exit_code = 7


class NoSlot(NoQuota):
    """As many sessions run as Kaggle allows at a time."""


class Busy(RelayError):
    """Another process pushes, pulls or publishes the same. The same command may succeed later."""

    exit_code = 7


class Detached(RelayError):
    """The user pressed Ctrl-C. What runs on Kaggle continues."""

    exit_code = 130


# What a read raises if Kaggle does not answer it. An expired login is not among them.
UNTOLD = (Denied, Refused, NoQuota, Unreachable)
