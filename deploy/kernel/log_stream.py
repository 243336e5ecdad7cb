"""Live: the log of a run while it is written, followed in the background.

Reads  Kaggle's stream of the log, again from its beginning whenever the connection breaks Gives
the newest line of progress, or of words; nothing that goes wrong here ends a watch, since the
status alone decides
"""

import json
import math
import re
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from deploy.client import failure_messages
from deploy.client.client import Kaggle
from deploy.client.retries import UNREADABLE
from deploy.errors import RelayError

LINE_AT_MOST = 10_000
FOR_EVER = 10 * 365 * 24 * 3600.0  # what is longer, or no number, is no estimate
# What a notebook prints beside what it says: the cells that write the package, pieces of JSON, and
# paths.
NO_WORDS = re.compile(r"""(Over)?[wW]riting \S+$|["'{}\]]|\[["'{]|\S*/\S*$""")
# How the numbers of a progress line are shown; a run may write more of them.
PROGRESS = {
    "step": "  step {:.0f}",
    "steps": " of {:.0f}",
    "epoch": "  epoch {:.1f}",
    "loss": "  loss {:.4f}",
    "accuracy": "  accuracy {:.3f}",
    "validation_accuracy": "  validation {:.3f}",
    "absolute_error": "  error {:.3f} s.d.",
    "validation_absolute_error": "  validation {:.3f}",
    "images_per_second": "  {:,.0f} images/s",
    "memory_bytes": "  {:,.0f} bytes of memory",
}


class Live:
    """Start with `with`. Follows until it is left."""

    def __init__(self, kaggle: Kaggle, handle: str, version: int) -> None:
        self._kaggle, self._handle, self._version = kaggle, handle, version
        self._left = threading.Event()
        self._rest = ""
        self._progress: Mapping[str, Any] = {}
        self._words = ""

    def __enter__(self) -> Self:
        threading.Thread(target=self._follow, daemon=True, name=f"log of {self._handle}").start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()  # the thread waits for bytes, and is not waited for

    @property
    def line(self) -> str:
        """How far the run is: its progress, or else the last line that says something."""
        known = {name: self._progress.get(name) for name in PROGRESS}
        numbers = {name: value for name, value in known.items() if isinstance(value, (int, float))}
        told = "".join(PROGRESS[name].format(value) for name, value in numbers.items()).lstrip()
        ahead = self.seconds_ahead
        return (
            told + (f"  {clock(ahead)} to go" if ahead is not None else "")
        ).lstrip() or self._words

    @property
    def seconds_ahead(self) -> float | None:
        """How long the run expects to take still; None where it does not say."""
        ahead = self._progress.get("eta_seconds")
        return float(ahead) if isinstance(ahead, (int, float)) and 0 <= ahead < FOR_EVER else None

    def _follow(self) -> None:
        pause = self._kaggle.pace.first
        while not self._left.is_set():
            self._rest = ""  # the log comes from its beginning again
            try:
                for stream, data in self._kaggle.follow_log(self._handle, self._version):
                    pause = self._kaggle.pace.first
                    if self._left.is_set():
                        return
                    if stream != "stderr":  # libraries talk there
                        self._take(data)
            except (RelayError, *UNREADABLE, OSError):
                pause = min(pause * 2, self._kaggle.pace.most)
            self._left.wait(pause)

    def _take(self, data: str) -> None:
        *lines, self._rest = (self._rest + data)[-LINE_AT_MOST:].split("\n")
        for text in lines:
            line = failure_messages.plain(text).strip()
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict) and "step" in value:
                self._progress = value
            elif any(map(str.isalpha, line)) and not NO_WORDS.match(line):
                self._words = line[:160]


def clock(seconds: float) -> str:
    """Return a span as hours, minutes and seconds.

    >>> clock(7265.9)
    '2:01:05'
    """
    minutes, rest = divmod(math.floor(seconds), 60)
    return f"{minutes // 60:d}:{minutes % 60:02d}:{rest:02d}"
