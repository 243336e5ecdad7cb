"""The wire: what passes between a client and the storage, and where its connections break."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Wire:
    """Every connection to the storage, which may break while a file passes.

    Attributes:
        breaks_after: how many bytes of files pass on a connection before it breaks; 0: it holds.
        down, up: how many bytes of files passed, downloaded and uploaded.
        passed: is called after each piece of a file that passed.
    """

    breaks_after: int = 0
    down: int = 0
    up: int = 0
    passed: Callable[[], object] = lambda: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def left(self, before: int, size: int) -> int:
        """Return how many of the next `size` bytes pass on a connection; `before`: that did."""
        return min(size, max(self.breaks_after - before, 0)) if self.breaks_after else size

    def count(self, *, down: int = 0, up: int = 0) -> None:
        """Count bytes that passed."""
        with self._lock:
            self.down += down
            self.up += up
        self.passed()
