"""Code of the notebook that `doctor --live` runs to inspect a session.

Kaggle runs this file as a notebook, so it only imports modules from the standard library. It prints
a single line of JSON.
"""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

INPUT = Path(os.environ.get("LOCALKAGGLE_ROOT", "/kaggle")) / "input"
FINDINGS = "findings"  # key of the printed JSON
MARKER, NOTEBOOK = "marker.txt", "notebook"  # name and content of a file that marks an output
CONNECT_SECONDS = 5.0


def run(reach: str = "", hold: float = 0.0) -> None:
    """Print the findings of this session, write the marker file, and wait.

    `reach` is a host:port to check for internet access, or "" to skip the check. `hold` is the
    number of seconds to wait.
    """
    Path(MARKER).write_text(NOTEBOOK)
    found: dict[str, Any] = {"layout": layout(), "markers": markers()}
    if reach:
        found["internet"] = reaches(reach)
    print(json.dumps({FINDINGS: found}), flush=True)
    time.sleep(hold)


def layout() -> str | None:
    """Return the layout of the inputs: "2026", "flat" (used before 2026), "both", or None."""
    names = {path.name for path in INPUT.glob("*")}
    flat = names - {"competitions", "datasets", "notebooks"}
    if not names:
        return None
    return "2026" if not flat else "flat" if flat == names else "both"


def markers() -> list[str]:
    places = ("*", "notebooks/*/*")
    return [path.read_text() for place in places for path in INPUT.glob(f"{place}/{MARKER}")]


def reaches(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
