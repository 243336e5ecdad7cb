"""Mutants: one change each of a competition as it lies on the disk, drawn from a seed, with what is
known of how it has to end.

Here those of the test set and of its pictures; `proofs.spoiled_inputs.spoiled_tables` has those of
tables, `proofs.spoiled_inputs.spoiled_configs` those of configs.
"""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

Files = dict[str, bytes]
"""{path: bytes} of a competition's folder; a mutation changes it in place."""
Spoil = Callable[[Files, Random], None]
VALID, REFUSED, EITHER = "valid", "refused", ""
SAMPLE = "sample_submission.csv"


@dataclass(frozen=True)
class Mutant:
    """One mutation and the command that meets it.

    Attributes:
        family, name: of the mutation. subject: the competition. spoil: makes it.
        train: whether the model is trained on it first; else a model that was trained on the whole
            data infers.
        rerun: whether it is the scored rerun, in which nobody can mend anything.
        end: VALID or REFUSED where only one of them is right.
        same: whether the predictions of all ids that stayed, but for `touched` of them, must be
            those of the whole test set.
        words: of which a refusal must say one. config: makes another text of the config.
    """

    family: str
    name: str
    subject: str
    spoil: Spoil
    train: bool = False
    rerun: bool = False
    end: str = EITHER
    same: bool = False
    touched: int = 0
    words: tuple[str, ...] = (SAMPLE, "train.csv", "test.csv")
    config: Callable[[str], str] | None = None


def rows_of(files: Files, name: str) -> list[list[str]]:
    """Return the rows of a table as it was before it was spoiled."""
    return list(csv.reader(io.StringIO(files[name].decode(), newline="")))


def put(files: Files, name: str, rows: list[list[str]]) -> None:
    """Write the rows of a table."""
    text = io.StringIO(newline="")
    # Python leaves a carriage return without quotes.
    returns = any("\r" in value for row in rows for value in row)
    csv.writer(
        text, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL
    ).writerows(rows)
    files[name] = text.getvalue().encode("utf-8", "surrogatepass")


def ids(files: Files) -> list[str]:
    """Return the ids of the test set."""
    return [row[0] for row in rows_of(files, SAMPLE)[1:]]


def rename(files: Files, old: str, new: str) -> None:
    """Give an id of the test set another name, in each table, and to its picture."""
    for name in (SAMPLE, "test.csv"):
        if name in files:
            table = rows_of(files, name)
            column = table[0].index("id") if "id" in table[0] else None
            if column is not None:
                put(
                    files,
                    name,
                    [
                        table[0],
                        *(
                            _with(row, column, new if row[column] == old else row[column])
                            for row in table[1:]
                        ),
                    ],
                )
    picture = files.pop(f"test/{old}.png", None)
    if picture is not None and "/" not in new and len(new) < 250:
        files[f"test/{new}.png"] = picture


def _with(row: list[str], place: int, value: str) -> list[str]:
    return [*row[:place], value, *row[place + 1 :]]


# Names

GOOD_NAMES = (
    *(
        "001",
        "1e5",
        "NA",
        "null",
        "inf",
        "nan",
        "None",
        "TRUE",
        "-0",
        "1.0",
        "#1",
        "=1+1",
        "id",
        "label",
        "ünï",
        "日本",
        "e\u0301",
    ),
    *(
        "a b",
        " before",
        "after ",
        "a\nb",
        "a\r\nb",
        "a\rb",
        'a"b',
        "a,b",
        "a;b",
        "a\tb",
        "a%20b",
        "%s",
        "{0}",
        "-dash",
        "--help",
        "a'b",
        "$(true)",
    ),
    *(
        "`true`",
        "a|b",
        "a.png",
        "..a",
        "a..",
        "~",
        "a\x7fb",
        "\u202eb",
        "😀",
        "x" * 200,
        "CON",
        "a:b",
        "*",
        "?",
        "\ufeffb",
    ),
)
# No picture can be called so; in a table they are texts like others.
BAD_NAMES = ("..", ".", "a/b", "../a", "/etc/hostname", "a\\b", "", "x" * 300)


def names() -> Iterator[Mutant]:
    """Yield ids that are taken for numbers, options, paths or nothing, and ids that are missing,
    repeated or too many.
    """
    for name in GOOD_NAMES:
        for subject in ("digits", "diabetes"):
            yield Mutant("ids", f"{name[:20]!r}", subject, _named(name), end=VALID, same=True)
    for name in BAD_NAMES:
        words = (repr(name), name[:40] or "''")
        yield Mutant(
            "ids",
            f"{name[:20]!r} of a picture",
            "digits",
            _named(name),
            end=EITHER if len(name) > 1 else REFUSED,
            words=words,
        )
        yield Mutant(
            "ids", f"{name[:20]!r} of a row", "diabetes", _named(name), end=VALID, same=True
        )
    for subject in ("digits", "diabetes", "breast-cancer"):
        for name, spoil in ID_CHANGES.items():
            yield Mutant(
                "ids",
                name,
                subject,
                spoil,
                words=("id", SAMPLE),
                end=REFUSED if name in NEVER else EITHER,
            )
    yield Mutant("ids", "A beside a", "digits", _cases, end=VALID, same=True, touched=2)
    yield Mutant("ids", "A beside a", "diabetes", _cases, end=VALID, same=True, touched=2)


def _named(name: str) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        rename(files, draw.choice(ids(files)), name)

    return spoil


def _cases(files: Files, draw: Random) -> None:
    first, second = draw.sample(ids(files), 2)
    rename(files, first, "A")
    rename(files, second, "a")


def _in(name: str, change: Callable[[list[list[str]], Random], list[list[str]]]) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        table = rows_of(files, name if name in files else SAMPLE)
        put(files, name if name in files else SAMPLE, [table[0], *change(table[1:], draw)])

    return spoil


def _twice(rows: list[list[str]], draw: Random) -> list[list[str]]:
    return [*rows, draw.choice(rows)]


def _less(rows: list[list[str]], draw: Random) -> list[list[str]]:
    lost = draw.randrange(len(rows))
    return [*rows[:lost], *rows[lost + 1 :]]


def _more(rows: list[list[str]], draw: Random) -> list[list[str]]:
    return [*rows, ["nobody", *rows[0][1:]]]


def _spaced(rows: list[list[str]], draw: Random) -> list[list[str]]:
    return [[f" {row[0]}", *row[1:]] if number == 3 else row for number, row in enumerate(rows)]


def _float(rows: list[list[str]], draw: Random) -> list[list[str]]:
    return [[f"{row[0]}.0", *row[1:]] for row in rows]


ID_CHANGES: dict[str, Spoil] = {
    **{
        f"{SAMPLE}: {what}": _in(SAMPLE, change)
        for what, change in (("an id twice", _twice), ("an id less", _less), ("an id more", _more))
    },
    **{
        f"test.csv: {what}": _in("test.csv", change)
        for what, change in (("an id twice", _twice), ("an id less", _less), ("an id more", _more))
    },
    f"{SAMPLE}: a blank before an id": _in(SAMPLE, _spaced),
    f"{SAMPLE}: ids with .0": _in(SAMPLE, _float),
}
NEVER = {f"{SAMPLE}: an id twice", "test.csv: an id twice"}


# Hidden test sets


def hidden() -> Iterator[Mutant]:
    """Yield test sets as a scored rerun has them: other ids, one row, many rows, one class, another
    order, no folder.
    """
    for subject in ("digits", "digits-csv", "diabetes", "breast-cancer"):
        for rerun in (False, True):
            where = ", in the rerun" if rerun else ""
            for name, spoil, same in (
                ("one row", _first(1), True),
                ("two rows", _first(2), True),
                ("another order", _shuffled, True),
                ("other ids", _renamed, False),
                ("one example again and again", _copies, False),
                ("many times the rows", _many, False),
            ):
                if subject == "digits-csv" and name in ("another order", "other ids"):
                    continue  # its ids are places
                if not (rerun and name == "many times the rows"):
                    yield Mutant(
                        "hidden test sets",
                        name + where,
                        subject,
                        spoil,
                        end=VALID,
                        same=same,
                        rerun=rerun,
                    )
            yield Mutant(
                "hidden test sets", "no row" + where, subject, _first(0), end=REFUSED, rerun=rerun
            )
            for lost in ("test.csv", "test/", SAMPLE):
                end = (
                    EITHER
                    if (lost == "test.csv" and subject == "digits")
                    or (lost == "test/" and subject != "digits")
                    else REFUSED
                )
                words = (SAMPLE, "test")
                yield Mutant(
                    "hidden test sets",
                    f"no {lost}{where}",
                    subject,
                    _without(lost),
                    end=end,
                    rerun=rerun,
                    words=words,
                )
    yield Mutant(
        "hidden test sets", "a picture more", "digits", _stray("test/stray.png"), words=("stray",)
    )
    for stray in (
        "test/.DS_Store",
        "test/Thumbs.db",
        "test/below/x.png",
        "__MACOSX/x",
        "notes.txt",
    ):
        yield Mutant(
            "hidden test sets", f"with {stray}", "digits", _stray(stray), end=VALID, same=True
        )


def _first(count: int) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        kept = set(ids(files)[:count])
        for name in (SAMPLE, "test.csv"):
            if name in files:
                table = rows_of(files, name)
                put(files, name, table[: count + 1])
        for name in [name for name in files if name.startswith("test/") and name[5:-4] not in kept]:
            del files[name]

    return spoil


def _shuffled(files: Files, draw: Random) -> None:
    table = rows_of(files, SAMPLE)
    put(files, SAMPLE, [table[0], *draw.sample(table[1:], len(table) - 1)])


def _renamed(files: Files, draw: Random) -> None:
    for name in ids(files):
        rename(files, name, f"{draw.getrandbits(64):016x}")


def _copies(files: Files, draw: Random) -> None:
    chosen = (
        draw.choice([name for name in files if name.startswith("test/")])
        if "test.csv" not in files
        else None
    )
    for name in [name for name in files if chosen and name.startswith("test/")]:
        files[name] = files[chosen or name]
    if "test.csv" in files:
        table = rows_of(files, "test.csv")
        start = int(table[0][0] == "id")
        put(
            files, "test.csv", [table[0], *([*row[:start], *table[1][start:]] for row in table[1:])]
        )


def _many(files: Files, draw: Random) -> None:
    times = 100 if "test.csv" in files else 20
    sample, has_ids = (
        rows_of(files, SAMPLE),
        "test.csv" not in files or rows_of(files, "test.csv")[0][0] == "id",
    )
    made = [
        [f"{row[0]}-{turn}" if has_ids else str(turn * (len(sample) - 1) + place), *row[1:]]
        for turn in range(times)
        for place, row in enumerate(sample[1:], 1)
    ]
    put(files, SAMPLE, [sample[0], *made])
    if "test.csv" in files:
        table = rows_of(files, "test.csv")
        put(
            files,
            "test.csv",
            [
                table[0],
                *(
                    [f"{row[0]}-{turn}", *row[1:]] if has_ids else row
                    for turn in range(times)
                    for row in table[1:]
                ),
            ],
        )
    for name in [name for name in files if name.startswith("test/")]:
        picture = files.pop(name)
        files.update({f"{name[:-4]}-{turn}.png": picture for turn in range(times)})


def _without(lost: str) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        for name in [
            name for name in files if name == lost or (lost.endswith("/") and name.startswith(lost))
        ]:
            del files[name]

    return spoil


def _stray(name: str) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        files[name] = next(content for path, content in files.items() if path.startswith("test/"))

    return spoil
