"""Run the models of all folds on all devices, using one compiled function.

The function receives the weights as arguments, so one compilation serves all folds.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import keras
import numpy as np

from pipeline.artifact import Artifact
from pipeline.data.row_gathering import padded
from pipeline.errors import DeviceError
from pipeline.models import architectures
from pipeline.runtime import devices

# In each block, every device computes one batch. MOST_ROWS and MOST_BYTES limit the size of a
# batch. Large test sets have at least 32 blocks, because the devices wait for the first block to be
# decoded.
MOST_ROWS, MOST_BYTES = 1024, 1 << 25
LEAST_ROWS, BLOCKS = 32, 32

Show = Callable[[str], None]


class Forward:
    """Runs the models of all folds with one compiled function, on every GPU or TPU core.

    Args:
        models: Keras models with the same architecture, one per fold.
        batch: rows per device and call, which is halved when out of memory.
    """

    def __init__(self, models: Sequence[Any], batch: int, show: Show = print) -> None:
        self.batch, self.devices, self._show = batch, device_names(), show
        self._call, self._weights = _compiled(models[0]), {}
        for device in self.devices:
            with keras.device(device):
                self._weights[device] = [_weights(model) for model in models]

    def outputs(self, inputs: np.ndarray) -> list[np.ndarray]:
        """Return the outputs of each fold as float32 (n, …).

        Raises:
            DeviceError: if a device's memory is too small for a single row.
        """
        while True:
            try:
                with ThreadPoolExecutor(len(self.devices)) as pool:
                    batches = padded(inputs, self.batch)
                    parts = pool.map(self._outputs, cycle(self.devices), batches)
                    return [np.concatenate(fold) for fold in zip(*parts, strict=True)]
            except Exception as error:
                if not devices.exhausted(error):
                    raise
                if self.batch == 1:
                    raise DeviceError(
                        "Not even a single row fits in the device's memory:"
                        f" {str(error).splitlines()[0][:300]}\n"
                        "Stop other programs on this device, or use a smaller model."
                    ) from error
                self.batch //= 2
                self._show(f"Out of memory; retrying with {self.batch} rows at a time")

    def _outputs(self, device: str, batch: tuple[np.ndarray, int]) -> list[np.ndarray]:
        inputs, real = batch
        with keras.device(device):
            placed = keras.ops.convert_to_tensor(inputs)  # only once for all folds
            outputs = [self._call(weights, placed) for weights in self._weights[device]]
            arrays = [keras.ops.convert_to_numpy(each) for each in outputs]
        return [np.asarray(array, np.float32)[:real] for array in arrays]  # drops padding


def device_names() -> list[str]:
    names: list[str] = keras.distribution.list_devices()
    return names[:1] if names[0].startswith("cpu") else names


def batch_size(inputs: np.ndarray, rows: int) -> int:
    """Return the batch size per device, which is a power of two.

    >>> image = np.zeros((1, 224, 224, 3), np.uint8)
    >>> [batch_size(*each) for each in ((image, 10**5), (image[:, :8, :8], 10**5), (image, 3000))]
    [128, 1024, 64]
    """
    fits = MOST_BYTES * len(inputs) // inputs.nbytes
    most = min(fits, max(rows // BLOCKS, LEAST_ROWS), MOST_ROWS)
    return int(2 ** (max(most, 1).bit_length() - 1))


def mean_of_folds(artifact: Artifact, outputs: Sequence[np.ndarray]) -> np.ndarray:
    return artifact.target.mean([artifact.target.predictions(each) for each in outputs])


def _weights(model: Any) -> tuple[list[Any], list[Any]]:
    groups = model.trainable_variables, model.non_trainable_variables
    # Convert to numpy first, so that tensors are created on the current device.
    trainable, other = ([keras.ops.convert_to_tensor(v.numpy()) for v in group] for group in groups)
    return trainable, other


def _compiled(model: Any) -> Callable[[Any, Any], Any]:
    def call(weights: tuple[list[Any], list[Any]], inputs: Any) -> Any:
        outputs, _ = model.stateless_call(*weights, inputs, training=False)
        return architectures.parted(outputs)[0]

    if keras.backend.backend() == "jax":
        import jax

        def exactly(weights: Any, inputs: Any) -> Any:
            # By default, GPUs round float32 to TF32 with 11 bits.
            with jax.default_matmul_precision("highest"):
                return call(weights, inputs)

        return jax.jit(exactly)
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    # On a CPU, oneDNN's convolutions are as fast as XLA's, and compile in a third of the time.
    compiled: Callable[[Any, Any], Any] = tf.function(call, jit_compile=_gpu())
    return compiled


def _gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
