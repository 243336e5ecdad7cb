"""A competition on a folder of the user's own, whose hidden labels only this process has."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from localkaggle.competitions.competition import Competition


@dataclass(frozen=True, kw_only=True)
class OwnFolder(Competition):
    """A competition whose files something else writes.

    Attributes:
        writer: takes a folder and, by the name `hidden`, whether it is for a scored rerun; writes
            what a session sees.
    """

    writer: Callable[..., None] = field(repr=False)

    def write(self, folder: Path, *, hidden: bool = False) -> None:
        """Write the folder that a session mounts, with the hidden test set for a scored rerun."""
        self.writer(folder, hidden=hidden)
