"""Follow the log of a run in the background, for its progress.

If the connection breaks, the log is read again from its beginning. No failure here ends a watch:
the run's status alone decides.
"""

import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

from deploy import failure_messages
from deploy.client import Kaggle
from deploy.errors import RelayError
from deploy.project import InWords
from deploy.retries import UNREADABLE

LINE_AT_MOST = 10_000
PROGRESS_AT_MOST = 20_000  # lines of progress; of those after them, the newest is kept
# Lines of a notebook that tell a person nothing: %%writefile, pieces of JSON, paths.
NO_WORDS = re.compile(r"""(Over)?[wW]riting \S+$|["'{}\]]|\[["'{]|\S*/\S*$""")


class LogStream:
    """The progress of a run. Use it in `with`; it follows the log until the block ends.

    Args:
        in_words: gives what a line of progress says to a person; the model side knows.
    """

    def __init__(self, kaggle: Kaggle, handle: str, version: int, in_words: InWords) -> None:
        self._kaggle, self._handle, self._version = kaggle, handle, version
        self._in_words = in_words
        self._closed = threading.Event()
        self._rest = ""
        self._progress: list[Mapping[str, Any]] = []
        self._place = 0  # of the next line of progress
        self._words = ""

    def __enter__(self) -> Self:
        threading.Thread(target=self._follow, daemon=True, name=f"log of {self._handle}").start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()  # the thread may wait for bytes: it is not joined

    @property
    def line(self) -> str:
        """The run's progress, or else the last line of words."""
        newest = self._progress[-1] if self._progress else {}
        return self._in_words(newest) or self._words

    @property
    def progress(self) -> Sequence[Mapping[str, Any]]:
        """The run's lines of progress, the oldest first."""
        return tuple(self._progress)

    def _follow(self) -> None:
        pause = self._kaggle.pace.first
        while not self._closed.is_set():
            self._rest, self._place = "", 0  # the log starts from its beginning again
            try:
                for stream, data in self._kaggle.follow_log(self._handle, self._version):
                    pause = self._kaggle.pace.first
                    if self._closed.is_set():
                        return
                    if stream != "stderr":  # where libraries write
                        self._read(data)
            except (RelayError, *UNREADABLE, OSError):
                pause = min(pause * 2, self._kaggle.pace.most)
            self._closed.wait(pause)

    def _read(self, data: str) -> None:
        *lines, self._rest = (self._rest + data)[-LINE_AT_MOST:].split("\n")
        for text in lines:
            line = failure_messages.plain(text).strip()
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict) and "step" in value:
                self._progress[self._place : self._place + 1] = [value]
                self._place = min(self._place + 1, PROGRESS_AT_MOST)
            elif any(map(str.isalpha, line)) and not NO_WORDS.match(line):
                self._words = line[:160]
