"""Read published weights for `benchmarks.finetuning` without executing code."""

import json
import pickle
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

PUBLISHED, RANDOM = "published.safetensors", "random.safetensors"


class Tensors(pickle.Unpickler):
    """An unpickler for .pth files that only loads tensors and never executes code in the file."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a replacement for a name that is used to store tensors.

        Raises:
            pickle.UnpicklingError: if it is any other name.
        """
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, first, shape, strides, *rest: (storage, first, shape, strides)
        if module == "torch" and name in ("FloatStorage", "LongStorage"):
            return name
        raise pickle.UnpicklingError(f"The file must only contain tensors, not {module}.{name}.")

    def persistent_load(self, place: Any) -> Any:
        """Return the type and key of a storage. Its bytes are located after the pickle."""
        return place[1], place[2]


def tensors(file: BinaryIO) -> dict[str, np.ndarray]:
    """Return the arrays in a .pth file that was written by PyTorch before version 1.6.

    Such a file starts with three headers. They are followed by a pickle of the tensors and a pickle
    with the keys of their storages. The rest of the file contains the storages, each preceded by
    its length.
    """
    for _ in range(3):
        Tensors(file).load()
    named, keys = Tensors(file).load(), Tensors(file).load()
    kinds = {storage[1]: storage[0] for storage, *_ in named.values()}
    stored = {}
    for key in keys:
        dtype = np.dtype("<f4" if kinds[key] == "FloatStorage" else "<i8")
        length = int.from_bytes(file.read(8), "little")
        stored[key] = np.frombuffer(file.read(length * dtype.itemsize), dtype)
    found = {}
    for name, ((_, key), first, shape, strides) in named.items():
        one = stored[key][first:]
        steps = [step * one.itemsize for step in strides]
        found[name] = np.lib.stride_tricks.as_strided(one, shape, steps).copy()
    return found


def write_safetensors(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write all float32 arrays in the format of github.com/huggingface/safetensors."""
    header, content = dict[str, Any](), b""
    for name, each in arrays.items():
        if each.dtype == np.float32:
            place = [len(content), len(content) + each.nbytes]
            header[name] = {"dtype": "F32", "shape": each.shape, "data_offsets": place}
            content += each.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


def shapes(path: Path) -> dict[str, Sequence[int]]:
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: each["shape"] for name, each in header.items() if name != "__metadata__"}


def drawn(shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Return random weights with the given shapes (He et al. 2015).

    One-dimensional arrays are filled with ones or zeros, as in a new normalization layer.
    """
    draw, found = np.random.default_rng(0), dict[str, np.ndarray]()
    for name, shape in shapes.items():
        if len(shape) > 1:
            spread = np.sqrt(2 / np.prod(shape[1:]))
            found[name] = draw.normal(0, spread, shape).astype(np.float32)
        else:
            ones = name.endswith(("weight", "running_var"))
            found[name] = np.full(shape, float(ones), np.float32)
    return found
