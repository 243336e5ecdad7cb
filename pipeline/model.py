"""Models: `Config` → an uncompiled Keras functional model, the same under JAX and TensorFlow. No files, no devices.

Every model takes uint8 images `(batch, height, width, channels)` and gives float32 logits `(batch, num_classes)`; the scaling to 0..1
is inside, so that training and inference cannot differ in it. Layers have names of their own, since weights are stored by name.

To add a model, write one function of this form and name it in `MODELS`.
"""

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers

from pipeline import data
from pipeline.config import Config
from pipeline.errors import ConfigError, place


def small_cnn(
    images: Any, num_classes: int, batchnorm_momentum: float, *, width: int = 32, dropout: float = 0.3
) -> Any:
    """Return logits of four 3x3 convolutions in two stages: fast on a CPU, right for images of 8 to 32 pixels.

    Args:
        images: float tensor (batch, height, width, channels), 0..1.
        num_classes: length of the logits.
        batchnorm_momentum: of every BatchNormalization.
        width: channels of the first stage; the second has twice as many.
        dropout: share of the features dropped before the logits, in training.
    """
    x = images
    for stage in (1, 2):
        for unit in ("a", "b"):
            name = f"stage{stage}_{unit}"
            x = layers.Conv2D(width * stage, 3, padding="same", use_bias=False, name=f"{name}_conv")(x)
            x = layers.BatchNormalization(momentum=batchnorm_momentum, name=f"{name}_norm")(x)
            x = layers.Activation("relu", name=f"{name}_relu")(x)
        x = layers.MaxPooling2D(2, padding="same", name=f"stage{stage}_pool")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dropout(dropout, name="dropout")(
        x
    )  # its generator starts from the seed that Keras was given: the config's
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def wide_resnet(images: Any, num_classes: int, batchnorm_momentum: float, *, k: int, n: int, kernel_size: int) -> Any:
    """Return logits of the WideResNet of koshian2/TPU-Benchmark.

    Three stages of 16k, 32k and 64k channels; `n` blocks a stage of twice [convolution, BatchNorm, ReLU] and an addition of the
    block's input; a 1x1 convolution leads into each stage, after an average pooling by 2 from the second on. Biases on.
    With k=7, n=4, kernel_size=7, 32x32x3 images and 100 classes: 103,465,028 parameters, 12,544 of them not trainable.

    Args:
        images: float tensor (batch, height, width, channels), 0..1.
        num_classes: length of the logits.
        batchnorm_momentum: of every BatchNormalization.
        k: width factor. n: blocks a stage. kernel_size: of the convolutions inside the blocks, in pixels.
    """
    x = images
    for stage, channels in enumerate((16 * k, 32 * k, 64 * k), start=1):
        if stage > 1:
            x = layers.AveragePooling2D(2, name=f"stage{stage}_pool")(x)
        x = layers.Conv2D(channels, 1, name=f"stage{stage}_in")(x)
        for block in range(1, n + 1):
            start = x
            for unit in ("a", "b"):
                name = f"stage{stage}_block{block}_{unit}"
                x = layers.Conv2D(channels, kernel_size, padding="same", name=f"{name}_conv")(x)
                x = layers.BatchNormalization(momentum=batchnorm_momentum, name=f"{name}_norm")(x)
                x = layers.Activation("relu", name=f"{name}_relu")(x)
            x = layers.Add(name=f"stage{stage}_block{block}_add")([start, x])
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


MODELS: dict[str, Callable[..., Any]] = {"small_cnn": small_cnn, "wide_resnet": wide_resnet}


def build(config: Config, batchnorm_momentum: float | None = None) -> Any:
    """Return the config's model, uncompiled, under the Keras dtype policy that is set.

    Args:
        config: the run.
        batchnorm_momentum: as scaled by `pipeline.learning_rate`; None takes the config's own (inference does not use it).

    Raises:
        ConfigError: if the model does not exist, or does not take `config.model_options` or their values.
    """
    function = MODELS.get(config.model)
    if function is None:
        raise ConfigError(
            f"model={config.model!r} cannot work: expected one of {', '.join(MODELS)}.\nCorrect it, or add the function to pipeline/model.py."
        )
    options = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    unknown = set(config.model_options) - set(options)
    missing = {n for n, p in options.items() if p.default is inspect.Parameter.empty} - set(config.model_options)
    if unknown or missing:
        raise ConfigError(
            f"model_options={dict(config.model_options)!r} cannot work: {config.model} takes {', '.join(options)}"
            f"{'; unknown: ' + ', '.join(sorted(unknown)) if unknown else ''}{'; missing: ' + ', '.join(sorted(missing)) if missing else ''}.\n"
            "Correct model_options in the config."
        )
    for name, value in config.model_options.items():
        # A width of True or "4" goes through Keras, and what comes out is another model.
        wanted: Any = {int: int, float: (int, float), bool: bool, str: str}.get(options[name].annotation, object)
        if not isinstance(value, wanted) or (isinstance(value, bool) and options[name].annotation in (int, float)):
            raise ConfigError(
                f"model_options[{name!r}]={value!r} cannot work: {config.model} expects {options[name]}.\nCorrect it in the config."
            )
    inputs = keras.Input((config.data.height, config.data.width, config.data.channels), dtype="uint8", name="images")
    scaled = layers.Rescaling(1 / 255, name="to_unit")(inputs)
    momentum = config.batchnorm_momentum if batchnorm_momentum is None else batchnorm_momentum
    try:
        logits = function(scaled, config.num_classes, momentum, **config.model_options)
        built = keras.Model(inputs, logits, name=config.model)
        # Keras 3.15 refuses a pooling that leaves nothing; 3.13 goes on with no pixels, and the loss is no number.
        empty = [layer.name for layer in built.layers if 0 in layer.output.shape]
        if empty:
            raise ValueError(f"nothing is left of the image in {empty[0]}")
    except (TypeError, ValueError, ArithmeticError, MemoryError, RuntimeError) as error:
        raise ConfigError(
            f"model_options={dict(config.model_options)!r} cannot work: {config.model}{place(error, Path(__file__))} ended with "
            f"{type(error).__name__}: {error}.\nCorrect model_options, height and width in the config, or that line of pipeline/model.py."
        ) from error
    return built


def count(model: Any) -> dict[str, int]:
    """Return the numbers of parameters: total, trainable, non_trainable."""
    trainable = sum(math.prod(v.shape) for v in model.trainable_weights)
    total = sum(math.prod(v.shape) for v in model.weights)
    return {"total": total, "trainable": trainable, "non_trainable": total - trainable}


def probabilities(model: Any, pixels: np.ndarray, batch: int) -> np.ndarray:
    """Return softmax outputs, float32 (n, num_classes), of uint8 images (n, height, width, channels): none dropped, one shape."""
    logits = np.concatenate(
        [
            np.asarray(keras.ops.convert_to_numpy(model.predict_on_batch(images)), np.float32)[:real]
            for images, real in data.padded(pixels, batch)
        ]
    )
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponents / exponents.sum(axis=1, keepdims=True), np.float32)
