"""Judges what a command said and wrote, by Python's csv module and nothing of pipeline/.

A submission is good if its columns are the sample's, its ids the sample's in the same order, and
each value one that the competition can score. A refusal is good if it has a documented exit code
and one paragraph that names what is wrong and says what to edit.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser

Fits = Callable[[str], bool]
# Those of docs/design.md that a command on this machine can end with.
CODES = (1, 2, 3, 4, 6, 8)
# A verb where a sentence begins: every message ends with the edit that mends it.
EDIT = re.compile(
    r"(?:^|[.;:)\n,] ?|\bor |\band )(?:Add|Append|Begin|Check|Choose|Complete|Copy|Correct|"
    r"Download|Drop|End|Fill|Free|Give|Infer|Leave|Look|Lower|Make|Merge|Move|Name|Publish|Pull|"
    r"Push|Put|Raise|Read|Remove|Rename|Replace|Restore|Run|See|Send|Set|Take|Train|Try|Use|Write|"
    r"add|correct|complete|drop|give|leave|lower|name|pull|remove|replace|set|take|try|use|write)\b"
)
LONGEST = 4000


@dataclass(frozen=True)
class Said:
    """How a command ended: its exit code, and all that it printed."""

    code: int
    text: str


def number(text: str) -> bool:
    """Return whether a text is a finite number as a metric reads it.

    >>> [number(text) for text in ("1.5", "-2e3", "nan", "inf", "1e999", "1_0", "", "one")]
    [True, True, False, False, False, False, False, False]
    """
    return bool(
        re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII)
    ) and math.isfinite(float(text))


def share(text: str) -> bool:
    """Return whether a text is a number from 0 to 1."""
    return number(text) and 0 <= float(text) <= 1


def table(content: bytes) -> list[list[str]]:
    """Return the rows of a CSV, the header first. Raises `ValueError` or `csv.Error` for any other
    bytes.
    """
    text = content.decode("utf-8-sig")
    if "\0" in text:
        raise ValueError("it holds a NUL")
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise ValueError("its rows differ in length" if rows else "it is empty")
    return rows


def invalid(submission: bytes, sample: bytes, fits: Fits) -> str:
    """Return what is wrong with a submission; "" where nothing is.

    >>> invalid(b"id,y\\na,1\\nb,2\\n", b"id,y\\na,0\\nb,0\\n", number)
    ''
    >>> invalid(b"id,y\\nb,2\\na,1\\n", b"id,y\\na,0\\nb,0\\n", number)
    "its ids are ['b', 'a'], not ['a', 'b']"
    """
    try:
        given, wanted = table(submission), table(sample)
    except (ValueError, csv.Error) as error:
        return f"submission and sample cannot be compared: {error}"
    if given[0] != wanted[0]:
        return f"its columns are {given[0]}, not {wanted[0]}"
    have, want = [row[0] for row in given[1:]], [row[0] for row in wanted[1:]]
    if have != want:
        return (
            f"its ids are {have[:3]}, not {want[:3]}"
            if len(have) == len(want)
            else f"{len(have)} ids of {len(want)}"
        )
    if not have or len(set(have)) < len(have):
        return "its ids are none, or repeated"
    wrong = [value for row in given[1:] for value in row[1:] if not fits(value)]
    return f"it says {wrong[0]!r}" if wrong else ""


def values(submission: bytes) -> Mapping[str, Sequence[str]]:
    """Return the values of a submission by id."""
    return {row[0]: row[1:] for row in table(submission)[1:]}


def mute(said: Said, words: Sequence[str]) -> str:
    """Return what is wrong with a refusal; "" where it has an exit code, names what is wrong, and
    says what to edit.

    Args:
        words: of which the message has to say one: the file, the column, or the value.

    >>> mute(Said(1, "Error: train.csv is missing. Complete the download."), ["train.csv"])
    ''
    >>> mute(Said(1, "Error: it failed"), ["train.csv"])
    "it names none of ['train.csv']: it failed"
    """
    if "Traceback (most recent call last)" in said.text:
        return f"a traceback: {said.text.strip().splitlines()[-1][:300]}"
    message = said.text.partition("Error: ")[2].strip()
    if said.code not in CODES or not message:
        return f"exit code {said.code}, and it said {said.text.strip()[-300:]!r}"
    if not any(word in message for word in words):
        return f"it names none of {list(words)}: {message[:300]}"
    if not EDIT.search(message):
        return f"it says no edit: {message[:300]}"
    return (
        f"{len(message)} characters, or more than a paragraph"
        if len(message) > LONGEST or "\n\n" in message
        else ""
    )


def active(page: str) -> list[str]:
    """Return what in a page could run, or lead elsewhere.

    >>> active("<p title='onload=1'>&lt;script&gt;</p><img src='data:image/png;base64,AA=='>")
    []
    >>> active("<p onload='alert(1)'><script>1</script>")
    ["<p onload='alert(1)'>", '<script {}>']
    """
    reader = _Page()
    reader.feed(page)
    return reader.found


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one element."""
        for name, value in attrs:
            leads = name in ("href", "src", "action", "xlink:href", "srcdoc", "data")
            if (leads and not (value or "").startswith(("#", "data:image/"))) or name.startswith(
                "on"
            ):
                self.found.append(f"<{tag} {name}={value!r}>")
        policy = tag == "meta" and dict(attrs).get("http-equiv") not in (
            None,
            "Content-Security-Policy",
        )
        if policy or tag in ("script", "iframe", "object", "embed", "base", "form", "link"):
            self.found.append(f"<{tag} {dict(attrs)}>")
