"""Names, addresses, archives, arrays, weights and pages that were made to write elsewhere or to run
code do neither.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from deploy.errors import RelayError
from pipeline.errors import PipelineError
from proofs.hostile import files, kaggle_answers, payloads
from proofs.hostile.attack import REFUSED, Broken, Case
from proofs.hostile.guard import Guard
from proofs.shared.results_table import Row, Show

SEED = 20261121
SHORT = 2  # of each family, in the short form


@dataclass(frozen=True)
class Fended:
    """How an attack ended: "refused" or "harmless", and what went wrong, or ""."""

    case: Case
    how: str
    wrong: str


def rows(root: Path, folder: Path, *, short: bool, show: Show, seed: int = SEED) -> Iterator[Row]:
    """Yield the rows; `short` takes a few of each family."""
    ended: list[Fended] = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for part in (kaggle_answers, files):
            with part.ground(Path(scratch) / part.__name__.rpartition(".")[2]) as (guard, cases):
                ended += fend(guard, some(cases, seed) if short else cases, show)
        yield summary(ended, 10 * SHORT if short else 150, seed if short else None)
        yield control(Path(scratch) / "control")


def some(cases: Sequence[Case], seed: int) -> list[Case]:
    """Return a few of each family, drawn by the seed."""
    draw = Random(seed)  # noqa: S311 - a sample, not a secret
    families = dict.fromkeys(case.family for case in cases)
    own = [[case for case in cases if case.family == family] for family in families]
    return [case for part in own for case in draw.sample(part, min(SHORT, len(part)))]


def fend(guard: Guard, cases: Sequence[Case], show: Show) -> list[Fended]:
    """Run each case under the guard, return how it ended, and show those that did harm."""
    found = []
    for case in cases:
        with guard.watching() as given:
            how, wrong = attempt(case, given)
        if guard.events:
            wrong = f"{'; '.join(guard.events[:3])}{f'; {wrong}' if wrong else ''}"
        if wrong:
            show(f"      {case.family}, {case.name}: {wrong}")
        found.append(Fended(case, how, wrong))
    return found


def attempt(case: Case, given: Path) -> tuple[str, str]:
    """Return how an attack ended, and what is wrong with that."""
    try:
        return case.act(given), ""
    except (RelayError, PipelineError) as error:
        lines = str(error).strip().splitlines()
        told = len(lines) > 1 or len(str(error)) > 60
        return REFUSED, "" if told else f"refused in {len(lines)} lines: {error}"
    except Broken as error:
        return "", str(error)
    except Exception as error:
        return "", f"a traceback: {type(error).__name__}: {str(error)[:200]}"


def summary(ended: Sequence[Fended], least: int, seed: int | None) -> Row:
    """Return the row of all of them, with the counts of each family."""
    counts: dict[str, Counter[str]] = {}
    for one in ended:
        counts.setdefault(one.case.family, Counter())[one.how or "harmful"] += 1
    wrong = [f"{one.case.family}, {one.case.name}: {one.wrong}" for one in ended if one.wrong]
    total = sum(counts.values(), Counter())
    figure = f"{len(ended)} cases: {_listed(total)}; {len(wrong)} wrong"
    figure += f", the first: {wrong[0][:300]}" if wrong else ""
    figure += "".join(f"; {family} {_listed(own)}" for family, own in counts.items())
    return Row(
        "Hostile archives, names, arrays and weights write nothing outside the folder that a "
        "command was given, and run no code",
        f"≥ {least} cases; 0 writes outside, 0 code run, 0 tracebacks",
        figure,
        len(ended) >= least and not wrong,
        seed,
    )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {how}" for how, number in sorted(counts.items()))


def control(folder: Path) -> Row:
    """Return the row of the guard itself: it has to catch each careless reader."""
    guard = Guard(folder)
    missed = [name for name, careless in CARELESS.items() if not _seen(guard, careless)]
    with guard.watching() as given:
        (given / "x").write_text("x")
    quiet = not guard.events
    figure = f"{len(CARELESS) - len(missed)} of {len(CARELESS)}"
    figure += f"; missed: {', '.join(missed)}" if missed else ""
    figure += "" if quiet else f"; and a write inside is told: {guard.events[0]}"
    target = f"{len(CARELESS)} of {len(CARELESS)} told; a write inside is not"
    claim = "The guard sees a write outside and code that is run"
    return Row(claim, target, figure, quiet and not missed)


def _seen(guard: Guard, careless: Callable[[Path, Guard], object]) -> bool:
    with guard.watching() as given:
        careless(given, guard)
    return bool(guard.events)


def _joined(given: Path, guard: Guard) -> None:
    (given / "../../evil").write_text("evil")


def _far(given: Path, guard: Guard) -> None:
    far = Path(tempfile.gettempdir()).resolve() / f"{guard.top.parent.name}-evil"
    if str(far).startswith(f"{guard.scratch}"):
        far = guard.top.parent.parent / far.name
    far.write_text("evil")
    far.unlink()  # what is gone afterwards is seen all the same


def _linked(given: Path, guard: Guard) -> None:
    (given / "link").symlink_to(guard.top / "evil")
    (given / "link").write_text("evil")


def _pickled(given: Path, guard: Guard) -> None:
    path = given / "x.npy"
    path.write_bytes(payloads.arrays(guard.marker, 1)["a pickle that opens a file, as objects"])
    np.load(path, allow_pickle=True)


def _shelled(given: Path, guard: Guard) -> None:
    path = given / "x.npy"
    path.write_bytes(payloads.arrays(guard.marker, 1)["a pickle that starts a shell, bare"])
    np.load(path, allow_pickle=True)


def _configured(given: Path, guard: Guard) -> None:
    from pipeline import config

    path = given / "evil.py"  # a config is a program of the user's own, which may do anything
    touch = f"from pathlib import Path\nPath({str(guard.marker)!r}).touch()"
    path.write_text(f"{touch}\nCONFIG = None\n")
    try:
        config.load(str(path))
    except PipelineError:
        return


def _moved(given: Path, guard: Guard) -> None:
    (given / "y").write_text("y")
    (given / "y").rename(guard.top / "y")


CARELESS: dict[str, Callable[[Path, Guard], object]] = {
    "a name that climbs": _joined,
    "a file far away, removed again": _far,
    "a link that leads out": _linked,
    "a pickle that opens a file": _pickled,
    "a pickle that starts a shell": _shelled,
    "a config, which is a program": _configured,
    "a new folder": lambda given, guard: (guard.top / "new").mkdir(),
    "a file that moves out": _moved,
    "a file that goes": lambda given, guard: (guard.home / "x").unlink(),
}
