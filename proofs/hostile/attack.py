"""Attack: one hostile input, and the two ways in which it may end."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REFUSED, HARMLESS = "refused", "harmless"


@dataclass(frozen=True)
class Case:
    """One attack. `act` gets the folder that a command is given and returns how it ended; raising
    an error of ours is a refusal.
    """

    family: str
    name: str
    act: Callable[[Path], str]


class Broken(Exception):
    """A command ended as it should not: with a traceback, or with what it should have refused."""
