"""Models: from a `Config` to an uncompiled Keras functional model, the same on JAX and TensorFlow.

A model takes images, uint8 `(batch, height, width, channels)`, or rows of a table, float32 `(batch,
features)` as `pipeline.data.table_features` makes them. It returns float32 outputs `(batch,
Config.outputs)`, which `pipeline.data.labels` reads. It scales pixels and embeds categories itself,
so training and inference cannot differ. Weights are stored by their place in the model
(`pipeline.models.weight_names`), so the layers of a custom model need no names. The models below
name theirs for summaries and for messages of a warm start.

Each network below takes images, float (batch, height, width, channels) from 0 to 1, or a table's
numbers and embedded categories, float (batch, features); then the length of the logits, the
momentum of every BatchNormalization, and its options. A config's own file may contain a model of
the same form (docs/custom-code.md). Networks of keras.applications are in
`pipeline.models.backbones`, networks of KerasHub in `pipeline.models.published`.
"""

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
    """Return logits of four 3x3 convolutions in two stages, for images of 8 to 32 pixels a side.

    Args:
        width: channels of the first stage; the second has twice as many.
        dropout: share of the features dropped before the logits, in training.
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
    """Return logits of the WideResNet of koshian2/TPU-Benchmark.

    The three stages have 16k, 32k and 64k channels and `n` blocks each. A block is twice
    [convolution, BatchNorm, ReLU], and adds its input. Each stage starts with a 1x1 convolution,
    after average pooling by 2 from the second stage on. Biases are on. With k=7, n=4,
    kernel_size=7, 32x32x3 images and 100 classes there are 103,465,028 parameters, 12,544 of them
    not trainable.

    Args:
        k: width factor.
        n: blocks per stage.
        kernel_size: of the convolutions inside the blocks, in pixels.
        drop_path: of the last block, as `_add` takes it.
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
    """Return logits of a residual network that learns quickly on a CPU.

    Each square of `stride` x `stride` pixels becomes one pixel with all their values as channels,
    because a CPU is slow at full size with few channels. Squares of 2 x 2 halve the sides between
    the three stages in the same way. So every convolution has a stride of 1, only the last layer
    pools, and images may have any size.

    Args:
        width: channels of the first stage; the others have twice and four times as many.
        stride: side in pixels of the squares.
        blocks: residual blocks per stage, of two 3x3 convolutions each.
        dropout: share of the features dropped before the logits, in training.
        drop_path: of the last block, as `_add` takes it.
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
    """Return (batch, height / side, width / side, channels x side x side), padded with zeros."""
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
    """Return logits of fully connected layers, for rows of a table.

    Args:
        width: of each layer.
        depth: number of layers.
        dropout: share of the features dropped after each layer, in training.
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
    """Return logits of fully connected layers that also get sines and cosines of each feature, for
    tables of thousands of rows: these follow steps and thresholds as trees do.

    Source: https://arxiv.org/abs/2203.05556. There is no BatchNormalization.

    Args:
        width: of each layer.
        depth: number of layers.
        frequencies: number of learned frequencies per feature.
        spread: their initial standard deviation, in periods per standard deviation of the feature.
        dropout: share of the features dropped after each layer, in training.
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
    """Return logits of one layer on a table's columns, for `Config.fit`: numbers, marks of missing
    ones, and the place of each category among the most frequent ones.

    Args:
        differences: add the differences between each two of this many first columns. A tree splits
            on one column at a time, so one split on a difference compares two of them.
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
    """Return a convolution of x with BatchNorm and ReLU."""
    conv = layers.Conv2D(channels, kernel, padding="same", use_bias=use_bias, name=f"{name}_conv")
    x = layers.BatchNormalization(momentum=momentum, name=f"{name}_norm")(conv(x))
    return layers.Activation("relu", name=f"{name}_relu")(x)


def _residual_stage(x: Any, stage: int, blocks: int, drop_path: float, convolution: Any) -> Any:
    """Return x after the blocks of one of three stages; each adds two convolutions to its input.

    Args:
        drop_path: of the last block of the last stage, as `_add` takes it.
        convolution: function of a tensor, the number of channels and a name.
    """
    for block in range(1, blocks + 1):
        branch, name = x, f"stage{stage}_block{block}"
        for unit in ("a", "b"):
            branch = convolution(branch, x.shape[-1], name=f"{name}_{unit}")
        x = _add(x, branch, drop_path * ((stage - 1) * blocks + block) / (3 * blocks), name)
    return x


def _add(x: Any, branch: Any, drop_path: float, name: str) -> Any:
    """Return the sum of a block's input and its branch, with stochastic depth (Huang et al. 2016,
    arXiv:1603.09382): some examples skip the branch, and that of the others is scaled up to keep
    the mean.

    Args:
        drop_path: share of examples that skip the branch, in training.
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
    """Seed initial weights and dropout.

    Keras takes the seeds of both from Python's `random` (3.13 to 3.15: `make_default_seed`, read
    2026-11-22). `keras.utils.set_random_seed` seeds it too, but first imports TensorFlow, which
    adds four seconds to every start (measured, 2 cores) and looks for accelerators.
    """
    random.seed(number)
    np.random.seed(number)  # nothing here draws from it; a custom model may


def build(
    config: Config,
    batchnorm_momentum: float | None = None,
    networks: published.Networks | None = None,
) -> Any:
    """Return the config's model, uncompiled, under the current Keras dtype policy.

    Args:
        batchnorm_momentum: as scaled by `pipeline.train.learning_rate`; None: the config's own
            (inference does not use it).
        networks: the networks of `config.pretrained` from an artifact; None: from their presets.

    Raises:
        ConfigError: if the model does not exist, or refuses `config.model_options`.
    """
    custom = custom_code.function(config, "model")
    random = config.pretrained == backbones.RANDOM
    ours: dict[str, Callable[..., Any]] = {
        name: partial(backbones.logits, one._replace(random=random))
        for name, one in backbones.BACKBONES.items()
    }
    ours[published.NAME] = published.published
    function = custom or {**MODELS, **ours}.get(config.model)
    if function is None:
        names = [*MODELS, *ours, *custom_code.written(config)]
        raise ConfigError(
            f"model={config.model!r} does not exist; expected one of {', '.join(names)}.\n"
            "Correct it, or write the function into the config's own file (docs/custom-code.md)."
        )
    options = dict(config.model_options)
    if "pretrained" in options and not custom:
        raise ConfigError(
            f"model_options['pretrained']={options['pretrained']!r} cannot work: it is a field of"
            f" the config.\nConfig(…, pretrained={options['pretrained']!r})"
        )
    networks = published.networks(config) if networks is None else networks
    if config.drop_path:
        options["drop_path"] = config.drop_path
    inputs, prepared = _inputs(config, scaled=function not in ours.values())
    momentum = config.batchnorm_momentum if batchnorm_momentum is None else batchnorm_momentum
    try:
        with published.building(config, networks):
            given = function(prepared, config.outputs, momentum, **options)
        # A custom function may return a model instead of its outputs.
        logits, extra = parted(given(prepared) if isinstance(given, keras.Model) else given)
        if config.fit == "boosting":
            logits = trees.boosted(logits)
        model = keras.Model(inputs, (logits, extra) if extra else logits, name=config.model)
        weight_names.keys(model)  # refuses weights that no artifact would hold
        published.refuse_unused(model, config)
        shape = tuple(logits.shape)
        if shape != (None, config.outputs) and (config.target != "custom" or shape[0] is not None):
            raise ValueError(f"its outputs have shape {shape}, not {(None, config.outputs)}")
        if "float" not in logits.dtype:
            raise ValueError(f"its outputs are {logits.dtype}, not float32")
    except ConfigError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}".rstrip(".")
        takes = ", ".join([*inspect.signature(function).parameters][3:]) or "nothing"
        edit = "Correct model_options" + " and drop_path" * bool(config.drop_path)
        edit += f" in the config, {options!r} (it takes {takes})"
        if custom:
            file = custom_code.file(config)
            raise ConfigError(
                f"{custom_code.described(config, 'model')}{place(error, file)} ended with {why}.\n"
                f"{edit}, data.height and data.width, or the function in {file.name}, which gets"
                " (images, num_classes, batchnorm_momentum, options).\nFor outputs of a different"
                " shape set target='custom' (docs/custom-code.md)."
            ) from error
        size = ", or data.height and data.width" * (config.model != published.NAME)
        message = f"model={config.model!r} cannot be built: {why}.\n{edit}{size}."
        raise ConfigError(message) from error
    return model


@contextmanager
def without_numbers() -> Iterator[None]:
    """A context in which models have names and shapes but no weights are drawn, neither here nor
    later: Keras would fill its list of uninitialized variables at the next occasion.
    """
    waiting = [*(global_state.get_global_attribute(UNFILLED) or ())]
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute(UNFILLED, waiting)


def count(model: Any) -> dict[str, int]:
    """Return the numbers of parameters: total, trainable, non_trainable."""
    trainable = sum(math.prod(v.shape) for v in model.trainable_weights)
    total = sum(math.prod(v.shape) for v in model.weights)
    return {"total": total, "trainable": trainable, "non_trainable": total - trainable}


def parted(outputs: Any) -> tuple[Any, dict[str, Any]]:
    """Return a model's outputs, and the extra outputs for its loss: (outputs, {name: extra})."""
    if not isinstance(outputs, tuple | list):
        return outputs, {}
    first, extra = outputs
    return first, dict(extra)


def outputs(model: Any, inputs: np.ndarray, batch: int) -> np.ndarray:
    """Return the model's outputs for all inputs, in batches of one shape: float32 (n, outputs)."""
    blocks = padded(inputs, batch)
    computed = ((parted(model.predict_on_batch(part))[0], real) for part, real in blocks)
    return np.concatenate([np.asarray(part, np.float32)[:real] for part, real in computed])


def _inputs(config: Config, *, scaled: bool) -> tuple[Any, Any]:
    """Return the model's input, and what its function takes.

    This is an image from 0 to 1, a table's numbers, effects of missing ones and embedded
    categories, or custom inputs: one, or several by name. Layers without weights are called
    relay_…, because Keras refuses a name that a custom function uses again.

    Args:
        scaled: whether bytes (uint8) are scaled to 0 to 1; False: unchanged.
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
    """Return a table's numbers, the effects of missing ones, and embedded categories."""
    numbers = len(data.number_names)
    parts = []
    if numbers:
        # A column without gaps in training keeps the factor 0, so a gap in the test set adds no
        # noise.
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
    """Return initial embeddings: small random ones, and zeros for code 0, an unseen category."""
    random = keras.initializers.RandomUniform()(shape, dtype)
    known = np.arange(shape[0])[:, None] > 0
    return random * keras.ops.cast(known, random.dtype)
