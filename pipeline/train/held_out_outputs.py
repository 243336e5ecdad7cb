"""Held-out outputs: what the trained model gives for its held-out rows.

All replicas compute them, in the precision of the training. That belongs to the session as training
does: it stops before the session ends, and the same command computes them in the next one.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from formats import atomic_file, npz
from pipeline.data.row_gathering import blocks
from pipeline.runtime import replicas
from pipeline.train.session import Session

FILE = "held-out.npz"
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
        folder: keeps the outputs in held-out.npz, for the next session.
        run: names the trained weights: outputs of others are not used.
        session: is told of progress, and says when to stop.
    """
    digest = hashlib.sha256(f"{run} {len(rows)} ".encode() + rows.tobytes()).hexdigest()
    with suppress(Exception):  # no file, or a corrupt one: then they are computed again
        saved = npz.read(folder / FILE)
        if saved["of"] == digest:
            return saved["outputs"]
    done, in_flight = list[np.ndarray](), deque[tuple[int, Any]]()

    def finish_oldest() -> None:
        real, outputs = in_flight.popleft()
        done.append(np.asarray(outputs, np.float32)[:real])
        session.progress()

    for block, real in blocks(inputs, rows, batch):
        if session.over(0.0):  # its margin is more than a few batches take
            return None
        in_flight.append((real, forward(*replicas.put(mesh, block))))
        if len(in_flight) > IN_FLIGHT:
            finish_oldest()
    while in_flight:
        finish_oldest()
    outputs = np.concatenate(done)
    content = npz.to_bytes({"of": np.array(digest), "outputs": outputs})
    atomic_file.write(folder / FILE, content)
    return outputs
