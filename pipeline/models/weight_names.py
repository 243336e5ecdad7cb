"""Keys of a model's weights: the same in every process, Keras and build, however layers are named.

A key is a place and a name: `2.0.1 encoder/conv1/bias`. The place says which weight it is: layer 2
of those that hold weights, layer 0 inside it, weight 1 of that one. So two towers of one function
and layers without a name stay apart, and arrays from elsewhere are matched by place alone
(`matched`). The name is for people, and for a warm start from another architecture.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from pipeline.models.layer_tree import children


def keys(model: Any) -> dict[int, str]:
    """Return the key of each weight of a model by the id of its variable, in the model's order.

    A layer that is called or reached twice counts where it comes first.

    Raises:
        ValueError: if a weight lies in no layer of the model.
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
        place: of the layer, with a dot at its end; "" of the model.
        path: its name and those of the layers that hold it, each with a slash; "" of the model.
    """
    # A layer that a model holds by a second name too has no place of its own there: versions of
    # Keras differ in whether they count it.
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
    """Return the name of a weight or layer, without its number if Keras chose it: that of the class
    (forward_gru_7, too), and a count over the process.
    """
    name = re.sub(r"_\d+$", "", named.name)
    return name if name.replace("_", "").endswith(kind) else str(named.name)


def _distinct(names: Iterable[str]) -> list[str]:
    """Return the names, of which the second and later equal ones get a number.

    >>> _distinct(["dense", "norm", "dense", "dense", "norm_1"])
    ['dense', 'norm', 'dense_1', 'dense_2', 'norm_1']
    """
    distinct: dict[str, None] = {}
    for name in names:
        tried = (f"{name}_{number}" if number else name for number in count())
        distinct[next(one for one in tried if one not in distinct)] = None
    return list(distinct)


def numbered(variables: Sequence[Any]) -> list[str]:
    """Return keys of an optimizer's variables, or of seeds: number and name. Keras counts these
    through the process (adam_2/…, dense_12_kernel); their order is what stays the same.
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
    """Return arrays by our keys where a place is the same, else by their own.

    >>> matched(["1.0 dense/kernel"], {"1.0 dense_7/kernel": 0, "2.0 dense_7/bias": 1})
    {'1.0 dense/kernel': 0, '2.0 dense_7/bias': 1}
    """
    by_place = {key.partition(" ")[0]: key for key in ours}
    return {by_place.get(key.partition(" ")[0], key): array for key, array in arrays.items()}
