"""Feed: what each call to the devices takes, in the way that suits data and machine.

- "device": the images lie on the devices, each core has a part, and a step gathers its rows there.
  The host sends numbers alone.
- "files": the images stay in their files, and every CPU decodes them as the run goes.
- "host": the images lie in memory, or in a file that is mapped. Small batches are copied in the
  loop's own thread, since another thread would take the interpreter from it
  (docs/dev/findings.md). Large ones are copied by every CPU, some calls ahead, into buffers that
  are used
  again.

Batches are the same in each way, bit for bit.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from pipeline.config import Config
from pipeline.data.dataset import Batches
from pipeline.data.file_images import FileImages
from pipeline.data.row_gathering import Gatherer, take
from pipeline.errors import DeviceError
from pipeline.runtime import devices, replicas
from pipeline.train.step import Batch, TrainStep

WORDS = {
    "device": "the devices hold all inputs and gather each batch",
    "host": "this machine's cores gather each batch",
    "files": "this machine's cores decode each batch",
}
# Of a device's memory, what the images may take.
SHARE = 0.25
# Bytes of a call from which on other threads copy: they wait for the interpreter for 0.1 ms.
THREADED = 4 << 20
AHEAD = 2  # calls whose batches are begun before they are needed

Held = tuple[Any, ...]  # what lies on the devices: nothing, or all inputs


def way(asked: str, inputs: Any, count: int) -> tuple[str, str]:
    """Return how batches are made, and why.

    Args:
        asked: one of `WORDS`, or "auto".
        inputs: all examples.
        count: of devices that share them.
    """
    if isinstance(inputs, FileImages):
        needed = f'; feed="{asked}" needs them in memory' if asked in ("device", "host") else ""
        return "files", f"{_bytes(inputs.nbytes)} of decoded images{needed}"
    if asked not in ("auto", "files"):
        return asked, "as the config says"
    stats = jax.devices()[0].memory_stats() if jax.devices()[0].platform != "cpu" else None
    room, part = (stats or {}).get("bytes_limit", 0), inputs.nbytes / count
    size = f"{_bytes(inputs.nbytes)} of inputs"
    if not room:
        return "host", f"{size} lie in this machine's memory"
    if part <= SHARE * room:
        return "device", f"{size}, {_bytes(part)} a device with {_bytes(room)}"
    return "host", f"{size} are too much for the devices: {_bytes(part)} of {_bytes(room)}"


def begin(
    config: Config,
    batches: Batches,
    step: TrainStep,
    show: Callable[[str], None],
    *,
    needed: bool = True,
) -> "Feed":
    """Return the feed of a run, and say which it is.

    Args:
        needed: false where a run is complete, and nothing is fed any more.

    Raises:
        DeviceError: if the config wants the images on the devices, and they do not fit.
    """
    if not needed:
        return Feed(batches, step, "host")
    chosen, why = way(config.feed, batches.inputs, step.replicas)
    show(f"Feed: {WORDS[chosen]} ({why})")
    try:
        return Feed(batches, step, chosen, asked=config.feed)
    except jax.errors.JaxRuntimeError as error:
        if chosen != "device" or not devices.exhausted(error):
            raise
        if config.feed == "device":
            raise DeviceError(
                "The inputs do not fit into the memory of the devices.\n"
                'Set feed="host" or "auto" in the config; batches stay the same.'
            ) from error
    show(f"The devices have no room for the inputs after all: {WORDS['host']}")
    return Feed(batches, step, "host")


def _bytes(number: float) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.1f} MB"


class Feed:
    """The batches of a run. It is a context.

    Args:
        batches: of training.
        step: places arrays on the devices, and draws what augmentation needs.
        way: one of `WORDS`. asked: `feed` of the config.

    Attributes:
        held: what lies on the devices: nothing, or the images.
    """

    def __init__(self, batches: Batches, step: TrainStep, way: str, *, asked: str = "auto") -> None:
        self._batches, self._step, self._asked = batches, step, asked
        self._steps = step.steps_per_call
        self.held: Held = ()
        # The places of a batch that this process computes.
        self._part = replicas.part(step.mesh, batches.batch)
        shape = (self._steps, self._part.stop - self._part.start, *batches.inputs.shape[1:])
        self._shape, self._kind = shape, batches.inputs.dtype
        self._large = int(np.prod(shape)) * self._kind.itemsize >= THREADED
        self._gatherer: Gatherer | None = None
        if way == "device":
            self.held = (replicas.hold(step.mesh, batches.inputs, batches.rows),)
        elif self._large or way == "files":
            self._gatherer = Gatherer(batches.inputs)
        self._free: list[np.ndarray] = []
        self._used: deque[tuple[int, np.ndarray]] = deque()

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *_: object) -> None:
        if self._gatherer:
            self._gatherer.__exit__()

    def calls(self, spans: Iterator[tuple[int, int]]) -> Iterator[tuple[Batch, int]]:
        """Yield batches and the number of steps of each call, for each (first step, number)."""
        if self._gatherer is None:
            for first, number in spans:
                yield self._call(first, number, self._images(first, number)), number
            return
        begun: deque[tuple[int, int, np.ndarray, list[Future[Any]]]] = deque()
        while True:
            while len(begun) <= AHEAD and (span := next(spans, None)) is not None:
                begun.append((*span, *self._begin(*span)))
            if not begun:
                return
            first, number, images, futures = begun.popleft()
            _wait(futures)
            self._used.append((first + number, images))
            yield self._call(first, number, images), number

    def release(self, steps: range, show: Callable[[str], None]) -> Batch | None:
        """Take the inputs off the devices, and return the batches of a call; None if there are
        none, or the config wants them there.
        """
        if not self.held or self._asked == "device":
            return None
        show(f"Out of memory; the inputs leave the devices: {WORDS['host']}")
        self.held = ()
        if self._large:
            self._gatherer = Gatherer(self._batches.inputs)
        first, number = steps.start, len(steps)
        return self._call(first, number, self._images(first, number))

    def ended(self, step: int) -> None:
        """Note that the devices have done all steps before this one: their buffers are free."""
        while self._used and self._used[0][0] <= step:
            self._free.append(self._used.popleft()[1])

    def _call(self, first: int, number: int, images: np.ndarray) -> Batch:
        """Return a call's batches on the devices. Padding to one shape is not computed."""
        steps, more = range(first, first + number), self._steps - number
        labels = [self._batches.labels_of(step) for step in steps]
        draws = [self._step.augmentation.draws(step) for step in steps]
        padded = [
            jax.tree.map(lambda *parts: np.stack(parts), *each, *each[:1] * more)
            for each in (labels, draws)
        ]
        mesh = self._step.mesh
        if self.held:
            placed = replicas.put(mesh, images, axis=None)
        else:
            placed = replicas.put_part(mesh, images, self._batches.batch, axis=1)
        return Batch(*placed, *replicas.put(mesh, *padded, axis=1))

    def _images(self, first: int, number: int) -> np.ndarray:
        """Return a call's images, or where they lie on the devices."""
        steps = range(first, first + number)
        if self.held:
            found = np.zeros((self._steps, self._batches.batch), np.int32)
            for place, step in enumerate(steps):
                found[place] = self._batches.indices(step)
            return found
        found = np.empty(self._shape, self._kind)
        for place, step in enumerate(steps):
            rows = self._batches.rows_of(step)[self._part]
            if self._gatherer is None:
                take(self._batches.inputs, rows, found[place])
            else:
                _wait(self._gatherer.begin(rows, found[place]))
        return found

    def _begin(self, first: int, number: int) -> tuple[np.ndarray, list[Future[Any]]]:
        assert self._gatherer is not None  # noqa: S101 - `calls` has seen to it
        images = self._free.pop() if self._free else np.zeros(self._shape, self._kind)
        return images, [
            future
            for place in range(number)
            for future in self._gatherer.begin(
                self._batches.rows_of(first + place)[self._part], images[place]
            )
        ]


def _wait(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.result()
