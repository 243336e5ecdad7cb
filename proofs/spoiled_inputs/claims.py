"""Hundreds of spoiled inputs and outputs end in a valid submission.csv, or in a refusal that says
what to edit.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

from proofs.shared.results_table import Row, Show
from proofs.spoiled_inputs import bench, judgement, spoiled_outputs
from proofs.spoiled_inputs.bench import Bench, Ended
from proofs.spoiled_inputs.judgement import Said
from proofs.spoiled_inputs.mutants import SAMPLE, VALID, Mutant
from proofs.spoiled_inputs.spoiled_configs import configs
from proofs.spoiled_inputs.spoiled_images import pictures
from proofs.spoiled_inputs.spoiled_outputs import Written
from proofs.spoiled_inputs.spoiled_tables import forms, labels, numbers
from proofs.spoiled_inputs.spoiled_test_sets import hidden, names

Lie = Callable[[Said, Path], Said]
SEED = 20261121
CLAIM = "Mutated inputs and outputs: a valid file or a named refusal"
APART = 24  # as processes of their own
# How many of each family are drawn: what runs in two minutes on two cores; and in the short form.
DRAWN = {
    "ids": 70,
    "hidden test sets": 60,
    "pictures": 120,
    "forms": 140,
    "labels": 50,
    "numbers": 110,
    "configs": 130,
}
SHORT = 2


def rows(root: Path, folder: Path, *, short: bool, show: Show, seed: int = SEED) -> Iterator[Row]:
    """Yield the rows; `short` takes a few of each family, and starts no process."""
    drawn = sample(everything(root), seed, short=short)
    with Bench(folder, sorted({mutant.subject for mutant in drawn})) as made:
        ended = list(run(made, drawn, seed, show))
        outputs = list(spoiled_outputs.predictions(made.folder, seed))
        outputs += spoiled_outputs.edited(made.folder, seed)
        yield summary(ended, outputs, len(drawn) if short else 300, seed)
        if not short:
            apart = spread([mutant for mutant in drawn if not mutant.rerun], APART)
            started = list(bench.all_of(made, apart, seed))
            wrong = [described(one) for one in started if one.wrong]
            counts = _count(Counter(one.how for one in started), wrong)
            figure, passed = f"{len(started)} processes: {counts}", not wrong and len(started) >= 20
            yield Row(f"{CLAIM}: started as processes", "≥ 20; as above", figure, passed, seed)
        yield crashes(made.folder, seed)
        yield control(made, seed)


def everything(root: Path) -> list[Mutant]:
    """Return every mutant there is."""
    source = (root / "pipeline" / "configs" / "digits.py").read_text(encoding="utf-8")
    tables = (*forms(), *labels(), *numbers())
    return [*names(), *hidden(), *pictures(), *tables, *configs(source)]


def sample(there: Sequence[Mutant], seed: int, *, short: bool) -> list[Mutant]:
    """Return some of each family: as many as DRAWN says, or SHORT ones of digits, if it has any."""
    found: list[Mutant] = []
    for family, number in DRAWN.items():
        own = [mutant for mutant in there if mutant.family == family]
        if short:
            own = [mutant for mutant in own if mutant.subject == "digits"]
            own = [mutant for mutant in own if not mutant.train] or own
        draw = Random(f"{seed} {family}")  # noqa: S311 - a sample, not a secret
        found += draw.sample(own, min(SHORT if short else number, len(own)))
    return found


def spread(drawn: Sequence[Mutant], count: int) -> list[Mutant]:
    """Return that many of them, spread over the families."""
    return [drawn[place * len(drawn) // count] for place in range(count)]


def run(made: Bench, drawn: Sequence[Mutant], seed: int, show: Show) -> Iterator[Ended]:
    """Yield how each mutant ends, and show those that are wrong."""
    for number, mutant in enumerate(drawn, 1):
        ended = made.run(mutant, seed)
        if ended.wrong:
            show(f"      {described(ended)}")
        if number % 100 == 0:
            show(f"      {number} of {len(drawn)} mutants")
        yield ended


def summary(ended: Sequence[Ended], outputs: Sequence[Written], least: int, seed: int) -> Row:
    """Return the row of all of them, with the counts of each family."""
    counts: dict[str, Counter[str]] = {}
    wrong = [described(one) for one in ended if one.wrong]
    for one in ended:
        counts.setdefault(one.mutant.family, Counter())[one.how] += 1
    for written in outputs:
        problem = fault(written)
        wrong += [f"{written.family}, {written.name}: {problem}"] if problem else []
        how = "valid" if written.accepted else "refused"
        counts.setdefault(written.family, Counter())[how] += 1
    total = len(ended) + len(outputs)
    figure = f"{total} mutants: {_count(sum(counts.values(), Counter()), wrong)}"
    figure += "".join(f"; {family} {_listed(found)}" for family, found in counts.items())
    target = f"≥ {least}; 0 invalid files left, 0 bare tracebacks"
    return Row(CLAIM, target, figure, total >= least and not wrong, seed)


def fault(written: Written) -> str:
    """Return what is wrong with how an output was written or checked, or ""."""
    if not written.accepted:
        if written.family == "predictions" and written.left != spoiled_outputs.OLD:
            return f"refused, and the older file became {written.left!r}"
        return judgement.mute(written.said, ("submission.csv", SAMPLE))
    if written.left is None:
        return "the file is gone"
    return judgement.invalid(written.left, written.asked.sample, written.asked.fits)


def crashes(folder: Path, seed: int) -> Row:
    """Return the row of a crash at each moment of a write, and of a disk that is full."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as place,
        tempfile.TemporaryDirectory(dir=folder) as other,
    ):
        count, wrong = spoiled_outputs.crashes(Path(place), seed)
        said = spoiled_outputs.full(Path(other))
    code = "" if said.code == 8 else f"exit code {said.code}"
    problem = judgement.mute(said, ("submission.csv",)) or code
    wrong += [f"a full disk: {problem}"] if problem else []
    return Row(
        "A crash, or a full disk, while submission.csv is written over an older one: the older or "
        "the new one, whole",
        "every crash state, ≥ 50; exit code 8 for the disk",
        _count(Counter({"states": count}), wrong),
        count >= 50 and not wrong,
        seed,
    )


def control(made: Bench, seed: int) -> Row:
    """Return the row of the judge itself: it has to catch each wrong writer."""
    slug = sorted(made.subjects)[0]
    honest = Mutant("control", "nothing", slug, lambda files, draw: None, end=VALID, same=True)
    missed = ["the honest one is not taken"] if made.run(honest, seed).wrong else []
    liars = {name: partial(liar, lie) for name, lie in LIES.items()}
    missed += [name for name, infer in liars.items() if not made.run(honest, seed, infer).wrong]
    figure = f"{len(LIES) - len(missed)} of {len(LIES)}"
    figure += f"; missed: {', '.join(missed)}" if missed else ""
    target = f"{len(LIES)} of {len(LIES)} caught, the honest one taken"
    return Row("The judge of mutants sees a wrong writer", target, figure, not missed, seed)


def liar(lie: Lie, words: Sequence[str]) -> Said:
    """Infer as the command does, and then spoil what it wrote or said."""
    return lie(bench.here(words), Path(words[words.index("--output") + 1]) / "submission.csv")


def _rewritten(change: Callable[[list[str]], list[str]]) -> Lie:
    """Return a lie that changes the lines of the file."""

    def lie(said: Said, path: Path) -> Said:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(change(lines)), encoding="utf-8")
        return said

    return lie


def _said(code: int, text: str) -> Lie:
    """Return a lie that removes the file, and ends with this code and text."""

    def lie(said: Said, path: Path) -> Said:
        path.unlink()
        return Said(code, text)

    return lie


def _aside(said: Said, path: Path) -> Said:
    path.with_name(".submission.csv-half").write_bytes(b"id")
    return said


def _exchanged(lines: list[str]) -> list[str]:
    pairs = zip(lines[1:], lines[:0:-1], strict=True)
    rows = (f"{line.partition(',')[0]},{other.partition(',')[2]}" for line, other in pairs)
    return [lines[0], *rows]


LIES: dict[str, Lie] = {
    "ids in another order": _rewritten(lambda lines: [lines[0], *lines[:0:-1]]),
    "values in another order": _rewritten(_exchanged),
    "NaN": _rewritten(lambda lines: [*lines[:-1], f"{lines[-1].partition(',')[0]},nan\n"]),
    "infinity": _rewritten(lambda lines: [*lines[:-1], f"{lines[-1].partition(',')[0]},inf\n"]),
    "a row less": _rewritten(lambda lines: lines[:-1]),
    "a row twice": _rewritten(lambda lines: [*lines, lines[-1]]),
    "half of a row": _rewritten(lambda lines: [*lines[:-1], lines[-1][:3]]),
    "another column": _rewritten(lambda lines: ["id,other\n", *lines[1:]]),
    "nothing": _said(0, ""),
    "a traceback": _said(1, "Traceback (most recent call last):\nKeyError: 'id'\n"),
    "a refusal that names nothing": _said(1, "Error: something is wrong. Correct it.\n"),
    "a refusal without an edit": _said(1, "Error: test.csv is strange\n"),
    "another exit code": _said(77, "Error: test.csv is missing. Complete the download.\n"),
    "a file beside it": _aside,
    "a refusal that leaves the file": lambda said, path: Said(
        1, "Error: test.csv is missing. Complete the download.\n"
    ),
}


def described(ended: Ended) -> str:
    """Return what is wrong, and with which mutant."""
    return f"{ended.mutant.family}, {ended.mutant.subject}, {ended.mutant.name}: {ended.wrong}"


def _count(counts: Counter[str], wrong: Sequence[str]) -> str:
    """Return counts in words, with the first of what is wrong."""
    figure = f"{_listed(counts)}; {len(wrong)} wrong"
    return figure + (f"; first: {wrong[0][:300]}" if wrong else "")


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {how}" for how, number in sorted(counts.items()))
