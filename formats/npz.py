"""Arrays by name in an .npz file, never pickled."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def to_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the bytes of an .npz file of these arrays; equal arrays give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            # A fixed date: numpy's own savez may write the time.
            info = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            with archive.open(info, "w", force_zip64=True) as member:
                # Not `ascontiguousarray`, which gives a scalar the shape (1,).
                contiguous = np.asarray(array, order="C")
                np.lib.format.write_array(member, contiguous, allow_pickle=False)
    return buffer.getvalue()


def read(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name.

    Raises:
        Exception: of a dozen kinds, from numpy and zipfile, if it is not a valid .npz file.
    """
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy returns the bytes of other members
            raise ValueError(f"{path.name} contains {name!r}, which is not an array")
    return arrays
