"""Forward: a model's outputs for block after block, computed while the host does something else.

One program serves all folds, since weights are its arguments, and one batch follows the other
without waiting for an answer; what is asked for comes when it is taken. The batch doubles from
`FIRST` on, on the rows that have to be computed anyway, as long as that pays and fits.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from pipeline.data.padded_batches import padded
from pipeline.errors import DeviceError

FIRST = 32
BLOCK, ROOM = 1024, 1 << 26
GROWTH = 1.05  # a doubling that brings less than this is the last one
LOST = ("RESOURCE_EXHAUSTED", "Out of memory", "OOM when")


class Batch:
    """How many rows a device gets at once.

    Args:
        fixed: that number, which then stays unless it does not fit; None: `FIRST`, doubled while
            the rate grows.
        most: a block, beyond which nothing can be handed over.

    Attributes:
        size: rows. growing: whether a larger one may follow.

    >>> batch = Batch(None, 1024)
    >>> batch.told(rate=1000.0, compiling=0.1, left=60.0)
    >>> batch.size
    64
    >>> batch.told(rate=1010.0, compiling=0.1, left=60.0)
    >>> batch.size, batch.growing
    (64, False)
    """

    def __init__(self, fixed: int | None, most: int) -> None:
        self.size, self.most = min(fixed or FIRST, most), most
        self.growing = fixed is None and self.size * 2 <= most
        self._rates: list[tuple[float, int]] = []

    def told(self, *, rate: float, compiling: float, left: float) -> None:
        """Take the next size, or stay with the best one from now on.

        Args:
            rate: rows a second at this size. compiling: seconds that its program took. left:
                seconds that the rest would take at this rate.
        """
        if not self.growing:
            return
        before = self._rates[-1][0] if self._rates else rate / 2
        self._rates.append((rate, self.size))
        grown = rate / before
        # Another doubling may bring as much as the last one did, and has to bring more than
        # compiling costs.
        pays = grown > GROWTH and left * (1 - 1 / grown) > compiling
        if pays and self.size * 2 <= self.most:
            self.size *= 2
        else:
            self.growing, self.size = False, max(self._rates)[1]

    def failed(self) -> bool:
        """Go back a step, for good, and return whether there is one."""
        self.growing, self.most = False, self.size // 2
        self.size = max(self.size // 2, 1)
        return self.most > 0


@dataclass(frozen=True)
class Asked:
    """What was asked for: outputs of each fold by batches, on the device; how many rows of each
    batch are real; and of which inputs.
    """

    folds: tuple[tuple[Any, ...], ...]
    real: tuple[int, ...]
    inputs: np.ndarray


class Forward:
    """The models of all folds as one compiled function.

    Args:
        models: of one architecture, one a fold.

    Attributes:
        folds: how many models. batch: what is handed over at once. compiling: seconds spent on
            first calls, in all.
    """

    def __init__(self, models: Sequence[Any]) -> None:
        self.folds, self.batch, self.compiling = len(models), Batch(FIRST, FIRST), 0.0
        self._clock: Callable[[], float] = time.monotonic
        self._show: Callable[[str], None] = print
        self._weights = [_weights(model) for model in models]
        self._call = _compiled(models[0])
        self._waits = keras.backend.backend() == "tensorflow" and not _gpu()
        self._known: dict[int, float] = {}
        self._taken: list[float] = []

    def begin(self, batch: Batch, clock: Callable[[], float], show: Callable[[str], None]) -> None:
        """Begin a test set: with this batch, this clock, and a line on each size that does not fit."""
        self.batch, self._clock, self._show, self._taken = batch, clock, show, []

    @property
    def waits(self) -> bool:
        """Whether `ask` itself takes as long as what it asks for: TensorFlow on a CPU, and sizes
        that are tried.
        """
        return self.batch.growing or self._waits

    def outputs(self, inputs: np.ndarray, batch: int | None = None) -> list[np.ndarray]:
        """Return the outputs of each fold, float32 (n, outputs), computed in batches of that size."""
        return self.take(self.ask(inputs, self.folds, batch))

    def ask(self, inputs: np.ndarray, folds: int, batch: int | None = None) -> Asked:
        """Hand over all rows for the first folds, and return without waiting for them.

        Raises:
            DeviceError: if not even one row fits into the device's memory.
        """
        while True:
            try:
                return self._ask(inputs, folds, batch or self.batch.size)
            except Exception as error:
                self._smaller(error, batch)

    def take(self, asked: Asked) -> list[np.ndarray]:
        """Wait, and return the outputs of each fold: float32 (n, outputs).

        Raises:
            DeviceError: as `ask`.
        """
        while True:
            try:
                return [
                    np.concatenate(
                        [
                            np.asarray(keras.ops.convert_to_numpy(part), np.float32)[:real]
                            for part, real in zip(parts, asked.real, strict=True)
                        ]
                    )
                    for parts in asked.folds
                ]
            except Exception as error:  # a device may say only now that it had no memory
                self._smaller(error, None)
                asked = self.ask(asked.inputs, len(asked.folds))

    def settle(self, left: Callable[[float], float]) -> None:
        """Choose the batch of the next block, from how fast this one's was.

        Args:
            left: takes rows a second, and returns the seconds that all that is left would take.
        """
        if not self.batch.growing or not self._taken:
            return
        size, rate = self.batch.size, self.batch.size / max(statistics.median(self._taken), 1e-9)
        self.batch.told(rate=rate, compiling=self._known[size], left=left(rate))
        self._taken = []

    def _ask(self, inputs: np.ndarray, folds: int, size: int) -> Asked:
        found: list[list[Any]] = [[] for _ in range(folds)]
        real = []
        for part, rows in padded(inputs, size):
            real.append(rows)
            placed = _placed(part)  # once for all folds
            for own, weights in zip(found, self._weights, strict=False):
                begun = self._clock()
                own.append(self._call(weights, placed))
                if size in self._known and not self.batch.growing:
                    continue
                _wait(own[-1])  # a size that is tried is timed
                taken = self._clock() - begun
                if size not in self._known:
                    self._known[size] = taken
                    self.compiling += taken
                else:
                    self._taken.append(taken)
        return Asked(tuple(map(tuple, found)), tuple(real), inputs)

    def _smaller(self, error: Exception, fixed: int | None) -> None:
        """Halve the batch after an error for lack of memory; raise any other error, and that of a
        batch that cannot be halved.
        """
        if not lost(error) or fixed is not None:
            raise error
        size = self.batch.size
        if not self.batch.failed():
            raise DeviceError(
                f"Not even one row fits into the device's memory: {str(error).splitlines()[0][:300]}\n"
                "Expected room for the model and a row. End what else uses this device, or take a smaller model."
            ) from error
        self._taken = []
        self._show(f"Out of memory at {size} rows at once; going on with {self.batch.size}")


def lost(error: Exception) -> bool:
    """Return whether JAX or TensorFlow say with this error that they got no memory.

    >>> lost(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 128192968 bytes."))
    True
    """
    return isinstance(error, MemoryError) or any(text in str(error) for text in LOST)


def block(inputs: np.ndarray, total: int) -> int:
    """Return how many rows a block has: a power of two, at most `BLOCK` and `ROOM` bytes, and 32
    blocks in all, if there are as many rows: while the
    first one is decoded, the device waits.

    Args:
        inputs: some that say how large one is. total: rows.

    >>> image = np.zeros((1, 224, 224, 3), np.uint8)
    >>> block(image, 100_000), block(image[:, :8, :8], 100_000), block(image[:, :8, :8], 3_000)
    (256, 1024, 64)
    """
    fits = min(ROOM * len(inputs) // inputs.nbytes, max(total // 32, FIRST), BLOCK)
    return int(2 ** (max(fits, 1).bit_length() - 1))


def _weights(model: Any) -> tuple[list[Any], list[Any]]:
    read = keras.ops.convert_to_tensor
    return [read(v.value) for v in model.trainable_variables], [
        read(v.value) for v in model.non_trainable_variables
    ]


def _compiled(model: Any) -> Callable[[Any, Any], Any]:
    def call(weights: tuple[list[Any], list[Any]], inputs: Any) -> Any:
        return model.stateless_call(*weights, inputs, training=False)[0]

    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(call)
    import tensorflow as tf

    # Not by XLA: on a CPU oneDNN's convolutions are as fast, and ready in a third of the time.
    compiled: Callable[[Any, Any], Any] = tf.function(call)
    return compiled


def _gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def _placed(part: np.ndarray) -> Any:
    if keras.backend.backend() == "jax":
        import jax

        return jax.device_put(part)
    return keras.ops.convert_to_tensor(part)


def _wait(output: Any) -> None:
    if keras.backend.backend() == "jax":
        output.block_until_ready()
    else:
        output.numpy()
