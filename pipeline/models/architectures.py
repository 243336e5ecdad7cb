"""Models: `Config` → an uncompiled Keras functional model, the same under JAX and TensorFlow. No
files, no devices.

Every model of images takes uint8 `(batch, height, width, channels)`, one of a table float32
`(batch, features)` as `pipeline.data.tabular` makes them; each gives float32 outputs `(batch,
Config.outputs)`, which `pipeline.data.labels` reads. The scaling to 0..1 and the embedding of
categories are inside, so that training and inference cannot differ in them. Layers have names of
their own, since weights are stored by name.

To add a model, write one function of this form and name it in `MODELS`. Those of keras.applications
are in `pipeline.models.backbones`.
"""

import inspect
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers

from pipeline.config import Config
from pipeline.data import dataset
from pipeline.errors import ConfigError, place
from pipeline.models import backbones


def small_cnn(
    images: Any,
    num_classes: int,
    batchnorm_momentum: float,
    *,
    width: int = 32,
    dropout: float = 0.3,
) -> Any:
    """Return logits of four 3x3 convolutions in two stages: fast on a CPU, right for images of 8 to
    32 pixels.

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
            x = layers.Conv2D(
                width * stage, 3, padding="same", use_bias=False, name=f"{name}_conv"
            )(x)
            x = layers.BatchNormalization(momentum=batchnorm_momentum, name=f"{name}_norm")(x)
            x = layers.Activation("relu", name=f"{name}_relu")(x)
        x = layers.MaxPooling2D(2, padding="same", name=f"stage{stage}_pool")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dropout(dropout, name="dropout")(
        x
    )  # its generator starts from the seed that Keras was given: the config's
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def wide_resnet(
    images: Any, num_classes: int, batchnorm_momentum: float, *, k: int, n: int, kernel_size: int
) -> Any:
    """Return logits of the WideResNet of koshian2/TPU-Benchmark.

    Three stages of 16k, 32k and 64k channels; `n` blocks a stage of twice [convolution, BatchNorm,
    ReLU] and an addition of the block's input; a 1x1 convolution leads into each stage, after an
    average pooling by 2 from the second on. Biases on. With k=7, n=4, kernel_size=7, 32x32x3 images
    and 100 classes: 103,465,028 parameters, 12,544 of them not trainable.

    Args:
        images: float tensor (batch, height, width, channels), 0..1.
        num_classes: length of the logits.
        batchnorm_momentum: of every BatchNormalization.
        k: width factor. n: blocks a stage. kernel_size: of the convolutions inside the blocks, in
            pixels.
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


def mlp(
    features: Any,
    num_classes: int,
    batchnorm_momentum: float,
    *,
    width: int = 128,
    depth: int = 2,
    dropout: float = 0.2,
) -> Any:
    """Return logits of fully connected layers: for the rows of a table.

    Args:
        features: float tensor (batch, features): numbers, where they are missing, and embedded
            categories.
        num_classes: length of the logits.
        batchnorm_momentum: of every BatchNormalization.
        width: of each layer. depth: how many there are. dropout: share of the features dropped
            after each, in training.
    """
    x = layers.Flatten(name="flatten")(features)
    for number in range(1, depth + 1):
        x = layers.Dense(width, use_bias=False, name=f"layer{number}_dense")(x)
        x = layers.BatchNormalization(momentum=batchnorm_momentum, name=f"layer{number}_norm")(x)
        x = layers.Activation("relu", name=f"layer{number}_relu")(x)
        x = layers.Dropout(dropout, name=f"layer{number}_dropout")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


MODELS: dict[str, Callable[..., Any]] = {
    "small_cnn": small_cnn,
    "wide_resnet": wide_resnet,
    "mlp": mlp,
}


def build(config: Config, batchnorm_momentum: float | None = None) -> Any:
    """Return the config's model, uncompiled, under the Keras dtype policy that is set.

    Args:
        config: the run.
        batchnorm_momentum: as scaled by `pipeline.training.learning_rate`; None takes the config's
            own (inference does not use it).

    Raises:
        ConfigError: if the model does not exist, or does not take `config.model_options` or their
            values.
    """
    function = MODELS.get(config.model)
    if function is None:
        if config.model not in backbones.BACKBONES:
            names = ", ".join((*MODELS, *backbones.BACKBONES))
            raise ConfigError(
                f"model={config.model!r} cannot work: expected one of {names}.\nCorrect it, or add the function to pipeline/models/architectures.py."
            )
        function = partial(backbones.logits, backbones.BACKBONES[config.model])
    options = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    unknown = set(config.model_options) - set(options)
    missing = {n for n, p in options.items() if p.default is inspect.Parameter.empty} - set(
        config.model_options
    )
    if unknown or missing:
        raise ConfigError(
            f"model_options={dict(config.model_options)!r} cannot work: {config.model} takes {', '.join(options)}"
            f"{'; unknown: ' + ', '.join(sorted(unknown)) if unknown else ''}{'; missing: ' + ', '.join(sorted(missing)) if missing else ''}.\n"
            "Correct model_options in the config."
        )
    for name, value in config.model_options.items():
        # A width of True or "4" goes through Keras, and what comes out is another model.
        wanted: Any = {int: int, float: (int, float), bool: bool, str: str}.get(
            options[name].annotation, object
        )
        if not isinstance(value, wanted) or (
            isinstance(value, bool) and options[name].annotation in (int, float)
        ):
            raise ConfigError(
                f"model_options[{name!r}]={value!r} cannot work: {config.model} expects {options[name]}.\nCorrect it in the config."
            )
    inputs, prepared = _inputs(config)
    momentum = config.batchnorm_momentum if batchnorm_momentum is None else batchnorm_momentum
    try:
        logits = function(prepared, config.outputs, momentum, **config.model_options)
        built = keras.Model(inputs, logits, name=config.model)
        # Keras 3.15 refuses a pooling that leaves nothing; 3.13 goes on with no pixels, and the
        # loss is no number.
        empty = [layer.name for layer in built.layers if 0 in layer.output.shape]
        if empty:
            raise ValueError(f"nothing is left of the image in {empty[0]}")
    except (TypeError, ValueError, ArithmeticError, MemoryError, RuntimeError) as error:
        raise ConfigError(
            f"model_options={dict(config.model_options)!r} cannot work: {config.model}{place(error, Path(__file__))}"
            " ended with "
            f"{type(error).__name__}: {error}.\nCorrect model_options, height and width in the config, or that line of pipeline/models/architectures.py."
        ) from error
    return built


def count(model: Any) -> dict[str, int]:
    """Return the numbers of parameters: total, trainable, non_trainable."""
    trainable = sum(math.prod(v.shape) for v in model.trainable_weights)
    total = sum(math.prod(v.shape) for v in model.weights)
    return {"total": total, "trainable": trainable, "non_trainable": total - trainable}


def outputs(model: Any, inputs: np.ndarray, batch: int) -> np.ndarray:
    """Return what the model gives, float32 (n, outputs), for n inputs: none dropped, one shape."""
    return np.concatenate(
        [
            np.asarray(keras.ops.convert_to_numpy(model.predict_on_batch(part)), np.float32)[:real]
            for part, real in dataset.padded(inputs, batch)
        ]
    )


def _inputs(config: Config) -> tuple[Any, Any]:
    """Return the model's input, and what its function gets.

    Images from 0 to 1, for a backbone as they are; of a table the numbers, what their absence
    means, and the embedded categories.
    """
    if config.data.kind != "table":
        inputs = keras.Input(config.data.shape, dtype="uint8", name="images")
        if config.model in backbones.BACKBONES:
            return inputs, inputs
        return inputs, layers.Rescaling(1 / 255, name="to_unit")(inputs)
    inputs = keras.Input(config.data.shape, dtype="float32", name="features")
    numbers = len(config.data.numeric_columns)
    parts = []
    if numbers:
        # A column without gaps in training teaches nothing about them: its factor stays 0, and a
        # gap in the test set adds no noise.
        absence = layers.EinsumDense(
            "bi,i->bi", numbers, kernel_initializer="zeros", name="missing_factor"
        )
        parts = [inputs[:, :numbers], absence(inputs[:, numbers : 2 * numbers])]
    wide = config.data.most_categories
    for number in range(len(config.data.categorical_columns)):
        code = keras.ops.cast(inputs[:, 2 * numbers + number], "int32")
        name, width = f"category{number + 1}_embedding", min(16, (wide + 1) // 2)
        parts.append(
            layers.Embedding(wide, width, embeddings_initializer=_unknown_is_nothing, name=name)(
                code
            )
        )
    return inputs, layers.Concatenate(name="features_joined")(parts) if len(parts) > 1 else parts[0]


def _unknown_is_nothing(shape: tuple[int, ...], dtype: Any = None) -> Any:
    """Return the embeddings at the start: small random ones, and zeros for code 0, the text that
    training has not seen.
    """
    found = keras.initializers.RandomUniform()(shape, dtype)
    known = np.arange(shape[0])[:, None] > 0
    return found * keras.ops.cast(known, found.dtype)
