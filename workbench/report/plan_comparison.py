"""Compare a run with the plan that was made before the run."""

import json
from pathlib import Path
from typing import Any

from workbench.budget import shown
from workbench.plan import accelerators, plan, plan_command, plan_table
from workbench.plan.outlook import Outlook
from workbench.plan.plan import Plan
from workbench.report.run_results import Results, whole


def of(output: Path, found: Results) -> dict[str, Any] | None:
    """Return the values of a run's plan for the report, or None if there is no plan.

    `compared` contains table rows. Each row has a planned and a measured value for the machine that
    the run used.
    """
    path = plan_command.kept(output)
    if path is None:
        return None
    name = accelerators.named(str(found.manifest.get("devices") or ""))
    took = _took(found)
    with whole(path, "a plan"):
        made = plan.from_json(json.loads(path.read_bytes()))
        one = next((one for one in made.outlooks if one.runtime == name), None)
        section = plan_table.section(made, {} if took is None else {name: took})
        return section | {"compared": [] if one is None else _compared(made, one, found)}


def _compared(made: Plan, one: Outlook, found: Results) -> list[tuple[str, str, str]]:
    speeds = [fold[-1]["images_per_second"] for fold in found.lines if fold]
    took, compared = _took(found), []
    if one.total:
        predicted = f"{plan_table.interval(one.total, shown)}, {one.time_basis[:20]}"
        compared.append(("training", predicted, "" if took is None else shown(took)))
    if one.step:
        usual = made.batch / one.step.usual
        usual = usual if one.input is None else min(usual, one.input.have)
        speed = f"{sum(speeds) / len(speeds):,.0f}" if speeds else ""
        compared.append((f"{made.noun} per second", f"{usual:,.0f}", speed))
    return compared


def _took(found: Results) -> float | None:
    """Return a run's duration in seconds, or None if sessions were timed separately."""
    ends = [history["seconds"].tolist() for history in found.histories if "seconds" in history]
    resumed = any(one != sorted(one) for one in ends)
    seconds: float | None = None if resumed else found.part("seconds").get("total")
    return seconds
