"""Live: the log of a run while it is written, followed in the background.

Reads  Kaggle's stream of the log, again from its beginning whenever the connection breaks
Gives  the newest line of progress; nothing that goes wrong here ends a watch, since the status alone decides
"""

import json
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from deploy import verdicts
from deploy.client import Kaggle
from deploy.errors import RelayError
from deploy.exchange import UNREADABLE

LINE_AT_MOST = 10_000
# How the numbers of a progress line are shown; a run may write more of them.
PROGRESS = {
    "step": "step {:.0f}",
    "steps": "of {:.0f}",
    "epoch": "epoch {:.1f}",
    "loss": "loss {:.4f}",
    "accuracy": "accuracy {:.3f}",
    "validation_accuracy": "validation {:.3f}",
    "images_per_second": "{:,.0f} images/s",
    "memory_bytes": "{:,.0f} bytes of memory",
    "eta_seconds": "{:.0f} s to go",
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
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()  # the thread waits for bytes, and is not waited for

    @property
    def progress(self) -> Mapping[str, Any]:
        """The newest line of progress that the run wrote, as it wrote it; empty before the first."""
        return self._progress

    @property
    def line(self) -> str:
        """How far the run is: its progress, or else the last line with a word."""
        known = {name: self._progress.get(name) for name in PROGRESS}
        numbers = {name: value for name, value in known.items() if isinstance(value, (int, float))}
        return "  ".join(PROGRESS[name].format(value) for name, value in numbers.items()) or self._words

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
            line = verdicts.plain(text).strip()
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict) and "step" in value:
                self._progress = value
            elif any(map(str.isalpha, line)):
                self._words = line[:160]
