"""Helpers of door tests: a config as a person writes it, beside the competition of
`write_competition`, and a way to run commands.
"""

import contextlib
import io
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from tests.deploy.invoked import Ended
from tests.shipped import copied

FIELDS: Mapping[str, Any] = {
    "competition": "four-kinds",
    "num_classes": 4,
    "model": "mlp",
    "model_options": {"width": 16, "depth": 1, "dropout": 0.1},
    "batch": 16,
    "epochs": 8,
    "warmup_epochs": 1,
    "progress_seconds": 0,
    "checkpoint_seconds": 3600,
}
DATA: Mapping[str, Any] = {
    "height": 8,
    "width": 8,
    "channels": 1,
    "crop_padding": 1,
    "validation_fraction": 1 / 12,  # two rows of each label
}
OPTIMIZER: Mapping[str, Any] = {"name": "adam", "base_rate": 2e-2, "base_batch": 8}
# A loss that is refused.
CUSTOM = """

def mine(labels, outputs):
    return outputs.sum(1)
"""


def write_config(
    folder: Path,
    more: str = "",
    data: Mapping[str, Any] | None = None,
    optimizer: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Path:
    """Write a config that trains in a few seconds, and return its path.

    Args:
        folder: gets tiny.py.
        more: Python below the config.
        data: fields of `Data` that differ.
        optimizer: fields of `Optimizer` that differ.
        fields: of `Config` that differ.
    """
    path = folder / "tiny.py"
    path.write_text(
        "from pipeline.config import Config, Data, Optimizer\n\nCONFIG = Config(\n"
        f'    name="tiny", **{dict(FIELDS) | fields!r},\n'
        f"    data=Data(**{dict(DATA) | dict(data or {})!r}),\n"
        f"    optimizer=Optimizer(**{dict(OPTIMIZER) | dict(optimizer or {})!r}),\n"
        f")\n{more}"
    )
    return path


class Shown(io.StringIO):
    """What a command prints, to a terminal or into a pipe."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._terminal


def pipeline(*words: object, terminal: bool = False) -> Ended:
    """Run `python -m pipeline` in this process, and return how it ends."""
    shown, said, code = Shown(terminal=terminal), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["pipeline", *map(str, words)]),
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(said),
    ):
        try:
            runpy.run_module("pipeline", run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
    return code, shown.getvalue(), said.getvalue()


def copy_project(folder: Path) -> Path:
    """Copy the parts of this project that a push needs, without the developer's records."""
    return copied(folder / "kaggle-relay", "benchmarks")
