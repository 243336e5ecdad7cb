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
LOCAL = "LOCALKAGGLE_ACCELERATOR"  # set by the local Kaggle alone, to the shape that it simulates
FINDINGS = "findings"  # the name of what is printed
MARKER, NOTEBOOK = "marker.txt", "notebook"  # the file that says what wrote an output; its text
TEXTS = {".hidden": "hidden\n", "empty.txt": "", MARKER: NOTEBOOK}  # files; some may get lost
CONNECT_SECONDS = 5.0


def run(shape: str = "", reach: str = "", hold: float = 0.0) -> None:
    """Print what this session finds, and write some files.

    Args:
        shape: Kaggle's name of the machine that was asked for; "": a CPU.
        reach: host:port to which the internet should lead; "": do not try.
        hold: seconds for which the session goes on afterwards.
    """
    for name, text in TEXTS.items():
        Path(name).write_text(text)
    found: dict[str, Any] = {"layout": layout(), "markers": markers()}
    if reach:
        found["internet"] = reaches(reach)
    if shape:
        found |= accelerators(shape)
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
    places = ("*", "datasets/*/*", "notebooks/*/*")
    return [path.read_text() for place in places for path in INPUT.glob(f"{place}/{MARKER}")]


def reaches(address: str) -> bool:
    """Return whether a connection to host:port can be opened."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def accelerators(shape: str) -> dict[str, Any]:
    """Return whether JAX sees the TPU that was asked for, or how many GPUs it sees."""
    import jax

    seen, simulated = jax.devices(), os.environ.get(LOCAL, "")
    if shape.startswith("Tpu"):
        return {"verified": seen[0].platform == "tpu" or simulated == shape}
    return {"gpus": len(seen) if seen[0].platform == "gpu" or simulated == shape else 0}
