"""The size of a config's network: parameters, and operations per image."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.config import Config

FORWARD, BACKWARD = 1, 2  # operations, in units of a prediction


@dataclass(frozen=True)
class Counts:
    """The size of a network.

    Attributes:
        parameters: weights, including moving statistics.
        trainable: those that are trained.
        operations: multiplications and additions per image in training, counted by XLA, which skips
            a convolution's taps beyond the edge.
        normalizes: whether BatchNorm normalizes images together; otherwise a step splits anywhere.
    """

    parameters: int
    trainable: int
    operations: float
    normalizes: bool = True

    @property
    def state(self) -> int:
        """Bytes of the training's state: weights, and two numbers of the optimizer per weight."""
        return 4 * (self.parameters + 2 * self.trainable)


def passes(config: Config) -> int:
    """Return the operations of a training step, in units of a prediction.

    A config field that computes the model more or less often is only counted here.
    """
    frozen = config.model_options.get("backbone_rate") == 0 or config.fit
    once = FORWARD if frozen else FORWARD + BACKWARD
    return 2 * once if config.train_step else once  # a guess: two gradients, as SAM has


def epochs(config: Config) -> float:
    """Return the epochs of whole steps that take as long as a training, over all folds.

    >>> from dataclasses import replace
    >>> from pipeline import config
    >>> digits = replace(config.load("digits"), epochs=10)
    >>> epochs(digits), epochs(replace(digits, folds=2, frozen_epochs=3))
    (10.0, 16.0)
    """
    saved = config.frozen_epochs / config.epochs * BACKWARD / (FORWARD + BACKWARD)
    return config.passes * (1 - saved)


def planned(config: Config) -> Config:
    """Return a config as it trains: a linear model on features takes one epoch, none frozen."""
    return replace(config, **config.with_epochs(1)) if config.fit else config


def network(config: Config, batchnorm_momentum: float = 0.99) -> Any:
    """Return a config's model as it trains: for a linear model on features, only the last layer.

    Raises:
        ConfigError: if the model does not take images of this size, or does not end with a linear
            layer.
    """
    from pipeline.models import architectures
    from pipeline.train import frozen_features

    model = architectures.build(config, batchnorm_momentum)
    if config.fit:
        below, _ = frozen_features.parts(model, config)
        below.trainable = False
    return model


def image_bytes(config: Config) -> float:
    """Return the bytes of one example in a batch."""
    return float(math.prod(config.data.shape)) * np.dtype(config.data.dtype).itemsize


def of(config: Config) -> Counts:
    """Return the size of a config's network.

    Raises:
        ConfigError: if the model does not take images of this size.
    """
    import jax

    from pipeline.models import architectures, group_layers

    model = network(config)
    trainable, other = model.trainable_variables, model.non_trainable_variables
    struct: Any = jax.ShapeDtypeStruct
    shapes = [[struct(one.shape, one.dtype) for one in part] for part in (trainable, other)]
    image = jax.tree.map(
        lambda one: struct((1, *one.shape[1:]), np.dtype(one.dtype)), model.input
    )  # there may be several inputs

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
