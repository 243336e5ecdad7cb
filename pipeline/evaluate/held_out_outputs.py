"""Held-out outputs: what a model says of its held-out rows, after an epoch and at the end.

At the end all replicas compute them, in the precision of the training. That belongs to the session
as training does: it stops before the session ends, and the same command resumes it.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from formats import atomic_file, npz
from pipeline.data.labels import Target
from pipeline.data.row_gathering import blocks
from pipeline.errors import PipelineError
from pipeline.evaluate.metrics import Metric
from pipeline.runtime import replicas
from pipeline.train.session import Session

FILE = "held-out.npz"
SAVE_SECONDS = 60.0
IN_FLIGHT = 4  # batches


@dataclass(frozen=True)
class EpochScore:
    """Scores a model after an epoch by the competition's metric. `Config.keep="best"` and
    `Config.patience` follow it.

    Attributes:
        metric: of the competition.
        target: what the labels mean.
        labels: of the held-out rows, as `pipeline.data.labels.read` returns them.
        show: takes a warning where the metric has no value.
    """

    metric: Metric
    target: Target
    labels: np.ndarray
    show: Callable[[str], None]

    def of(self, outputs: np.ndarray) -> dict[str, float]:
        """Return {"validation_<metric>": its value}, or nothing if it has none.

        Args:
            outputs: of the model for these rows, float32 (n, outputs).
        """
        try:
            truth, predictions = self.target.truth(self.labels), self.target.predictions(outputs)
            return {self.name: self.metric(truth, predictions)}
        except PipelineError as error:
            self.show(
                f"Warning: {self.metric.name} has no value for {len(outputs)} validation rows after"
                f" this epoch, so its loss decides: {str(error).splitlines()[0]}"
            )
            return {}

    def order(self, metrics: Mapping[str, float]) -> tuple[bool, float, float]:
        """Return what is greater for the better of two epochs: by the metric, of equals by the
        validation loss. An epoch without a value comes after all that have one.

        Args:
            metrics: of an epoch: validation_loss, and what `of` returns.
        """
        value, loss = metrics.get(self.name), -metrics["validation_loss"]
        return (False, 0.0, loss) if value is None else (True, self.metric.sign * value, loss)

    @property
    def name(self) -> str:
        """What an epoch's score is called in history.csv."""
        return f"validation_{self.metric.name}"


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
        folder: keeps finished outputs in held-out.npz, for the next session.
        run: of the trained weights and the precision: those of others are not used.
        session: is told of progress, and says when to stop.
    """
    digest = hashlib.sha256(f"{run} {len(rows)} ".encode() + rows.tobytes()).hexdigest()
    done = _saved(folder / FILE, digest)
    saved, in_flight = time.monotonic(), deque[tuple[float, int, Any]]()

    def finish(batches: int) -> float:
        """Take the oldest batches, and return the seconds that the slowest took."""
        slowest = 0.0
        for _ in range(batches):
            begun, real, outputs = in_flight.popleft()
            done.append(np.asarray(outputs, np.float32)[:real])
            session.progress()
            slowest = max(slowest, time.monotonic() - begun)
        return slowest

    slowest, start = 0.0, sum(map(len, done))
    for block, real in blocks(inputs, rows[start:], batch):
        (placed,) = replicas.put(mesh, block)
        in_flight.append((time.monotonic(), real, forward(placed)))
        start += real
        slowest = max(slowest, finish(len(in_flight) - IN_FLIGHT))
        stop = session.over(2 * slowest)
        if stop or time.monotonic() - saved > SAVE_SECONDS:
            finish(len(in_flight))
            _save(folder / FILE, digest, done)
            saved = time.monotonic()
        if stop and start < len(rows):
            return None
    finish(len(in_flight))
    _save(folder / FILE, digest, done)
    return np.concatenate(done)


def _save(path: Path, digest: str, done: list[np.ndarray]) -> None:
    of = np.frombuffer(bytes.fromhex(digest), np.uint8)
    atomic_file.write(path, npz.to_bytes({"of": of, "outputs": np.concatenate(done)}))


def _saved(path: Path, digest: str) -> list[np.ndarray]:
    """Return what an earlier session saved of these rows by these weights."""
    try:
        arrays = npz.read(path)
        same = arrays["of"].tobytes().hex() == digest and arrays["outputs"].dtype == np.float32
        return [arrays["outputs"]] if same else []
    except Exception:  # no file, or a corrupt one, of which numpy and zipfile raise a dozen kinds
        return []  # nothing is lost: all of it is computed again
