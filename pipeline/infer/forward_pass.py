"""Forward pass: a model's outputs for block after block, computed while the host does something
else.

One program serves all folds, since weights are its arguments. Batches are submitted without waiting
for their outputs, which are collected later. The batch doubles from `FIRST` on, on rows that have
to be computed anyway, as long as that pays and fits.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from pipeline.data.row_gathering import padded
from pipeline.errors import DeviceError
from pipeline.runtime import devices

FIRST = 32
BLOCK, ROOM = 1024, 1 << 26
GROWTH = 1.05  # a doubling that speeds up by less than this is the last one


class Batch:
    """How many rows a device gets at once.

    Args:
        fixed: this number, halved where it does not fit; None: `FIRST`, doubled while that pays.
        most: rows of a block.

    Attributes:
        size: rows.
        growing: whether a larger size may follow.

    >>> batch = Batch(None, 1024)
    >>> batch.measured(rate=1000.0, compiling=0.1, remaining=60.0)
    >>> batch.size
    64
    >>> batch.measured(rate=1010.0, compiling=0.1, remaining=60.0)
    >>> batch.size, batch.growing
    (64, False)
    """

    def __init__(self, fixed: int | None, most: int) -> None:
        self.size, self.most = min(fixed or FIRST, most), most
        self.growing = fixed is None and self.size * 2 <= most
        self._rates: list[tuple[float, int]] = []

    def measured(self, *, rate: float, compiling: float, remaining: float) -> None:
        """Choose the next size, or the best one so far for good.

        Args:
            rate: rows a second at this size.
            compiling: seconds that its program took.
            remaining: seconds that the remaining rows take at this rate.
        """
        if not self.growing:
            return
        before = self._rates[-1][0] if self._rates else rate / 2
        self._rates.append((rate, self.size))
        grown = rate / before
        # Another doubling may save as much as the last one did, and has to save more than compiling
        # costs.
        pays = grown > GROWTH and remaining * (1 - 1 / grown) > compiling
        if pays and self.size * 2 <= self.most:
            self.size *= 2
        else:
            self.growing, self.size = False, max(self._rates)[1]

    def failed(self) -> bool:
        """Halve the size for good, and return whether that was possible."""
        self.growing, self.most = False, self.size // 2
        self.size = max(self.size // 2, 1)
        return self.most > 0


@dataclass(frozen=True)
class Submitted:
    """What was submitted: outputs of each fold by batches, on the device; how many rows of each
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
        folds: how many models.
        batch: rows at once.
        compiling: seconds spent on first calls, in all.
    """

    def __init__(self, models: Sequence[Any]) -> None:
        self.folds, self.batch, self.compiling = len(models), Batch(FIRST, FIRST), 0.0
        self._clock: Callable[[], float] = time.monotonic
        self._show: Callable[[str], None] = print
        self._weights = [_weights(model) for model in models]
        self._call = _compiled(models[0])
        # TensorFlow on a CPU computes before it returns.
        self._blocking = keras.backend.backend() == "tensorflow" and not _gpu()
        self._compiled_in: dict[int, float] = {}
        self._seconds: list[float] = []

    def begin(self, batch: Batch, clock: Callable[[], float], show: Callable[[str], None]) -> None:
        """Begin a test set; `show` takes a line for each size that does not fit."""
        self.batch, self._clock, self._show, self._seconds = batch, clock, show, []

    @property
    def blocking(self) -> bool:
        """Whether `submit` returns only when the outputs are computed, as while sizes are tried."""
        return self.batch.growing or self._blocking

    def outputs(self, inputs: np.ndarray, batch: int | None = None) -> list[np.ndarray]:
        """Return the outputs of each fold, float32 (n, outputs), in batches of `batch` rows."""
        return self.collect(self.submit(inputs, self.folds, batch))

    def submit(self, inputs: np.ndarray, folds: int, batch: int | None = None) -> Submitted:
        """Submit all rows to the first `folds` models, and return without waiting for outputs.

        Raises:
            DeviceError: if not even one row fits into the device's memory.
        """
        while True:
            try:
                return self._submit(inputs, folds, batch or self.batch.size)
            except Exception as error:
                self._halve(error, batch)

    def collect(self, submitted: Submitted) -> list[np.ndarray]:
        """Wait for the outputs of each fold, and return them: float32 (n, outputs).

        Raises:
            DeviceError: as `submit`.
        """
        while True:
            try:
                return [
                    np.concatenate(
                        [
                            np.asarray(keras.ops.convert_to_numpy(part), np.float32)[:real]
                            for part, real in zip(parts, submitted.real, strict=True)
                        ]
                    )
                    for parts in submitted.folds
                ]
            except Exception as error:  # a device may report only now that it had no memory
                self._halve(error, None)
                submitted = self.submit(submitted.inputs, len(submitted.folds))

    def choose_batch(self, remaining: Callable[[float], float]) -> None:
        """Choose the batch of the next block, from how fast this one's was.

        Args:
            remaining: takes rows a second, and returns the seconds that the remaining rows take.
        """
        if not self.batch.growing or not self._seconds:
            return
        size, rate = self.batch.size, self.batch.size / max(statistics.median(self._seconds), 1e-9)
        compiling = self._compiled_in[size]
        self.batch.measured(rate=rate, compiling=compiling, remaining=remaining(rate))
        self._seconds = []

    def _submit(self, inputs: np.ndarray, folds: int, size: int) -> Submitted:
        found: list[list[Any]] = [[] for _ in range(folds)]
        real = []
        for part, rows in padded(inputs, size):
            real.append(rows)
            placed = keras.ops.convert_to_tensor(part)  # once for all folds
            for own, weights in zip(found, self._weights, strict=False):
                begun = self._clock()
                own.append(self._call(weights, placed))
                if size in self._compiled_in and not self.batch.growing:
                    continue
                keras.ops.convert_to_numpy(own[-1])  # waits: a size that is tried is timed
                seconds = self._clock() - begun
                if size not in self._compiled_in:
                    self._compiled_in[size] = seconds
                    self.compiling += seconds
                else:
                    self._seconds.append(seconds)
        return Submitted(tuple(map(tuple, found)), tuple(real), inputs)

    def _halve(self, error: Exception, fixed: int | None) -> None:
        """Halve the batch if the error is a lack of memory; raise any other error, and that of a
        batch that is fixed or of one row.
        """
        if not devices.exhausted(error) or fixed is not None:
            raise error
        size = self.batch.size
        if not self.batch.failed():
            raise DeviceError(
                "Not even one row fits into the device's memory:"
                f" {str(error).splitlines()[0][:300]}\n"
                "Expected room for the model and a row. End what else uses this device, or use a"
                " smaller model."
            ) from error
        self._seconds = []
        self._show(f"Out of memory at {size} rows at once; retrying with {self.batch.size}")


def block(inputs: np.ndarray, total: int) -> int:
    """Return how many rows a block has: a power of two, at most `BLOCK` and `ROOM` bytes.

    There are 32 blocks or more if there are enough rows: while the first one is decoded, the device
    waits.

    Args:
        inputs: any, for the size of one.
        total: rows.

    >>> image = np.zeros((1, 224, 224, 3), np.uint8)
    >>> block(image, 100_000), block(image[:, :8, :8], 100_000), block(image[:, :8, :8], 3_000)
    (256, 1024, 64)
    """
    fits = min(ROOM * len(inputs) // inputs.nbytes, max(total // 32, FIRST), BLOCK)
    return int(2 ** (max(fits, 1).bit_length() - 1))


def _weights(model: Any) -> tuple[list[Any], list[Any]]:
    groups = model.trainable_variables, model.non_trainable_variables
    trainable, other = ([keras.ops.convert_to_tensor(v.value) for v in group] for group in groups)
    return trainable, other


def _compiled(model: Any) -> Callable[[Any, Any], Any]:
    def call(weights: tuple[list[Any], list[Any]], inputs: Any) -> Any:
        return model.stateless_call(*weights, inputs, training=False)[0]

    if keras.backend.backend() == "jax":
        import jax

        def exactly(*given: Any) -> Any:  # a GPU would round float32 to TF32's 11 bits
            with jax.default_matmul_precision("highest"):
                return call(*given)

        return jax.jit(exactly)
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    # On a CPU not by XLA: oneDNN's convolutions are as fast, and ready in a third of the time.
    compiled: Callable[[Any, Any], Any] = tf.function(call, jit_compile=_gpu())
    return compiled


def _gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
