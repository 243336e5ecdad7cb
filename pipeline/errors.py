"""The errors of the model side, with the exit codes of docs/dev/design.md.

Each message says what happened, what was expected, and the edit that fixes it.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from formats.errors import KnownError

# A long text in quotes, such as a field of a table. A message shows its beginning.
LONG = re.compile(r"""((['"])(?:(?!\2)[^\n]){60})(?:(?!\2)[^\n]){140,}\2""")


class PipelineError(KnownError):
    """The run failed; the base class of all errors here."""

    def __str__(self) -> str:
        """Return the message, with the beginnings of long quoted texts.

        >>> print(PipelineError(f"the label {'1 2 ' * 100!r}; expected one of 'a' and 'b'"))
        the label '1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 …'; expected one of \
'a' and 'b'
        """
        return LONG.sub(r"\1…\2", super().__str__())


class ConfigError(PipelineError):
    """A config or an argument cannot work; nothing has run yet."""

    exit_code = 2


class DataError(PipelineError):
    """A file of the competition is missing, corrupt, or not what the config describes."""


class DeviceError(PipelineError):
    """The requested accelerator is missing, or its memory is too small."""


class CheckpointError(PipelineError):
    """Checkpoints exist, and the run cannot resume from them."""


class DivergedError(PipelineError):
    """The numbers of a run are no longer finite.

    Args:
        what: names the numbers and the learning rate.
    """

    def __init__(self, what: str) -> None:
        # Resuming does not help: a changed learning rate is refused, the same one diverges again.
        super().__init__(
            f"{what}; expected finite numbers. This state was not saved.\n"
            "Lower optimizer.base_rate or raise warmup_epochs in the config.\n"
            "Then start over with --fresh (which sets the old checkpoints aside), "
            "or choose another --output."
        )


class ArtifactError(PipelineError):
    """The trained model and its manifest disagree."""


class SubmissionError(PipelineError):
    """The submission does not have the form of sample_submission.csv."""


class ReportError(PipelineError):
    """A file of a run is corrupt, or contradicts another."""


@contextmanager
def reading(path: Path | str, kind: type[PipelineError], advice: str) -> Iterator[None]:
    """Raise an error of this kind in place of an OSError while `path` is read.

    Args:
        path: the file, for the message.
        kind: class of the error.
        advice: the edit that fixes it, the end of the message.
    """
    try:
        yield
    except OSError as error:
        raise kind(
            f"Could not read {path}: {error.strerror or error}.\n"
            f"Expected a file that this user may read. {advice}"
        ) from error


def place(error: BaseException, file: Path) -> str:
    """Return " (line <n>)" for the last line of `file` in the traceback, or "" if it has none."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == file]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines.append(error.lineno)
    return f" (line {lines[-1]})" if lines else ""
