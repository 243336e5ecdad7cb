"""Hosted: the competitions of one server. Each is built on first use, since all take seconds."""

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from localkaggle.competitions import EMBEDDED, Competition


class Hosted(Mapping[str, Competition]):
    """{slug: Competition}. Membership and iteration build none.

    Args:
        folder: gets `<slug>/visible` and `<slug>/hidden`, without a label of a hidden test set.
        competitions: slugs of embedded ones, built later, or `Competition`s, written at once.
    """

    def __init__(self, folder: Path, competitions: Sequence[str | Competition]) -> None:
        self._folder = folder
        self._embedded: dict[str, Callable[[], Competition]] = {}
        self._written: dict[str, Competition] = {}
        self._lock = threading.Lock()
        for item in competitions:
            if isinstance(item, str):
                self._embedded[item] = EMBEDDED[item]
            else:
                self.add(item)

    def add(self, competition: Competition) -> None:
        """Write a competition, unless it is there, and host it."""
        whole = self._folder / competition.slug / "whole"
        if not whole.exists():
            shutil.rmtree(whole.parent, ignore_errors=True)  # of a server that died meanwhile
            for hidden in (False, True):
                competition.write(self._place(competition.slug, hidden), hidden=hidden)
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.touch()
        self._written[competition.slug] = competition

    def folder(self, slug: str, *, hidden: bool = False) -> Path:
        """Return the folder that a session mounts; `hidden`: that of a scored rerun.

        Raises:
            KeyError: if there is no such competition.
        """
        return self._place(self[slug].slug, hidden)

    def __getitem__(self, slug: str) -> Competition:
        with self._lock:
            if slug not in self._written:
                self.add(self._embedded[slug]())
            return self._written[slug]

    def __contains__(self, slug: object) -> bool:
        return slug in self._written or slug in self._embedded

    def __iter__(self) -> Iterator[str]:
        return iter({**self._embedded, **self._written})

    def __len__(self) -> int:
        return len({**self._embedded, **self._written})

    def _place(self, slug: str, hidden: bool) -> Path:
        return self._folder / slug / ("hidden" if hidden else "visible")
