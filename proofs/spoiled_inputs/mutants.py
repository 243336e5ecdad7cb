"""A mutant is one change of a competition on the disk, drawn from a seed, with what is known of how
the command has to end.
"""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Files = dict[str, bytes]
"""{path: bytes} of a competition's folder, which a mutation changes in place."""
Spoil = Callable[[Files, Random], None]
VALID, REFUSED, EITHER = "valid", "refused", ""
SAMPLE = "sample_submission.csv"


@dataclass(frozen=True)
class Mutant:
    """One mutation and the command that meets it.

    Attributes:
        family, name: of the mutation.
        subject: the competition.
        spoil: makes the change.
        train: whether a model is trained on it first. Else a model of the whole data infers.
        rerun: whether it is the scored rerun, in which nobody can fix anything.
        end: VALID or REFUSED where only one of them is right.
        same: whether the predictions of all ids that stayed must be those of the whole test set.
        touched: ids that may have other predictions.
        words: of which a refusal must have one.
        config: makes another text of the config.
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
    # Python does not quote a carriage return.
    returns = any("\r" in value for row in rows for value in row)
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    (quoted if returns else csv.writer(text, lineterminator="\n")).writerows(rows)
    files[name] = text.getvalue().encode("utf-8", "surrogatepass")


def ids(files: Files) -> list[str]:
    """Return the ids of the test set."""
    return [row[0] for row in rows_of(files, SAMPLE)[1:]]


def rename(files: Files, old: str, new: str) -> None:
    """Rename an id of the test set in each table, and its picture."""
    for name in (SAMPLE, "test.csv"):
        table = rows_of(files, name) if name in files else [[]]
        if "id" in table[0]:
            place = table[0].index("id")
            for row in table[1:]:
                row[place] = new if row[place] == old else row[place]
            put(files, name, table)
    picture = files.pop(f"test/{old}.png", None)
    if picture is not None and "/" not in new and len(new) < 250:
        files[f"test/{new}.png"] = picture
