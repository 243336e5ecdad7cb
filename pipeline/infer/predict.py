"""Predict: the rows of a test set through an artifact's models, block by block, in time.

A block is what the devices compute at once, each a batch of it. One compiled function serves all
folds, since weights are its arguments. While devices compute a block, threads decode the next ones;
so memory grows with the predictions alone.

Where time is short, views are left out first, and then the remaining rows keep the mean prediction.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any, NamedTuple

import keras
import numpy as np

from pipeline.artifact import Artifact
from pipeline.data.dataset import TestSet
from pipeline.data.row_gathering import padded
from pipeline.errors import DeviceError
from pipeline.infer.views import views
from pipeline.runtime import devices

# A block has at most this many rows and bytes, and a test set at least 32 blocks where it has the
# rows: while the first one is decoded, the device waits.
MOST_ROWS, MOST_BYTES = 1024, 1 << 25
LEAST_ROWS, BLOCKS = 32, 32
NOT_FINITE = "its prediction is not a finite number"

Show = Callable[[str], None]


def clock() -> float:
    """Return the time in seconds."""
    return time.monotonic()


class Deadline(NamedTuple):
    """When predicting has to end, by `clock`.

    Attributes:
        end: of all rows.
        views_end: until then there is time for several views of each row.
        whole: all rows, or nothing: a model that cannot make it is given up.
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


class Forward:
    """The models of all folds as one compiled function, on each GPU or core of a TPU.

    Args:
        models: Keras models of one architecture, one per fold.
        batch: rows that a device computes at once; halved where they do not fit.
        show: takes a line where a batch does not fit.
    """

    def __init__(self, models: Sequence[Any], batch: int, show: Show = print) -> None:
        self.batch, self.devices, self._show = batch, device_names(), show
        self._call, self._weights = _compiled(models[0]), {}
        for device in self.devices:
            with keras.device(device):
                self._weights[device] = [_weights(model) for model in models]

    def outputs(self, inputs: np.ndarray) -> list[np.ndarray]:
        """Return the outputs of each fold, float32 (n, …). Devices compute a batch each.

        Raises:
            DeviceError: if not even one row fits into a device's memory.
        """
        while True:
            try:
                with ThreadPoolExecutor(len(self.devices)) as pool:
                    batches = padded(inputs, self.batch)
                    parts = pool.map(self._outputs, cycle(self.devices), batches)
                    return [np.concatenate(fold) for fold in zip(*parts, strict=True)]
            except Exception as error:
                self._halve_batch(error)

    def _outputs(self, device: str, batch: tuple[np.ndarray, int]) -> list[np.ndarray]:
        """Return the outputs of each fold for a batch, of whose rows the first ones count."""
        inputs, real = batch
        with keras.device(device):
            placed = keras.ops.convert_to_tensor(inputs)  # once, for all folds
            outputs = [self._call(weights, placed) for weights in self._weights[device]]
            arrays = [keras.ops.convert_to_numpy(each) for each in outputs]
        return [np.asarray(array, np.float32)[:real] for array in arrays]

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


def device_names() -> list[str]:
    """Return Keras' names of all GPUs or cores of a TPU; of a CPU, which computes as one, its
    first.
    """
    names: list[str] = keras.distribution.list_devices()
    return names[:1] if names[0].startswith("cpu") else names


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
    """Chooses how many views each block gets, so that all rows end in time.

    Args:
        views: how many there are.
        rows: of all blocks.
        deadline: when predicting has to end.

    Attributes:
        views: of the next block.
    """

    def __init__(self, views: int, rows: int, deadline: Deadline) -> None:
        self.views, self._rows_left, self._deadline = views, rows, deadline
        self._last, self._block_seconds, self._given_up = clock(), 0.0, False

    def over(self) -> bool:
        """Return whether another block would end too late, or all rows cannot, and have to."""
        return self._given_up or clock() + self._block_seconds >= self._deadline.end

    def block_ended(self, rows: int) -> None:
        """Leave views out if the next blocks would take too long with them.

        All of a block's time, with decoding, counts as if it grew with the views. So leaving some
        out saves less than expected, which the next block shows.

        Args:
            rows: of the block.
        """
        now = clock()
        # To leave views out may save nothing, if decoding takes the time.
        self._block_seconds, self._last = now - self._last, now
        self._rows_left -= rows
        blocks = math.ceil(self._rows_left / rows)
        view_seconds = self._block_seconds / self.views
        while self.views > 1:  # a slow block may come
            if now + view_seconds * self.views * (blocks + 1) <= self._deadline.views_end:
                break
            self.views -= 1
        late = now + view_seconds * self.views * blocks > self._deadline.end
        self._given_up = late and self._deadline.whole


def predicted_blocks(
    artifact: Artifact,
    test: TestSet,
    forward: Forward,
    deadline: Deadline = NO_DEADLINE,
    show: Show = print,
) -> Iterator[Block]:
    """Yield the predictions of all rows, block by block, as far as there is time.

    A row that cannot be read, or whose prediction is not finite, gets the artifact's prior.
    """
    seen = views(artifact.config.data, artifact.config.views)
    pace = Pace(len(seen), len(test), deadline)
    for start, inputs, unread in test.blocks(forward.batch * len(forward.devices)):
        if pace.over():
            break
        number = pace.views
        outputs = (forward.outputs(view.apply(inputs)) for view in seen[:number])
        values = artifact.target.mean([mean_of_folds(artifact, each) for each in outputs])
        finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        strange = (np.flatnonzero(~finite) + start).tolist()
        broken = dict.fromkeys(strange, NOT_FINITE) | dict(unread)
        for row in broken:
            values[row - start] = artifact.prior
        pace.block_ended(len(values))
        if pace.views != number:
            after = start + len(values)
            show(f"Time allows {pace.views} of {len(seen)} views from row {after:,} on")
        yield Block(start, values, broken)


def mean_of_folds(artifact: Artifact, outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of the predictions that the folds' outputs stand for: float32 (n, …)."""
    return artifact.target.mean([artifact.target.predictions(each) for each in outputs])


def _weights(model: Any) -> tuple[list[Any], list[Any]]:
    groups = model.trainable_variables, model.non_trainable_variables
    # By way of numpy, from which they come to the device that is asked for.
    trainable, other = ([keras.ops.convert_to_tensor(v.numpy()) for v in group] for group in groups)
    return trainable, other


def _compiled(model: Any) -> Callable[[Any, Any], Any]:
    def call(weights: tuple[list[Any], list[Any]], inputs: Any) -> Any:
        return model.stateless_call(*weights, inputs, training=False)[0]

    if keras.backend.backend() == "jax":
        import jax

        def exactly(weights: Any, inputs: Any) -> Any:
            # By default a GPU rounds float32 to TF32's 11 bits.
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
