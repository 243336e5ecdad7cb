"""The `runs` task, which lists the experiments of a competition with their scores."""

import os
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commands.console import ROOT, Result, show, task
from deploy.errors import UsageError

if TYPE_CHECKING:
    from workbench.experiments.experiment import Row


@task(
    iterable=("run",),
    run="a run to compare with another run or its parent. Pass a number from the table,"
    " owner/slug/version or a folder. Folders outside of runs/ are added to the table. The flag"
    " --run itself can be omitted",
    competition="slug of the competition (default: the only one with runs, otherwise the one in"
    " relay.toml)",
    page="path to an HTML file to write, with plots",
    csv="path to a CSV file to write",
)
def runs(
    run: Sequence[str] | None = None, competition: str = "", page: str = "", csv: str = ""
) -> Result:
    """List a competition's experiments with changes and scores, and show which scores to trust.

    Example: invoke runs --page runs.html
    """
    from workbench.experiments import experiment, table

    words = list(run or ())
    if len(words) > 2 and not all(map(os.path.isdir, words)):
        raise UsageError(f"Cannot compare {len(words)} runs: expected two.\ninvoke runs A B")
    known = _in_runs()
    there = {Path(row["folder"]).resolve() for row in known}
    folders = [Path(word) for word in words if Path(word, experiment.MANIFEST).is_file()]
    added = [experiment.read(folder) for folder in folders if folder.resolve() not in there]
    slug = competition or _competition(added or known)
    rows = experiment.in_order([row for row in (*known, *added) if row["competition"] == slug])
    if not rows:
        others = sorted({row["competition"] for row in known})
        advice = f"invoke runs --competition {others[0]}" if others else "invoke dry-run"
        raise UsageError(f"There is no complete training run for {slug} in runs/.\n{advice}")
    pair, alone = [_named(word, rows, {row["competition"] for row in known}) for word in words], ""
    if len(pair) == 1 and not added:  # compare the run with its parent
        if parent := pair[0]["parent"]:
            pair.insert(0, rows[parent - 1])
        else:
            alone = f"Run {pair[0]['number']} is the first, so it has no parent to compare with."
    lines = table.score_lines(rows)
    if added or len(pair) != 2:
        show(f"{slug}, scored by {rows[-1]['metric']}, newest run last")
        warnings = [f"Warning: {text}" for line in lines for text in line.warnings()]
        for text in (*table.lines(rows), *map(str, lines), *warnings, *filter(None, [alone])):
            show(text)
    for text in table.side_by_side(*pair) if len(pair) == 2 else ():
        show(text)
    plain = [{name: row[name] for name in row if name != "manifest"} for row in rows]
    for path, write, what in ((page, table.write_page, rows), (csv, table.write_csv, plain)):
        if path:
            write(Path(path), what)
            show(f"wrote {path}")
    by = experiment.score_differences(*pair) if len(pair) == 2 else {}
    fitted = {line.name: line.values() for line in lines}
    return {"competition": slug, "runs": plain, "lines": fitted, "differences": by}


def _in_runs() -> "list[Row]":
    from deploy import experiments
    from pipeline.errors import ConfigError
    from workbench.experiments import experiment

    rows = list["Row"]()
    for folder, known in experiments.found(ROOT / "runs", show).items():
        try:
            row = experiment.read(folder)
        except ConfigError as error:
            show(f"Warning: skipped a run: {str(error).splitlines()[0]}")
            continue
        if known.pop("accelerator", ""):
            known["quota_hours"] = row["minutes"] / 60
        rows.append({**row, **known})
    return rows


def _competition(rows: "Sequence[Row]") -> str:
    from deploy import init
    from pipeline import config as configs

    names = {str(row["competition"]) for row in rows}
    if len(names) == 1:
        return names.pop()
    return configs.load(init.default_config(ROOT)).competition


def _named(word: str, rows: "Sequence[Row]", competitions: Container[str]) -> "Row":
    """Return the experiment that is identified by a number, a name or a folder.

    Raises:
        UsageError: if there is no such experiment.
    """
    place = Path(word).resolve()
    for row in reversed(rows):  # newest first, because rehearsals can share a name
        folder = Path(row["folder"]).resolve()
        if word in (str(row["number"]), row["run_id"], row["run"]):
            return row
        if place in (folder, folder.parent):
            return row
    only = f" --competition {word}" if word in competitions else ""
    raise UsageError(
        f"There is no run {word!r} in the table: expected a number from 1 to {len(rows)},"
        f" owner/slug/version, or the folder of a complete training run.\ninvoke runs{only}"
    )
