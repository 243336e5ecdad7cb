"""On an NVIDIA GPU: inference by precision, how long training waits, and the network of 2018.

`python -m benchmarks.gpu PART FOLDER` is a process of its own and prints one JSON value.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure import Table, in_turn, rate, write

if TYPE_CHECKING:
    from pipeline.config import Config

SEED, TURNS, SIDE, ROWS, BATCH = 20261125, 5, 224, 2048, 128


def main() -> int:
    """Measure, and write the section; without a GPU write nothing."""
    if shutil.which("nvidia-smi") is None:
        print("No NVIDIA GPU was found (no nvidia-smi); expected one.\nRun: python -m benchmarks")
        return 1
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        inferred = in_process("tensorflow", "infer", folder)
        trained = in_process("jax", "train", folder)
        wide = in_process("jax", "wide_resnet", folder)
    note = f"Feed: {trained['feed']}. The devices waited {trained['idle']:.1%} of the time."
    tables = [
        Table(f"Inference, EfficientNetV2B0 at {SIDE}, batch {BATCH}", "images/s", inferred),
        Table("Training of the same", "images/s", {"ours": trained["images_per_second"]}, note),
        Table(
            "koshian2's WideResNet, 103 million parameters, 50,000 images, batch 1024, epochs 2+",
            "s",
            wide,
        ),
    ]
    write("gpu", "An NVIDIA GPU", tables, begun)
    return 0


def in_process(backend: str, *words: str) -> Any:
    """Return what a part of this script prints, in a process of its own on that backend."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *words],
        env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def settings() -> "Config":
    """Return the config of an EfficientNetV2B0 with random weights at 224 pixels."""
    from pipeline import config as configs

    base = configs.load("digits_mobilenet")
    data = replace(
        base.data, height=SIDE, width=SIDE, channels=3, crop_padding=0, flip=True, rand_augment=0
    )
    return replace(
        base,
        name="network",
        model="efficientnetv2b0",
        data=data,
        batch=BATCH,
        optimizer=replace(base.optimizer, base_rate=2e-3, base_batch=BATCH),
        model_options={"pretrained": "none", "batchnorm": "groups"},
        batchnorm_batch=None,
        batchnorm_momentum=0.97,
        epochs=10,
        warmup_epochs=1,
        progress_seconds=2.0,
    )


def infer() -> dict[str, list[float]]:
    """Return images/s by precision, and of model.predict."""
    import keras

    from pipeline.inference import forward_pass
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
        work[name] = partial(forward_pass.Forward([model]).outputs, images, BATCH)
    forward_pass._gpu = compiled
    work["model.predict, float32"] = partial(model.predict, images, batch_size=BATCH, verbose=0)
    return in_turn({name: rate(ROWS, once) for name, once in work.items()}, TURNS)


def train(folder: Path) -> dict[str, Any]:
    """Return images/s of a training, the share of the time that the devices wait, and the feed."""
    from pipeline.data.dataset import Examples
    from pipeline.data.labels import Target
    from pipeline.training import training

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
        "feed": next(line for line in lines if line.startswith("Feed:")),
        "idle": float(np.median([line["idle"] for line in progress if "idle" in line])),
        "images_per_second": [
            line["images_per_second"] for line in progress if "images_per_second" in line
        ],
    }


def wide_resnet(folder: Path) -> dict[str, list[float]]:
    """Return the seconds of later epochs of the network of 2018: ours, and Keras' fit."""
    from pipeline import config as configs
    from pipeline.bench import images, measurement, timings
    from pipeline.bench.cells import Cell

    config = configs.load("cifar100_wrn")
    cells = Cell("ours", 1, "own", config.batch), Cell("fit", 1, "whole", config.batch)
    found = images.find(config, None, print)
    measurement.run(cells, config, found, folder / "grid", epochs=4, show=print)
    read = [timings.of(one) for one in timings.read([folder / "grid"]) if one.times]
    return {one.way: [one.mean] for one in read}


def part(what: str, folder: str) -> Any:
    """Return what a process of this script was started for."""
    if what == "infer":
        return infer()
    return {"train": train, "wide_resnet": wide_resnet}[what](Path(folder))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(part(*sys.argv[1:])))
    else:
        sys.exit(main())
