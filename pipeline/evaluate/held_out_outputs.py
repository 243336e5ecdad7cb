"""Held-out outputs: what a trained model says of its held-out rows, by all replicas, in the
precision of the training.

It belongs to the session as training does: it stops before the session ends, and the same command
goes on where it stopped.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from formats import atomic_file, npz
from pipeline.data.row_gathering import blocks
from pipeline.runtime import replicas
from pipeline.train.session import Session

FILE = "held-out.npz"
SAVE_SECONDS = 60.0
IN_FLIGHT = 4  # batches


def compute(
    forward: Callable[[Any], Any],
    inputs: Any,
    rows: np.ndarray,
    *,
    mesh: Any,
    batch: int,
    folder: Path,
    run: str,
    session: Session,
) -> np.ndarray | None:
    """Return the outputs for some rows, float32 (n, outputs), or None if the session ends first.

    Args:
        forward: from inputs (`batch`, …) on the devices to outputs.
        inputs: of all examples.
        rows: int64 (n,).
        mesh: of the devices; None for one.
        batch: rows at once, over all replicas.
        folder: keeps what is done in held-out.npz, for the next session.
        run: of the trained weights and the precision: what others said is not used.
        session: is told of progress, and says when to stop.
    """
    digest = hashlib.sha256(f"{run} {len(rows)} ".encode() + rows.tobytes()).hexdigest()
    done = _kept(folder / FILE, digest)
    saved, flying = time.monotonic(), deque[tuple[float, int, Any]]()

    def arrived() -> float:
        """Take the oldest batch, and return the seconds that it took."""
        begun, real, outputs = flying.popleft()
        done.append(np.asarray(outputs, np.float32)[:real])
        session.progress()
        return time.monotonic() - begun

    slowest, start = 0.0, sum(map(len, done))
    for block, real in blocks(inputs, rows[start:], batch):
        (placed,) = replicas.put(mesh, block)
        flying.append((time.monotonic(), real, forward(placed)))
        start += real
        if len(flying) > IN_FLIGHT:
            slowest = max(slowest, arrived())
        stop = session.over(2 * slowest)
        if stop or time.monotonic() - saved > SAVE_SECONDS:
            while flying:
                arrived()
            _keep(folder / FILE, digest, done)
            saved = time.monotonic()
        if stop and start < len(rows):
            return None
    while flying:
        arrived()
    _keep(folder / FILE, digest, done)
    return np.concatenate(done)


def _keep(path: Path, digest: str, done: list[np.ndarray]) -> None:
    of = np.frombuffer(bytes.fromhex(digest), np.uint8)
    atomic_file.write(path, npz.to_bytes({"of": of, "outputs": np.concatenate(done)}))


def _kept(path: Path, digest: str) -> list[np.ndarray]:
    """Return what an earlier session kept of these rows by these weights."""
    if not path.is_file():
        return []
    try:
        found = npz.read(path)
        outputs = found["outputs"]
        if found["of"].tobytes().hex() != digest or outputs.dtype != np.float32:
            return []
    except Exception:  # of a corrupt file numpy and zipfile raise a dozen kinds
        return []  # nothing is lost: all of it is computed again
    return [outputs]
