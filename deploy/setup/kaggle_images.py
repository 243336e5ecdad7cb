"""Which versions Kaggle's two images had, and when somebody last looked.

Reads  constraints/*.txt, and the line of docs/facts.md that dates them
Gives  the pinned versions as text, and the day
"""

import re
from calendar import monthrange
from datetime import date
from pathlib import Path

DAY = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])(?:-(0[1-9]|[12]\d|3[01]))?")


def pins(root: Path) -> str:
    """Return the versions that constraints/ pins, image by image; "" if it pins none."""
    images = []
    for path in sorted((root / "constraints").glob("*.txt")):
        lines = path.read_text(encoding="utf-8").splitlines()
        named = [line.partition(";")[0].strip() for line in lines if re.match(r"[A-Za-z]", line)]
        images.append(f"{path.stem}: {' '.join(named)}")
    return "; ".join(images)


def seen(root: Path) -> date | None:
    """Return the last day that the line about the images names, or None.

    Of a month it is the last day.
    """
    path = root / "docs" / "facts.md"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    line = next((line for line in lines if re.search(r"\bimage: Python", line)), "")
    return max(map(_day, DAY.finditer(line)), default=None)


def _day(match: re.Match[str]) -> date:
    year, month = int(match[1]), int(match[2])
    last = monthrange(year, month)[1]
    return date(year, month, min(int(match[3] or last), last))
