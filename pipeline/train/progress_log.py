"""Log the progress of a run: lines of ASCII JSON on the screen and in progress.jsonl, and one row
per epoch in history.csv.
"""

import csv
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from formats import atomic_file
from formats.errors import writing
from pipeline.config import Config, custom_code
from pipeline.errors import ConfigError
from pipeline.runtime import processes

Show = Callable[[str], None]  # receives each line of text

HISTORY, LINES = "history.csv", "progress.jsonl"
LINE = re.compile(r'\{.*"step": (?P<step>\d+),.*\}\n')
ROW = re.compile(r"(?:epoch,step|\d+,(?P<step>\d+)),.*\r\n")  # column names or an epoch
# Formats of the values that are shown to the user, in this order.
WORDS = {
    "fold": "  fold {:.0f}",
    "folds": " of {:.0f}",
    "step": "  step {:.0f}",
    "steps": " of {:.0f}",
    "epoch": "  epoch {:.1f}",
    "loss": "  loss {:.4f}",
    "accuracy": "  accuracy {:.3f}",
    "validation_accuracy": "  validation {:.3f}",
    "absolute_error": "  error {:.3f} s.d.",
    "validation_absolute_error": "  validation {:.3f}",
    "images_per_second": "  {:,.0f} {noun}/s",
}
NOUNS = ("images", "rows", "examples")
# A run is input-bound if its devices wait for the host at least this fraction of the time.
INPUT_BOUND = 0.1


def in_words(line: Mapping[str, Any]) -> str:
    """Return a progress line as readable text. Values that are not numbers are ignored.

    >>> in_words({"step": 43, "steps": 337, "loss": 0.25, "eta_seconds": 7200.9})
    'step 43 of 337  loss 0.2500  2:00:00 to go'
    >>> in_words({"step": 43, "images_per_second": 1200.0, "noun": "rows"})
    'step 43  1,200 rows/s'
    >>> in_words({"step": 43, "idle": 0.42})
    'step 43  input-bound: devices wait 42%'
    >>> in_words({"step": 43, "loss": 0.25, "loss_aux": 0.05})
    'step 43  loss 0.2500  aux 0.0500'
    """
    numbers = {
        name: value
        for name, value in line.items()
        if isinstance(value, (int, float)) and abs(value) < 1e9  # also excludes NaN
    }
    noun = line.get("noun") if line.get("noun") in NOUNS else NOUNS[0]
    text = "".join(
        words.format(numbers[name], noun=noun) for name, words in WORDS.items() if name in numbers
    )
    losses = {name: value for name, value in numbers.items() if name.startswith("loss_")}
    text += "".join(f"  {name.removeprefix('loss_')} {each:.4f}" for name, each in losses.items())
    if numbers.get("idle", 0) >= INPUT_BOUND:
        text += f"  input-bound: devices wait {numbers['idle']:.0%}"
    if numbers.get("eta_seconds", -1) >= 0:
        text += f"  {timedelta(seconds=int(numbers['eta_seconds']))} to go"
    return text.lstrip()


def readable(text: str) -> str:
    """Return a line written by `Progress` as readable text, and any other line unchanged.

    >>> readable('{"fold": 2, "folds": 5, "step": 43, "steps": 337, "images_per_second": 1834.5}')
    'fold 2 of 5  step 43 of 337  1,834 images/s'
    >>> [readable(line) for line in ("Devices: 2 x cpu (cpu)", "[1]", '{"a": 1}', "")]
    ['Devices: 2 x cpu (cpu)', '[1]', '{"a": 1}', '']
    """
    try:
        line = json.loads(text)
    except ValueError:
        return text
    return in_words(line) if isinstance(line, dict) and "step" in line else text


@dataclass(frozen=True)
class Fold:
    """A fold of a run. `number` starts at 1, and `steps_after` counts the steps of later folds."""

    number: int
    count: int
    steps_after: int


class Log:
    """Calls the config's custom function (`Config.log`), if any, with each record.

    If the function fails, a warning is shown and it is not called again.
    """

    def __init__(self, config: Config, show: Show) -> None:
        self._config, self._show = config, show
        self._log = custom_code.function(config, "log") if processes.first() else None

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Pass a record to the function. It describes a progress line or an epoch, or is the final
        dict with the keys "status" and "pictures".
        """
        if self._log is None:
            return
        try:
            with custom_code.telling(self._config, "log"):
                self._log(dict(record))
        except ConfigError as error:
            self._show(f"Warning: log is no longer called: {' '.join(str(error).split())}")
            self._log = None


class Progress:
    """Writes the progress of a run to progress.jsonl and history.csv.

    A resumed run appends to these files. If the run has folds, each line contains the fold, and
    `eta_seconds` includes later folds.
    """

    def __init__(
        self, folder: Path, config: Config, step: int, total: int, show: Show, fold: Fold | None
    ) -> None:
        self._lines, self._history = folder / LINES, folder / HISTORY
        self._config, self._total, self._show, self._log = config, total, show, Log(config, show)
        self._fold = {"fold": fold.number, "folds": fold.count} if fold else {}
        self._last_step = total + (fold.steps_after if fold else 0)
        self.restart_clock(step)
        _remove_after(step, self._lines, LINE)
        _remove_after(step, self._history, ROW)

    def due(self) -> bool:
        # Reading the loss more often would stall a device.
        return time.monotonic() - self._last >= self._config.progress_seconds

    def restart_clock(self, step: int) -> None:
        """Measure images per second, starting at `step`. This excludes the earlier compilation."""
        self._started = self._last = time.monotonic()
        self._first_step, self._aside = step, 0.0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Exclude the time spent in this context from `images_per_second`. No steps run in it."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._aside += time.monotonic() - started

    def line(self, step: int, values: Mapping[str, float]) -> None:
        self._last = time.monotonic()
        elapsed = max(self._last - self._started, 1e-9) / max(step - self._first_step, 1)
        line = {
            **self._fold,
            "step": step,
            "steps": self._total,
            **{name: round(float(value), 6) for name, value in values.items()},
            "images_per_second": round(self.images_per_second(step), 1),
            "noun": self._config.data.noun,
            "eta_seconds": round((self._last_step - step) * elapsed, 1),
        }
        text = json.dumps(line)
        with writing(self._lines), self._lines.open("a") as file:
            file.write(text + "\n")
        self._show(text)
        self._log(line)

    def images_per_second(self, step: int) -> float:
        seconds = time.monotonic() - self._started - self._aside
        return (step - self._first_step) * self._config.batch / max(seconds, 1e-9)

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Append a row, which starts with "epoch" and "step", to history.csv.

        All rows of a run must have the same keys. None is written as an empty field.
        """
        with writing(self._history), self._history.open("a", newline="") as file:
            table = csv.writer(file)
            if file.tell() == 0:
                table.writerow(row)
            table.writerow(f"{one:.6g}" if isinstance(one, float) else one for one in row.values())
        self._log(self._fold | dict(row))


def _remove_after(step: int, path: Path, form: re.Pattern[str]) -> None:
    """Remove incomplete lines, and lines that an interrupted run wrote after its checkpoint."""
    if path.exists():
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            found = [form.fullmatch(line) for line in file]
        kept = [line[0] for line in found if line and int(line["step"] or 0) <= step]
        atomic_file.write(path, "".join(kept).encode())
