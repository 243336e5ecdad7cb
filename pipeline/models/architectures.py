"""Build an uncompiled Keras functional model from a `Config`, identically on JAX and TensorFlow.

Model inputs are images, uint8 `(batch, height, width, channels)`, or table rows, float32 `(batch,
features)`, from `pipeline.data.table_features`. Outputs are float32 `(batch, Config.outputs)` and
are interpreted by `pipeline.data.labels`. Pixel scaling and category embeddings are part of the
model, so training and inference cannot differ.

The first argument of each architecture is either images, float (batch, height, width, channels)
from 0 to 1, or numeric features and embedded categories, float (batch, features). The other
arguments are the number of logits, the BatchNormalization momentum and the model's options. You can
define a model with the same signature in your config file (docs/custom-code.md). Networks from
keras.applications are in `pipeline.models.backbones`, and networks from KerasHub in
`pipeline.models.published`.
"""

import difflib
import inspect
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import layers
from keras.src.backend.common import global_state

from pipeline.config import Config, Data, custom_code
from pipeline.data import custom_readers
from pipeline.data.row_gathering import padded
from pipeline.errors import ConfigError, place
from pipeline.models import backbones, published, trees, weight_names

UNFILLED = "uninitialized_variables"  # Keras' name for this list


def small_cnn(
    images: Any,
    num_classes: int,
    batchnorm_momentum: float,
    *,
    width: int = 32,
    dropout: float = 0.3,
) -> Any:
    """Return the logits of a network with four 3x3 convolutions, for images of 8 to 32 pixels.

    Args:
        width: number of channels in the first of two stages (the second has twice as many).
        dropout: dropout rate before the logits.
    """
    x = images
    convolution = partial(_convolution, kernel=3, momentum=batchnorm_momentum, use_bias=False)
    for stage in (1, 2):
        for unit in ("a", "b"):
            x = convolution(x, width * stage, name=f"stage{stage}_{unit}")
        x = layers.MaxPooling2D(2, padding="same", name=f"stage{stage}_pool")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dropout(dropout, name="dropout")(x)  # seeded by `seed`
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def wide_resnet(
    images: Any,
    num_classes: int,
    batchnorm_momentum: float,
    *,
    k: int,
    n: int,
    kernel_size: int,
    drop_path: float = 0.0,
) -> Any:
    """Return the logits of the WideResNet from koshian2/TPU-Benchmark.

    The three stages have 16k, 32k and 64k channels and `n` residual blocks each. A block applies
    [convolution, BatchNorm, ReLU] twice and then adds its input. Each stage starts with a 1x1
    convolution. In the second and third stages, 2x2 average pooling comes first. Convolutions have
    biases. With k=7, n=4, kernel_size=7, 32x32x3 images and 100 classes, the network has
    103,465,028 parameters, of which 12,544 are not trainable.

    Args:
        kernel_size: kernel size in the blocks, in pixels.
        drop_path: drop rate of the last block (see `_add`).
    """
    x = images
    convolution = partial(_convolution, kernel=kernel_size, momentum=batchnorm_momentum)
    for stage, channels in enumerate((16 * k, 32 * k, 64 * k), start=1):
        if stage > 1:
            x = layers.AveragePooling2D(2, name=f"stage{stage}_pool")(x)
        x = layers.Conv2D(channels, 1, name=f"stage{stage}_in")(x)
        x = _residual_stage(x, stage, n, drop_path, convolution)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def strided_resnet(
    images: Any,
    num_classes: int,
    batchnorm_momentum: float,
    *,
    width: int = 32,
    stride: int = 2,
    blocks: int = 1,
    dropout: float = 0.2,
    drop_path: float = 0.0,
) -> Any:
    """Return the logits of a residual network that trains quickly on a CPU.

    The stem moves each `stride` x `stride` block of pixels into the channels of a single pixel,
    because CPUs are slow on large images with few channels. Between the three stages, 2 x 2 blocks
    are moved in the same way. All convolutions have stride 1, and images can have any size.

    Args:
        width: number of channels in the first stage. The others have two and four times as many.
        stride: block size of the stem, in pixels.
        blocks: number of residual blocks per stage, with two 3x3 convolutions each.
        dropout: dropout rate before the logits.
        drop_path: drop rate of the last block (see `_add`).
    """
    convolution = partial(_convolution, kernel=3, momentum=batchnorm_momentum, use_bias=False)
    x = _squares_to_channels(images, stride, "stem")
    x = convolution(x, width, name="stem")
    for stage in (1, 2, 3):
        channels = width * 2 ** (stage - 1)
        if stage > 1:
            x = _squares_to_channels(x, 2, f"stage{stage}")
            x = convolution(x, channels, kernel=1, name=f"stage{stage}_in")
        x = _residual_stage(x, stage, blocks, drop_path, convolution)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    x = layers.Dropout(dropout, name="dropout")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def _squares_to_channels(x: Any, side: int, name: str) -> Any:
    """Pad x, and reshape it to (batch, height / side, width / side, channels x side x side)."""
    height, width = (-(-size // side) for size in x.shape[1:3])
    below, right, channels = height * side - x.shape[1], width * side - x.shape[2], x.shape[3]
    x = layers.ZeroPadding2D(((0, below), (0, right)), name=f"{name}_pad")(x)
    x = layers.Reshape((height, side, width, side, channels), name=f"{name}_split")(x)
    x = layers.Permute((1, 3, 2, 4, 5), name=f"{name}_turn")(x)
    return layers.Reshape((height, width, side * side * channels), name=f"{name}_join")(x)


def mlp(
    features: Any,
    num_classes: int,
    batchnorm_momentum: float,
    *,
    width: int = 128,
    depth: int = 2,
    dropout: float = 0.2,
) -> Any:
    """Return the logits of a multilayer perceptron for tabular data.

    Args:
        width: number of units per layer.
        depth: number of hidden layers.
        dropout: dropout rate after each layer.
    """
    x = layers.Flatten(name="flatten")(features)
    for number in range(1, depth + 1):
        x = layers.Dense(width, use_bias=False, name=f"layer{number}_dense")(x)
        x = layers.BatchNormalization(momentum=batchnorm_momentum, name=f"layer{number}_norm")(x)
        x = layers.Activation("relu", name=f"layer{number}_relu")(x)
        x = layers.Dropout(dropout, name=f"layer{number}_dropout")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def tabular(
    features: Any,
    num_classes: int,
    batchnorm_momentum: float,
    *,
    width: int = 256,
    depth: int = 3,
    frequencies: int = 16,
    spread: float = 0.3,
    dropout: float = 0.0,
) -> Any:
    """Return the logits of a multilayer perceptron with periodic feature embeddings, for large
    tables (thousands of rows).

    The sines and cosines of each feature let the network fit steps and thresholds, as trees do. See
    https://arxiv.org/abs/2203.05556. The network has no BatchNormalization.

    Args:
        width, depth, dropout: see `mlp`.
        frequencies: number of learned frequencies per feature.
        spread: initial standard deviation of the frequencies, in periods per standard deviation of
            the feature.
    """
    del batchnorm_momentum
    x = layers.Flatten(name="flatten")(features)
    count = x.shape[-1]
    angles = layers.EinsumDense(
        "bf,fk->bfk",
        (count, frequencies),
        kernel_initializer=keras.initializers.RandomNormal(stddev=2 * math.pi * spread),
        name="frequencies",
    )(x)
    waves = layers.Concatenate(name="waves")([keras.ops.sin(angles), keras.ops.cos(angles)])
    mixed = layers.EinsumDense(
        "bfk,fkd->bfd", (count, 8), bias_axes="fd", activation="relu", name="mixed_waves"
    )(waves)
    x = layers.Concatenate(name="with_waves")([x, layers.Flatten(name="flat_waves")(mixed)])
    for number in range(1, depth + 1):
        x = layers.Dense(width, activation="relu", name=f"layer{number}_dense")(x)
        x = layers.Dropout(dropout, name=f"layer{number}_dropout")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def columns(
    features: Any, num_classes: int, batchnorm_momentum: float, *, differences: int = 0
) -> Any:
    """Return the logits of a single dense layer on the columns of a table, for `Config.fit`. The
    columns contain the numbers, a flag for each missing number, and the index of each category in
    order of frequency.

    Args:
        differences: number of leading columns whose pairwise differences are added. A tree splits
            on one column at a time. With their difference, a single split can compare two columns.
    """
    del batchnorm_momentum
    if not 0 <= differences <= features.shape[1]:
        raise ValueError(f"differences={differences}; expected 0 to {features.shape[1]} columns")
    if differences > 1:
        pairs = np.triu_indices(differences, 1)
        first, second = (keras.ops.take(features, each, axis=1) for each in pairs)
        features = layers.Concatenate(name="with_differences")([features, first - second])
    return layers.Dense(num_classes, dtype="float32", name="logits")(features)


def _convolution(
    x: Any, channels: int, *, kernel: int, momentum: float, name: str, use_bias: bool = True
) -> Any:
    conv = layers.Conv2D(channels, kernel, padding="same", use_bias=use_bias, name=f"{name}_conv")
    x = layers.BatchNormalization(momentum=momentum, name=f"{name}_norm")(conv(x))
    return layers.Activation("relu", name=f"{name}_relu")(x)


def _residual_stage(x: Any, stage: int, blocks: int, drop_path: float, convolution: Any) -> Any:
    """Apply the residual blocks of one of the three stages to x.

    `drop_path` is the drop rate of the last block in the last stage (see `_add`).
    """
    for block in range(1, blocks + 1):
        branch, name = x, f"stage{stage}_block{block}"
        for unit in ("a", "b"):
            branch = convolution(branch, x.shape[-1], name=f"{name}_{unit}")
        x = _add(x, branch, drop_path * ((stage - 1) * blocks + block) / (3 * blocks), name)
    return x


def _add(x: Any, branch: Any, drop_path: float, name: str) -> Any:
    """Add a block's residual branch to its input, with stochastic depth.

    During training, the branch is skipped for a random fraction of the examples, `drop_path`. For
    the others, its output is scaled up to preserve the mean (Huang et al. 2016, arXiv:1603.09382).
    """
    if drop_path:
        per_example = (None, *(1 for _ in branch.shape[1:]))
        dropped = layers.Dropout(drop_path, noise_shape=per_example, name=f"{name}_drop_path")
        branch = dropped(branch)
    return layers.Add(name=f"{name}_add")([x, branch])


MODELS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (small_cnn, wide_resnet, strided_resnet, mlp, tabular, columns)
}


def seed(number: int) -> None:
    """Set the random seed for weight initialization and dropout.

    Keras draws both seeds from Python's `random`. See `make_default_seed` in Keras 3.13 to 3.15
    (checked on 2026-11-22). `keras.utils.set_random_seed` would also import TensorFlow, which takes
    four seconds (measured on 2 cores) and searches for accelerators.
    """
    random.seed(number)
    np.random.seed(number)  # unused here, but custom models may use it


def require(config: Config) -> None:
    names = [*MODELS, *backbones.BACKBONES, published.NAME]
    if config.model not in names and not custom_code.function(config, "model"):
        names += custom_code.written(config)
        alike = difflib.get_close_matches(config.model, names, n=1)
        raise ConfigError(
            f"model={config.model!r} does not exist; expected one of {', '.join(names)}.\n"
            + (f"Did you mean {alike[0]!r}? " if alike else "")
            + "Correct the name, or define the function in your config file (docs/custom-code.md)."
        )


def build(
    config: Config,
    batchnorm_momentum: float | None = None,
    networks: published.Networks | None = None,
) -> Any:
    """Build the config's model, uncompiled, with the current Keras dtype policy.

    Args:
        batchnorm_momentum: momentum scaled by `pipeline.train.learning_rate`; None for the config's
            value.
        networks: an artifact's networks for `config.pretrained`; None to read them from the
            presets.
    """
    require(config)
    custom = custom_code.function(config, "model")
    random = config.pretrained == backbones.RANDOM
    ours: dict[str, Callable[..., Any]] = {
        name: partial(backbones.logits, one._replace(random=random))
        for name, one in backbones.BACKBONES.items()
    }
    ours[published.NAME] = published.published
    function = custom or {**MODELS, **ours}[config.model]
    options = dict(config.model_options)
    if "pretrained" in options and not custom:
        raise ConfigError(
            f"model_options['pretrained']={options['pretrained']!r} is invalid, because pretrained"
            f" is a config field.\nUse Config(…, pretrained={options['pretrained']!r})"
        )
    networks = published.networks(config) if networks is None else networks
    if config.drop_path:
        options["drop_path"] = config.drop_path
    inputs, prepared = _inputs(config, scaled=function not in ours.values())
    momentum = config.batchnorm_momentum if batchnorm_momentum is None else batchnorm_momentum
    try:
        with published.building(config, networks):
            given = function(prepared, config.outputs, momentum, **options)
        # Custom functions can return a model instead of its outputs.
        logits, extra = parted(given(prepared) if isinstance(given, keras.Model) else given)
        if config.fit == "boosting":
            logits = trees.boosted(logits)
        model = keras.Model(inputs, (logits, extra) if extra else logits, name=config.model)
        weight_names.keys(model)  # raises if an artifact could not store a weight
        published.refuse_unused(model, config)
        shape = tuple(logits.shape)
        if shape != (None, config.outputs) and (config.target != "custom" or shape[0] is not None):
            raise ValueError(f"expected outputs of shape {(None, config.outputs)}, got {shape}")
        if "float" not in logits.dtype:
            raise ValueError(f"expected float32 outputs, got {logits.dtype}")
    except ConfigError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}".rstrip(".")
        takes = ", ".join([*inspect.signature(function).parameters][3:]) or "nothing"
        edit = "Correct model_options" + ", drop_path" * bool(config.drop_path)
        told = f"The options are {options!r}; the model accepts {takes}."
        if custom:
            file = custom_code.file(config)
            raise ConfigError(
                f"{custom_code.described(config, 'model')}{place(error, file)} raised {why}.\n"
                f"{edit}, data.height and data.width in the config, or the function in {file.name},"
                " which is called with (images, num_classes, batchnorm_momentum, options)."
                f" {told}\nIf the outputs should have a different shape, set target='custom'"
                " (docs/custom-code.md)."
            ) from error
        size = ", data.height and data.width" * (config.model != published.NAME)
        raise ConfigError(
            f"model={config.model!r} cannot be built: {why}.\n{edit}{size} in the config. {told}"
        ) from error
    return model


@contextmanager
def without_numbers() -> Iterator[None]:
    """Skip the initialization of weights for models that are built in this context."""
    waiting = [*(global_state.get_global_attribute(UNFILLED) or ())]
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute(UNFILLED, waiting)


def count(model: Any) -> dict[str, int]:
    trainable = sum(math.prod(v.shape) for v in model.trainable_weights)
    total = sum(math.prod(v.shape) for v in model.weights)
    return {"total": total, "trainable": trainable, "non_trainable": total - trainable}


def parted(outputs: Any) -> tuple[Any, dict[str, Any]]:
    """Split a model's outputs into its predictions and a dict of extra inputs for the loss."""
    if not isinstance(outputs, tuple | list):
        return outputs, {}
    first, extra = outputs
    return first, dict(extra)


def outputs(model: Any, inputs: np.ndarray, batch: int) -> np.ndarray:
    """Predict all inputs in batches of equal shape. The result is float32 (n, outputs)."""
    blocks = padded(inputs, batch)
    computed = ((parted(model.predict_on_batch(part))[0], real) for part, real in blocks)
    return np.concatenate([np.asarray(part, np.float32)[:real] for part, real in computed])


def _inputs(config: Config, *, scaled: bool) -> tuple[Any, Any]:
    """Return the model's input, and the tensors to pass to its function.

    The tensors are images, table features (see `_joined_columns`), or one or more named custom
    inputs. If `scaled` is set, pixel values are scaled to the range 0 to 1. Layers without weights
    have names that start with relay_, so custom functions can use any other name.
    """
    data = config.data
    inputs = keras.Input(data.shape, dtype=data.dtype, name="relay_inputs")
    if config.model == columns.__name__:
        return inputs, inputs
    if data.kind == "table":
        return inputs, _joined_columns(data, inputs)
    if not scaled:
        return inputs, inputs
    parts = custom_readers.unpacked(inputs, data.forms)
    for name, form in data.forms.items():
        if form[0] == "uint8":
            parts[name] = layers.Rescaling(1 / 255, name=f"relay_{name}_to_unit")(parts[name])
    return inputs, parts if len(parts) > 1 else next(iter(parts.values()))


def _joined_columns(data: Data, rows: Any) -> Any:
    numbers = len(data.number_names)
    parts = []
    if numbers:
        # The factor stays 0 for columns without missing values in training, so that missing values
        # in the test set add no noise.
        factor = layers.EinsumDense(
            "bi,i->bi", numbers, kernel_initializer="zeros", name="missing_factor"
        )
        parts = [rows[:, :numbers], factor(rows[:, numbers : 2 * numbers])]
    codes = data.most_categories
    for number in range(len(data.categorical_columns)):
        code = keras.ops.cast(rows[:, 2 * numbers + number], "int32")
        embedding = layers.Embedding(
            codes,
            min(16, (codes + 1) // 2),
            embeddings_initializer=_zero_for_unknown,
            name=f"category{number + 1}_embedding",
        )
        parts.append(embedding(code))
    return layers.Concatenate(name="relay_joined")(parts) if len(parts) > 1 else parts[0]


def _zero_for_unknown(shape: tuple[int, ...], dtype: Any = None) -> Any:
    random = keras.initializers.RandomUniform()(shape, dtype)
    known = np.arange(shape[0])[:, None] > 0  # code 0 is an unseen category
    return random * keras.ops.cast(known, random.dtype)
