"""The optimizer: Keras' SGD, Adam or AdamW with the scaled numbers, and the share of the learning
rate that each weight gets.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import optimizers

from pipeline.config import Config
from pipeline.models.backbones import BACKBONES
from pipeline.train.learning_rate import Applied, schedule

PARTS = 12  # of a network's layers, for optimizer.layer_decay
HEAD = "logits/"  # the last layer of a backbone, whose learning rate is the whole one


def optimizer(applied: Applied, variables: Sequence[Any]) -> Any:
    """Return the Keras optimizer with the applied numbers and the schedule.

    Args:
        applied: the numbers.
        variables: of Keras, that it will train. Weight decay leaves out biases, and whatever has
            one number per channel, as normalization's scale and offset.
    """
    numbers: dict[str, Any] = {"global_clipnorm": applied.clip_norm}
    if applied.optimizer == "sgd":
        numbers |= {"momentum": applied.momentum, "nesterov": True}
    else:
        numbers |= {name: getattr(applied, name) for name in ("beta_1", "beta_2", "epsilon")}
    if applied.optimizer != "adam":
        numbers["weight_decay"] = applied.weight_decay
    kind = {"sgd": optimizers.SGD, "adam": optimizers.Adam, "adamw": optimizers.AdamW}
    made = kind[applied.optimizer](schedule(applied), **numbers)
    made.exclude_from_weight_decay(
        var_list=[one for one in variables if len(one.shape) < 2 or one.name == "bias"]
    )
    return made


def learning_rate_factors(model: Any, config: Config) -> list[float] | None:
    """Return the learning rate's factor for each trainable variable; None: 1 for all.

    For `optimizer.layer_decay` the layers with weights, in the order of computation, are split into
    12 equal parts, whatever the network (fewer layers: a part each). The head, which is the last
    such layer, has the factor 1, the part before it layer_decay, the one before that layer_decay^2,
    and so on: Clark et al. 2020, arXiv:2003.10555; with 12 parts, Liu et al. 2022 (ConvNeXt),
    arXiv:2201.03545. A backbone's own factor, `backbone_rate`, comes on top.
    """
    rate, decay = 1.0, config.optimizer.layer_decay
    if config.model in BACKBONES:
        rate = float(config.model_options.get("backbone_rate", 1.0))
    factors: dict[int, float] = {}
    layers = [layer for layer in _layers(model) if layer.trainable_variables]
    before_head = max(len(layers) - 1, 1)
    parts = min(PARTS, before_head)
    for place, layer in enumerate(layers):
        factor = decay ** (parts - place * parts // before_head)
        for one in layer.trainable_variables:
            factors[id(one)] = factor * (1.0 if one.path.startswith(HEAD) else rate)
    result = [factors[id(one)] for one in model.trainable_variables]
    return None if set(result) == {1.0} else result


def _layers(model: Any) -> Iterator[Any]:
    """Yield the layers of a model and of models within it; parts of a layer belong to it."""
    for layer in model.layers:
        yield from _layers(layer) if isinstance(layer, keras.Model) else (layer,)
