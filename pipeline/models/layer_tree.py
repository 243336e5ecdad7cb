"""The layers of a model, however it is written: functional, nested, subclassed, composite.

`_flatten_layers` is the only private name of Keras here. Only models have the public `layers`: a
layer that contains layers (an attention block, a cell) does not show them.
"""

from typing import Any


def children(layer: Any) -> list[Any]:
    """Return the layers directly inside a model or layer."""
    return list(layer._flatten_layers(include_self=False, recursive=False))


def descendants(layer: Any) -> list[Any]:
    """Return all layers inside a model or layer, at any depth."""
    return list(layer._flatten_layers(include_self=False))
