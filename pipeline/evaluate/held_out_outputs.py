"""Held-out outputs: what a model says of its held-out rows, after an epoch and at the end.

At the end all replicas compute them, in the precision of the training. That belongs to the session
as training does: it stops before the session ends, and the same command resumes it.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
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
    done, in_flight = list[np.ndarray](), deque[tuple[int, Any]]()
    with suppress(Exception):  # no file, or a corrupt one: then all of it is computed again
        saved = npz.read(folder / FILE)
        done += [saved["outputs"]] if saved["of"] == digest else []

    def finish_oldest() -> None:
        real, outputs = in_flight.popleft()
        done.append(np.asarray(outputs, np.float32)[:real])
        session.progress()

    for block, real in blocks(inputs, rows[sum(map(len, done)) :], batch):
        in_flight.append((real, forward(*replicas.put(mesh, block))))
        if len(in_flight) > IN_FLIGHT:
            finish_oldest()
        if session.over(0.0):  # its margin is more than a few batches take
            break
    while in_flight:
        finish_oldest()
    found = np.concatenate(done)
    content = npz.to_bytes({"of": np.array(digest), "outputs": found})
    atomic_file.write(folder / FILE, content)
    return found if len(found) == len(rows) else None
