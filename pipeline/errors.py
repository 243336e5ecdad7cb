"""Everything that can go wrong on purpose, on the model side.

PipelineError         exit code 1: the run failed
├── ConfigError       2: a value in pipeline/configs/, or an argument, cannot work; nothing has run yet
├── DataError         1: a file of the competition is missing, broken, or not what the config says
├── DeviceError       1: the accelerator that was asked for is not here
├── CheckpointError   1: checkpoints exist and none can be gone on from
├── DivergedError     1: the numbers of a run are no longer finite
├── ArtifactError     1: the trained model and its manifest disagree
├── SubmissionError   1: the submission is not what sample_submission.csv asks for
├── ReportError       1: a file that a run left cannot be shown: it is broken, or it contradicts another
└── DiskError         8: the local disk is full or cannot be written

Each message says what was received, what was expected, and the edit that fixes it. The exit codes
are those of docs/design.md.
"""

import traceback
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


class DivergedError(PipelineError):
    """The numbers of a run are no longer finite; `what` says which, and with what rate."""

    def __init__(self, what: str) -> None:
        # To go on is not advised: under another rate it is refused, and under this one every step
        # comes out as it did.
        super().__init__(
            f"{what}; expected finite numbers. Nothing of this state was saved.\n"
            "Lower optimizer.base_rate or raise warmup_epochs in the config; then begin again with --fresh (which sets the old "
            "checkpoints aside), or with another --output."
        )


class ArtifactError(PipelineError):
    """The trained model and its manifest disagree."""


class SubmissionError(PipelineError):
    """The submission is not what sample_submission.csv asks for."""


class ReportError(PipelineError):
    """A file that a run left is broken, or contradicts another."""


class DiskError(PipelineError):
    """The local disk is full, or cannot be written."""

    exit_code = 8


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn whatever the disk answers while `path` is written into a `DiskError` that says what to
    do.
    """
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"Could not write {path}: {error.strerror or error}.\n"
            "Expected a folder with free space that this user may write, and no file where a folder belongs.\n"
            "Free some space or choose another --output; what was saved before is still there."
        ) from error


@contextmanager
def reading(path: Path | str, kind: type[PipelineError], advice: str) -> Iterator[None]:
    """Turn whatever the disk answers while `path` is read into an error of this kind; `advice` is
    the edit that mends it.
    """
    try:
        yield
    except OSError as error:
        raise kind(
            f"Could not read {path}: {error.strerror or error}.\nExpected a file that this user may read. {advice}"
        ) from error


def place(error: BaseException, file: Path) -> str:
    """Return " (line <n>)" for the last line of `file` that led to the error, or "" where none did."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == file
    ]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines.append(error.lineno)
    return f" (line {lines[-1]})" if lines else ""
