"""Which versions Kaggle's images have: those of constraints/, and those that a run printed.

Reads  constraints/*.txt, each with its date and its Python in the first line; and pulled runs
Gives  an `Image` a file, a `Printed` for the newest run on each accelerator, and how they differ
"""

import json
import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from deploy import output
from deploy.push_and_watch import accelerator

DAY = re.compile(r"as of (20\d\d)-(0[1-9]|1[0-2])(?:-(0[1-9]|[12]\d|3[01]))?")
PYTHON = re.compile(r"Python (3\.\d+)")
PIN = re.compile(r"([A-Za-z][\w.-]*)==([^\s;]+)")
# As a notebook prints them in its first cell (`pipeline.runtime.provenance`).
PRINTED = re.compile(r'^Versions: (\{"python": .*\})$', re.MULTILINE)
VARIANT = re.compile(r"-(cpu|headless)$")  # of one package; constraints/ has those without a GPU


@dataclass(frozen=True)
class Image:
    """The pins of one image.

    Attributes:
        name: of the file, as gpu-image.
        day: as of which they are; of a month its last day; None: the file does not say.
        versions: by package; "python" has two parts.
    """

    name: str
    day: date | None
    versions: Mapping[str, str]

    @property
    def accelerator(self) -> str:
        """The machines that the image is for: "TPU" or "GPU"."""
        return self.name.partition("-")[0].upper()

    def __str__(self) -> str:
        return f"{self.name} as of {self.day or 'an unknown day'}"

    def differing(self, versions: Mapping[str, str]) -> dict[str, str]:
        """Return the versions that a run had and this image has not, by package.

        Packages that only one of both names do not count.
        """
        had = {VARIANT.sub("", name): version for name, version in versions.items()}
        had["python"] = ".".join(had.get("python", "").split(".")[:2])
        pinned = {VARIANT.sub("", name): version for name, version in self.versions.items()}
        return {name: had[name] for name in pinned if had.get(name, pinned[name]) != pinned[name]}


@dataclass(frozen=True)
class Printed:
    """The versions that a run printed.

    Attributes:
        run: owner/slug/version.
        day: on which it was pulled.
        versions: by package.
    """

    run: str
    day: date
    versions: Mapping[str, str]


def images(root: Path) -> list[Image]:
    """Return what constraints/ pins, image by image; those without a pin are left out."""
    found = []
    for path in sorted((root / "constraints").glob("*.txt")):
        first, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
        pins = {match[1]: match[2] for line in lines if (match := PIN.match(line))}
        python = PYTHON.search(first)
        versions = ({"python": python[1]} if python else {}) | pins
        if pins:
            found.append(Image(path.stem, _day(first), versions))
    return found


def printed(runs: Path, server: str) -> dict[str, Printed]:
    """Return what the newest pulled run on each accelerator printed, by "TPU" and "GPU".

    Args:
        runs: the folder of pulled runs.
        server: the address of the Kaggle whose runs count.
    """
    found: dict[str, Printed] = {}
    notes = {path.parent: output.noted(path.parent) for path in runs.glob(f"*/{output.NOTE}")}
    for folder, note in notes.items():
        if note is None or note.server != server:
            continue
        slug = note.run.split("/")[1]
        log = folder / f"{slug}.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        shape = output.of_bundle(folder, "machine_shape")
        kind, lines = accelerator(slug, shape), PRINTED.findall(text)
        day = date.fromisoformat(note.at[:10])
        if lines and (kind not in found or found[kind].day <= day):
            found[kind] = Printed(note.run, day, json.loads(lines[-1]))
    return found


def _day(line: str) -> date | None:
    match = DAY.search(line)
    if match is None:
        return None
    year, month = int(match[1]), int(match[2])
    last = monthrange(year, month)[1]
    return date(year, month, min(int(match[3] or last), last))
