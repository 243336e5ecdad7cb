"""python -m proofs SUBJECT [--short] [--only TEXT] [--record] [--json]: measure again what
docs/results.md claims. `invoke prove` starts it.
"""

import argparse
import os
from importlib import import_module
from typing import Any

from commands.console import ROOT, reported, show
from commands.local import SUBJECTS
from deploy.errors import UsageError
from proofs.shared import module_process, results_table


@reported
def prove(subject: str, *, short: bool, only: str, record: bool, json: bool) -> dict[str, Any]:
    """Measure one subject, show each row, and return the table with its exit code."""
    if subject not in SUBJECTS:
        raise UsageError(
            f"Nothing is claimed about {subject!r}; expected one of: {', '.join(SUBJECTS)}."
        )
    if short:  # what it computes itself, it computes as the tests do
        flags = f"{module_process.EIGHT} {module_process.UNOPTIMIZED}"
        os.environ.update(module_process.environment(ROOT, flags=flags))
    pictures = ROOT / "docs" / "pictures" if record else None
    rows = import_module(f"proofs.{subject}.claims").rows(
        ROOT, short=short, show=show, pictures=pictures
    )
    command = f"invoke prove {subject}{' --short' if short else ''}"
    measured = results_table.measure(subject, rows, ROOT, command=command, show=show, only=only)
    if not measured.rows:
        raise UsageError(f"--only {only}: no claim of {subject} has these words.\nCorrect them.")
    if record:
        results_table.record(measured, ROOT / "docs" / "results.md", only=only)
    missed = sum(not row.passed for row in measured.rows)
    show(f"{len(measured.rows) - missed} of {len(measured.rows)} claims hold")
    return {**measured.to_json(), "exit_code": 0 if measured.passed else 1}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        "invoke prove", description=__doc__, epilog="Example: invoke prove scale --short"
    )
    parser.add_argument("subject", help=f"one of: {', '.join(SUBJECTS)}")
    parser.add_argument("--only", default="", help="words of the claims to measure")
    for option in ("--short", "--record", "--json"):
        parser.add_argument(option, action="store_true")
    prove(**vars(parser.parse_args()))
