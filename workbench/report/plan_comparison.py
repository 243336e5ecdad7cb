"""What a run took, beside what the plan said before it began."""

import json
from pathlib import Path
from typing import Any

from pipeline.errors import ReportError, reading
from workbench.budget import shown
from workbench.plan import accelerators, plan, plan_command, plan_table
from workbench.plan.laws import Interval
from workbench.plan.outlook import Outlook
from workbench.plan.plan import Plan
from workbench.report.run_results import Results

MEND = "Remove it, or make the plan again: python -m workbench plan"


def of(output: Path, found: Results) -> dict[str, Any] | None:
    """Return the plan for a page, with `compared`: what was predicted of the run's machine and what
    it was, a row each; None where there was no plan.

    Raises:
        ReportError: if plan.json is corrupt.
    """
    path = plan_command.kept(output)
    if path is None:
        return None
    name = accelerators.named(str(found.manifest.get("devices") or ""))
    took = _took(found)
    with reading(path, ReportError, MEND):
        try:
            made = plan.from_json(json.loads(path.read_bytes()))
            one = next((one for one in made.outlooks if one.runtime == name), None)
            section = plan_table.section(made, {} if took is None else {name: took})
            return section | {"compared": [] if one is None else _compared(made, one, found)}
        except Exception as error:  # a corrupt plan makes a dozen kinds
            raise ReportError(f"{path} is no plan: {type(error).__name__}.\n{MEND}") from error


def _compared(made: Plan, one: Outlook, found: Results) -> list[tuple[str, str, str]]:
    lines = [fold[-1]["images_per_second"] for fold in found.lines if fold]
    took = _took(found)
    speed = sum(lines) / len(lines) if lines else None
    compared = []
    if one.total:
        predicted = f"{_text(one.total)}, {one.time_basis[:20]}"
        compared.append(("training", predicted, "" if took is None else shown(took)))
    if one.step:
        usual = made.batch / one.step.usual
        usual = usual if one.input is None else min(usual, one.input.have)
        compared.append(
            (f"{made.noun} a second", f"{usual:,.0f}", f"{speed:,.0f}" if speed else "")
        )
    return compared


def _took(found: Results) -> float | None:
    """Return the seconds of a training; None of one in several sessions, which count their own."""
    ends = [history["seconds"].tolist() for history in found.histories if "seconds" in history]
    resumed = any(one != sorted(one) for one in ends)
    seconds: float | None = None if resumed else found.part("seconds").get("total")
    return seconds


def _text(interval: Interval) -> str:
    least, usual, most = (shown(one) for one in (interval.least, interval.usual, interval.most))
    return usual if least == most else f"{usual} ({least} to {most})"
