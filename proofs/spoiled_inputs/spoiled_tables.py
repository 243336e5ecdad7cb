"""Mutants of tables: CSVs in other forms, labels that cannot be learned, and texts as numbers."""

import gzip
import re
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from proofs.spoiled_inputs.mutants import REFUSED, SAMPLE, VALID, Files, Mutant, Spoil, put, rows_of

Text = Callable[[bytes, Random], bytes]
TARGET = {
    "digits": "label",
    "digits-csv": "label",
    "diabetes": "progression",
    "breast-cancer": "malignant",
}
TRAINED = ("train.csv", "'bmi'")
NUMBER = {"diabetes": "bmi", "breast-cancer": "mean texture"}


# Forms of a file


def _lines(change: Callable[[list[bytes], Random], list[bytes]]) -> Text:
    return lambda text, draw: b"".join(change(text.splitlines(keepends=True), draw))


def _row(change: Callable[[bytes], bytes]) -> Text:
    """Return what changes one row, not the header."""

    def changed(lines: list[bytes], draw: Random) -> list[bytes]:
        place = draw.randrange(1, len(lines))
        return [*lines[:place], change(lines[place].rstrip(b"\n")) + b"\n", *lines[place + 1 :]]

    return _lines(changed)


# The same table said otherwise: nothing may change.
SAME: dict[str, Text] = {
    "with a byte order mark": lambda text, draw: b"\xef\xbb\xbf" + text,
    "with CRLF": lambda text, draw: text.replace(b"\n", b"\r\n"),
    "with CR": lambda text, draw: text.replace(b"\n", b"\r"),
    "with quotes around all": lambda text, draw: re.sub(
        rb"[^,\n]+", lambda found: b'"' + found[0] + b'"', text
    ),
    "with blank lines": _lines(
        lambda lines, draw: [part for line in lines for part in (line, b"\n")]
    ),
    "without an end of line": lambda text, draw: text.rstrip(b"\n"),
}
BROKEN: dict[str, Text] = {
    "empty": lambda text, draw: b"",
    "a line feed": lambda text, draw: b"\n",
    "a header alone": _lines(lambda lines, draw: lines[:1]),
    "without a header": _lines(lambda lines, draw: lines[1:]),
    "with ;": lambda text, draw: text.replace(b",", b";"),
    "with tabs": lambda text, draw: text.replace(b",", b"\t"),
    "UTF-16": lambda text, draw: text.decode().encode("utf-16"),
    "Latin-1 in one place": _row(lambda line: b"\xfc" + line),
    "with a NUL": _row(lambda line: line[:1] + b"\0" + line[1:]),
    "compressed": lambda text, draw: gzip.compress(text),
    "a web page": lambda text, draw: b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n",
    "noise": lambda text, draw: draw.randbytes(500),
    "with a short row": _row(lambda line: line.rpartition(b",")[0]),
    "with a long row": _row(lambda line: line + b",1"),
    "with a quote that does not end": _row(lambda line: b'"' + line),
    "with a quote inside": _row(lambda line: line.replace(b",", b'"x,', 1)),
    "cut in the middle": lambda text, draw: text[: len(text) // 2],
    "with a field of 200 kB": _row(lambda line: b"9" * 200_000 + b"," + line.partition(b",")[2]),
    "with a comment": _lines(lambda lines, draw: [b"# made by hand\n", *lines]),
    "with its first column twice": _lines(
        lambda lines, draw: [line.partition(b",")[0] + b"," + line for line in lines]
    ),
    "with its header twice": _lines(lambda lines, draw: [lines[0], *lines]),
    "with a comma at each end": _lines(
        lambda lines, draw: [line.rstrip(b"\n") + b",\n" for line in lines]
    ),
    "with blanks in its header": _lines(
        lambda lines, draw: [lines[0].replace(b",", b" , "), *lines[1:]]
    ),
    "with its header in capitals": _lines(lambda lines, draw: [lines[0].upper(), *lines[1:]]),
}


def forms() -> Iterator[Mutant]:
    """Yield each table of each competition in equal forms, and in ones that cannot be read."""
    mutant = partial(Mutant, "forms")
    for subject in TARGET:
        tables = [SAMPLE, "train.csv"] + ([] if subject == "digits" else ["test.csv"])
        for table in tables:
            train = table == "train.csv"
            for name, text in SAME.items():
                spoil = _text(table, text)
                if not train:
                    yield mutant(f"{table} {name}", subject, spoil, end=VALID, same=True)
                elif name in ("with a byte order mark", "with CRLF"):
                    yield mutant(f"{table} {name}", subject, spoil, end=VALID, train=True)
            # Two of the four train.csv are read by the same code as the others.
            if not (train and subject in ("digits-csv", "breast-cancer")):
                for name, text in BROKEN.items():
                    words, spoil = (table, "id"), _text(table, text)
                    yield mutant(f"{table} {name}", subject, spoil, train=train, words=words)
        for table in tables[1:]:
            train = table == "train.csv"
            name, spoil = f"{table} with its columns turned round", partial(_turned, table=table)
            same = subject != "digits-csv" and not train
            yield mutant(name, subject, spoil, train=train, end=VALID, same=same)
            name, spoil = f"{table} with a column more", partial(_column, table=table)
            yield mutant(name, subject, spoil, train=train, words=(table,))
            name, spoil = f"{table} with a column less", partial(_less, table=table)
            yield mutant(name, subject, spoil, train=train, end=REFUSED, words=(table,))
        name, spoil = f"{SAMPLE} with a column more", partial(_column, table=SAMPLE)
        yield mutant(name, subject, spoil, end=REFUSED, words=(SAMPLE,))
        name, spoil = f"{SAMPLE} with its columns turned round", partial(_turned, table=SAMPLE)
        yield mutant(name, subject, spoil, words=(SAMPLE, "id"))


def _text(table: str, text: Text) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        files[table] = text(files[table], draw)

    return spoil


def _turned(files: Files, draw: Random, table: str) -> None:
    put(files, table, [row[::-1] for row in rows_of(files, table)])


def _column(files: Files, draw: Random, table: str) -> None:
    rows = rows_of(files, table)
    put(files, table, [[*rows[0], "more"], *([*row, draw.choice(("", "7"))] for row in rows[1:])])


def _less(files: Files, draw: Random, table: str) -> None:
    put(files, table, [row[:-1] for row in rows_of(files, table)])


# Labels

ODD_LABELS = (
    "", " ", "NaN", "nan", "inf", "1e400", "1,5", "text", "0x10", "1_0", "١", "TRUE", "-0", "3.0",
    " 3", "99", "a\nb", "<b>", "=1", "\u202e3",
)  # fmt: skip


def labels() -> Iterator[Mutant]:
    """Yield labels that are empty, unseen, no numbers, too few of a kind, all the same or all
    different.
    """
    mutant = partial(Mutant, "labels", train=True)
    for subject in ("digits", "diabetes", "breast-cancer"):
        for value in ODD_LABELS:
            yield mutant(f"one is {value!r}", subject, _label(partial(_begins, value=value)))
        for name, change in LABEL_CHANGES.items():
            yield mutant(name, subject, _label(change))
        spoil = _rename("train.csv", TARGET[subject], "target")
        yield mutant("of another column", subject, spoil, end=REFUSED, words=("train.csv",))
    for name, change in LABEL_CHANGES.items():
        yield mutant(f"{name}, in 3 folds", "digits", _label(change), config=folded)


def folded(text: str) -> str:
    """Return a config's text with 3 folds."""
    return text.replace("'folds': None", "'folds': 3")


def _begins(rows: list[str], draw: Random, value: str) -> list[str]:
    return [value, *rows[1:]]


def _one_of(rows: list[str], draw: Random, count: int) -> list[str]:
    """Leave so many rows of one label; the others become the next one."""
    chosen, other = sorted(set(rows))[:2]
    kept = [place for place, value in enumerate(rows) if value == chosen][:count]
    lost = {place for place, value in enumerate(rows) if value == chosen} - set(kept)
    return [other if place in lost else value for place, value in enumerate(rows)]


LABEL_CHANGES: dict[str, Callable[[list[str], Random], list[str]]] = {
    "none of one kind": partial(_one_of, count=0),
    "one of one kind": partial(_one_of, count=1),
    "two of one kind": partial(_one_of, count=2),
    "all the same": lambda rows, draw: [rows[0]] * len(rows),
    "all different": lambda rows, draw: [str(1000 + number) for number in range(len(rows))],
    "all empty": lambda rows, draw: [""] * len(rows),
    "all texts": lambda rows, draw: [f"class {value}" for value in rows],
    "huge": lambda rows, draw: [f"{1e300 * (1 + number % 7):g}" for number in range(len(rows))],
    "tiny apart": lambda rows, draw: [
        f"{1 + (number % 10) * 1e-15:.17g}" for number in range(len(rows))
    ],
}


def _label(change: Callable[[list[str], Random], list[str]]) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        header, *rows = rows_of(files, "train.csv")
        place = next(header.index(name) for name in TARGET.values() if name in header)
        values = change([row[place] for row in rows], draw)
        for row, value in zip(rows, values, strict=True):
            row[place] = value
        put(files, "train.csv", [header, *rows])

    return spoil


def _rename(table: str, old: str, new: str) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        rows = rows_of(files, table)
        put(files, table, [[new if name == old else name for name in rows[0]], *rows[1:]])

    return spoil


# Numbers

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


def numbers() -> Iterator[Mutant]:
    """Yield texts in the place of numbers, pixels and categories, one of them or all, in tables to
    train on and to predict.
    """
    mutant = partial(Mutant, "numbers")
    for value in ODD_NUMBERS:
        what, words = f"{value[:20]!r}", ("test.csv", "'bmi'")
        for subject, column in NUMBER.items():
            one, named = _cell("test.csv", column, value, 1), ("test.csv", repr(column))
            yield mutant(f"one is {what}", subject, one, words=named)
            yield mutant(f"one is {what}, in the rerun", subject, one, rerun=True, words=named)
        trained = _cell("train.csv", "bmi", value, 1)
        yield mutant(f"one to train on is {what}", "diabetes", trained, train=True, words=TRAINED)
        every = _cell("test.csv", "bmi", value, None)
        yield mutant(f"all are {what}", "diabetes", every, words=words)
    for value in ("", "nan", "5", "1e300", "x"):
        every = _cell("train.csv", "bmi", value, None)
        name = f"all to train on are {value!r}"
        yield mutant(name, "diabetes", every, train=True, words=TRAINED)
    for table in ("test.csv", "train.csv"):
        more = partial(mutant, train=table == "train.csv", words=(table,))
        for value in PIXELS:
            name, spoil = f"a pixel of {table} is {value[:20]!r}", _cell(table, "pixel9", value, 1)
            yield more(name, "digits-csv", spoil)
        for value in CATEGORIES:
            name, spoil = f"a category of {table} is {value[:20]!r}", _cell(table, "sex", value, 1)
            yield more(name, "diabetes", spoil)


def _cell(table: str, column: str, value: str, count: int | None) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        rows = rows_of(files, table)
        place = rows[0].index(column)
        for number in draw.sample(range(1, len(rows)), count or len(rows) - 1):
            rows[number][place] = value
        put(files, table, rows)

    return spoil
