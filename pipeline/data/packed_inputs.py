"""Packed inputs: several inputs of an example as the bytes of all, one after the other.

So all that carries inputs (batches, devices, checks, inference) carries one array, and the model
itself takes them apart.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.config.data_layout import Form, bytes_of, sizes


def pack(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return one input as it is, and several as bytes, uint8 (n, bytes).

    >>> pack({"a": np.zeros((2, 3), np.uint8), "b": np.ones((2, 1), np.float32)}).shape
    (2, 7)
    """
    arrays = list(inputs.values())
    if len(arrays) == 1:
        return arrays[0]
    flat = [np.ascontiguousarray(each).reshape(len(each), -1) for each in arrays]
    return np.concatenate([each.view(np.uint8) for each in flat], axis=1)


def unpacked(inputs: Any, forms: Mapping[str, Form]) -> dict[str, Any]:
    """Return each input by its name, from what `pack` returned, by Keras' operations.

    Args:
        inputs: a tensor (n, …).
        forms: `data.own_inputs`.
    """
    import keras

    if len(forms) == 1:
        return dict.fromkeys(forms, inputs)
    tensors, start = {}, 0
    for name, form in forms.items():
        part, start = inputs[:, start : start + bytes_of(form)], start + bytes_of(form)
        if form[0] != "uint8":
            numbers = math.prod(sizes(form))
            part = keras.ops.reshape(part, (-1, numbers, bytes_of(form) // numbers))
            part = keras.ops.view(part, dtype=form[0])
        tensors[name] = keras.ops.reshape(part, (-1, *sizes(form)))
    return tensors


def packed(inputs: Mapping[str, Any]) -> Any:
    """Return what `unpacked` takes apart, by Keras' operations."""
    import keras

    if len(inputs) == 1:
        return next(iter(inputs.values()))
    parts = []
    for tensor in inputs.values():
        part = keras.ops.reshape(tensor, (tensor.shape[0], -1))
        if part.dtype != "uint8":
            part = keras.ops.view(part[:, :, None], dtype="uint8")
            part = keras.ops.reshape(part, (tensor.shape[0], -1))
        parts.append(part)
    return keras.ops.concatenate(parts, axis=1)
