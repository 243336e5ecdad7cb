"""Keys of a model's weights: the same in every process, Keras version and build.

A key is a place and a name: `2.0.1 encoder/conv1/bias`. The place identifies the weight: layer 2 of
those with weights, layer 0 inside it, weight 1 of that layer. So two towers built by one function
and layers without a name stay apart, and arrays from elsewhere are matched by place (`matched`).
The name is for people, and for a warm start from a different architecture.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from pipeline.models.layer_tree import children


def keys(model: Any) -> dict[int, str]:
    """Return the key of each weight of a model by the id of its variable, in the model's order.

    A layer that is used twice counts where it comes first.

    Raises:
        ValueError: if a weight is in none of the model's layers.
    """
    keys: dict[int, str] = {}
    _add_keys(keys, model, "", "")
    outside = [weight.path for weight in model.weights if id(weight) not in keys]
    if outside:
        raise ValueError(f"the weights {', '.join(outside[:5])} are in none of its layers")
    return {id(weight): keys[id(weight)] for weight in model.weights}


def _add_keys(keys: dict[int, str], layer: Any, place: str, path: str) -> None:
    """Add the keys of a layer's weights.

    Args:
        place: of the layer, ending with a dot; "" for the model.
        path: the names of the layers around it and its own, each ending with a slash; "" for the
            model.
    """
    # Keras versions differ in whether they count a layer again that a model has under a second
    # name. Here it has one place.
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
    """Return the name of a weight or layer. If Keras chose it (class name and a count over the
    process, as in forward_gru_7), the count is left out.
    """
    name = re.sub(r"_\d+$", "", named.name)
    return name if name.replace("_", "").endswith(kind) else str(named.name)


def _distinct(names: Iterable[str]) -> list[str]:
    """Return the names; repeated ones get a number.

    >>> _distinct(["dense", "norm", "dense", "dense", "norm_1"])
    ['dense', 'norm', 'dense_1', 'dense_2', 'norm_1']
    """
    distinct: dict[str, None] = {}
    for name in names:
        tried = (f"{name}_{number}" if number else name for number in count())
        distinct[next(one for one in tried if one not in distinct)] = None
    return list(distinct)


def numbered(variables: Sequence[Any]) -> list[str]:
    """Return keys of an optimizer's variables, or of seeds: number and name. Keras numbers their
    names over the process (adam_2/…, dense_12_kernel); only their order stays the same.
    """
    names = (re.sub(r"_\d+(?=_|$)", "", one.path.split("/")[-1]) for one in variables)
    return [f"{number} {name}" for number, name in enumerate(names)]


def name(key: str) -> str:
    """Return the name in a key.

    >>> name("fold-1/2.0.1 encoder/conv1/bias")
    'encoder/conv1/bias'
    """
    return key.partition(" ")[2]


def matched(ours: Iterable[str], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays by our keys where a place is the same, else by their own keys.

    >>> matched(["1.0 dense/kernel"], {"1.0 dense_7/kernel": 0, "2.0 dense_7/bias": 1})
    {'1.0 dense/kernel': 0, '2.0 dense_7/bias': 1}
    """
    by_place = {key.partition(" ")[0]: key for key in ours}
    return {by_place.get(key.partition(" ")[0], key): array for key, array in arrays.items()}
