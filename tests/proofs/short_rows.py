"""The rows of a short proof, measured in this process: it has eight devices, and Keras already.

tests/proofs/test_proofs.py starts one as a command.
"""

from importlib import import_module
from pathlib import Path

from proofs.shared import results_table
from proofs.shared.results_table import Row

ROOT = Path(__file__).resolve().parents[2]


def short_rows(subject: str) -> tuple[Row, ...]:
    """Return the rows of `invoke prove SUBJECT --short`."""
    rows = import_module(f"proofs.{subject}.claims").rows(ROOT, short=True, show=print)
    return results_table.measure(subject, rows, ROOT, command="", show=print).rows
