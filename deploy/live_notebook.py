"""The notebook of the smoke test: the code of `probe`, and one call of it."""

import json
from pathlib import Path
from typing import Any

from deploy import probe


def text(part: str, marker: str, **arguments: Any) -> str:
    """Return the .ipynb that does one part of the test.

    Args:
        part: as `probe.run` takes it.
        marker: what tells this notebook from all others; it is in the text.
        arguments: more of `probe.run`.
    """
    words = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    cells = [
        {
            "cell_type": "markdown",
            "source": f"`invoke doctor --live`, {part}, {marker}. It deletes this at its end.",
        },
        _code(Path(probe.__file__).read_text(encoding="utf-8")),
        _code(f"run({part!r}, {marker!r}, {words})"),
    ]
    for place, cell in enumerate(cells):
        cell |= {"id": f"cell-{place}", "metadata": {}}
    kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernelspec}}
    return json.dumps({**notebook, "nbformat": 4, "nbformat_minor": 5})


def _code(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": [], "execution_count": None}
