"""Mutants of tables: CSVs in other forms, labels that cannot be learned, and texts in the place of
numbers.
"""

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
    """Yield each table of each competition in other forms: some say the same, and some cannot be
    read.
    """
    for subject in TARGET:
        tables = [SAMPLE, "train.csv"] + ([] if subject == "digits" else ["test.csv"])
        for table in tables:
            train = table == "train.csv"
            for name, text in SAME.items():
                if not train:
                    yield Mutant(
                        "forms",
                        f"{table} {name}",
                        subject,
                        _text(table, text),
                        end=VALID,
                        same=True,
                    )
            for name in ("with a byte order mark", "with CRLF") if train else ():
                yield Mutant(
                    "forms",
                    f"{table} {name}",
                    subject,
                    _text(table, SAME[name]),
                    end=VALID,
                    train=True,
                )
            for name, text in BROKEN.items():
                if not (
                    train and subject in ("digits-csv", "breast-cancer")
                ):  # read by the same code as the two others
                    yield Mutant(
                        "forms",
                        f"{table} {name}",
                        subject,
                        _text(table, text),
                        train=train,
                        words=(table, "id"),
                    )
        for table in tables[1:]:
            yield Mutant(
                "forms",
                f"{table} with its columns turned round",
                subject,
                partial(_turned, table=table),
                train=table == "train.csv",
                end=VALID,
                same=subject != "digits-csv" and table == "test.csv",
            )
            yield Mutant(
                "forms",
                f"{table} with a column more",
                subject,
                partial(_column, table=table),
                train=table == "train.csv",
                words=(table,),
            )
            yield Mutant(
                "forms",
                f"{table} with a column less",
                subject,
                partial(_less, table=table),
                train=table == "train.csv",
                end=REFUSED,
                words=(table,),
            )
        yield Mutant(
            "forms",
            f"{SAMPLE} with a column more",
            subject,
            partial(_column, table=SAMPLE),
            end=REFUSED,
            words=(SAMPLE,),
        )
        yield Mutant(
            "forms",
            f"{SAMPLE} with its columns turned round",
            subject,
            partial(_turned, table=SAMPLE),
            words=(SAMPLE, "id"),
        )


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
    for subject in ("digits", "diabetes", "breast-cancer"):
        for value in ODD_LABELS:
            yield Mutant(
                "labels",
                f"one is {value!r}",
                subject,
                _label(partial(_begins, value=value)),
                train=True,
            )
        for name, change in LABEL_CHANGES.items():
            yield Mutant("labels", name, subject, _label(change), train=True)
        yield Mutant(
            "labels",
            "of another column",
            subject,
            _rename("train.csv", TARGET[subject], "target"),
            train=True,
            end=REFUSED,
            words=("train.csv",),
        )
    for name, change in LABEL_CHANGES.items():
        yield Mutant(
            "labels",
            f"{name}, in 3 folds",
            "digits",
            _label(change),
            train=True,
            config=folded,
        )


def folded(text: str) -> str:
    """Return a config's text with 3 folds."""
    return text.replace("'folds': None", "'folds': 3")


def _begins(rows: list[str], draw: Random, value: str) -> list[str]:
    return [value, *rows[1:]]


def _one_of(rows: list[str], draw: Random, count: int) -> list[str]:
    """Leave so many rows of one label; the others become the next one."""
    chosen, other = sorted(set(rows))[:2]
    kept = [place for place, value in enumerate(rows) if value == chosen][:count]
    return [
        other if value == chosen and place not in kept else value
        for place, value in enumerate(rows)
    ]


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
        rows = rows_of(files, "train.csv")
        place = next(rows[0].index(name) for name in TARGET.values() if name in rows[0])
        values = change([row[place] for row in rows[1:]], draw)
        put(
            files,
            "train.csv",
            [
                rows[0],
                *(
                    [*row[:place], value, *row[place + 1 :]]
                    for row, value in zip(rows[1:], values, strict=True)
                ),
            ],
        )

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
    for value in ODD_NUMBERS:
        for subject, column in NUMBER.items():
            words = ("test.csv", repr(column))
            yield Mutant(
                "numbers",
                f"one is {value[:20]!r}",
                subject,
                _cell("test.csv", column, value, 1),
                words=words,
            )
            yield Mutant(
                "numbers",
                f"one is {value[:20]!r}, in the rerun",
                subject,
                _cell("test.csv", column, value, 1),
                rerun=True,
                words=words,
            )
        yield Mutant(
            "numbers",
            f"one to train on is {value[:20]!r}",
            "diabetes",
            _cell("train.csv", "bmi", value, 1),
            train=True,
            words=("train.csv", "'bmi'"),
        )
        yield Mutant(
            "numbers",
            f"all are {value[:20]!r}",
            "diabetes",
            _cell("test.csv", "bmi", value, None),
            words=("test.csv", "'bmi'"),
        )
    for value in ("", "nan", "5", "1e300", "x"):
        yield Mutant(
            "numbers",
            f"all to train on are {value!r}",
            "diabetes",
            _cell("train.csv", "bmi", value, None),
            train=True,
            words=("train.csv", "'bmi'"),
        )
    for value in PIXELS:
        for table in ("test.csv", "train.csv"):
            yield Mutant(
                "numbers",
                f"a pixel of {table} is {value[:20]!r}",
                "digits-csv",
                _cell(table, "pixel9", value, 1),
                train=table == "train.csv",
                words=(table,),
            )
    for value in CATEGORIES:
        for table in ("test.csv", "train.csv"):
            yield Mutant(
                "numbers",
                f"a category of {table} is {value[:20]!r}",
                "diabetes",
                _cell(table, "sex", value, 1),
                train=table == "train.csv",
                words=(table,),
            )


def _cell(table: str, column: str, value: str, count: int | None) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        rows = rows_of(files, table)
        place, chosen = (
            rows[0].index(column),
            draw.sample(range(1, len(rows)), count or len(rows) - 1),
        )
        for number in chosen:
            rows[number] = [*rows[number][:place], value, *rows[number][place + 1 :]]
        put(files, table, rows)

    return spoil
