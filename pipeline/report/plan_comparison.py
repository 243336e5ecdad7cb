"""What a run took, beside what the plan said before it began."""

import json
from pathlib import Path
from typing import Any

from pipeline.config.budget import shown
from pipeline.errors import ReportError, reading
from pipeline.plan.plan_command import FILE
from pipeline.report.run_results import FIX, Results

# A run's devices, by a part of what JAX calls them, and the plan's name of such a machine.
MACHINES = {
    "TPU v5 lite": "tpu-v5e-8", "TPU v6 lite": "tpu-v6e-8", "TPU v3": "tpu-v3-8",
    "TPU v2": "tpu-v2-8", "Tesla T4": "gpu-t4x2", "P100": "gpu-p100", "L4": "gpu-l4x4",
    "A100": "gpu-a100", "H100": "gpu-h100", "H200": "gpu-h200", "(cpu)": "cpu",
}  # fmt: skip


def rows(output: Path, found: Results) -> list[tuple[str, str, str]] | None:
    """Return what was predicted and what it was, a row each; None where there was no plan, or none
    of the machine that the run had.

    Raises:
        ReportError: if plan.json is corrupt.
    """
    path = output / FILE
    if not path.is_file():
        return None
    devices = str(found.manifest.get("devices") or "")
    name = next((name for part, name in MACHINES.items() if part in devices), "")
    with reading(path, ReportError, FIX):
        try:
            plan = json.loads(path.read_bytes())
            one = next((one for one in plan["outlooks"] if one["runtime"] == name), None)
            return None if one is None else _compared(plan, one, found)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ReportError(f"{path} is no plan: {type(error).__name__}.\n{FIX}") from error


def _compared(
    plan: dict[str, Any], one: dict[str, Any], found: Results
) -> list[tuple[str, str, str]]:
    total, step = one["total"], one["step"]
    lines = [fold[-1]["images_per_second"] for fold in found.lines if fold]
    seconds = found.part("seconds").get("total")
    speed = sum(lines) / len(lines) if lines else None
    compared = []
    if total:
        predicted = f"{_text(total)}, {str(one['time_basis'])[:20]}"
        compared.append(("training", predicted, "" if seconds is None else shown(seconds)))
    if step:
        usual = plan["batch"] / step["usual"]
        compared.append(("images a second", f"{usual:,.0f}", f"{speed:,.0f}" if speed else ""))
    return compared


def _text(interval: dict[str, float]) -> str:
    least, usual, most = (shown(float(interval[name])) for name in ("least", "usual", "most"))
    return usual if least == most else f"{usual} ({least} to {most})"
