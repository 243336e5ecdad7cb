"""Read and write named arrays as .npz files, without pickle."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np


def to_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return an .npz file's contents. Identical arrays produce identical files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            # Use a fixed date, because `np.savez` may write the current time.
            info = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            with archive.open(info, "w", force_zip64=True) as member:
                # `ascontiguousarray` would give a scalar the shape (1,).
                contiguous = np.asarray(array, order="C")
                np.lib.format.write_array(member, contiguous, allow_pickle=False)
    return buffer.getvalue()


def read(path: Path | BinaryIO) -> dict[str, np.ndarray]:
    """Return the arrays in an .npz file, keyed by name.

    Raises:
        Exception: if the file is invalid. numpy and zipfile raise various types.
    """
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy returns other members as bytes
            raise ValueError(f"{path} contains {name!r}, which is not an array")
    return arrays
