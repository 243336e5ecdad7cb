"""List the layers of any Keras model or layer, including nested, subclassed and composite ones.

This uses Keras' private `_flatten_layers` method, because only models have the public `layers`
attribute. Layers that contain other layers, such as attention blocks or cells, do not have it.
"""

from typing import Any


def children(layer: Any) -> list[Any]:
    return list(layer._flatten_layers(include_self=False, recursive=False))


def descendants(layer: Any) -> list[Any]:
    return list(layer._flatten_layers(include_self=False))
