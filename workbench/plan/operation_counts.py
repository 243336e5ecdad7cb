"""Count the parameters of a network and its operations per image."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.config import Config

FORWARD, BACKWARD = 1, 2  # operations, relative to a prediction


@dataclass(frozen=True)
class Counts:
    """The size of a network.

    Attributes:
        parameters: number of weights, including moving statistics.
        operations: number of multiplications and additions per image in training, as counted by
            XLA, which ignores the padding of convolutions.
        normalizes: whether BatchNorm normalizes several images together. If it does not, a step can
            be split into micro-batches of any size.
    """

    parameters: int
    trainable: int
    operations: float
    normalizes: bool = True

    @property
    def state(self) -> int:
        """The bytes of the weights, plus two optimizer values for each trainable weight."""
        return 4 * (self.parameters + 2 * self.trainable)


def passes(config: Config) -> int:
    """Return the number of operations in a training step, relative to a prediction.

    This function accounts for all config fields that change how often the model is computed.
    """
    frozen = config.model_options.get("backbone_rate") == 0 or config.fit
    once = FORWARD if frozen else FORWARD + BACKWARD
    return 2 * once if config.train_step else once  # assume two gradients, as in SAM


def epochs(config: Config) -> float:
    """Return the number of epochs in all folds. Epochs with frozen layers count as fractions.

    >>> from dataclasses import replace
    >>> from pipeline import config
    >>> digits = replace(config.load("digits"), epochs=10)
    >>> epochs(digits), epochs(replace(digits, folds=2, frozen_epochs=3))
    (10.0, 16.0)
    """
    saved = config.frozen_epochs / config.epochs * BACKWARD / (FORWARD + BACKWARD)
    return config.passes * (1 - saved)


def planned(config: Config) -> Config:
    return replace(config, **config.with_epochs(1)) if config.fit else config


def network(config: Config, batchnorm_momentum: float = 0.99) -> Any:
    """Build a config's model for training.

    For a linear model on features, only the last layer is trainable.

    Raises:
        ConfigError: if the model does not support images of this size, or if the last layer of a
            linear model is not linear.
    """
    from pipeline.models import architectures
    from pipeline.train import frozen_features

    model = architectures.build(config, batchnorm_momentum)
    if config.fit:
        below, _ = frozen_features.parts(model, config)
        below.trainable = False
    return model


def image_bytes(config: Config) -> float:
    return float(math.prod(config.data.shape)) * np.dtype(config.data.dtype).itemsize


def of(config: Config) -> Counts:
    """Count the parameters and operations of a config's network.

    It raises the same errors as `network`.
    """
    import jax

    from pipeline.models import architectures, group_layers

    model = network(config)
    trainable, other = model.trainable_variables, model.non_trainable_variables
    struct: Any = jax.ShapeDtypeStruct
    shapes = [[struct(one.shape, one.dtype) for one in part] for part in (trainable, other)]
    image = jax.tree.map(
        lambda one: struct((1, *one.shape[1:]), np.dtype(one.dtype)), model.input
    )  # the model may have several inputs

    def forward(trainable: Any, other: Any, image: Any) -> Any:
        outputs, _ = model.stateless_call(trainable, other, image, training=False)
        return architectures.parted(outputs)[0]

    cost = jax.jit(forward).lower(*shapes, image).cost_analysis() or {}
    counted = architectures.count(model)
    return Counts(
        int(counted["total"]),
        int(counted["trainable"]),
        passes(config) * float(cost.get("flops", math.nan)),
        group_layers.normalizes(model),
    )
