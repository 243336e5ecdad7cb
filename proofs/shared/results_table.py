"""Rows of claim, target and figure: shown as they come in, and kept in docs/results.md."""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

Show = Callable[[str], None]
NAMED = ("keras", "jax", "tensorflow-cpu", "kaggle")


@dataclass(frozen=True)
class Row:
    """One claim.

    Attributes:
        claim: what is claimed.
        target: the figure that was asked for.
        figure: the figure that was measured.
        passed: whether the figure meets the target.
        seed: of the random numbers in it; None where there are none.
    """

    claim: str
    target: str
    figure: str
    passed: bool
    seed: int | None = None

    @property
    def verdict(self) -> str:
        """The word for `passed`."""
        return "pass" if self.passed else "MISS"


@dataclass(frozen=True)
class Later:
    """A claim, or a name for several, and what makes the rows: minutes that may not be wanted."""

    claim: str
    measured: Callable[[], Row | Iterable[Row]]


@dataclass(frozen=True)
class Table:
    """The rows of one subject, and where they were measured."""

    subject: str
    rows: tuple[Row, ...]
    where: Mapping[str, Any]

    @property
    def passed(self) -> bool:
        """Whether every row passed, and there is one."""
        return bool(self.rows) and all(row.passed for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return it as what `json.dumps` takes."""
        return {
            "subject": self.subject,
            "passed": self.passed,
            "where": dict(self.where),
            "rows": [asdict(row) for row in self.rows],
        }

    def to_markdown(self) -> str:
        """Return it as a section of docs/results.md, without its heading."""
        lines = [", ".join(f"{name} {value}" for name, value in self.where.items()) + ".", ""]
        lines += ["| claim | target | figure | seed | |", "|---|---|---|---|---|"]
        for row in self.rows:
            seed = "" if row.seed is None else str(row.seed)
            cells = (row.claim, row.target, row.figure, seed, row.verdict)
            texts = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
            lines.append(f"| {' | '.join(texts)} |")
        return "\n".join(lines) + "\n"


Rows = Iterable[Row | Later]


def measure(
    subject: str, rows: Rows, root: Path, *, command: str, show: Show, only: str = ""
) -> Table:
    """Show each row as it comes, of the claims with `only` in them, and return the table."""
    found = list[Row]()
    measured = commit(root)  # before the rows: the working tree may change meanwhile
    for each in rows:
        if only not in each.claim:
            continue
        made = each.measured() if isinstance(each, Later) else each
        for row in (made,) if isinstance(made, Row) else made:
            end = "" if row.seed is None else f"  seed {row.seed}"
            show(f"{row.verdict:4}  {row.claim}")
            show(f"      target {row.target}; figure {row.figure}{end}")
            found.append(row)
    where = {
        "Command": f"`{command}`",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": measured,
        "machine": f"{platform.machine()} {sys.platform}, {len(os.sched_getaffinity(0))} CPU cores",
        "Python": platform.python_version(),
        **{name: version(name) for name in NAMED},
    }
    return Table(subject, tuple(found), where)


def commit(root: Path) -> str:
    """Return the commit that is measured, and whether the working tree differs from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        return done.stdout.strip()

    head = git("rev-parse", "--short=12", "HEAD")
    others = git("status", "--porcelain", "--", ".", ":!docs/results.md")  # which `record` writes
    changed = " with local changes" if others else ""
    return head + changed if head else "none"


def record(table: Table, results: Path, *, only: str = "") -> None:
    """Replace the subject's section of docs/results.md, between its two comments; with `only` the
    rows of the table alone, each with its commit. One that is not there yet comes last.

    Raises:
        ValueError: if there is not exactly one such section.
    """
    text = results.read_text(encoding="utf-8")
    begin, end = f"<!-- prove {table.subject} -->\n", f"<!-- end {table.subject} -->"

    def section(found: re.Match[str]) -> str:
        if not only:
            return begin + table.to_markdown() + end
        when = f" ({table.where['date']}, commit {table.where['commit']})"
        again = Table("", tuple(replace(row, figure=row.figure + when) for row in table.rows), {})
        lines = {line.split(" | ")[0]: line for line in again.to_markdown().splitlines()[4:]}
        if not lines:
            raise ValueError(f"{table.subject} has no row {only!r} to record")
        *old, last = found[0].splitlines()
        old = [*(old[1:] or replace(table, rows=()).to_markdown().splitlines())]
        kept = [lines.pop(line.split(" | ")[0], line) for line in old]
        return begin + "\n".join([*kept, *lines.values(), last])

    changed, count = re.subn(
        re.escape(begin) + ".*?" + re.escape(end), section, text, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(
            f"{results} has {count} sections between {begin.strip()} and {end}; expected 1"
        )
    results.write_text(changed, encoding="utf-8")


def last_json(text: str) -> dict[str, Any]:
    """Return the JSON object on the last line of what a command printed.

    >>> last_json('step 1\\n{"score": 0.99}\\n')
    {'score': 0.99}
    """
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return found
