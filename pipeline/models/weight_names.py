"""Keys of a model's weights: the same in every process, Keras and build, however layers are named.

A key is a place and a name: `2.0.1 encoder/conv1/bias`. The place says which weight it is: layer 2
of those that hold weights, layer 0 inside it, weight 1 of that one. So two towers of one function
and layers without a name stay apart, and arrays from elsewhere are matched by place alone
(`matched`). The name is for people, and for a warm start from another architecture.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pipeline.models.layer_tree import children

COUNT = re.compile(r"_\d+$")
# Keras counts the variables of the whole process in the names of an optimizer's (dense_12_kernel).
COUNTED = re.compile(r"_\d+(?=_|$)")


def keys(model: Any) -> dict[int, str]:
    """Return the key of each weight of a model by the id of its variable, in the model's order.

    A layer that is called or reached twice counts where it comes first.

    Raises:
        ValueError: if a weight lies in no layer of the model.
    """
    found: dict[int, str] = {}
    _walk(model, "", "", found)
    outside = [weight.path for weight in model.weights if id(weight) not in found]
    if outside:
        raise ValueError(f"the weights {', '.join(outside[:5])} are in none of its layers")
    return {id(weight): found[id(weight)] for weight in model.weights}


def _walk(layer: Any, place: str, path: str, found: dict[int, str]) -> None:
    holding = [one for one in children(layer) if one.weights]
    inside = {id(weight) for one in holding for weight in one.weights}
    own = [weight for weight in layer.weights if id(weight) not in inside]
    names = _distinct(COUNT.sub("", w.name) if _unnamed(w, "variable") else w.name for w in own)
    for number, (weight, name) in enumerate(zip(own, names, strict=True)):
        found.setdefault(id(weight), f"{place}{number} {path}{name}")
    names = _distinct(
        COUNT.sub("", one.name) if _unnamed(one, type(one).__name__) else one.name
        for one in holding
    )
    for number, (one, name) in enumerate(zip(holding, names, strict=True)):
        _walk(one, f"{place}{number}.", f"{path}{name}/", found)


def _unnamed(named: Any, kind: str) -> bool:
    """Return whether Keras chose a name: that of the class (forward_gru_7, too), and a count over
    the process.
    """
    return bool(COUNT.sub("", named.name).replace("_", "").endswith(kind.lower()))


def _distinct(names: Iterable[str]) -> Iterator[str]:
    """Yield the names, of which the second and later equal ones get a number.

    >>> list(_distinct(["dense", "norm", "dense", "dense"]))
    ['dense', 'norm', 'dense_1', 'dense_2']
    """
    seen, given = Counter[str](), set[str]()
    for name in names:
        while (one := f"{name}_{seen[name]}" if seen[name] else name) in given:
            seen[name] += 1
        seen[name] += 1
        given.add(one)
        yield one


def of_optimizer(number: int, variable: Any) -> str:
    """Return the key of a variable of an optimizer or a seed, from its number in a list."""
    return f"{number} {COUNTED.sub('', variable.path.split('/')[-1])}"


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
