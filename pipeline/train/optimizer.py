"""The optimizer: Keras' SGD, Adam or AdamW with the scaled numbers, another class of Keras, or what
a custom function returns; and the share of the learning rate that each weight gets.
"""

import inspect
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import keras
from keras import optimizers

from pipeline.config import Config, custom_code
from pipeline.config.config import OPTIMIZERS
from pipeline.errors import ConfigError
from pipeline.models import published, weight_names
from pipeline.models.backbones import BACKBONES
from pipeline.train.learning_rate import Applied, schedule

# Attributes of Keras' optimizers, and what the config has in their place.
INSTEAD = {
    "use_ema": "optimizer.ema_momentum",
    "gradient_accumulation_steps": "batch and micro_batch",
    "loss_scale_factor": "a factor in the loss",
}
# What these keep depends on the weights as they left them: a share of a step is no smaller rate.
NO_SHARES = ("Ftrl", "ScheduleFreeAdamW")
PARTS = 12  # of a network's layers, for optimizer.layer_decay
HEAD = "logits/"  # the last layer of a backbone, whose learning rate is the whole one


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
        raise ValueError("losses are not scaled here; leave LossScaleOptimizer out")
    for name, field in INSTEAD.items():
        if getattr(made, name, None):
            raise ValueError(f"{name} has no effect here, or another one; use {field}")
    if applied.clip_norm is not None:
        several = isinstance(made, optimizers.MultiOptimizer)
        if several or made.clipnorm or made.clipvalue or made.global_clipnorm:
            raise ValueError("it clips gradients by itself, or by parts; leave clip_norm out")
        made.global_clipnorm = applied.clip_norm
    return made


def learning_rate_factors(model: Any, config: Config) -> list[float] | None:
    """Return the learning rate's factor for each trainable variable; None: 1 for all.

    For `optimizer.layer_decay` the layers with weights, in the order of computation, are split into
    12 equal parts, whatever the network (fewer layers: a part each). The head, which is the last
    such layer, has the factor 1, the part before it layer_decay, the one before that layer_decay^2,
    and so on: Clark et al. 2020, arXiv:2003.10555; with 12 parts, Liu et al. 2022 (ConvNeXt),
    arXiv:2201.03545. A backbone's own factor, `backbone_rate`, comes on top, and so do
    `optimizer.layer_rates`.

    Raises:
        ConfigError: if a name of `layer_rates` fits no layer with weights.
    """
    rate, decay = 1.0, config.optimizer.layer_decay
    if config.model in (*BACKBONES, published.NAME):
        rate = float(config.model_options.get("backbone_rate", 1.0))
    factors: dict[int, float] = {}
    layers = [layer for layer in _layers(model) if layer.trainable_variables]
    before_head = max(len(layers) - 1, 1)
    parts = min(PARTS, before_head)
    for place, layer in enumerate(layers):
        factor = decay ** (parts - place * parts // before_head)
        for one in layer.trainable_variables:
            factors[id(one)] = factor * (1.0 if one.path.startswith(HEAD) else rate)
    keys, named = weight_names.keys(model), dict(config.optimizer.layer_rates)
    unused = set(named)
    for one in model.trainable_variables:
        *inside, _ = weight_names.name(keys[id(one)]).split("/")
        for pattern, rate in named.items():
            if any(fnmatchcase(layer, pattern) for layer in inside):
                factors[id(one)] *= rate
                unused.discard(pattern)
                break
    if unused:
        known = dict.fromkeys(weight_names.name(key).rpartition("/")[0] for key in keys.values())
        raise ConfigError(
            f"optimizer.layer_rates has {', '.join(map(repr, sorted(unused)))}, which fits no layer"
            f" that no earlier name fits; expected names of {', '.join([*known][:20])}.\nCorrect"
            " the name in the config, or name the layer in the model: layers.Dense(…, name=…)."
        )
    result = [factors[id(one)] for one in model.trainable_variables]
    if set(result) == {1.0}:
        return None
    if config.optimizer.name in NO_SHARES:
        raise ConfigError(
            f"optimizer.name={config.optimizer.name!r} cannot work with layers that have shares of"
            " the learning rate; expected layer_rates={}, layer_decay=1 and no backbone_rate.\n"
            "Leave these out, or take another optimizer."
        )
    return result


def _layers(model: Any) -> Iterator[Any]:
    """Yield the layers of a model and of models within it; parts of a layer belong to it."""
    for layer in model.layers:
        yield from _layers(layer) if isinstance(layer, keras.Model) else (layer,)
