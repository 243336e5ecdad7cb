"""Compute the learning rate factor of each weight from its depth, layer name and network."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import keras

from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.models import heads, published, weight_names
from pipeline.models.backbones import BACKBONES
from pipeline.models.layer_tree import children

# These optimizers keep state that depends on earlier weights, so their updates cannot be scaled.
NO_SHARES = ("Ftrl", "ScheduleFreeAdamW")
TWELVE = 12  # number of parts for networks that are not stacks of identical blocks


class Part(NamedTuple):
    """A layer, or a block of layers, with a single learning rate factor.

    `block` contains a block's class and weight shapes, which are the same for identical blocks. It
    is None for a layer.
    """

    weights: Sequence[Any]
    block: Any = None


def factors(model: Any, config: Config) -> list[float] | None:
    """Return the learning rate factor of each trainable variable, or None if all are 1.

    With `optimizer.layer_decay`, the factor depends on the depth. In a published network, depth is
    counted from the outputs. In other models, it is counted from the head, which is the last layer
    with weights. New layers, such as a head, have a factor of 1.

    A transformer is a stack of identical blocks (Clark et al. 2020, arXiv:2003.10555). The last
    block has the factor layer_decay, the block before it layer_decay^2, and so on. The layers
    before the first block, such as embeddings, are treated as another block. A layer that
    follows a block has the same factor as the block.

    Other networks are split into 12 parts with the same number of layers (Liu et al. 2022,
    ConvNeXt, arXiv:2201.03545). If a network has fewer layers, each layer is a part.

    `backbone_rate` multiplies the factors of a published network, and `optimizer.layer_rates`
    multiplies the factors of matching layers.
    """
    rate, decay = 1.0, config.optimizer.layer_decay
    if config.model in (*BACKBONES, published.NAME):
        options: Mapping[str, Any] = config.model_options
        rate = float(options.get("backbone_rate", 1.0))
    found = {id(one): 1.0 for one in model.trainable_variables}
    for parts in _networks(model, config):
        for part, depth in zip(parts, _decay_exponents(parts), strict=True):
            found |= {id(one): decay**depth * rate for one in part.weights}
    _multiply_by_name(found, model, dict(config.optimizer.layer_rates))
    result = [found[id(one)] for one in model.trainable_variables]
    if set(result) == {1.0}:
        return None
    if config.optimizer.name in NO_SHARES:
        raise ConfigError(
            f"optimizer.name={config.optimizer.name!r} does not support learning rates per layer;"
            " expected layer_rates={}, layer_decay=1 and no backbone_rate.\n"
            "Remove these, or choose another optimizer."
        )
    return result


def described(model: Any, config: Config) -> list[dict[str, Any]]:
    keys, runs = weight_names.keys(model), list[dict[str, Any]]()
    named = [weight_names.name(keys[id(one)]) for one in model.trainable_variables]
    shares = factors(model, config) or [1.0] * len(named)
    for factor, group in groupby(zip(shares, named, strict=True), key=itemgetter(0)):
        names = [name for _, name in group]
        runs.append({"factor": factor, "weights": len(names), "from": names[0], "to": names[-1]})
    return runs


def frozen(model: Any, config: Config) -> list[bool]:
    """Return whether each trainable variable is frozen for the first `frozen_epochs` epochs. If the
    model contains published networks, their weights are frozen. Otherwise, all weights are frozen
    except for the last layer.
    """
    weights = model.trainable_variables
    if not config.frozen_epochs:
        return [False] * len(weights)
    parts = [part for network in _networks(model, config) for part in network]
    below = {id(one) for part in parts for one in part.weights}
    stays = [id(one) in below for one in weights]
    if all(stays) or not any(stays):
        raise ConfigError(
            f"frozen_epochs={config.frozen_epochs} would freeze {'all' if all(stays) else 'none'}"
            f" of the {len(stays)} trainable weights; expected a network with published weights and"
            " new layers above it.\nSet frozen_epochs=0."
        )
    return stays


def _networks(model: Any, config: Config) -> list[list[Part]]:
    """Return the parts of each network in which depth is counted, ordered from inputs to outputs.
    New layers above a network are excluded.
    """
    if config.model in BACKBONES:
        layers = [layer for layer in model.layers if not heads.is_new(layer)]
        return [[part for layer in layers for part in _trained(layer)]]
    if begun := published.begun(model):
        return [[*_trained(network)] for _, network in begun]
    return [[*_trained(model)][:-1]]


def _trained(layer: Any) -> Iterator[Part]:
    return (part for part in _parts(layer) if part.weights)


def _parts(layer: Any, block: Any = None) -> Iterator[Part]:
    """Yield the parts of a layer in the order of computation. A layer is a single part unless it is
    a model, or contains several composite layers of the same class, as an encoder does.
    """
    inner = layer.layers if isinstance(layer, keras.Model) else children(layer)
    kinds = Counter(type(each) for each in inner if children(each))
    several = {kind for kind, number in kinds.items() if number > 1}
    if not isinstance(layer, keras.Model) and not several:
        yield Part(layer.trainable_variables, block)
        return
    theirs = {id(one) for each in inner for one in each.trainable_variables}
    yield Part([one for one in layer.trainable_variables if id(one) not in theirs])
    for each in inner:
        shapes = tuple(tuple(one.shape) for one in each.weights)
        yield from _parts(each, (type(each), shapes) if type(each) in several else None)


def _decay_exponents(parts: Sequence[Part]) -> list[int]:
    blocks = [part.block for part in parts if part.block]
    if len(blocks) > 1 and len(set(blocks)) == 1:
        seen = accumulate(part.block is not None for part in parts)
        return [len(blocks) + 1 - number for number in seen]
    most = min(TWELVE, len(parts))
    return [most - place * most // len(parts) for place in range(len(parts))]


def _multiply_by_name(found: dict[int, float], model: Any, named: dict[str, float]) -> None:
    keys, unused = weight_names.keys(model), set(named)
    for one in model.trainable_variables:
        *inside, _ = weight_names.name(keys[id(one)]).split("/")
        for pattern, rate in named.items():
            if any(fnmatchcase(layer, pattern) for layer in inside):
                found[id(one)] *= rate
                unused.discard(pattern)
                break
    if unused:
        known = dict.fromkeys(weight_names.name(key).rpartition("/")[0] for key in keys.values())
        raise ConfigError(
            f"optimizer.layer_rates has {', '.join(map(repr, sorted(unused)))}, which does not"
            f" match any remaining layer; expected names from {', '.join([*known][:20])}.\n"
            "Correct the name in the config, or name the layer in the model: layers.Dense(…,"
            " name=…)."
        )
