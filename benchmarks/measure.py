"""Time several variants, and write the results to docs/benchmarks.md."""

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
variants take turns, either in a single process or in several processes. An additional first turn
compiles the code and is not counted. A ratio compares our implementation with a variant in the same
turn. The table shows the median and the range of the ratio over all turns. A ratio above 1 means
that ours is faster. The speed of this shared machine changes from minute to minute, so compare the
ratios instead of the times. In the section on plans, each number in the last column belongs to a
different training run, and the ratio is the planned value divided by the measured value.
"""


@dataclass(frozen=True)
class Table:
    """Measurements that compare variants doing the same work.

    Attributes:
        unit: unit of the measurements. Higher is better for "images/s" and "rows/s", and lower is
            better for "ms" and "s".
        taken: one value per turn for each variant. The first variant is our implementation.
    """

    title: str
    unit: str
    taken: Mapping[str, Sequence[float]]
    note: str = ""

    def lines(self) -> list[str]:
        first, own = next(iter(self.taken.items()))
        more = self.unit.endswith("/s")
        found = [f"**{self.title}**", "", f"| variant | {self.unit} | ratio | all turns |"]
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
    """A table of results that were only computed once."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def lines(self) -> list[str]:
        cells = [self.columns, ["---"] * len(self.columns), *self.rows]
        found = [f"**{self.title}**", "", *(f"| {' | '.join(row)} |" for row in cells), ""]
        return [*found, *([self.note, ""] if self.note else [])]


def shown(value: float) -> str:
    """Format a number with three significant digits.

    >>> [shown(number) for number in (0.01234, 3.14159, 45.67, 123456)]
    ['0.0123', '3.14', '45.7', '123,000']
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def in_turn(variants: Mapping[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """Return one measurement for each variant in each turn.

    Each turn starts with a different variant. An additional first turn compiles the code and is not
    measured.

    Args:
        variants: functions that do the work once and return a rate or a time.
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
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def rate(amount: int, work: Callable[[], object]) -> Callable[[], float]:
    """Return a variant that measures how many items per second a function processes."""

    return lambda: amount / seconds(work)


def in_process(module: str, *words: object, **environment: str) -> Any:
    """Run `python -m MODULE` in a subprocess, and return the last line that it prints as JSON.

    By default, the subprocess uses JAX on this machine's CPU.
    """
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
    """Replace a section of the page, and sort all sections by name.

    Args:
        name: name of the script, which is also the name of the section.
        begun: value of `time.perf_counter()` when the script started.
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
    """Return the rows of a table on the current page, keyed by their first cell.

    Args:
        section: name of the script that wrote the table.
        title: first words of the table's title.
    """
    page = PAGE.read_text() if PAGE.exists() else ""
    text = page.partition(f"<!-- {section} -->")[2].partition("<!-- ")[0]
    table = text.partition(f"**{title}")[2].partition("\n**")[0]
    lines = (line for line in table.splitlines() if line.startswith("| "))
    return {row[0]: row for line in lines if (row := re.split(r" ?\| ?", line)[1:-1])}


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!docs/benchmarks.md")
    return f"commit {git('rev-parse', '--short=12', 'HEAD') or 'unknown'}" + " and changes" * bool(
        changed
    )


def _machine() -> str:
    processor = platform.processor() or platform.machine()
    with suppress(OSError):
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        processor = found[1] if found else processor
    names = ("jax", "keras", "tensorflow", "tensorflow-cpu", "numpy", "grain")
    there = {each.name: each.version for each in metadata.distributions()}
    versions = ", ".join(f"{name} {there[name]}" for name in names if name in there)
    return f"{processor}, {len(os.sched_getaffinity(0))} cores; {versions}"
