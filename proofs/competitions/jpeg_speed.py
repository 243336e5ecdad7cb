"""How fast photographs become arrays, beside Keras' `image_dataset_from_directory`.

The photographs are made from the two of scikit-learn. The arms take turns in one process, and they
do not do the same work: Keras takes four pixels of the original for each new one. Ours takes all
that it covers ("full"), or those of the file decoded at half its size ("reduced"). `differs`
compares the pixels of each arm with the whole decode and resize in floating point by Pillow.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from pipeline.data import parallel_decoding
from pipeline.data.image_decoding import Shape
from proofs.shared.results_table import Row, Show

SEED = 20261121
SIDE, BATCH, ROUNDS, SHOWN = 224, 64, 9, 40
FORMS = {name: Shape(SIDE, SIDE, 3, "stretch", name) for name in ("full", "reduced")}
# (width, height, files): small photographs, and some as cameras make them, where a JPEG is decoded
# at a part of its size.
SIZES = ((500, 375, 1000), (2000, 1500, 60))
FEW = 8  # files in the short form
FASTER, CACHED = 1.3, 5


def rows(root: Path, folder: Path, *, short: bool, show: Show) -> Iterator[Row]:
    """Yield the rows; `short` compares the pixels of some photographs, and times nothing."""
    show("      photographs by ours and by image_dataset_from_directory")
    sizes = [(width, height, FEW) for width, height, _ in SIZES] if short else SIZES
    yield from judged(
        {
            f"{width}x{height}": measured(folder, width, height, number, short=short)
            for width, height, number in sizes
        }
    )


def judged(found: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    """Yield the rows that the measurement gives."""
    for size, one in found.items():
        differs = one["differs"]
        told = "; ".join(
            f"{name} {d['mean']:.2f}, {d['max']:.0f}, {d['psnr']:.1f} dB"
            for name, d in differs.items()
        )
        yield Row(
            f"JPEG {size} to {SIDE}x{SIDE}: levels (mean, largest) and PSNR from the whole decode, "
            "resized with antialiasing",
            'decode="reduced" nearer to it than Keras in all three, "full" nearer still',
            f"{told}; of {one['compared']} images",
            _nearer(differs["reduced"], differs["keras"])
            and _nearer(differs["full"], differs["reduced"], equal=True),
            SEED,
        )
        if "images_per_second" not in one:
            continue
        rates = one["images_per_second"]
        ratios = {name: rates[name] / rates["keras"] for name in ("reduced", "full")}
        where = f"medians of {ROUNDS}, {one['cores']} cores"
        each = ", ".join(f"{name} {rate:,}/s" for name, rate in rates.items())
        yield Row(
            f'JPEG {size} to {SIDE}x{SIDE}: ours (decode="reduced") beside '
            f"`image_dataset_from_directory`, {where}",
            f"≥ {FASTER}x",
            f'{ratios["reduced"]:.2f}x ("full", the default, {ratios["full"]:.2f}x); {each}; '
            f"{one['images']} images",
            ratios["reduced"] >= FASTER,
            SEED,
        )
        yield Row(
            f"JPEG {size} to {SIDE}x{SIDE}: an epoch from the cache, its sha256 looked at, "
            "beside one that decodes",
            f"≥ {CACHED}x",
            f'{rates["cached"] / rates["full"]:.1f}x "full", '
            f'{rates["cached"] / rates["reduced"]:.1f}x "reduced", '
            f"{rates['cached'] / rates['keras']:.1f}x Keras",
            rates["cached"] >= CACHED * rates["full"],
            SEED,
        )


def _nearer(one: Mapping[str, float], other: Mapping[str, float], *, equal: bool = False) -> bool:
    better = (
        one["mean"] < other["mean"] and one["max"] < other["max"] and one["psnr"] > other["psnr"]
    )
    return better or (equal and dict(one) == dict(other))


def make(folder: Path, width: int, height: int, number: int) -> list[Path]:
    """Write JPEGs of quality 90 from random crops, each resized to 500x375, side by side."""
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
                    whole.paste(
                        photograph.resize((500, 375), Image.Resampling.BICUBIC, box), (along, down)
                    )
            whole.save(path, quality=90)
    return paths


def measured(folder: Path, width: int, height: int, number: int, *, short: bool) -> dict[str, Any]:
    """Return how the pixels of the arms differ and, unless `short`, their images/s."""
    import keras

    paths = make(folder, width, height, number)
    files = keras.utils.image_dataset_from_directory(
        paths[0].parent,
        labels=None,
        image_size=(SIDE, SIDE),
        batch_size=BATCH,
        shuffle=False,
        verbose=False,
    )
    differs = {"compared": min(SHOWN, number), "differs": _differs(paths, files)}
    if short:
        return differs
    arms: dict[str, Callable[[], int]] = {
        name: lambda form=form: sum(
            len(block) for _, block, _ in parallel_decoding.blocks(paths, form, BATCH)
        )  # type: ignore[misc]
        for name, form in FORMS.items()
    }
    arms |= {
        "keras": lambda: sum(len(batch) for batch in files),
        # From memory that the file is mapped to; its sha256 has read every pixel.
        "cached": lambda: len(
            parallel_decoding.read(paths, FORMS["full"], cache=folder / "cache")[0]
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(ROUNDS + 1):
        for name, arm in arms.items() if turn % 2 else reversed(arms.items()):
            begun = time.perf_counter()
            if arm() != number:
                raise AssertionError(f"{name} did not give {number} images")
            if turn:  # in the first one Keras traces, and the cache is made
                seconds[name].append(time.perf_counter() - begun)
    return {
        "images": number,
        "images_per_second": {
            name: round(number / statistics.median(taken)) for name, taken in seconds.items()
        },
        "cores": len(os.sched_getaffinity(0)),
        **differs,
    }


def _differs(paths: list[Path], files: Any) -> dict[str, dict[str, float]]:
    """Return the mean and largest difference of each arm, in levels, and its PSNR in dB, from the
    resize of the whole decode.
    """
    fair = np.stack([_fair(path) for path in paths[:SHOWN]])
    arms = {name: parallel_decoding.read(paths[:SHOWN], form)[0] for name, form in FORMS.items()}
    arms["keras"] = np.concatenate([np.asarray(batch) for batch in files.take(-(-SHOWN // BATCH))])[
        :SHOWN
    ]
    apart = {name: np.abs(pixels.astype(np.float32) - fair) for name, pixels in arms.items()}
    return {
        name: {
            "mean": float(levels.mean()),
            "max": float(levels.max()),
            "psnr": float(10 * np.log10(255**2 / np.square(levels).mean())),
        }
        for name, levels in apart.items()
    }


def _fair(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        planes = [
            plane.convert("F").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
            for plane in image.split()
        ]
    return np.stack([np.asarray(plane) for plane in planes], axis=-1)
