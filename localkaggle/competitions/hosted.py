"""The competitions hosted by a server.

They are built when they are first used, because this takes several seconds.
"""

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from localkaggle.competitions import EMBEDDED, Competition


class Hosted(Mapping[str, Competition]):
    """A mapping from slugs to competitions. Iterating over it does not build any competition.

    Args:
        folder: output folder. Each competition gets the folders `<slug>/visible` and
            `<slug>/hidden`, which do not contain hidden labels, and `<slug>/archive.zip`.
        competitions: slugs of embedded competitions, which are built on first use, or
            `Competition`s, which are written immediately.
    """

    def __init__(self, folder: Path, competitions: Sequence[str | Competition]) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._given = {item if isinstance(item, str) else item.slug: item for item in competitions}
        for slug, item in self._given.items():
            if isinstance(item, Competition):
                self.folder(slug)

    def folder(self, slug: str, *, hidden: bool = False) -> Path:
        """Return the folder that a session mounts. `hidden` is set for a scored rerun."""
        competition = self[slug]
        place = self._folder / competition.slug
        with self._lock:
            if not (place / "whole").exists():
                shutil.rmtree(place, ignore_errors=True)  # left by a server that was killed
                place.mkdir(parents=True)
                for is_hidden, name in ((False, "visible"), (True, "hidden")):
                    competition.write(place / name, hidden=is_hidden)
                (place / "whole").touch()
        return place / ("hidden" if hidden else "visible")

    def archive(self, slug: str) -> Path:
        """Return an archive of the public files.

        It is created only once and never changes, so downloads of it can be resumed.
        """
        folder = self.folder(slug)
        path = folder.with_name("archive.zip")
        with self._lock:
            if not path.exists():
                made = shutil.make_archive(str(folder.with_name("new")), "zip", folder)
                Path(made).replace(path)
        return path

    def __getitem__(self, slug: str) -> Competition:
        given = self._given[slug]
        return EMBEDDED[given]() if isinstance(given, str) else given

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)
