"""Files of published weights for `benchmarks.finetuning`: read without running what they hold."""

import json
import pickle
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

PUBLISHED, RANDOM = "published.safetensors", "random.safetensors"


class Tensors(pickle.Unpickler):
    """A reader of the pickle in a .pth file that knows tensors alone, and runs nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for one of the three names that a file of tensors has."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, first, shape, strides, *rest: (storage, first, shape, strides)
        if module == "torch" and name in ("FloatStorage", "LongStorage"):
            return name
        raise pickle.UnpicklingError(f"the file names {module}.{name}; expected tensors alone")

    def persistent_load(self, place: Any) -> Any:
        """Return the type and key of a storage, whose bytes follow the pickle."""
        return place[1], place[2]


def tensors(file: BinaryIO) -> dict[str, np.ndarray]:
    """Return the arrays of a .pth file as PyTorch wrote it before 1.6: three headers, a pickle of
    tensors, a pickle with the keys of their storages, and the storages, each after its length.
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
    """Write the float32 arrays as github.com/huggingface/safetensors describes the format."""
    header, content = dict[str, Any](), b""
    for name, each in arrays.items():
        if each.dtype == np.float32:
            place = [len(content), len(content) + each.nbytes]
            header[name] = {"dtype": "F32", "shape": each.shape, "data_offsets": place}
            content += each.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


def shapes(path: Path) -> dict[str, Sequence[int]]:
    """Return the shape of each array in a .safetensors file."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: each["shape"] for name, each in header.items() if name != "__metadata__"}


def drawn(shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Return random weights of these shapes (He et al. 2015), and the first numbers of norms."""
    draw, found = np.random.default_rng(0), dict[str, np.ndarray]()
    for name, shape in shapes.items():
        if len(shape) > 1:
            spread = np.sqrt(2 / np.prod(shape[1:]))
            found[name] = draw.normal(0, spread, shape).astype(np.float32)
        else:
            ones = name.endswith(("weight", "running_var"))
            found[name] = np.full(shape, float(ones), np.float32)
    return found
