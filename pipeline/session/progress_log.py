"""Progress: one ASCII line of JSON an interval, in progress.jsonl and on the screen, and one row an
epoch in history.csv.
"""

import csv
import io
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import writing
from pipeline.storage import atomic_file

HISTORY, LINES = "history.csv", "progress.jsonl"


def columns(figure: str) -> tuple[str, ...]:
    """Return the columns of history.csv; figure: the one that the target has beside its loss."""
    told = ("loss", figure, "validation_loss", f"validation_{figure}")
    return ("epoch", "step", *told, "learning_rate", "images_per_second", "seconds")


@dataclass(frozen=True)
class Fold:
    """Which part of a run this is: its number, from 1, of how many, and the steps of those that
    come after it.
    """

    number: int
    count: int
    steps_after: int


class Progress:
    """What a run tells while it runs.

    Args:
        folder: gets progress.jsonl and history.csv; both are appended to when a run goes on.
        seconds: least time between two progress lines.
        step, total_steps: where the run begins, and where it ends.
        batch: images per step.
        show: takes each line of text.
        figure: of the target, as `pipeline.data.labels.FIGURE` has it.
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
    ) -> None:
        self._columns = columns(figure)
        self._lines, self._history = folder / LINES, folder / HISTORY
        self._seconds, self._total, self._batch, self._show = seconds, total_steps, batch, show
        self._fold = {"fold": fold.number, "folds": fold.count} if fold else {}
        self._ahead = total_steps + (fold.steps_after if fold else 0)
        self._started = self._last = time.monotonic()
        self._first_step = self._last_step = step
        self._forget_after(step)

    def due(self) -> bool:
        """Return whether the interval has passed; reading the loss before that would stop the
        device for nothing.
        """
        return time.monotonic() - self._last >= self._seconds

    def restart_clock(self, step: int) -> None:
        """Begin counting images per second at `step`: called after the first step, whose time is
        compilation.
        """
        self._started = self._last = time.monotonic()
        self._first_step = self._last_step = step

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """Write one line: step, steps, epoch, loss, the figure, images_per_second, eta_seconds and
        what else `values` holds.
        """
        now = time.monotonic()
        rate = self.images_per_second(step)
        elapsed = max(now - self._started, 1e-9)
        done = max(step - self._first_step, 1)
        line = {
            **self._fold,
            "step": step,
            "steps": self._total,
            **{name: round(float(value), 6) for name, value in values.items()},
            "images_per_second": round(rate, 1),
            "eta_seconds": round((self._ahead - step) * elapsed / done, 1),
        }
        self._last, self._last_step = now, step
        text = json.dumps(line)
        with writing(self._lines), self._lines.open("a") as file:
            file.write(text + "\n")
        self._show(text)

    def images_per_second(self, step: int) -> float:
        """Return the mean since the clock was (re)started."""
        return (step - self._first_step) * self._batch / max(time.monotonic() - self._started, 1e-9)

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Append one row to history.csv; its columns are those of `columns`."""
        new = not self._history.exists()
        with writing(self._history), self._history.open("a", newline="") as file:
            table = csv.DictWriter(file, self._columns)
            if new:
                table.writeheader()
            table.writerow(
                {
                    name: f"{row[name]:.6g}" if isinstance(row[name], float) else row[name]
                    for name in self._columns
                }
            )

    def _forget_after(self, step: int) -> None:
        """Remove what an interrupted run wrote past the checkpoint that this one goes on from, and
        what a kill cut off.
        """
        if self._history.exists():
            text = io.StringIO(newline="")
            table = csv.DictWriter(text, self._columns)
            table.writeheader()
            table.writerows(
                row
                for row in csv.DictReader(_whole_lines(self._history))
                if _is_until(row, step, self._columns)
            )
            atomic_file.write(self._history, text.getvalue().encode())
        if self._lines.exists():
            kept = []
            for line in _whole_lines(self._lines):
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if (
                    isinstance(value, dict)
                    and isinstance(value.get("step"), int)
                    and value["step"] <= step
                ):
                    kept.append(line)
            atomic_file.write(self._lines, "".join(kept).encode())


def _is_until(row: Mapping[str, Any], step: int, names: tuple[str, ...]) -> bool:
    """Return whether a row of history.csv is whole and not past the step."""
    if set(row) != set(names) or None in row.values():
        return False
    return bool(re.fullmatch(r"[0-9]{1,18}", row["step"])) and int(row["step"]) <= step


def _whole_lines(path: Path) -> list[str]:
    """Return the lines of a file without the one at its end that a kill cut off."""
    with writing(path), path.open(encoding="utf-8", errors="replace", newline="") as file:
        return [line for line in file if line.endswith("\n")]
