"""Show a table of all runs, or two runs side by side. Write runs to a CSV file or an HTML page."""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

from formats import atomic_file
from workbench.experiments import experiment, score_line
from workbench.experiments.experiment import Row
from workbench.experiments.score_line import ScoreLine

WIDTH = 100  # characters per line
TEXTS = ("when", "place", "config", "commit")
COLUMNS = ("number", *TEXTS, "folds", "baseline", *experiment.SCORES, "quota_hours", "minutes")
HEADS = {"number": "#", "place": "run", "quota_hours": "quota h", "minutes": "min"}
DISPENSABLE = ("when", "commit", "baseline", "folds", "quota_hours")  # omitted if too wide
INDENT = 5 * " "


def score(value: float | None, error: float | None) -> str:
    """Format a score and its standard error with the same number of digits.

    >>> score(0.98151, 0.00623), score(2459.1, 159.9), score(0.98, None), score(None, None)
    ('0.9815 ± 0.0062', '2459 ± 160', '0.9800', '')
    """
    if value is None or not error or not math.isfinite(error):
        return "" if value is None else f"{value:#.4g}".rstrip(".")
    digits = max(1 - math.floor(math.log10(error)), 0)
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _cell(row: Row, name: str) -> str:
    value = row[name]
    if isinstance(value, str | int):
        return experiment.shown(value, most=24)
    if name in ("quota_hours", "minutes"):
        return "" if value is None else f"{value:.1f}"
    return score(value, row.get(f"{name}_error"))


def lines(rows: Sequence[Row]) -> list[str]:
    for left_out in range(len(DISPENSABLE) + 1):
        names = [name for name in _filled(rows) if name not in DISPENSABLE[:left_out]]
        cells = [[_cell(row, name) for name in names] for row in rows]
        head, *body = _aligned([[HEADS.get(name, name) for name in names], *cells])
        if max(map(len, (head, *body))) <= WIDTH:
            break
    made = [head]
    for line, row in zip(body, rows, strict=True):
        whole = _changes(row).replace(" ", "\xa0").replace(",\xa0", ", ")  # break after commas only
        parts = textwrap.wrap(whole, WIDTH - len(INDENT))
        made += [line, *(f"{INDENT}{part}".replace("\xa0", " ") for part in parts)]
    return made


def _filled(rows: Sequence[Row]) -> list[str]:
    return [name for name in COLUMNS if any(_cell(row, name) for row in rows)]


def _changes(row: Row) -> str:
    begun = f"from {row['parent']}: " * (row["parent"] not in (None, row["number"] - 1))
    return begun + (experiment.in_words(row["changes"]) or "no change" * bool(row["parent"]))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def side_by_side(one: Row, other: Row) -> list[str]:
    rows, found = [["", "first", "second", "difference"]], experiment.score_differences(one, other)
    for name in _filled((one, other)):
        by, error = found.get(name, (None, None))
        sign = "+" * (by is not None and by >= 0)
        rows.append([name, _cell(one, name), _cell(other, name), sign + score(by, error)])
    pairs = experiment.differences(one, other)
    rows += [[name, *map(experiment.shown, pair), ""] for name, pair in pairs.items()]
    return _aligned(rows)


def score_lines(rows: Sequence[Row]) -> list[ScoreLine]:
    return [line for name in ("hidden", "public") if (line := score_line.fit(rows, name))]


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    import pandas as pd

    table = pd.DataFrame([{**row, "changes": _changes(row)} for row in rows])
    atomic_file.write(path, table.to_csv(index=False).encode())


def write_page(path: Path, rows: Sequence[Row]) -> None:
    from workbench.pages import charts
    from workbench.pages.html import quoted, render

    names, competition, made = _filled(rows), rows[-1]["competition"], score_lines(rows)
    content = render(
        "experiments/page.html.j2",
        f"Experiments of {competition}",
        competition=competition,
        tiles=[(f"correlation with {line.name}", f"{line.correlation:.2f}") for line in made],
        off=[text for line in made for text in line.warnings()],
        plots=[(charts.score_line(*line.drawn), str(line)) for line in made],
        columns=[HEADS.get(name, name) for name in names],
        rows=[[_cell(row, name) for name in names] for row in rows],
        numbers=[place for place, name in enumerate(names) if name not in ("number", *TEXTS)],
        changes=[(str(row["number"]), quoted(_changes(row), 2000)) for row in rows[1:]],
    )
    atomic_file.write(path, content)
