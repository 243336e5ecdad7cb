"""Read weight files for custom networks: Keras .weights.h5 and .safetensors.

Both formats only contain named arrays. Pickle files are not supported.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline.errors import ConfigError
from pipeline.models import weight_names
from pipeline.models.layer_tree import descendants

FILES = (".weights.h5", ".safetensors")
Names = Callable[[str], str]
# Data types in .safetensors files (github.com/huggingface/safetensors, read 2026-11-28).
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def read_keras(network: Any, path: Path) -> None:
    """Load all weights of a network from a .weights.h5 file.

    Raises `ValueError` if a weight is missing, which Keras would silently leave unchanged.
    """
    for one in network.weights:
        if "float" in one.dtype:
            one.assign(np.full(one.shape, np.nan))
    network.load_weights(str(path))
    left = [one.path for one in network.weights if np.isnan(np.asarray(one)).any()]
    if left:
        raise ValueError(f"{left[0]} is missing from {path.name} (and {len(left) - 1} others)")


def arrays(network: Any, path: Path, names: Names | None, *, torch: bool) -> list[np.ndarray]:
    """Return a file's arrays in the order of the network's weights. This may change its weights.

    For `names` and `torch`, see `pipeline.models.published.begin`.
    """
    try:
        if path.name.endswith(FILES[0]):
            read_keras(network, path)
            return [np.asarray(one) for one in network.get_weights()]
        return _of_safetensors(network, path, names, torch=torch)
    except Exception as error:
        raise ConfigError(
            f"pretrained={str(path)!r} cannot be used: {type(error).__name__}:"
            f" {str(error)[:500]}.\nExpected this network's weights, in a ….weights.h5 file written"
            " by save_weights or in a .safetensors file. If names or axes differ in the file, use"
            " begin(network, names=…, torch=…) (docs/published-networks.md)."
        ) from error


def _of_safetensors(
    network: Any, path: Path, names: Names | None, *, torch: bool
) -> list[np.ndarray]:
    given, found = _safetensors(path), []
    keys = weight_names.keys(network)
    depthwise = {
        id(layer.kernel)
        for layer in descendants(network)
        if isinstance(layer, keras.layers.DepthwiseConv2D)
    }
    for one in network.weights:
        here = weight_names.name(keys[id(one)])
        there = names(here) if names else here
        if there not in given:
            known = ", ".join([*given][:8])
            raise ValueError(f"{there!r} (for {here!r}) is missing; the file contains {known} …")
        array = given[there]
        if torch and one.name == "kernel":
            axes = {2: (1, 0), 4: (2, 3, 0, 1) if id(one) in depthwise else (2, 3, 1, 0)}
            array = array.transpose(axes.get(array.ndim, range(array.ndim)))
        if array.shape != tuple(one.shape):
            raise ValueError(f"{there!r} has shape {array.shape}, {here!r} has {tuple(one.shape)}")
        found.append(array)
    return found


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays in a .safetensors file (a header length, a JSON header and the data)."""
    import jax.numpy as jnp  # may not be installed for inference

    content = np.memmap(path, np.uint8, "r")
    size = int(content[:8].view("<u8")[0])
    header = json.loads(content[8 : 8 + size].tobytes())
    arrays = {}
    for name, each in header.items():
        if name != "__metadata__" and each["dtype"] in DTYPES:
            start, end = (8 + size + place for place in each["data_offsets"])
            dtype = jnp.dtype(DTYPES[each["dtype"]])
            array = content[start:end].copy().view(dtype).reshape(each["shape"])
            arrays[name] = array.astype(np.float32)
    return arrays
