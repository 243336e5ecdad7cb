"""The optimizer: Keras' SGD, Adam or AdamW with the scaled numbers, another class of Keras, or what
a custom function returns.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import keras
from keras import optimizers

from pipeline.config import Config, custom_code
from pipeline.config.config import OPTIMIZERS
from pipeline.errors import ConfigError
from pipeline.train.learning_rate import Applied, schedule

# Attributes of Keras' optimizers, and what the config has in their place.
INSTEAD = {
    "use_ema": "optimizer.ema_momentum",
    "gradient_accumulation_steps": "batch and micro_batch",
    "loss_scale_factor": "a factor in the loss",
}


def optimizer(config: Config, applied: Applied, variables: Sequence[Any]) -> Any:
    """Return the Keras optimizer with the applied numbers and the schedule.

    Args:
        config, applied: the run and its numbers.
        variables: of Keras, that it will train. Weight decay leaves out biases, and whatever has
            one number per channel, as normalization's scale and offset. A custom function says
            itself what it leaves out.

    Raises:
        ConfigError: if there is no such optimizer, or it does not take its arguments.
    """
    custom, rate = custom_code.function(config, "optimizer.name"), schedule(config, applied)
    if custom is vars(optimizers).get(applied.optimizer):  # a file may import Keras' own
        custom = None
    if custom:
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
    """Return an optimizer of a class of keras.optimizers, by its arguments."""
    name, arguments = applied.optimizer, dict(applied.arguments)
    kinds = {kind.__name__: kind for kind in vars(optimizers).values() if _is_kind(kind)}
    try:
        return _clipped(kinds[name](rate, **arguments), applied)
    except (KeyError, TypeError, ValueError) as error:
        takes = f"one of {', '.join(kinds)}"
        if name in kinds:
            takes = f"the arguments {inspect.signature(kinds[name])}"
        raise ConfigError(
            f"optimizer.name={name!r} with {arguments} cannot work: {error!r}; expected {takes}"
            f" (Keras {keras.__version__}).\nCorrect optimizer.name, arguments or clip_norm in the"
            " config."
        ) from error


def _is_kind(kind: Any) -> bool:
    """Return whether this is a class of optimizers that takes a learning rate."""
    of_others = ("Optimizer", "LossScaleOptimizer", "MultiOptimizer", "OptimizerMap")
    is_class = isinstance(kind, type) and issubclass(kind, optimizers.Optimizer)
    return is_class and kind.__name__ not in of_others


def _custom(applied: Applied, custom: Any, rate: Any) -> Any:
    """Return what a custom function, or a class, makes of the rate and the arguments."""
    arguments = dict(applied.arguments)
    if "kappa" in inspect.signature(custom).parameters:
        arguments["kappa"] = applied.kappa
    takes = inspect.signature(custom)
    try:
        takes.bind(rate, **arguments)
    except TypeError as error:
        given = f"a learning rate, and optimizer.arguments has {arguments}"
        raise TypeError(f"{error}: it takes {takes} and gets {given}") from error
    made = custom(rate, **arguments)
    if not isinstance(made, optimizers.Optimizer):
        raise TypeError(f"it returns {type(made).__name__}, and no keras.optimizers.Optimizer")
    return made


def _clipped(made: Any, applied: Applied) -> Any:
    """Return an optimizer that clips gradients as the config says.

    Raises:
        ValueError: for what would have another effect here than in Keras' fit, or none.
    """
    if isinstance(made, optimizers.LossScaleOptimizer):
        raise ValueError("in float16 the step scales the loss; leave LossScaleOptimizer out")
    for name, field in INSTEAD.items():
        if getattr(made, name, None):
            raise ValueError(f"{name} has no effect here, or another one; use {field}")
    if applied.clip_norm is not None:
        several = isinstance(made, optimizers.MultiOptimizer)
        if several or made.clipnorm or made.clipvalue or made.global_clipnorm:
            raise ValueError("it clips gradients by itself, or by parts; leave clip_norm out")
        made.global_clipnorm = applied.clip_norm
    return made
