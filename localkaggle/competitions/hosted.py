"""Hosted: the competitions of one server. Each is built on first use, since all take seconds."""

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
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
        self._lock = threading.Lock()
        self._competitions: dict[str, Competition | None] = {}  # None: not built yet
        for item in competitions:
            if isinstance(item, str):
                self._competitions[item] = None
            else:
                self.add(item)

    def add(self, competition: Competition) -> None:
        """Write a competition, unless it is there, and host it."""
        place = self._folder / competition.slug
        if not (place / "whole").exists():
            shutil.rmtree(place, ignore_errors=True)  # of a server that died meanwhile
            place.mkdir(parents=True)
            for hidden, name in ((False, "visible"), (True, "hidden")):
                competition.write(place / name, hidden=hidden)
            (place / "whole").touch()
        self._competitions[competition.slug] = competition

    def folder(self, slug: str, *, hidden: bool = False) -> Path:
        """Return the folder that a session mounts; `hidden`: that of a scored rerun.

        Raises:
            KeyError: if there is no such competition.
        """
        return self._folder / self[slug].slug / ("hidden" if hidden else "visible")

    def __getitem__(self, slug: str) -> Competition:
        with self._lock:
            if self._competitions[slug] is None:
                self.add(EMBEDDED[slug]())
            competition = self._competitions[slug]
        assert competition is not None  # noqa: S101 - it is built
        return competition

    def __contains__(self, slug: object) -> bool:
        return slug in self._competitions

    def __iter__(self) -> Iterator[str]:
        return iter(self._competitions)

    def __len__(self) -> int:
        return len(self._competitions)
