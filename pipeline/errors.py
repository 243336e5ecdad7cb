"""Everything that can go wrong on purpose, on the model side.

PipelineError         exit code 1: the run failed
├── ConfigError       2: a value in pipeline/configs/, or an argument, cannot work; nothing has run yet
├── DataError         1: a file of the competition is missing, broken, or not what the config says
├── DeviceError       1: the accelerator that was asked for is not here
├── CheckpointError   1: checkpoints exist and none can be gone on from
├── ArtifactError     1: the trained model and its manifest disagree
├── SubmissionError   1: the submission is not what sample_submission.csv asks for
└── DiskError         8: the local disk is full or cannot be written

Each message says what was received, what was expected, and the edit that fixes it. The exit codes are those of docs/design.md.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class PipelineError(Exception):
    """The root: catch this to catch all of them."""

    exit_code = 1


class ConfigError(PipelineError):
    """A configuration or an argument cannot work."""

    exit_code = 2


class DataError(PipelineError):
    """The competition's files are not what the configuration says."""


class DeviceError(PipelineError):
    """The accelerator that was asked for is not here."""


class CheckpointError(PipelineError):
    """Checkpoints exist, and none of them can be gone on from."""


class ArtifactError(PipelineError):
    """The trained model and its manifest disagree."""


class SubmissionError(PipelineError):
    """The submission is not what sample_submission.csv asks for."""


class DiskError(PipelineError):
    """The local disk is full, or cannot be written."""

    exit_code = 8


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn "no space", "read-only" and "permission denied" while writing `path` into a `DiskError` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        raise DiskError(
            f"Could not write {path}: {error.strerror}.\n"
            "Expected a folder with free space that this user may write.\n"
            "Free some space or choose another --output; what was saved before is still there."
        ) from error
