"""Judges what a command printed and wrote, by Python's csv module and nothing of pipeline/.

A submission is good if its columns are the sample's, its ids the sample's in the same order, and
each value one that the competition can score. A refusal is good if it has the exit code of a wrong
input, and one short message: what is wrong and where, and on a line of its own what to do.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Fits = Callable[[str], bool]
CODES = (1, 2)  # a wrong input, and a wrong config; docs/dev/design.md has the others
LONGEST = 4000
# A sentence that begins with an imperative and has an object. "Set of ids differs" has a subject.
EDIT = re.compile(
    r"(?:^|[.:] )(?:Add|Append|Begin|Check|Choose|Complete|Convert|Copy|Correct|Divide|Download|"
    r"End|Fill|Finish|Free|Give|Infer|Leave|Lower|Make|Move|Name|Omit|Publish|Pull|Push|Put|Raise|"
    r"Read|Remove|Rename|Repeat|Replace|Restore|Return|Run|Save|See|Select|Send|Set|Take|Train|Try|"
    r"Unpack|Use|Write)"
    r" (?!of\b|is\b|are\b|was\b|were\b|error|failed|fails)\S+",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Said:
    """How a command ended: its exit code, and all that it printed."""

    code: int
    text: str


def number(text: str) -> bool:
    """Return whether a text is a finite number as a metric reads it."""
    return bool(
        re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII)
    ) and math.isfinite(float(text))


def share(text: str) -> bool:
    """Return whether a text is a number from 0 to 1."""
    return number(text) and 0 <= float(text) <= 1


def table(content: bytes, separator: str = ",") -> list[list[str]]:
    """Return the rows of a CSV, the header first. Raises `ValueError` for any other bytes."""
    text = content.decode("utf-8-sig")
    lines = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    try:
        rows = [row for row in lines if row]
    except csv.Error as error:
        raise ValueError(str(error)) from error
    if "\0" in text or not rows or any(len(row) != len(rows[0]) for row in rows):
        raise ValueError("it is empty, holds a NUL, or its rows differ in length")
    return rows


def invalid(submission: bytes, sample: bytes, fits: Fits) -> str:
    """Return what is wrong with a submission; "" where nothing is. Both have one separator."""
    separator = max(",;\t", key=sample.partition(b"\n")[0].decode(errors="ignore").count)
    try:
        (columns, *given), (wanted, *asked) = table(submission, separator), table(sample, separator)
    except ValueError as error:
        return f"submission and sample cannot be compared: {error}"
    if columns != wanted:
        return f"its columns are {columns}, not {wanted}"
    have, want = [row[0] for row in given], [row[0] for row in asked]
    if have != want or not have or len(set(have)) < len(have):
        return f"its {len(have)} ids are {have[:3]}, not {len(want)}, {want[:3]}"
    wrong = [value for row in given for value in row[1:] if not fits(value)]
    return f"it says {wrong[0]!r}" if wrong else ""


def mute(said: Said, places: Sequence[Sequence[str]]) -> str:
    """Return what is wrong with a refusal; "" where nothing is.

    Args:
        places: of each of these the message has to have one word: of the file, of the column.
    """
    if "Traceback (most recent call last)" in said.text:
        return f"a traceback: {said.text.strip()[-300:]}"
    errors = re.split(r"^Error: ", said.text.strip(), flags=re.MULTILINE)
    if said.code not in CODES or len(errors) != 2:
        return f"exit code {said.code}, and it said {said.text.strip()[-300:]!r}"
    message = errors[1]
    for words in places:
        if not any(word in message for word in words):
            return f"it names none of {list(words)}: {message[:300]}"
    if not EDIT.search(message.partition("\n")[2]):
        return f"no line says what to do: {message[:300]}"
    if len(message) > LONGEST or "\n\n" in message:
        return f"{len(message)} characters, or more than a paragraph"
    return ""
