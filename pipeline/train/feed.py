"""Provide the batches for each call, in the way that best suits the data and the machine.

- "device": the images are on the devices, split over all cores. The host only sends row indices.
- "files": the images are decoded from their files during the run, on all CPU cores.
- "host": the images are in memory or in a mapped file. Small batches are copied in the loop's
  thread, since another thread would compete for the interpreter (docs/dev/findings.md). Large
  batches are copied by all cores, a few calls ahead.

Batches are bit-for-bit identical in all three cases.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from pipeline.config import Config
from pipeline.data.dataset import Batches
from pipeline.data.image_arrays import FileImages
from pipeline.data.row_gathering import Gatherer, ahead, take
from pipeline.runtime import replicas
from pipeline.train.progress_log import Show
from pipeline.train.step import Batch, TrainStep

# Maximum fraction of device memory used for images.
SHARE = 0.25
# Minimum number of bytes per call for which threads copy the batches. Each thread waits 0.1 ms for
# the interpreter.
THREADED = 4 << 20
AHEAD = 2  # number of calls whose batches are copied in advance

Begun = tuple[int, int, np.ndarray, list[Future[Any]]]  # first step, steps, images, pending copies


def way(asked: str, inputs: Any, count: int) -> str:
    """Return how to provide batches: "device", "host" or "files".

    `asked` can also be "auto". `count` is the number of devices that would hold the inputs.
    """
    if isinstance(inputs, FileImages):
        return "files"
    if asked not in ("auto", "files"):
        return asked
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    room = (stats or {}).get("bytes_limit", 0)
    return "device" if inputs.nbytes / count <= SHARE * room else "host"


def begin(config: Config, batches: Batches, step: TrainStep, show: Show) -> "Feed":
    chosen = way(config.feed, batches.inputs, step.replicas)
    show(f"Feed: {chosen}, with {batches.inputs.nbytes / 1e6:,.1f} MB of inputs")
    return Feed(batches, step, chosen)


class Feed:
    """Context manager that provides the batches of a run.

    Attributes:
        held: (images,) if they are on the devices, else ().
    """

    def __init__(self, batches: Batches, step: TrainStep, way: str) -> None:
        self._batches, self._step, self._steps = batches, step, step.steps_per_call
        # The batch indices that this process computes.
        self._part = replicas.part(step.mesh, batches.batch)
        size = self._part.stop - self._part.start
        self._shape = (self._steps, size, *batches.inputs.shape[1:])
        large = int(np.prod(self._shape)) * batches.inputs.dtype.itemsize >= THREADED
        self.held: tuple[Any, ...] = ()
        self._gatherer: Gatherer | None = None
        if way == "device":
            self.held = (replicas.hold(step.mesh, batches.inputs, batches.rows),)
        elif large or way == "files":
            self._gatherer = Gatherer(batches.inputs)
        self._free: list[np.ndarray] = []
        self._used: deque[tuple[int, np.ndarray]] = deque()

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *_: object) -> None:
        if self._gatherer:
            self._gatherer.__exit__()

    def calls(self, spans: Iterator[tuple[int, int]]) -> Iterator[tuple[Batch, int]]:
        """Yield the batches and the number of steps for each span. A span consists of the first
        step and the number of steps.
        """
        for begun in ahead(self._begin, spans, AHEAD if self._gatherer else 0):
            yield self._call(begun), begun[1]

    def ended(self, step: int) -> None:
        """Release the buffers of all steps before `step`. The devices must have completed them."""
        while self._used and self._used[0][0] <= step:
            self._free.append(self._used.popleft()[1])

    def _begin(self, span: tuple[int, int]) -> Begun:
        first, number = span
        if self.held:
            steps = [first + min(place, number - 1) for place in range(self._steps)]
            return first, number, np.array([*map(self._batches.indices, steps)], np.int32), []
        inputs, futures = self._batches.inputs, list[Future[Any]]()
        images = self._free.pop() if self._free else np.zeros(self._shape, inputs.dtype)
        for place in range(number):
            rows = self._batches.rows_of(first + place)[self._part]
            if self._gatherer:
                futures += self._gatherer.begin(rows, images[place])
            else:
                take(inputs, rows, images[place])
        return first, number, images, futures

    def _call(self, begun: Begun) -> Batch:
        first, number, images, futures = begun
        for future in futures:
            future.result()
        steps, mesh = range(first, first + number), self._step.mesh
        labels = [self._batches.labels_of(step) for step in steps]
        draws = [self._step.augmentation.draws(step) for step in steps]
        padded = [
            jax.tree.map(lambda *parts: np.stack(parts), *each, *each[:1] * (self._steps - number))
            for each in (labels, draws)
        ]
        if self.held:
            placed = replicas.put(mesh, images, axis=None)
        else:
            placed = replicas.put_part(mesh, images, self._batches.batch, axis=1)
            self._used.append((first + number, images))
        return Batch(*placed, *replicas.put(mesh, *padded, axis=1))
