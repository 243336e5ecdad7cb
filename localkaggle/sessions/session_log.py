"""Logs of sessions, stored in Kaggle's format: a JSON array with one object per line."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path


class Log:
    """The log of a session. It is thread-safe.

    Text is written to `path` immediately. The file may contain the log of a finished session. Its
    folder must exist before text is added.
    """

    def __init__(self, path: Path) -> None:
        self._began = time.monotonic()
        self._path = path
        written = path.read_text(encoding="utf-8") if path.is_file() else ""
        self._pieces = written.split("\n")[:-1]  # the last line may be incomplete after a kill
        self._ended = False
        self._changed = threading.Condition()

    def start(self) -> None:
        """Set the start time to now. All times in the log are relative to the start time."""
        self._began = time.monotonic()

    def add(self, stream: str, text: str) -> None:
        seconds = round(time.monotonic() - self._began, 6)
        # Kaggle sends UTF-8 without a charset in the header. Lone surrogates must be escaped.
        whole = text.encode("utf-8", "replace").decode("utf-8") == text
        piece = {"stream_name": stream, "time": seconds, "data": text}
        written = json.dumps(piece, ensure_ascii=not whole)
        with self._changed:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{written}\n")
            self._pieces.append(written)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def text(self) -> str:
        with self._changed:
            return "[" + "\n,".join(self._pieces) + "\n]"

    def follow(self) -> Iterator[str]:
        place = 0
        while True:
            with self._changed:
                if place == len(self._pieces) and not self._ended:
                    self._changed.wait(timeout=1)
                ready, ended = self._pieces[place:], self._ended
            yield from ready
            place += len(ready)
            if ended and not ready:
                return
