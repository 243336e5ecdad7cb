"""Faults: which calls between a client and Kaggle go wrong, planned in advance."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPMessage
from typing import Any

from localkaggle.fault_kinds import KINDS, Answer, Kind

DRIP_SECONDS = 1.0  # between two bytes
SILENT_AT_MOST = 120.0
OWN = "said"  # the name of a kind that is not in `KINDS`


@dataclass
class Faults:
    """What is planned, and what came of it.

    Attributes:
        seen: the operation of every request since the plan. Following a log does not count, since
            the clock decides when a client asks again.
        struck: (index, kind, operation) of the requests that failed as planned.
        log: the kind that strikes every request for a log.
    """

    seen: list[str] = field(default_factory=list)
    struck: list[tuple[int, str, str]] = field(default_factory=list)
    log: str = ""
    _by_index: dict[int, str | Kind] = field(default_factory=dict)
    _by_operation: dict[str, Iterator[str | Kind | None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def plan(self, faults: Mapping[int, str | Kind], log: str = "") -> None:
        """Forget the plan before, and let the request of each index (0 is the next) fail.

        Raises:
            ValueError: if there is no such kind.
        """
        names = {kind for kind in (*faults.values(), log) if kind and isinstance(kind, str)}
        unknown = names - KINDS.keys()
        if unknown:
            raise ValueError(f"unknown kinds {sorted(unknown)}; expected some of {list(KINDS)}")
        with self._lock:
            self._ended.set()  # releases the requests that wait in silence
            self._ended = threading.Event()
            self.seen, self.struck, self.log = [], [], log
            self._by_index, self._by_operation = dict(faults), {}

    def say(self, operation: str, kinds: Iterable[str | Kind | None]) -> None:
        """Let the next requests of this operation fail, one after the other; None lets one pass."""
        with self._lock:
            self._by_operation[operation] = iter(kinds)

    def take(self, operation: str) -> tuple[int, str, Kind] | None:
        """Count a request, and return its index and the fault that is planned for it, if any."""
        with self._lock:
            if operation == "log":
                return (-1, self.log, KINDS[self.log]) if self.log else None
            index = len(self.seen)
            self.seen.append(operation)
            queued = self._by_operation.get(operation, iter(()))
            planned = self._by_index.get(index) or next(queued, None)
        if isinstance(planned, Kind):
            return index, OWN, planned
        if planned and KINDS[planned].strikes(operation):
            return index, planned, KINDS[planned]
        return None

    def strike(
        self,
        index: int,
        name: str,
        kind: Kind,
        operation: str,
        handle: Callable[[], bytes],
        ignore: Callable[[], None],
        write: Callable[[bytes], Any],
    ) -> bool:
        """Let one request fail, and return whether the connection can still be used.

        Args:
            index, name, kind: as `take` returns them.
            operation: what the request asks for.
            handle: does it and returns the answer's bytes.
            ignore: reads the request and does nothing.
            write: sends bytes.
        """
        ended = self._ended
        raw = handle() if kind.after else b""
        answer = Answer.parse(raw) if kind.after else Answer(200, HTTPMessage(), b"")
        if kind.change is not None and not kind.change(answer, operation):
            write(raw or handle())  # this request cannot fail in this way
            return True
        if not kind.after:
            ignore()
        with self._lock:
            self.struck.append((index, name, operation))
        if kind.silence:
            ended.wait(SILENT_AT_MOST)
        if kind.change is None:
            return False
        raw = answer.raw()
        if kind.cut < 1:
            raw = raw[: len(raw) - max(int(len(answer.body) * (1 - kind.cut)), 1)]
        if kind.drip:
            for place in range(len(raw)):
                write(raw[place : place + 1])
                if ended.wait(DRIP_SECONDS):
                    break
            return False
        write(raw)
        return kind.cut == 1

    def close(self) -> None:
        """Release every request that is kept waiting."""
        self._ended.set()
