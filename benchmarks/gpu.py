"""Measure training, and inference with different precisions, on an NVIDIA GPU.

`python -m benchmarks.gpu PART FOLDER` runs one part in a separate process and prints a JSON value.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure import Table, in_process, in_turn, rate, write

if TYPE_CHECKING:
    from pipeline.config import Config

SEED, TURNS, SIDE, ROWS, BATCH = 20261125, 5, 224, 2048, 128


def main() -> None:
    if shutil.which("nvidia-smi") is None:
        print("Skipped: no NVIDIA GPU was found (no nvidia-smi).")
        return
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        part = partial(in_process, "benchmarks.gpu", JAX_PLATFORMS="")
        inferred = part("infer", folder, KERAS_BACKEND="tensorflow")
        trained = part("train", folder)
    note = f"The devices spent {trained['idle']:.1%} of the time waiting for the host."
    tables = [
        Table(f"Inference, EfficientNetV2B0 at {SIDE}, batch {BATCH}", "images/s", inferred),
        Table("Training this network", "images/s", {"ours": trained["images_per_second"]}, note),
    ]
    write("gpu", "An NVIDIA GPU", tables, begun)


def settings() -> "Config":
    from pipeline import config as configs

    base = configs.load("digits_mobilenet")
    sides: dict[str, Any] = {"height": SIDE, "width": SIDE, "channels": 3}
    data = replace(base.data, **sides, crop_padding=0, flip=True, rand_augment=0)
    return replace(
        base,
        name="network",
        model="efficientnetv2b0",
        data=data,
        batch=BATCH,
        optimizer=replace(base.optimizer, base_rate=2e-3, base_batch=BATCH),
        pretrained="none",
        model_options={"batchnorm": "groups"},
        batchnorm_batch=None,
        batchnorm_momentum=0.97,
        epochs=10,
        warmup_epochs=1,
        progress_seconds=2.0,
    )


def infer() -> dict[str, list[float]]:
    """Return the images per second of our inference with each precision and of `model.predict`."""
    import keras

    from pipeline.infer import forward_pass
    from pipeline.models import architectures

    images = np.random.default_rng(SEED).integers(0, 256, (ROWS, SIDE, SIDE, 3), np.uint8)
    work: dict[str, Callable[[], object]] = {}
    compiled = forward_pass._gpu  # whether XLA compiles the forward pass
    for name, policy, by_xla in (
        ("ours, float16 by XLA", "mixed_float16", True),
        ("ours, float16", "mixed_float16", False),
        ("ours, float32", "float32", True),
    ):
        keras.config.set_dtype_policy(policy)
        model = architectures.build(settings())
        forward_pass._gpu = compiled if by_xla else lambda: False
        work[name] = partial(forward_pass.Forward([model], BATCH).outputs, images)
    forward_pass._gpu = compiled
    work["model.predict, float32"] = partial(model.predict, images, batch_size=BATCH, verbose=0)
    return in_turn({name: rate(ROWS, once) for name, once in work.items()}, TURNS)


def train(folder: Path) -> dict[str, Any]:
    """Return the images per second of a training run, and the fraction of time spent waiting."""
    from pipeline.data.dataset import Examples
    from pipeline.data.labels import Target
    from pipeline.train import training

    config = settings()
    draw = np.random.default_rng(SEED)
    pixels = draw.integers(0, 256, (4 * ROWS, SIDE, SIDE, 3), np.uint8)
    labels = (np.arange(len(pixels)) % config.num_classes).astype(np.int32)
    classes = Target("classes", tuple(map(str, range(config.num_classes))))
    examples = Examples(tuple(map(str, range(len(pixels)))), pixels, labels, classes)
    lines: list[str] = []
    output = folder / "trained"
    training.train(config, folder, output, examples=examples, max_steps=400, show=lines.append)
    progress = [json.loads(line) for line in lines if line.startswith("{")]
    return {
        "idle": float(np.median([line["idle"] for line in progress if "idle" in line])),
        "images_per_second": [
            line["images_per_second"] for line in progress if "images_per_second" in line
        ],
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(infer() if sys.argv[1] == "infer" else train(Path(sys.argv[2]))))
    else:
        main()
