"""Predict: the rows of a test set through an artifact's models, block by block, in time.

A block is what the device computes at once. One compiled function serves all folds, since weights
are its arguments. While the device computes a block, the host decodes the next ones; so memory
grows with the predictions alone. Where a block does not fit into the device's memory, the batch is
halved for good.

Where time is short, views are left out first, then folds, and then the remaining rows keep the mean
prediction.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from pipeline.artifact import Artifact
from pipeline.data.row_gathering import padded
from pipeline.data.test_set import TestSet
from pipeline.errors import DeviceError
from pipeline.infer.views import views
from pipeline.runtime import devices

# A block has at most this many rows and bytes, and a test set at least 32 blocks where it has the
# rows: while the first one is decoded, the device waits.
MOST_ROWS, MOST_BYTES = 1024, 1 << 25
LEAST_ROWS, BLOCKS = 32, 32
TO_SPARE = 1.5  # to add views or folds again takes this much more time than they need
NOT_FINITE = "its prediction is not a finite number"

Show = Callable[[str], None]


def clock() -> float:
    """Return the time in seconds, the same in all processes of this machine."""
    return time.monotonic()


class Deadline(NamedTuple):
    """When predicting has to end, by `clock`.

    Attributes:
        end: of all rows.
        views_end: until then there is time for several views of each row.
        whole: all rows by all folds, or nothing: a model that cannot make it is given up.
    """

    end: float = math.inf
    views_end: float = math.inf
    whole: bool = False


NO_DEADLINE = Deadline()


class Block(NamedTuple):
    """Predictions of consecutive rows.

    Attributes:
        start: the first row.
        values: float32 (n, …), as `Target.predictions` returns them.
        broken: why a row has the mean prediction instead, by the row's number.
    """

    start: int
    values: np.ndarray
    broken: Mapping[int, str]


class Submitted(NamedTuple):
    """Rows that the device was given: its outputs, by fold and batch, how many rows of each batch
    are real, and the inputs, which are computed again where memory was too small.
    """

    outputs: list[list[Any]]
    real: list[int]
    inputs: np.ndarray


class Forward:
    """The models of all folds as one compiled function.

    Args:
        models: Keras models of one architecture, one per fold.
        batch: rows that the device computes at once.
        show: takes a line where a batch does not fit.

    Attributes:
        folds: how many models there are.
        batch: as given, or what fits.
        ahead: how many blocks may wait on the device while the next one is submitted.
    """

    def __init__(self, models: Sequence[Any], batch: int, show: Show = print) -> None:
        self.folds, self.batch, self._show = len(models), batch, show
        self._weights = [_weights(model) for model in models]
        self._call = _compiled(models[0])
        # TensorFlow on a CPU computes before it returns.
        self.ahead = 0 if keras.backend.backend() == "tensorflow" and not _gpu() else 1

    def outputs(self, inputs: np.ndarray) -> list[np.ndarray]:
        """Return the outputs of each fold, float32 (n, …). Raises `DeviceError` as `submit`."""
        return self.collect(self.submit(inputs, self.folds))

    def submit(self, inputs: np.ndarray, folds: int) -> Submitted:
        """Submit rows to the first `folds` models, and return without waiting for the outputs.

        Raises:
            DeviceError: if not even one row fits into the device's memory.
        """
        while True:
            try:
                # Each batch is placed once, for all folds.
                parts = [
                    (keras.ops.convert_to_tensor(part), real)
                    for part, real in padded(inputs, self.batch)
                ]
                outputs = [
                    [self._call(weights, part) for part, _ in parts]
                    for weights in self._weights[:folds]
                ]
                return Submitted(outputs, [real for _, real in parts], inputs)
            except Exception as error:
                self._halve_batch(error)

    def collect(self, submitted: Submitted) -> list[np.ndarray]:
        """Wait for the outputs of each fold: float32 (n, …). Raises `DeviceError` as `submit`."""
        while True:
            try:
                arrays = [
                    [np.asarray(keras.ops.convert_to_numpy(part), np.float32) for part in fold]
                    for fold in submitted.outputs
                ]
            except Exception as error:  # a device may report only now that it had no memory
                self._halve_batch(error)
                submitted = self.submit(submitted.inputs, len(submitted.outputs))
                continue
            return [
                np.concatenate(
                    [part[:real] for part, real in zip(fold, submitted.real, strict=True)]
                )
                for fold in arrays
            ]

    def _halve_batch(self, error: Exception) -> None:
        """Halve the batch if the error is a lack of memory; raise any other error."""
        if not devices.exhausted(error):
            raise error
        if self.batch == 1:
            raise DeviceError(
                "Not even one row fits into the device's memory:"
                f" {str(error).splitlines()[0][:300]}\n"
                "Expected room for the model and a row. End what else uses this device, or use a"
                " smaller model."
            ) from error
        self.batch //= 2
        self._show(f"Out of memory at {self.batch * 2} rows at once; retrying with {self.batch}")


def batch_size(inputs: np.ndarray, rows: int) -> int:
    """Return how many rows the device computes at once, a power of two.

    Args:
        inputs: any, for the size of one.
        rows: of the test set.

    >>> image = np.zeros((1, 224, 224, 3), np.uint8)
    >>> [batch_size(*each) for each in ((image, 10**5), (image[:, :8, :8], 10**5), (image, 3000))]
    [128, 1024, 64]
    """
    fits = MOST_BYTES * len(inputs) // inputs.nbytes
    most = min(fits, max(rows // BLOCKS, LEAST_ROWS), MOST_ROWS)
    return int(2 ** (max(most, 1).bit_length() - 1))


class Pace:
    """Chooses how many views and folds each block gets, so that all rows end in time.

    Args:
        views, folds: how many there are.
        rows: of all blocks.
        deadline: when predicting has to end.

    Attributes:
        level: (views, folds) of the next block.
        hopeless: whether the deadline asks for all rows, and at the last block's speed there is no
            time for them.
    """

    def __init__(self, views: int, folds: int, rows: int, deadline: Deadline) -> None:
        self._levels = [(number, folds) for number in range(views, 0, -1)]
        if not deadline.whole:
            self._levels += [(1, number) for number in range(folds - 1, 0, -1)]
        self._deadline, self._rows_left = deadline, rows
        self._last, self._block_seconds = clock(), 0.0
        self.level, self.hopeless = self._levels[0], False

    def over(self, waiting: int) -> bool:
        """Return whether another block after the `waiting` ones would end too late."""
        return clock() + self._block_seconds * (waiting + 1) >= self._deadline.end

    def block_ended(self, rows: int, level: tuple[int, int]) -> bool:
        """Choose the next level, and return whether it is another one.

        All of a block's time, with decoding, counts as if it grew with views and folds. So leaving
        some out saves less than expected, which the next block shows.

        Args:
            rows: of the block.
            level: that it had.
        """
        now = clock()
        seconds, self._last = now - self._last, now
        self._rows_left -= rows
        blocks = math.ceil(self._rows_left / rows)
        before, ratio = self.level, 1.0
        self.hopeless = self._deadline.whole
        for each in self._levels:
            ratio = math.prod(each) / math.prod(level)
            needed = seconds * ratio * blocks * (TO_SPARE if each > before else 1)
            end = self._deadline.end
            if each[0] > 1:  # a slow block may come
                end = self._deadline.views_end - seconds * ratio
            self.level = each
            if now + needed <= end:
                self.hopeless = False
                break
        # To leave views out may save nothing, if decoding takes the time.
        self._block_seconds = seconds * max(ratio, 1.0)
        return self.level != before


def predicted_blocks(
    artifact: Artifact,
    test: TestSet,
    forward: Forward,
    rows: range,
    *,
    deadline: Deadline = NO_DEADLINE,
    show: Show = print,
) -> Iterator[Block]:
    """Yield the predictions of consecutive rows, block by block, as far as there is time.

    A row that cannot be read, or whose prediction is not finite, gets the artifact's prior.
    """
    seen = views(artifact.config.data, artifact.config.views)
    pace = Pace(len(seen), forward.folds, len(rows), deadline)
    waiting: deque[tuple[Block, list[Submitted], tuple[int, int]]] = deque()
    timed = False  # one block at a time until its time is known

    def collected() -> Block:
        block, submitted, level = waiting.popleft()
        values = artifact.target.mean(
            [mean_of_folds(artifact, forward.collect(each)) for each in submitted]
        )
        finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        strange = (np.flatnonzero(~finite) + block.start).tolist()
        broken = dict.fromkeys(strange, NOT_FINITE) | dict(block.broken)
        for row in broken:
            values[row - block.start] = artifact.prior
        if pace.block_ended(len(values), level):
            now = f"{pace.level[0]} of {len(seen)} views, {pace.level[1]} of {forward.folds} folds"
            show(f"Time allows {now} from row {block.start + len(values):,} on")
        return Block(block.start, values, broken)

    for start, inputs, broken in test.blocks(forward.batch, rows.start, rows.stop):
        while waiting and pace.over(len(waiting)):
            yield collected()
        if pace.over(0) or pace.hopeless:
            break
        number, folds = pace.level
        submitted = [forward.submit(view.apply(inputs), folds) for view in seen[:number]]
        waiting.append((Block(start, inputs, broken), submitted, pace.level))
        while len(waiting) > (forward.ahead if timed else 0):
            yield collected()
            timed = True
    while waiting:
        yield collected()


def mean_of_folds(artifact: Artifact, outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of the predictions that the folds' outputs stand for: float32 (n, …)."""
    return artifact.target.mean([artifact.target.predictions(each) for each in outputs])


def _weights(model: Any) -> tuple[list[Any], list[Any]]:
    groups = model.trainable_variables, model.non_trainable_variables
    trainable, other = ([keras.ops.convert_to_tensor(v.value) for v in group] for group in groups)
    return trainable, other


def _compiled(model: Any) -> Callable[[Any, Any], Any]:
    def call(weights: tuple[list[Any], list[Any]], inputs: Any) -> Any:
        return model.stateless_call(*weights, inputs, training=False)[0]

    if keras.backend.backend() == "jax":
        import jax

        def exactly(
            weights: Any, inputs: Any
        ) -> Any:  # a GPU would round float32 to TF32's 11 bits
            with jax.default_matmul_precision("highest"):
                return call(weights, inputs)

        return jax.jit(exactly)
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    # On a CPU not by XLA: oneDNN's convolutions are as fast, and ready in a third of the time.
    compiled: Callable[[Any, Any], Any] = tf.function(call, jit_compile=_gpu())
    return compiled


def _gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
