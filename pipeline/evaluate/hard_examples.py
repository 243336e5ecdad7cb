"""Hard examples: the validation rows that a model is most wrong about, with their pictures.

In: losses and inputs, while training still has them in memory. Out: examples.npz for the report.
"""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from formats import atomic_file
from pipeline.errors import ReportError, reading

FILE = "examples.npz"
MOST = 24
SIDE = 256  # pixels; a larger picture is reduced: people look at it, nothing computes with it
FIX = "Remove the file, which a report does without, or pull the run again."


@dataclass(frozen=True)
class Examples:
    """What `keep_examples` kept.

    Attributes:
        indices: int64 (m,), rows of validation.csv, from 0; that of the largest loss first.
        pixels: uint8 (m, height, width, channels), with 1 or 3 channels; None where the inputs are
            no images.
    """

    indices: np.ndarray
    pixels: np.ndarray | None


def worst(losses: np.ndarray, most: int = MOST) -> np.ndarray:
    """Return the places of the largest losses, the largest first, of equals the first first. A NaN
    counts as infinite.

    >>> worst(np.array([0.1, 3.0, 0.2, 3.0]), most=3)
    array([1, 3, 2])
    """
    losses = np.asarray(losses, np.float64)
    return np.argsort(-np.where(np.isnan(losses), np.inf, losses), kind="stable")[:most]


def keep_examples(
    output: Path, rows: np.ndarray, losses: np.ndarray, inputs: np.ndarray | None, most: int = MOST
) -> Path:
    """Write examples.npz with the `most` rows of the largest losses, in one rename, and return its
    path.

    Args:
        output: the run's folder.
        rows: whole numbers (n,): rows of validation.csv, counted from 0, in any order.
        losses: (n,), of these rows.
        inputs: of these rows: uint8 images (n, height, width, channels) with 1 or 3 channels; None
            for tables.

    Raises:
        ValueError: if the three do not fit each other.
        DiskError: if the file cannot be written; an older one is still there.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> keep_examples(folder, np.array([7, 9]), np.array([0.1, 2.5]), None).name
    'examples.npz'
    >>> load(folder / FILE, rows=10).indices.tolist()
    [9, 7]
    """
    rows, losses = np.asarray(rows), np.asarray(losses)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or losses.shape != rows.shape:
        raise ValueError(
            f"rows {rows.dtype} {rows.shape} and losses {losses.shape} do not fit: expected whole"
            " numbers (n,), (n,)"
        )
    if inputs is not None and (not _images(inputs) or len(inputs) != len(rows)):
        raise ValueError(
            f"inputs {inputs.dtype} {inputs.shape}: expected uint8 ({len(rows)}, height, width,"
            " 1 or 3), or None"
        )
    chosen = worst(losses, most)
    arrays = {"indices": rows[chosen].astype(np.int64)}
    if inputs is not None:
        arrays["pixels"] = _small(inputs[chosen])
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    return atomic_file.write(output / FILE, packed.getvalue())


def load(path: Path, *, rows: int) -> Examples:
    """Return what `keep_examples` wrote for a validation.csv of `rows` rows.

    Raises:
        ReportError: if the file cannot be read, or holds anything else.
    """
    with reading(path, ReportError, FIX):
        try:
            with np.load(path, allow_pickle=False) as archive:
                found = {name: archive[name] for name in archive.files}
            indices, pixels = found["indices"], found.get("pixels")
            if indices.ndim != 1 or indices.dtype.kind not in "iu":
                raise ValueError(f"indices are {indices.dtype} {indices.shape}")
            if len(indices) and not (indices.min() >= 0 and indices.max() < rows):
                raise ValueError(
                    f"indices go from {indices.min()} to {indices.max()}; there are {rows} rows"
                )
            if pixels is not None and (not _images(pixels) or len(pixels) != len(indices)):
                raise ValueError(f"pixels are {pixels.dtype} {pixels.shape}")
        except OSError:
            raise
        except Exception as error:  # zipfile and numpy raise a dozen kinds for a corrupt file
            raise ReportError(
                f"{path} is not what keep_examples writes:"
                f" {type(error).__name__}: {str(error)[:300]}.\n"
                f"Expected indices (m,) of rows of validation.csv, and uint8 pixels. {FIX}"
            ) from error
    return Examples(indices.astype(np.int64), pixels)


def _images(pixels: np.ndarray) -> bool:
    return (
        pixels.dtype == np.uint8
        and pixels.ndim == 4
        and pixels.shape[-1] in (1, 3)
        and min(pixels.shape[1:]) > 0
    )


def _small(pixels: np.ndarray) -> np.ndarray:
    """Return the images with no side longer than `SIDE`."""
    height, width, channels = pixels.shape[1:]
    share = SIDE / max(height, width)
    if share >= 1 or not len(pixels):
        return pixels
    size = (max(round(width * share), 1), max(round(height * share), 1))
    images = [Image.fromarray(image.squeeze(-1) if channels == 1 else image) for image in pixels]
    reduced = [np.asarray(image.resize(size, Image.Resampling.BOX)) for image in images]
    return np.stack(reduced).reshape(len(pixels), size[1], size[0], channels)
