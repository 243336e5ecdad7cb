"""Times variants in turn, keeps every repetition, and writes a section of docs/benchmarks.md."""

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/benchmarks.md"
HEAD = """# Benchmarks

`python -m benchmarks` writes this page. Each section is the output of one run of its script. The
variants take turns, either in a single process or in several processes. A first turn compiles the
code and is not counted. A ratio compares our implementation with a variant in the same turn, and
the table shows the median and the range over all turns. A ratio above 1 means that ours is faster.
The speed of this shared machine changes from minute to minute, so compare the ratios instead of the
times. In the section on plans, each number in the last column is a different training run, and the
ratio is planned over measured.
"""


@dataclass(frozen=True)
class Table:
    """Repetitions of variants that do the same work.

    Attributes:
        title: what is done, with sizes.
        unit: of the repetitions: "images/s", "rows/s" (more is faster), "ms" or "s" (less is).
        taken: the repetitions of each variant, by its name; the first one is ours.
        note: a sentence below the table, or nothing.
    """

    title: str
    unit: str
    taken: Mapping[str, Sequence[float]]
    note: str = ""

    def lines(self) -> list[str]:
        """Return the table in Markdown."""
        first, own = next(iter(self.taken.items()))
        more = self.unit.endswith("/s")
        found = [f"**{self.title}**", "", f"| variant | {self.unit} | ours beside it | all turns |"]
        found.append("|---|---|---|---|")
        for name, values in self.taken.items():
            ratios = [
                mine / other if more else other / mine
                for mine, other in zip(own, values, strict=True)
            ]
            beside = (
                "" if name == first else
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            )  # fmt: skip
            turns = " ".join(map(shown, values))
            found.append(f"| {name} | {shown(statistics.median(values))} | {beside} | {turns} |")
        return [*found, "", *([self.note, ""] if self.note else [])]


@dataclass(frozen=True)
class Rows:
    """A table of what was computed once.

    Attributes:
        title: what is computed.
        columns: their headings.
        rows: a cell a column.
        note: a sentence below the table, or nothing.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def lines(self) -> list[str]:
        """Return the table in Markdown."""
        cells = [self.columns, ["---"] * len(self.columns), *self.rows]
        found = [f"**{self.title}**", "", *(f"| {' | '.join(row)} |" for row in cells), ""]
        return [*found, *([self.note, ""] if self.note else [])]


def shown(value: float) -> str:
    """Return a number with three digits.

    >>> [shown(number) for number in (0.01234, 3.14159, 45.67, 123456)]
    ['0.0123', '3.14', '45.7', '123,000']
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def in_turn(variants: Mapping[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """Return what each variant gave in each turn; each turn begins with another variant.

    Args:
        variants: functions that do the work once and return a rate or a time.
        turns: how many count; one more comes before, in which programs are compiled.
    """
    taken: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants.items())
    for turn in range(turns + 1):
        first = turn % len(order)
        for name, work in order[first:] + order[:first]:
            value = work()
            if turn:
                taken[name].append(value)
        print(f"  turn {turn} of {turns}", file=sys.stderr, flush=True)
    return taken


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def rate(amount: int, work: Callable[[], object]) -> Callable[[], float]:
    """Return a variant that does the work and returns `amount` per second."""

    return lambda: amount / seconds(work)


def in_process(module: str, *words: object, **environment: str) -> Any:
    """Return the JSON value that `python -m` with these words prints last, on JAX and this CPU."""
    usual = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, words)],
        env={**os.environ, **usual, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def write(name: str, title: str, tables: Sequence[Table | Rows], begun: float) -> None:
    """Replace the section of that name, and put it in its place by the alphabet.

    Args:
        name: of the script.
        title: of the section.
        tables: what was measured.
        begun: `time.perf_counter()` when the script began.
    """
    minutes = max((time.perf_counter() - begun) / 60, 1)
    text = "\n".join(
        [
            f"## {title}",
            "",
            f"`python -m benchmarks {name}`, {date.today()}, {minutes:.0f} min, {_commit()}. "
            f"{_machine()}.",
            "",
            *(line for table in tables for line in table.lines()),
        ]
    )
    before = PAGE.read_text() if PAGE.exists() else ""
    sections = dict(re.findall(r"<!-- (\w+) -->\n(.*?)(?=<!-- |\Z)", before, re.DOTALL))
    sections[name] = text
    PAGE.write_text(
        HEAD + "".join(f"\n<!-- {key} -->\n{sections[key].strip()}\n" for key in sorted(sections))
    )
    print(text)


def rows_before(section: str, title: str) -> dict[str, Sequence[str]]:
    """Return the rows of a table that the page has, by their first cell.

    Args:
        section: name of the script that wrote it.
        title: how the table's title begins.
    """
    page = PAGE.read_text() if PAGE.exists() else ""
    text = page.partition(f"<!-- {section} -->")[2].partition("<!-- ")[0]
    table = text.partition(f"**{title}")[2].partition("\n**")[0]
    lines = (line for line in table.splitlines() if line.startswith("| "))
    return {row[0]: row for line in lines if (row := re.split(r" ?\| ?", line)[1:-1])}


def _commit() -> str:
    """Return the commit that was measured, and whether files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!docs/benchmarks.md")
    return f"commit {git('rev-parse', '--short=12', 'HEAD') or 'unknown'}" + " and changes" * bool(
        changed
    )


def _machine() -> str:
    """Return processor, cores and versions."""
    processor = platform.processor() or platform.machine()
    with suppress(OSError):
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        processor = found[1] if found else processor
    names = ("jax", "keras", "tensorflow", "tensorflow-cpu", "numpy", "grain")
    there = {each.name: each.version for each in metadata.distributions()}
    versions = ", ".join(f"{name} {there[name]}" for name in names if name in there)
    return f"{processor}, {len(os.sched_getaffinity(0))} cores; {versions}"
