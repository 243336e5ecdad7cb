"""The errors that `pipeline` raises. docs/dev/design.md lists their exit codes.

Each message states what happened, what was expected, and how to fix it.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from formats.errors import KnownError

# Matches a long quoted text, such as a table cell, which is truncated in messages.
LONG = re.compile(r"""((?<!\w)(['"])(?:(?!\2)[^\n]){60})(?:(?!\2)[^\n]){140,}\2""")


class PipelineError(KnownError):
    """Base class of all errors in this module."""

    def __str__(self) -> str:
        """Return the message, with long quoted texts truncated.

        >>> print(PipelineError(f"the label {'1 2 ' * 100!r}; expected one of 'a' and 'b'"))
        the label '1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 …'; expected one of \
'a' and 'b'
        >>> str(PipelineError(f"one's {'word ' * 50} other's")).count("word")  # apostrophes
        50
        """
        return LONG.sub(r"\1…\2", super().__str__())


class ConfigError(PipelineError):
    """A config or an argument is invalid, and nothing has run yet."""

    exit_code = 2


class DataError(PipelineError):
    """A competition file is missing or corrupt, or does not match the config."""


class DeviceError(PipelineError):
    """The requested accelerator is missing or ran out of memory."""


class CheckpointError(PipelineError):
    """Checkpoints exist, but the run cannot resume from them."""


class DivergedError(PipelineError):
    """A loss or weight is no longer finite. `what` describes it, and gives the learning rate."""

    def __init__(self, what: str) -> None:
        # Resuming would not help: training would diverge again at the same learning rate, and a run
        # cannot resume with a different one.
        super().__init__(
            f"{what}; expected finite numbers. This state was not saved.\n"
            "Decrease optimizer.base_rate or increase warmup_epochs in the config.\n"
            "Then start over with --fresh (which sets the old checkpoints aside), "
            "or choose another --output."
        )


class ArtifactError(PipelineError):
    """The trained model does not match its manifest."""


class SubmissionError(PipelineError):
    """The submission does not match the format of sample_submission.csv."""


class ReportError(PipelineError):
    """One of a run's output files is corrupt or inconsistent with another one."""


@contextmanager
def reading(path: Path | str, kind: type[PipelineError], advice: str) -> Iterator[None]:
    """Convert an OSError that occurs while reading `path` into an error of type `kind`."""
    try:
        yield
    except OSError as error:
        raise kind(
            f"Could not read {path}: {error.strerror or error}.\n"
            f"Expected a file that the current user can read. {advice}"
        ) from error


def place(error: BaseException, file: Path) -> str:
    """Return " (line <n>)", where n is the last line of `file` in the traceback.

    Return "" if the traceback does not contain the file.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == file]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines.append(error.lineno)
    return f" (line {lines[-1]})" if lines else ""
