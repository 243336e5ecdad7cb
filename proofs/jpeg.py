"""JPEG: how fast photographs become arrays, ours against Keras' `image_dataset_from_directory`, in one process and in turn.

`python -m proofs.jpeg FOLDER` makes the files there, once, from scikit-learn's two photographs, and prints one JSON object. The two arms do not do
the same work: Keras takes four pixels of the original for each new one, ours all that it covers. `differs` says what that makes of the
pixels: each arm against the whole decode and resize in floating point with Pillow, in levels of 255, as [mean, largest].
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from pipeline import reading
from pipeline.images import Shape

SEED = 20261121
SIDE, BATCH, ROUNDS, SHOWN = 224, 32, 5, 40
FORM = Shape(SIDE, SIDE, 3, "stretch")
# (width, height, files): small photographs, and some as cameras make them, where a JPEG is decoded at a part of its size.
SIZES = ((500, 375, 400), (2000, 1500, 60))


def make(folder: Path, width: int, height: int, number: int) -> list[Path]:
    """Write JPEGs of quality 90: crops at random places, resized to 500x375, and as many side by side as the size asks for."""
    inside = folder / f"{width}x{height}" / "all"
    paths = [inside / f"{index:04d}.jpg" for index in range(number)]
    if not all(path.is_file() for path in paths):
        inside.mkdir(parents=True, exist_ok=True)
        photographs = [Image.fromarray(array) for array in load_sample_images().images]
        draw = np.random.default_rng(SEED)
        for index, path in enumerate(paths):
            whole = Image.new("RGB", (width, height))
            for down in range(0, height, 375):
                for along in range(0, width, 500):
                    photograph = photographs[index % 2]
                    across = int(draw.integers(300, 561))
                    left = int(draw.integers(0, photograph.width - across + 1))
                    top = int(draw.integers(0, photograph.height - across * 3 // 4 + 1))
                    box = (left, top, left + across, top + across * 3 // 4)
                    whole.paste(photograph.resize((500, 375), Image.Resampling.BICUBIC, box), (along, down))
            whole.save(path, quality=90)
    return paths


def measured(folder: Path, width: int, height: int, number: int) -> dict[str, Any]:
    """Return images/s of the arms, which took turns, and how their pixels differ."""
    paths = make(folder, width, height, number)
    files = keras.utils.image_dataset_from_directory(
        paths[0].parent, labels=None, image_size=(SIDE, SIDE), batch_size=BATCH, shuffle=False, verbose=False
    )
    cache = folder / "cache"

    def ours() -> int:
        return len(reading.read(paths, FORM)[0])

    def theirs() -> int:
        return sum(len(batch) for batch in files)

    def cached() -> int:
        return len(reading.read(paths, FORM, cache=cache)[0])  # its sha256 has read every pixel

    arms = {"ours": ours, "keras": theirs, "cached": cached}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(ROUNDS + 1):
        for name, arm in arms.items():
            begun = time.perf_counter()
            if arm() != number:
                raise AssertionError(f"{name} did not give {number} images")
            if turn:  # in the first one Keras traces, and the cache is made
                seconds[name].append(time.perf_counter() - begun)
    rates = {name: number / statistics.median(taken) for name, taken in seconds.items()}
    return {
        "images": number,
        "images_per_second": {name: round(rate) for name, rate in rates.items()},
        "ratio": round(rates["ours"] / rates["keras"], 2),
        "cached_ratio": round(rates["cached"] / rates["ours"], 1),
        "differs": _differs(paths, files),
    }


def _differs(paths: list[Path], files: Any) -> dict[str, list[float]]:
    """Return for each arm the mean and the largest difference from the fair resize of the whole decode, over the first images."""
    fair = np.stack([_fair(path) for path in paths[:SHOWN]])
    arms = {
        "ours": reading.read(paths[:SHOWN], FORM)[0],
        "keras": np.concatenate([np.asarray(batch) for batch in files.take(-(-SHOWN // BATCH))])[:SHOWN],
    }
    apart = {name: np.abs(pixels.astype(np.float32) - fair) for name, pixels in arms.items()}
    return {name: [round(float(levels.mean()), 2), round(float(levels.max()), 1)] for name, levels in apart.items()}


def _fair(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        planes = [plane.convert("F").resize((SIDE, SIDE), Image.Resampling.BILINEAR) for plane in image.split()]
    return np.stack([np.asarray(plane) for plane in planes], axis=-1)


def main(folder: Path) -> None:
    """Print what was measured."""
    print(json.dumps({f"{width}x{height}": measured(folder, width, height, n) for width, height, n in SIZES}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
