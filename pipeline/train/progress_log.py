"""The log of a run: a line of ASCII JSON per interval, in progress.jsonl and on the screen, and a
row per epoch in history.csv.
"""

import csv
import io
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from formats import atomic_file
from formats.errors import writing

HISTORY, LINES = "history.csv", "progress.jsonl"
# How the numbers of a line read, in this order; a person is not shown the others.
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
NOUNS = ("images", "rows", "examples")  # a line names the later two
# Share of the time that devices wait for the host, from which on a run is called input-bound.
INPUT_BOUND = 0.1


def columns(metric: str, score: str = "") -> tuple[str, ...]:
    """Return the columns of history.csv.

    Args:
        metric: what the target has beside its loss.
        score: what compares epochs; "": nothing does.
    """
    means = ("loss", metric, "validation_loss", f"validation_{metric}")
    more = (score,) if score not in ("", *means) else ()
    return ("epoch", "step", *means, *more, "learning_rate", "images_per_second", "seconds")


def in_words(line: Mapping[str, Any]) -> str:
    """Return a progress line for a person.

    Args:
        line: as `Progress` writes it. What is no number is left out: the line may come from a log.

    >>> in_words({"step": 43, "steps": 337, "loss": 0.25, "eta_seconds": 7200.9})
    'step 43 of 337  loss 0.2500  2:00:00 to go'
    >>> in_words({"step": 43, "images_per_second": 1200.0, "noun": "rows"})
    'step 43  1,200 rows/s'
    >>> in_words({"step": 43, "idle": 0.42})
    'step 43  input-bound: devices wait 42%'
    """
    numbers = {
        name: value
        for name, value in line.items()
        if isinstance(value, (int, float)) and abs(value) < 1e9  # NaN is not, either
    }
    noun = line.get("noun") if line.get("noun") in NOUNS else NOUNS[0]
    text = "".join(
        words.format(numbers[name], noun=noun) for name, words in WORDS.items() if name in numbers
    )
    if numbers.get("idle", 0) >= INPUT_BOUND:
        text += f"  input-bound: devices wait {numbers['idle']:.0%}"
    if numbers.get("eta_seconds", -1) >= 0:
        text += f"  {timedelta(seconds=int(numbers['eta_seconds']))} to go"
    return text.lstrip()


def readable(text: str) -> str:
    """Return what `Progress` shows in words; any other line as it is.

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
    """Which part of a run this is: its number, from 1; how many; the steps of those after it."""

    number: int
    count: int
    steps_after: int


class Progress:
    """The progress of a run; a run that resumes appends to both files.

    Args:
        folder: gets progress.jsonl and history.csv.
        seconds: least time between two progress lines.
        step, total_steps: where the run starts, and where it ends.
        batch: images per step.
        show: takes each line of text.
        figure: of the target, as `pipeline.data.labels.FIGURE` has it.
        score: what compares epochs, as `columns` takes it.
        noun: what examples are called.
        fold: which each line then names; its `eta_seconds` are those to the end of the last one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seconds: float,
        step: int,
        total_steps: int,
        batch: int,
        show: Callable[[str], None],
        fold: Fold | None = None,
        figure: str = "accuracy",
        score: str = "",
        noun: str = NOUNS[0],
    ) -> None:
        self._columns = columns(figure, score)
        self._lines, self._history = folder / LINES, folder / HISTORY
        self._seconds, self._total, self._batch, self._show = seconds, total_steps, batch, show
        self._fold = {"fold": fold.number, "folds": fold.count} if fold else {}
        self._noun = {} if noun == NOUNS[0] else {"noun": noun}
        self._last_step = total_steps + (fold.steps_after if fold else 0)
        self.restart_clock(step)
        self._remove_after(step)

    def due(self) -> bool:
        """Return whether the interval has passed; to read the loss earlier would stall a device."""
        return time.monotonic() - self._last >= self._seconds

    def restart_clock(self, step: int) -> None:
        """Count images per second from `step`: after the first step, which compiles."""
        self._started = self._last = time.monotonic()
        self._first_step, self._aside = step, 0.0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave this time out of `images_per_second`: no step runs in it."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._aside += time.monotonic() - begun

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """Write one line: step, steps, `values`, images_per_second and eta_seconds."""
        self._last = time.monotonic()
        elapsed = max(self._last - self._started, 1e-9) / max(step - self._first_step, 1)
        line = {
            **self._fold,
            "step": step,
            "steps": self._total,
            **{name: round(float(value), 6) for name, value in values.items()},
            "images_per_second": round(self.images_per_second(step), 1),
            **self._noun,
            "eta_seconds": round((self._last_step - step) * elapsed, 1),
        }
        text = json.dumps(line)
        with writing(self._lines), self._lines.open("a") as file:
            file.write(text + "\n")
        self._show(text)

    def images_per_second(self, step: int) -> float:
        """Return the mean over the training steps since the clock was restarted: validation and
        saving are left out.
        """
        seconds = time.monotonic() - self._started - self._aside
        return (step - self._first_step) * self._batch / max(seconds, 1e-9)

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Append one row to history.csv; its columns are those of `columns`."""
        values = (row.get(name) for name in self._columns)  # a metric may have none after an epoch
        new = not self._history.exists()
        with writing(self._history), self._history.open("a", newline="") as file:
            table = csv.writer(file)
            if new:
                table.writerow(self._columns)
            table.writerow(f"{one:.6g}" if isinstance(one, float) else one for one in values)

    def _remove_after(self, step: int) -> None:
        """Remove incomplete lines, and what an interrupted run wrote past its checkpoint."""
        if self._history.exists():
            text = io.StringIO(newline="")
            rows = csv.reader(_whole_lines(self._history))
            kept = [row for row in rows if self._is_row_until(step, row)]
            csv.writer(text).writerows([self._columns, *kept])
            atomic_file.write(self._history, text.getvalue().encode())
        if self._lines.exists():
            lines = [line for line in _whole_lines(self._lines) if _is_line_until(step, line)]
            atomic_file.write(self._lines, "".join(lines).encode())

    def _is_row_until(self, step: int, row: Sequence[str]) -> bool:
        number = row[self._columns.index("step")] if len(row) == len(self._columns) else ""
        return bool(re.fullmatch(r"[0-9]{1,18}", number)) and int(number) <= step


def _is_line_until(step: int, line: str) -> bool:
    """Return whether this is a line of progress."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    number = value.get("step") if isinstance(value, dict) else None
    return isinstance(number, int) and number <= step


def _whole_lines(path: Path) -> list[str]:
    """Return the lines of a file without an incomplete one at its end."""
    with writing(path), path.open(encoding="utf-8", errors="replace", newline="") as file:
        return [line for line in file if line.endswith("\n")]
