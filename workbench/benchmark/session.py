"""Session: what a benchmark on Kaggle finds in its machine, and how long it has."""

import shutil
import tempfile
from pathlib import Path

from formats import atomic_file
from pipeline.config import Config
from pipeline.runtime import mounts
from workbench.benchmark import images
from workbench.benchmark.measurement import FOLDER

HOURS = 9.0  # Kaggle's cap for a TPU, the least of its machines
COMPLETE = "complete.json"  # in the output of a session that measured the last of its cells
MARGIN = 0.25, 10.0  # share of a session, at most so many minutes, that is left for its end


def inputs(config: Config) -> Path | None:
    """Return the competition's folder; None for CIFAR-100, which Keras has."""
    if not images.mounted(config):
        return None
    return mounts.competition(
        mounts.root() / "input", config.competition, config.data.sample_submission
    )


def take(output: Path, earlier: Path | None = None) -> int:
    """Copy the cells that mounted outputs of earlier sessions hold, and return how many.

    Args:
        earlier: by default /kaggle/input.
    """
    copied = 0
    for place in mounts.OUTPUTS:
        for path in sorted((earlier or mounts.root() / "input").glob(f"{place}/{FOLDER}/*/*.json")):
            target = output / FOLDER / path.parent.name / path.name
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                copied += 1
    return copied


def end(output: Path, left: int) -> None:
    """Write `COMPLETE` if no cell is left, so that the next push asks for no session in vain."""
    if not left:
        atomic_file.write(output / COMPLETE, b"{}\n")


def files() -> Path:
    """Return a folder for PNG files that is no part of the output."""
    return Path(tempfile.mkdtemp(prefix="bench-"))


def minutes(config: Config) -> str:
    """Return how long cells may begin, as `bench --minutes` takes it.

    >>> from dataclasses import replace
    >>> from pipeline import config
    >>> [minutes(replace(config.load("digits"), session_hours=hours)) for hours in (None, 0.1)]
    ['530', '4.5']
    """
    session = 60 * min(config.session_hours or HOURS, HOURS)
    share, most = MARGIN
    return f"{session - min(share * session, most):g}"
