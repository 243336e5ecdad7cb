"""What a session of `doctor --live` finds out: the code of its notebook.

Kaggle runs this text, so it imports only what every image has. It prints one line of JSON.
"""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

INPUT = Path(os.environ.get("LOCALKAGGLE_ROOT", "/kaggle")) / "input"
FINDINGS = "findings"  # the name of what is printed
MARKER, NOTEBOOK = "marker.txt", "notebook"  # the file that says what wrote an output; its text
CONNECT_SECONDS = 5.0


def run(reach: str = "", hold: float = 0.0) -> None:
    """Print what this session finds, and write the marker.

    Args:
        reach: host:port to which the internet should lead; "": do not try.
        hold: seconds for which the session goes on afterwards.
    """
    Path(MARKER).write_text(NOTEBOOK)
    found: dict[str, Any] = {"layout": layout(), "markers": markers()}
    if reach:
        found["internet"] = reaches(reach)
    print(json.dumps({FINDINGS: found}), flush=True)
    time.sleep(hold)


def layout() -> str | None:
    """Return where inputs are: as since 2026, "flat" as before, or in both places."""
    names = {path.name for path in INPUT.glob("*")}
    flat = names - {"competitions", "datasets", "notebooks"}
    if not names:
        return None
    return "2026" if not flat else "flat" if flat == names else "both"


def markers() -> list[str]:
    """Return the texts of the markers that are mounted, in any layout."""
    places = ("*", "notebooks/*/*")
    return [path.read_text() for place in places for path in INPUT.glob(f"{place}/{MARKER}")]


def reaches(address: str) -> bool:
    """Return whether a connection to host:port can be opened."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
