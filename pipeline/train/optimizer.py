"""Create SGD, Adam or AdamW with scaled hyperparameters, or another Keras or custom optimizer."""

import inspect
from collections.abc import Sequence
from typing import Any

import keras
from keras import optimizers

from pipeline.config import Config, custom_code
from pipeline.config.config import OPTIMIZERS
from pipeline.errors import ConfigError
from pipeline.train.learning_rate import Applied, schedule

# Attributes of Keras optimizers that are not supported, and what to use instead.
INSTEAD = {
    "use_ema": "optimizer.ema_momentum or swa_start",
    "gradient_accumulation_steps": "batch and micro_batch",
    "loss_scale_factor": "a factor in the loss",
}


def optimizer(config: Config, applied: Applied, variables: Sequence[Any]) -> Any:
    """Return the Keras optimizer with the scaled hyperparameters and the schedule.

    Keras optimizers do not decay biases and other vectors in the trainable `variables`, such as the
    scale and offset of a normalization layer.
    """
    custom, rate = custom_code.function(config, "optimizer.name"), schedule(config, applied)
    if custom and custom is not vars(optimizers).get(applied.optimizer):  # not imported from Keras
        with custom_code.telling(config, "optimizer.name"):
            return _clipped(_custom(applied, custom, rate), applied)
    made = (_ours if applied.optimizer in OPTIMIZERS else _of_keras)(applied, rate)
    made.exclude_from_weight_decay(
        var_list=[one for one in variables if len(one.shape) < 2 or one.name == "bias"]
    )
    return made


def _ours(applied: Applied, rate: Any) -> Any:
    numbers: dict[str, Any] = {"global_clipnorm": applied.clip_norm}
    if applied.optimizer == "sgd":
        numbers |= {"momentum": applied.momentum, "nesterov": True}
    else:
        numbers |= {name: getattr(applied, name) for name in ("beta_1", "beta_2", "epsilon")}
    if applied.optimizer != "adam":
        numbers["weight_decay"] = applied.weight_decay
    kind = {"sgd": optimizers.SGD, "adam": optimizers.Adam, "adamw": optimizers.AdamW}
    return kind[applied.optimizer](rate, **numbers)


def _of_keras(applied: Applied, rate: Any) -> Any:
    name, arguments = applied.optimizer, dict(applied.arguments)
    wrappers = ("Optimizer", "LossScaleOptimizer", "MultiOptimizer", "OptimizerMap")
    kinds = {
        kind.__name__: kind
        for kind in vars(optimizers).values()
        if isinstance(kind, type) and issubclass(kind, optimizers.Optimizer)
        if kind.__name__ not in wrappers
    }
    try:
        return _clipped(kinds[name](rate, **arguments), applied)
    except (KeyError, TypeError, ValueError) as error:
        takes = f"one of {', '.join(kinds)}"
        if name in kinds:
            takes = f"the arguments {inspect.signature(kinds[name])}"
        raise ConfigError(
            f"Invalid optimizer.name={name!r} with {arguments}: {error!r}. Keras"
            f" {keras.__version__} accepts {takes}.\nCorrect optimizer.name, arguments or clip_norm"
            " in the config."
        ) from error


def _custom(applied: Applied, custom: Any, rate: Any) -> Any:
    arguments, takes = dict(applied.arguments), inspect.signature(custom)
    if "kappa" in takes.parameters:
        arguments["kappa"] = applied.kappa
    try:
        takes.bind(rate, **arguments)
    except TypeError as error:
        given = f"a learning rate and optimizer.arguments={arguments}"
        raise TypeError(f"{error}: it accepts {takes} but was passed {given}") from error
    made = custom(rate, **arguments)
    if not isinstance(made, optimizers.Optimizer):
        raise TypeError(f"it returned {type(made).__name__}, not a keras.optimizers.Optimizer")
    return made


def _clipped(made: Any, applied: Applied) -> Any:
    """Set the config's clip_norm on the optimizer, and return it. Raise `ValueError` if an option
    would have no effect, or would behave differently than in Keras' `fit`.
    """
    if isinstance(made, optimizers.LossScaleOptimizer):
        raise ValueError("in float16, the training step scales the loss; remove LossScaleOptimizer")
    for name, field in INSTEAD.items():
        if getattr(made, name, None):
            raise ValueError(f"{name} is not supported; use {field} instead")
    if applied.clip_norm is not None:
        several = isinstance(made, optimizers.MultiOptimizer)
        if several or made.clipnorm or made.clipvalue or made.global_clipnorm:
            raise ValueError("it already clips gradients, or clips them in parts; remove clip_norm")
        made.global_clipnorm = applied.clip_norm
    return made
