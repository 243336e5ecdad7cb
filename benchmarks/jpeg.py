"""Benchmark decoding photographs against Keras' `image_dataset_from_directory`.

The variants do not do the same work. Keras computes each new pixel from four original pixels. With
decode="full", we use all original pixels that the new pixel covers. With decode="reduced", we use
the pixels of a file that was decoded at half its size. Therefore, the pixels of each variant are
also compared with an image that Pillow decodes in full and resizes in floating point.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from benchmarks.measure import Table, in_turn, rate, shown, write
from pipeline.config import Data
from pipeline.data import row_gathering
from pipeline.data.image_arrays import FileImages

SEED, TURNS = 20261125, 7
SIDE, BATCH, COMPARED = 224, 64, 40
FORM = Data(height=SIDE, width=SIDE, channels=3, resize="stretch")
FORMS = {name: replace(FORM, decode=name) for name in ("reduced", "full")}
# Width, height and number of files, for small photographs and for photographs from a camera.
SIZES = ((500, 375, 1000), (2000, 1500, 60))


def main() -> None:
    begun = time.perf_counter()
    os.environ.update(KERAS_BACKEND="jax", TF_CPP_MIN_LOG_LEVEL="2")
    with tempfile.TemporaryDirectory() as folder:
        tables = [measured(Path(folder), *size) for size in SIZES]
    write("jpeg", "JPEG files", tables, begun)


def measured(folder: Path, width: int, height: int, number: int) -> Table:
    import keras

    paths = photographs(folder / f"{width}x{height}", width, height, number)
    files = keras.utils.image_dataset_from_directory(
        paths[0].parent,
        labels=None,
        image_size=(SIDE, SIDE),
        batch_size=BATCH,
        shuffle=False,
        verbose=False,
    )

    def decoded(form: Data) -> None:
        images = FileImages(paths, form)
        blocks = row_gathering.blocks(images, np.arange(number), BATCH)
        if sum(real for _, real in blocks) != number:
            raise ValueError("Some images are missing from the batches.")

    work: dict[str, Callable[[], object]] = {
        'ours, decode="reduced"': partial(decoded, FORMS["reduced"]),
        'ours, decode="full"': partial(decoded, FORMS["full"]),
        "image_dataset_from_directory": lambda: sum(len(batch) for batch in files),
    }
    variants = {name: rate(number, once) for name, once in work.items()}
    return Table(
        f"{number:,} files of {width}x{height} (quality 90) to {SIDE}x{SIDE}",
        "images/s",
        in_turn(variants, TURNS),
        "We compared pixel values (0 to 255) with a full decode and an antialiased resize. "
        + differences(paths[:COMPARED], files),
    )


def differences(paths: list[Path], files: Any) -> str:
    fair = np.stack([fairly(path) for path in paths])
    taken = files.take(-(-len(paths) // BATCH))
    found = {
        **{f'decode="{name}"': FileImages(paths, form)[:] for name, form in FORMS.items()},
        "Keras": np.concatenate([np.asarray(batch) for batch in taken])[: len(paths)],
    }
    apart = {name: np.abs(pixels.astype(np.float32) - fair) for name, pixels in found.items()}
    return " ".join(
        f"With {name}, the mean difference is {shown(float(levels.mean()))} and the largest is"
        f" {shown(float(levels.max()))}."
        for name, levels in apart.items()
    )


def fairly(path: Path) -> np.ndarray:
    """Decode an image in full, and resize it using all of its pixels, float32 (SIDE, SIDE, 3)."""
    with Image.open(path) as image:
        planes = [
            plane.convert("F").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
            for plane in image.split()
        ]
    return np.stack([np.asarray(plane) for plane in planes], axis=-1)


def photographs(folder: Path, width: int, height: int, number: int) -> list[Path]:
    folder.mkdir(parents=True)
    originals = [Image.fromarray(array) for array in load_sample_images().images]
    draw = np.random.default_rng(SEED)
    paths = [folder / f"{index:04d}.jpg" for index in range(number)]
    for index, path in enumerate(paths):
        original, across = originals[index % 2], int(draw.integers(300, 561))
        left = int(draw.integers(0, original.width - across + 1))
        top = int(draw.integers(0, original.height - across * 3 // 4 + 1))
        box = (left, top, left + across, top + across * 3 // 4)
        crop = original.resize((width, height), Image.Resampling.BICUBIC, box)
        crop.save(path, quality=90)
    return paths


if __name__ == "__main__":
    main()
