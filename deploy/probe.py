"""What a session of the smoke test looks at: the code of its notebook.

Kaggle runs this text, so it imports only the standard library and what every image has. Each line
that it prints is one JSON object, whose `about` says what it is about.
"""

import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("LOCALKAGGLE_ROOT", "/kaggle"))
LOCAL = "LOCALKAGGLE_ACCELERATOR"  # set by the local Kaggle alone, to the shape that it simulates
MARKER = "marker.txt"  # says who wrote an output or a dataset
BEFORE = "before.txt"  # is written before the session is killed
MANY = 600  # small files: a page of a listing has 100
ENTRIES_AT_MOST = 20  # shown of one folder
CONNECT_SECONDS = 5.0
PACKAGES = (
    *("numpy", "pandas", "scipy", "scikit-learn", "pillow", "opencv-python"),
    *("opencv-python-headless", "keras", "tensorflow", "tensorflow-cpu", "jax", "jaxlib", "libtpu"),
    *("torch", "kaggle", "kagglehub", "papermill"),
)
# In a process of its own, since one process at a time holds a TPU.
JIT = """
import json, sys, time
import jax
jax.config.update("jax_compilation_cache_dir", "compiled")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
devices = jax.devices()
began = time.monotonic()
jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((256, 256))).block_until_ready()
print(json.dumps({
    "platform": devices[0].platform, "kind": devices[0].device_kind, "count": len(devices),
    "seconds": round(time.monotonic() - began, 2),
}))
"""


def run(
    part: str,
    marker: str,
    *,
    reach: tuple[str, ...] = (),
    hold: float = 0.0,
    sample: str = "",
) -> None:
    """Look at this session, and do one part of the test.

    Args:
        part: "files", "sources", "killed", "tpu", "gpu" or "submit".
        marker: what this session's output says of itself.
        reach: addresses, as host:port, that the internet should lead to.
        hold: seconds for which the session goes on afterwards.
        sample: the competition's file that is submitted.
    """
    look(reach)
    Path(MARKER).write_text(f"{marker}\n")
    if part == "files":
        write_files()
    elif part == "sources":
        say("mounted", markers=mounted())
    elif part == "killed":
        Path(BEFORE).write_text("written before the session was killed\n")
    elif part == "tpu":
        say("tpu", first=jitted(), again=jitted(), simulated=os.environ.get(LOCAL, ""))
    elif part == "gpu":
        say("gpu", **gpus())
    elif part == "submit":
        write_submission(sample)
    say("holds", seconds=hold)
    time.sleep(hold)
    say("ends")


def say(about: str, **values: Any) -> None:
    """Print one line."""
    print(json.dumps({"about": about, **values}), flush=True)


def look(reach: tuple[str, ...]) -> None:
    """Say what every session is: names of variables, versions, inputs, the internet."""
    say("environment", names=sorted(os.environ))
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    say("versions", **found)
    say("input", entries=tree(ROOT / "input", 3))
    say("internet", reached=[address for address in reach if reaches(address)], tried=reach)


def tree(folder: Path, levels: int) -> list[tuple[str, str]]:
    """Return (path below the folder, real path) of what is in it, the first of each folder."""
    found: list[tuple[str, str]] = []
    folders = [folder] if folder.is_dir() else []
    for _ in range(levels):
        inside = [path for each in folders for path in islice(each.iterdir(), ENTRIES_AT_MOST)]
        found += [(str(path.relative_to(folder)), str(path.resolve())) for path in sorted(inside)]
        folders = [path for path in inside if path.is_dir()]
    return found


def reaches(address: str) -> bool:
    """Return whether a connection to host:port can be opened."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def write_files() -> None:
    """Write files of the kinds that may get lost, and say what is in each."""
    import numpy as np

    texts = {".hidden": "hidden\n", "empty.txt": "", "nested/deep/file.txt": "nested\n"}
    texts |= {"table.csv": "id,value\n1,0.5\n"}
    texts |= {f"many/{number:03}.txt": f"{number}\n" for number in range(MANY)}
    for name, text in texts.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    np.savez("arrays.npz", numbers=np.arange(1000))
    names = [".hidden", "empty.txt", "nested/deep/file.txt", "table.csv", "arrays.npz", MARKER]
    say("files", files={name: digest(Path(name)) for name in names}, many=MANY)


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def mounted() -> dict[str, str]:
    """Return {path below /kaggle/input: text} of the markers that are mounted, in any layout."""
    inputs = ROOT / "input"
    found = [*inputs.glob(f"*/{MARKER}"), *inputs.glob(f"*/*/*/{MARKER}")]
    return {str(path.relative_to(inputs)): path.read_text().strip() for path in sorted(found)}


def jitted(**variables: str) -> dict[str, Any]:
    """Return what JAX computes on, and how long it compiles; again, it finds what it compiled."""
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", JIT],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return {"failed": done.stderr[-500:]}
    return found


def gpus() -> dict[str, Any]:
    """Return how many GPUs there are, and what two processes, one on each, see of them."""
    listed = None
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--list-gpus"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        listed = [line.partition(" (UUID")[0] for line in done.stdout.splitlines()]
    seen = jitted()
    each = [jitted(CUDA_VISIBLE_DEVICES=str(number)) for number in range(len(listed or ()))]
    count = len(listed) if listed is not None else seen.get("count")
    if listed is None and not os.environ.get(LOCAL):
        count = 0
    return {"count": count, "listed": listed, "jax": seen, "alone": each}


def write_submission(sample: str) -> None:
    """Submit the competition's sample: it is valid, and nobody takes it for a result."""
    inputs = ROOT / "input"
    found = sorted([*inputs.glob(f"*/{sample}"), *inputs.glob(f"*/*/{sample}")])
    if found:
        shutil.copyfile(found[0], "submission.csv")
    say("submission", found=[str(path) for path in found])
