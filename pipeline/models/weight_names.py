"""Name a model's weights with keys that do not depend on the process or the Keras version.

A key consists of a position and a name, such as `2.0.1 encoder/conv1/bias`. This position
identifies weight 1 of sublayer 0 in layer 2, counting only layers with weights. Unnamed layers
therefore get different keys, as do two towers built by the same function. Arrays from a file are
matched by position. The name is meant for the user and for warm starts from another architecture.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from pipeline.models.layer_tree import children


def keys(model: Any) -> dict[int, str]:
    """Map the id of each of the model's weights to its key, in the model's order.

    A layer that is used twice is counted at its first position.

    Raises:
        ValueError: if a weight does not belong to any of the model's layers.
    """
    keys: dict[int, str] = {}
    _add_keys(keys, model, "", "")
    outside = [weight.path for weight in model.weights if id(weight) not in keys]
    if outside:
        raise ValueError(f"the weights {', '.join(outside[:5])} do not belong to any layer")
    return {id(weight): keys[id(weight)] for weight in model.weights}


def _add_keys(keys: dict[int, str], layer: Any, place: str, path: str) -> None:
    """Add the keys of a layer's weights.

    Args:
        place: position of the layer, ending with a dot. "" for the model.
        path: names of its parent layers and the layer, each followed by a slash. "" for the model.
    """
    # If a model has a layer under two names, some Keras versions list it twice. We count it once.
    inner, theirs = [], set[int]()
    for child in children(layer):
        held = {id(weight) for weight in child.weights}
        if held - theirs - keys.keys():
            inner.append(child)
        theirs |= held
    weights = [weight for weight in layer.weights if id(weight) not in theirs]
    names = _distinct(_name(weight, "variable") for weight in weights)
    for number, (weight, name) in enumerate(zip(weights, names, strict=True)):
        keys.setdefault(id(weight), f"{place}{number} {path}{name}")
    names = _distinct(_name(child, type(child).__name__.lower()) for child in inner)
    for number, (child, name) in enumerate(zip(inner, names, strict=True)):
        _add_keys(keys, child, f"{place}{number}.", f"{path}{name}/")


def _name(named: Any, kind: str) -> str:
    """Return the name of a weight or layer, without the counter that Keras appends to default
    names, such as forward_gru_7.
    """
    name = re.sub(r"_\d+$", "", named.name)
    return name if name.replace("_", "").endswith(kind) else str(named.name)


def _distinct(names: Iterable[str]) -> list[str]:
    """Make names unique by numbering duplicates.

    >>> _distinct(["dense", "norm", "dense", "dense", "norm_1"])
    ['dense', 'norm', 'dense_1', 'dense_2', 'norm_1']
    """
    distinct: dict[str, None] = {}
    for name in names:
        tried = (f"{name}_{number}" if number else name for number in count())
        distinct[next(one for one in tried if one not in distinct)] = None
    return list(distinct)


def numbered(variables: Sequence[Any]) -> list[str]:
    """Return the keys of optimizer variables or seeds, which consist of an index and a name.

    Keras adds process-wide counters to their names (adam_2/…, dense_12_kernel), so only their order
    is reliable.
    """
    names = (re.sub(r"_\d+(?=_|$)", "", one.path.split("/")[-1]) for one in variables)
    return [f"{number} {name}" for number, name in enumerate(names)]


def name(key: str) -> str:
    """Return the name part of a key.

    >>> name("fold-1/2.0.1 encoder/conv1/bias")
    'encoder/conv1/bias'
    """
    return key.partition(" ")[2]


def matched(ours: Iterable[str], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Rename each array to the key in `ours` with the same position. Other arrays keep their keys.

    >>> matched(["1.0 dense/kernel"], {"1.0 dense_7/kernel": 0, "2.0 dense_7/bias": 1})
    {'1.0 dense/kernel': 0, '2.0 dense_7/bias': 1}
    """
    by_place = {key.partition(" ")[0]: key for key in ours}
    return {by_place.get(key.partition(" ")[0], key): array for key, array in arrays.items()}
