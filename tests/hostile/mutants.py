"""Hypothesis strategies: one change to a competition's files, and how the commands have to end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from tests.hostile.bench import SAMPLE, Files, cut, put, rows

VALID, REFUSED, EITHER = "valid", "refused", "either"
RANDOM = st.randoms(use_true_random=True)


@dataclass(frozen=True)
class Mutant:
    """One change, and the commands that meet it.

    Attributes:
        name: of the change.
        subject: the competition.
        files: all that lies in it.
        end: VALID or REFUSED where only one of them is right.
        same: whether the ids that stayed have to have the predictions of the whole test set.
        touched: how many ids may have different ones.
        train: whether a model is trained on it first. Else a model of the whole data infers.
        rerun: whether it is the scored rerun, in which nobody can fix anything.
        places: of each of these a refusal has to name one: of the file, of the column.
        config: another text of the config.
    """

    name: str
    subject: str
    files: Files
    end: str = EITHER
    same: bool = False
    touched: int = 0
    train: bool = False
    rerun: bool = False
    places: tuple[Sequence[str], ...] = ((SAMPLE, "train.csv", "test.csv"),)
    config: str | None = None

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # hypothesis asks for it
        printer.text(f"{self.subject}: {self.name}; train={self.train}, rerun={self.rerun}")


# Test sets

# Texts that are taken for a number, an option, a path or nothing.
GOOD_IDS = (
    "001", "1e5", "NA", "null", "inf", "nan", "None", "TRUE", "-0", "1.0", "#1", "=1+1", "id",
    "label", "ünï", "日本", "e\u0301", "a b", " before", "after ", "a\nb", "a\r\nb", "a\rb", 'a"b',
    "a,b", "a;b", "a\tb", "a%20b", "%s", "{0}", "--help", "a'b", "$(true)", "`true`", "a|b",
    "a.png", "..a", "a..", "~", "a\x7fb", "\u202eb", "😀", "x" * 200, "CON", "a:b", "*", "?",
    "\ufeffb",
)  # fmt: skip
# No picture can have such a name. In a table they are ordinary texts.
BAD_IDS = ("..", ".", "a/b", "../a", "/etc/hostname", "a\\b", "", "x" * 300)


@st.composite
def ids(draw: Any, subjects: Sequence[str]) -> Mutant:
    """An id of the test set is another text."""
    subject = draw(st.sampled_from([name for name in ("digits", "diabetes") if name in subjects]))
    files = dict(cut(subject))
    name = draw(st.sampled_from(GOOD_IDS + BAD_IDS) | st.text(max_size=60))
    there = [row[0] for row in rows(files, SAMPLE)[1:]]
    assume(name not in there and name.lower() not in there)
    _rename(files, draw(st.sampled_from(there)), name)
    plain = "\0" not in name and (subject != "digits" or _names_a_file(name))
    return Mutant(
        f"the id {name[:40]!r}",
        subject,
        files,
        end=VALID if plain else EITHER,
        same=plain,
        places=((repr(name), name[:40] or "''", "NUL" if "\0" in name else repr(name)),),
    )


def _names_a_file(name: str) -> bool:
    return name not in ("", ".", "..") and not set("/\\\0") & set(name) and len(name.encode()) < 250


def _rename(files: Files, old: str, new: str) -> None:
    """Rename an id of the test set in each table, and its picture."""
    for name in (SAMPLE, "test.csv"):
        header, *table = rows(files, name) if name in files else [[""]]
        if header[0] == "id":
            table = [[new if row[0] == old else row[0], *row[1:]] for row in table]
            put(files, name, [header, *table])
    picture = files.pop(f"test/{old}.png", None)
    if picture is not None and _names_a_file(new):
        files[f"test/{new}.png"] = picture


def _first(files: Files, random: Random, count: int) -> None:
    kept = [row[0] for row in rows(files, SAMPLE)[: count + 1]]
    for name in (SAMPLE, "test.csv"):
        if name in files:
            put(files, name, rows(files, name)[: count + 1])
    for name in [name for name in files if name.startswith("test/") and name[5:-4] not in kept]:
        del files[name]


def _shuffled(files: Files, random: Random) -> None:
    header, *body = rows(files, SAMPLE)
    put(files, SAMPLE, [header, *random.sample(body, len(body))])


def _renamed(files: Files, random: Random) -> None:
    for row in rows(files, SAMPLE)[1:]:
        _rename(files, row[0], f"{random.getrandbits(64):016x}")


# What a hidden test set can be, and whether predictions stay.
TEST_SETS: dict[str, tuple[Callable[[Files, Random], None], bool]] = {
    "one row": (partial(_first, count=1), True),
    "two rows": (partial(_first, count=2), True),
    "another order": (_shuffled, True),
    "other ids": (_renamed, False),
}
STRAYS = ("test/.DS_Store", "test/Thumbs.db", "test/below/x.png", "__MACOSX/x", "notes.txt")


@st.composite
def test_sets(draw: Any, subjects: Sequence[str]) -> Mutant:
    """A test set has another size, order, or files that nobody asked for."""
    subject, rerun = draw(st.sampled_from(subjects)), draw(st.booleans())
    files, random, mutant = dict(cut(subject)), draw(RANDOM), partial(Mutant, rerun=rerun)
    lost = ("test/" if subject == "digits" else "test.csv", SAMPLE)
    stray = STRAYS if subject == "digits" else ()
    what = draw(st.sampled_from([*TEST_SETS, "no row", *lost, *stray]))
    if what in TEST_SETS:
        # The ids of digits-csv are places.
        assume(subject != "digits-csv" or what not in ("another order", "other ids"))
        change, same = TEST_SETS[what]
        change(files, random)
        return mutant(what, subject, files, end=VALID, same=same)
    if what == "no row":
        _first(files, random, 0)
        return mutant(what, subject, files, end=REFUSED)
    if what in stray:
        files[what] = b"x"
        return mutant(f"with {what}", subject, files, end=VALID, same=True)
    kept = {name: content for name, content in files.items() if not name.startswith(what)}
    return mutant(f"no {what}", subject, kept, end=REFUSED, places=((SAMPLE, "test"),))


# Tables

Text = Callable[[bytes, Random], bytes]
TABLES = ("test.csv", "train.csv")


def _lines(change: Callable[[list[bytes], Random], list[bytes]]) -> Text:
    return lambda text, random: b"".join(change(text.splitlines(keepends=True), random))


def _row(change: Callable[[bytes], bytes]) -> Text:
    """Return what changes one row, not the header."""

    def changed(lines: list[bytes], random: Random) -> list[bytes]:
        place = random.randrange(1, len(lines))
        return [*lines[:place], change(lines[place].rstrip(b"\n")) + b"\n", *lines[place + 1 :]]

    return _lines(changed)


# The same table written differently: nothing may change.
SAME: dict[str, Text] = {
    "with a byte order mark": lambda text, random: b"\xef\xbb\xbf" + text,
    "with CRLF": lambda text, random: text.replace(b"\n", b"\r\n"),
    "with CR": lambda text, random: text.replace(b"\n", b"\r"),
    "with blank lines": lambda text, random: text.replace(b"\n", b"\n\n"),
    "without an end of line": lambda text, random: text.rstrip(b"\n"),
}
BROKEN: dict[str, Text] = {
    "empty": lambda text, random: b"",
    "a header alone": _lines(lambda lines, random: lines[:1]),
    "without a header": _lines(lambda lines, random: lines[1:]),
    "with ;": lambda text, random: text.replace(b",", b";"),
    "UTF-16": lambda text, random: text.decode().encode("utf-16"),
    "with a NUL": _row(lambda line: line[:1] + b"\0" + line[1:]),
    "a web page": lambda text, random: b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n",
    "noise": lambda text, random: random.randbytes(500),
    "with a short row": _row(lambda line: line.rpartition(b",")[0]),
    "with a quote that does not end": _row(lambda line: b'"' + line),
    "cut off": lambda text, random: text[: random.randrange(len(text))],
    "with a field of 200 kB": _row(lambda line: b"9" * 200_000 + b"," + line.partition(b",")[2]),
    "with a row twice": _lines(lambda lines, random: [*lines, random.choice(lines[1:])]),
    "with another id": _row(lambda line: b"nobody," + line.partition(b",")[2]),
}


@st.composite
def forms(draw: Any, subjects: Sequence[str]) -> Mutant:
    """A table is written differently, or cannot be read."""
    subject = draw(st.sampled_from(subjects))
    files = dict(cut(subject))
    table = draw(st.sampled_from([SAMPLE, "train.csv", "test.csv"]).filter(files.__contains__))
    train = table == "train.csv"
    # A training takes seconds, and reads any table by the same code.
    forms = dict(list(SAME.items())[:2]) if train else SAME
    what = draw(st.sampled_from([*forms, "with its columns turned round", *BROKEN]))
    mutant = partial(Mutant, f"{table} {what}", subject, files, train=train)
    if what in forms:
        files[table] = SAME[what](files[table], draw(RANDOM))
        return mutant(end=VALID, same=not train)
    if what in BROKEN:
        files[table] = BROKEN[what](files[table], draw(RANDOM))
        return mutant(places=((table, "id"),))
    put(files, table, [row[::-1] for row in rows(files, table)])
    if table == SAMPLE:
        return mutant(places=((SAMPLE, "id"),))
    return mutant(end=VALID, same=not train and subject != "digits-csv")


# Columns by competition; "diabetes " is another one of diabetes.
TARGET = {"digits": "label", "diabetes": "progression", "breast-cancer": "malignant"}
NUMBERS = {
    "diabetes": "bmi",
    "breast-cancer": "mean texture",
    "digits-csv": "pixel9",
    "diabetes ": "sex",
}
ODD_LABELS = (
    "", " ", "NaN", "nan", "inf", "1e400", "1,5", "text", "0x10", "1_0", "١", "TRUE", "-0", "3.0",
    " 3", "99", "a\nb", "<b>", "=1", "\u202e3",
)  # fmt: skip
ODD_NUMBERS = (
    "nan", "NaN", "inf", "-inf", "Infinity", "1e400", "-1e400", "1,5", "1 000", "12abc", "", " ",
    "NA", "?", "-", "0x1F", "1e-320", "1e308", "-0", "١٢", "1_0", "TRUE", "$5", "5%", "2026-01-01",
    " 5 ", "+5", ".5", "5.", "--", "∞", "9" * 400, "1e", "e1", "null", "None", "\u00a05", "5\x00",
)  # fmt: skip
PIXELS = (
    "256", "-1", "1.5", "nan", "", "x", "1e400", "0.0", "255.0", "-0", " 7", "0x1F", "1_0",
    "9" * 400, "TRUE", "1e2",
)  # fmt: skip
CATEGORIES = ("1.0", " 1", "3", "", "NA", "male", "1e0", "١", "\x00", "x" * 10_000)
# Labels of all rows, by the row.
LABELS: dict[str, Callable[[int], str]] = {
    "all the same": lambda row: "1",
    "all different": lambda row: str(1000 + row),
    "all texts": lambda row: f"class {row % 9}",
    "huge": lambda row: f"{1e300 * (1 + row % 7):g}",
    "tiny apart": lambda row: f"{1 + row % 10 * 1e-15:.17g}",
}


@st.composite
def cells(draw: Any, subjects: Sequence[str], columns: dict[str, str] = NUMBERS) -> Mutant:
    """A label, a number, a pixel or a category is another text, in one row or in all."""
    choice = draw(st.sampled_from([name for name in columns if name.strip() in subjects]))
    subject, column, label = choice.strip(), columns[choice], columns is TARGET
    odd = {"pixel9": PIXELS, "sex": CATEGORIES}.get(column, ODD_LABELS if label else ODD_NUMBERS)
    drawn = st.text(max_size=9) | st.floats().map(repr) | st.integers().map(str)
    value = draw(st.sampled_from([*odd, *(LABELS if label else ())]) | drawn)
    table, every = "train.csv" if label else draw(st.sampled_from(TABLES)), draw(st.booleans())
    files = dict(cut(subject))
    header, *body = rows(files, table)
    for number, row in enumerate(body):
        if value in LABELS:
            row[header.index(column)] = LABELS[value](number)
        elif every:
            row[header.index(column)] = value
    if value not in LABELS and not every:
        draw(st.sampled_from(body))[header.index(column)] = value
    put(files, table, [header, *body])
    return Mutant(
        f"{'all' if every else 'one'} of {column} in {table}: {value[:20]!r}",
        subject,
        files,
        train=table == "train.csv",
        rerun=table == "test.csv" and draw(st.booleans()),
        # A row of pixels is an image, which is left out by its id.
        places=((table, "pixels"), ("",) if label else (column, "pixels", "NUL")),
    )
