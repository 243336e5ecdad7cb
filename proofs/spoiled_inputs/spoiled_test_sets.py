"""Mutants of test sets: odd ids, and hidden test sets of other sizes, orders and files."""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from proofs.spoiled_inputs.mutants import (
    EITHER,
    REFUSED,
    SAMPLE,
    VALID,
    Files,
    Mutant,
    Spoil,
    ids,
    put,
    rename,
    rows_of,
)

# Names

GOOD_NAMES = (
    "001", "1e5", "NA", "null", "inf", "nan", "None", "TRUE", "-0", "1.0", "#1", "=1+1", "id",
    "label", "ünï", "日本", "e\u0301", "a b", " before", "after ", "a\nb", "a\r\nb", "a\rb", 'a"b',
    "a,b", "a;b", "a\tb", "a%20b", "%s", "{0}", "-dash", "--help", "a'b", "$(true)", "`true`",
    "a|b", "a.png", "..a", "a..", "~", "a\x7fb", "\u202eb", "😀", "x" * 200, "CON", "a:b", "*", "?",
    "\ufeffb",
)  # fmt: skip
# No picture can have such a name. In a table they are ordinary texts.
BAD_NAMES = ("..", ".", "a/b", "../a", "/etc/hostname", "a\\b", "", "x" * 300)


def names() -> Iterator[Mutant]:
    """Yield ids that look like numbers, options, paths or nothing, and ids that are missing,
    repeated or too many.
    """
    mutant = partial(Mutant, "ids")
    for name in GOOD_NAMES:
        for subject in ("digits", "diabetes"):
            yield mutant(f"{name[:20]!r}", subject, _named(name), end=VALID, same=True)
    for name in BAD_NAMES:
        what, spoil, words = f"{name[:20]!r} of a", _named(name), (repr(name), name[:40] or "''")
        end = EITHER if len(name) > 1 else REFUSED
        yield mutant(f"{what} picture", "digits", spoil, end=end, words=words)
        yield mutant(f"{what} row", "diabetes", spoil, end=VALID, same=True)
    for subject in ("digits", "diabetes", "breast-cancer"):
        for name, spoil in ID_CHANGES.items():
            end = REFUSED if name in NEVER else EITHER
            yield mutant(name, subject, spoil, words=("id", SAMPLE), end=end)
    for subject in ("digits", "diabetes"):
        yield mutant("A beside a", subject, _cases, end=VALID, same=True, touched=2)


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


Rows = list[list[str]]


def _twice(rows: Rows, draw: Random) -> Rows:
    return [*rows, draw.choice(rows)]


def _less(rows: Rows, draw: Random) -> Rows:
    lost = draw.randrange(len(rows))
    return [*rows[:lost], *rows[lost + 1 :]]


def _more(rows: Rows, draw: Random) -> Rows:
    return [*rows, ["nobody", *rows[0][1:]]]


def _spaced(rows: Rows, draw: Random) -> Rows:
    return [[f" {row[0]}", *row[1:]] if number == 3 else row for number, row in enumerate(rows)]


def _float(rows: Rows, draw: Random) -> Rows:
    return [[f"{row[0]}.0", *row[1:]] for row in rows]


COUNTS = {"an id twice": _twice, "an id less": _less, "an id more": _more}
ID_CHANGES: dict[str, Spoil] = {
    f"{name}: {what}": _in(name, change)
    for name in (SAMPLE, "test.csv")
    for what, change in COUNTS.items()
} | {
    f"{SAMPLE}: a blank before an id": _in(SAMPLE, _spaced),
    f"{SAMPLE}: ids with .0": _in(SAMPLE, _float),
}
NEVER = {f"{SAMPLE}: an id twice", "test.csv: an id twice"}


# Hidden test sets


def hidden() -> Iterator[Mutant]:
    """Yield test sets as a scored rerun has them: other ids, one row, many rows, one class, another
    order, no folder.
    """
    mutant = partial(Mutant, "hidden test sets")
    for subject in ("digits", "digits-csv", "diabetes", "breast-cancer"):
        for rerun in (False, True):
            where = ", in the rerun" if rerun else ""
            for name, (spoil, same) in TEST_SETS.items():
                places = subject == "digits-csv" and name in ("another order", "other ids")
                slow = rerun and name == "many times the rows"
                if not (places or slow):  # ids of digits-csv are places
                    yield mutant(name + where, subject, spoil, end=VALID, same=same, rerun=rerun)
            yield mutant("no row" + where, subject, _first(0), end=REFUSED, rerun=rerun)
            unread = "test.csv" if subject == "digits" else "test/"
            for lost in ("test.csv", "test/", SAMPLE):
                yield mutant(
                    f"no {lost}{where}",
                    subject,
                    _without(lost),
                    end=EITHER if lost == unread else REFUSED,
                    rerun=rerun,
                    words=(SAMPLE, "test"),
                )
    yield mutant("a picture more", "digits", _stray("test/stray.png"), words=("stray",))
    for stray in STRAYS:
        yield mutant(f"with {stray}", "digits", _stray(stray), end=VALID, same=True)


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
    if "test.csv" in files:
        table = rows_of(files, "test.csv")
        start = int(table[0][0] == "id")
        rows = ([*row[:start], *table[1][start:]] for row in table[1:])
        put(files, "test.csv", [table[0], *rows])
    else:
        pictures = [name for name in files if name.startswith("test/")]
        files.update(dict.fromkeys(pictures, files[draw.choice(pictures)]))


def _many(files: Files, draw: Random) -> None:
    times = 100 if "test.csv" in files else 20
    sample, turns = rows_of(files, SAMPLE), range(times)
    has_ids = "test.csv" not in files or rows_of(files, "test.csv")[0][0] == "id"
    made = [
        [f"{row[0]}-{turn}" if has_ids else str(turn * (len(sample) - 1) + place), *row[1:]]
        for turn in turns
        for place, row in enumerate(sample[1:], 1)
    ]
    put(files, SAMPLE, [sample[0], *made])
    if "test.csv" in files:
        header, *rows = rows_of(files, "test.csv")
        if has_ids:
            rows = [[f"{row[0]}-{turn}", *row[1:]] for turn in turns for row in rows]
        else:
            rows *= times
        put(files, "test.csv", [header, *rows])
    for name in [name for name in files if name.startswith("test/")]:
        picture = files.pop(name)
        files.update({f"{name[:-4]}-{turn}.png": picture for turn in range(times)})


def _without(lost: str) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        for name in list(files):
            if name == lost or (lost.endswith("/") and name.startswith(lost)):
                del files[name]

    return spoil


def _stray(name: str) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        files[name] = next(content for path, content in files.items() if path.startswith("test/"))

    return spoil


TEST_SETS: dict[str, tuple[Spoil, bool]] = {
    "one row": (_first(1), True),
    "two rows": (_first(2), True),
    "another order": (_shuffled, True),
    "other ids": (_renamed, False),
    "one example again and again": (_copies, False),
    "many times the rows": (_many, False),
}
STRAYS = ("test/.DS_Store", "test/Thumbs.db", "test/below/x.png", "__MACOSX/x", "notes.txt")
