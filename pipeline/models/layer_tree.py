"""The layers of a model, however it is written: functional, nested, subclassed, composite.

`_flatten_layers` is the one private name of Keras here. The public `model.layers` is that of models
alone and stops there: a layer that holds layers (an attention block, a cell) shows none of them.
"""

from typing import Any


def children(layer: Any) -> list[Any]:
    """Return the layers that a model or layer holds itself."""
    return list(layer._flatten_layers(include_self=False, recursive=False))


def descendants(layer: Any) -> list[Any]:
    """Return all layers inside of a model or layer, at any depth."""
    return list(layer._flatten_layers(include_self=False))
