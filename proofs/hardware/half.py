"""Weights that were trained in bfloat16, inferred in float16 and in float32.

`python -m proofs.hardware.half train|infer FOLDER` trains on JAX, or infers on TensorFlow and
prints one JSON object. The rows are digits that training has not seen, moved and with noise, many
of each.
"""

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from proofs.shared import module_process
from proofs.shared.results_table import Row, last_json

SEED, ROWS, KNOWN, EPOCHS = 20261122, 12_000, 1197, 15
AGREE, LEAST = 0.999, 10_000


def rows(root: Path, folder: Path) -> Iterator[Row]:
    """Yield the row."""
    module_process.output(root, "proofs.hardware.half", "train", folder)
    words = ("proofs.hardware.half", "infer", folder)
    yield judged(last_json(module_process.output(root, *words, backend="tensorflow")))


def judged(found: dict[str, Any]) -> Row:
    """Return the row that the measurement gives."""
    half, full = found["accuracy"]["mixed_float16"], found["accuracy"]["float32"]
    error = math.sqrt(full * (1 - full) / found["rows"])
    return Row(
        "Weights trained in bfloat16 (JAX), inferred in float16 and in float32 (TensorFlow, CPU)",
        f"equal labels for ≥ {AGREE:.1%} of ≥ {LEAST:,} rows; accuracy within one standard error",
        f"{found['agree']:.2%} of {found['rows']:,} rows; accuracy {half:.4f} and {full:.4f},"
        f" standard error {error:.4f}; predictions {found['apart']:.1e} apart at most,"
        f" {found['golden']:.1e} on golden rows",
        found["rows"] >= LEAST
        and found["agree"] >= AGREE
        and abs(half - full) <= error
        and 0.5 < full < 1,
        SEED,
    )


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's digits in a random order: uint8 (n, 8, 8, 1) and labels."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(SEED).permutation(len(found.images))
    pixels = np.round(found.images[order] * 255 / 16).astype(np.uint8)
    return pixels[..., None], found.target[order].astype(np.int32)


def train(folder: Path) -> None:
    """Train on some of the digits, in bfloat16."""
    from pipeline import config as configs
    from pipeline.data.dataset import Examples
    from pipeline.data.labels import Target
    from pipeline.training import training

    pixels, labels = digits()
    given = configs.load("digits")
    config = replace(given, name="half", epochs=EPOCHS, precision="mixed_bfloat16")
    classes = Target("classes", tuple(map(str, range(10))))
    ids = tuple(map(str, range(KNOWN)))
    examples = Examples(ids, pixels[:KNOWN], labels[:KNOWN], classes)
    training.train(config, folder, folder, examples=examples, show=lambda line: None)


def infer(folder: Path) -> dict[str, Any]:
    """Return how far the two precisions agree."""
    from pipeline import artifact
    from pipeline.augmentation import crop_and_flip
    from pipeline.inference import restoring

    pixels, labels = digits()
    draw = np.random.default_rng(SEED)
    chosen = draw.integers(KNOWN, len(pixels), ROWS)
    around = np.pad(pixels[chosen], ((0, 0), (1, 1), (1, 1), (0, 0)))
    moves = crop_and_flip.draws(SEED, 0, ROWS, 1, flip=False)
    images = np.stack(
        [
            one[top : top + 8, left : left + 8]
            for one, (top, left, _) in zip(around, moves, strict=True)
        ]
    )
    images = np.clip(images + draw.normal(0, 40, images.shape), 0, 255).astype(np.uint8)
    loaded, truth = artifact.load(folder / "artifact"), labels[chosen]
    found, golden = {}, 0.0
    for precision in ("float32", "mixed_float16"):
        forward, checked = restoring.restore(loaded, precision)
        found[precision] = restoring.averaged(loaded, forward, images, 1024)
        golden = checked.difference
    full, half = found["float32"], found["mixed_float16"]
    return {
        "rows": ROWS,
        "agree": float((full.argmax(1) == half.argmax(1)).mean()),
        "apart": float(np.abs(full - half).max()),
        "golden": golden,
        "accuracy": {name: float((each.argmax(1) == truth).mean()) for name, each in found.items()},
    }


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(Path(sys.argv[2]))
    else:
        print(json.dumps(infer(Path(sys.argv[2]))))
