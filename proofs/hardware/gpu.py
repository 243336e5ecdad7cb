"""On an NVIDIA GPU: images/s of inference by precision, and how long training waits for its feed.

`python -m proofs.hardware.gpu infer|train FOLDER` prints one JSON object. Without a GPU nothing is
run, and the rows say so.
"""

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from proofs.shared import module_process
from proofs.shared.results_table import Row, last_json

SEED, SIDE, ROWS, BATCH, ROUNDS, WAITS = 20261122, 224, 2048, 128, 5, 0.05
INFER = "On an NVIDIA GPU: EfficientNetV2B0 at 224, by precision, beside model.predict"
TRAIN = "On an NVIDIA GPU: JAX trains with the feed on; share of the time that it waits for it"


def rows(root: Path, folder: Path) -> Iterator[Row]:
    """Yield the rows."""
    if shutil.which("nvidia-smi") is None:
        for claim in (INFER, TRAIN):
            yield Row(claim, "measured where a GPU is at hand", "not measured: there is none", True)
        return
    words = ("proofs.hardware.gpu", "infer", folder)
    yield inferred(last_json(module_process.output(root, *words, backend="tensorflow")))
    yield trained(last_json(module_process.output(root, "proofs.hardware.gpu", "train", folder)))


def inferred(found: dict[str, int]) -> Row:
    """Return the row of inference."""
    told = ", ".join(f"{name} {rate:,}" for name, rate in found.items())
    best = found["float16 by XLA"]
    passed = best >= max(found["float32"], found["model.predict"])
    return Row(INFER, "float16 by XLA is the fastest", f"images/s: {told}", passed, SEED)


def trained(found: dict[str, Any]) -> Row:
    """Return the row of training."""
    figure = f"{found['idle']:.1%}, {found['images_per_second']:,.0f} images/s; {found['feed']}"
    return Row(TRAIN, f"≤ {WAITS:.0%}", figure, found["idle"] <= WAITS, SEED)


def infer(folder: Path) -> dict[str, int]:
    """Return the median images/s of each arm; the arms take turns."""
    import keras

    from pipeline.inference import forward_pass
    from pipeline.models import architectures
    from proofs.hardware.compiled import case

    config, _ = case("efficientnetv2b0-224")
    images = np.random.default_rng(SEED).integers(0, 256, (ROWS, SIDE, SIDE, 3), np.uint8)
    arms: dict[str, Callable[[], object]] = {}
    on_gpu = forward_pass._gpu
    for name, policy, by_xla in (
        ("float32", "float32", True),
        ("float16", "mixed_float16", False),
        ("float16 by XLA", "mixed_float16", True),
    ):
        keras.config.set_dtype_policy(policy)
        model = architectures.build(config)
        forward_pass._gpu = on_gpu if by_xla else lambda: False
        forward = forward_pass.Forward([model])
        forward_pass._gpu = on_gpu
        arms[name] = partial(forward.outputs, images, BATCH)
        if policy == "float32":
            arms["model.predict"] = partial(model.predict, images, batch_size=BATCH, verbose=0)
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(ROUNDS + 1):
        for name, arm in arms.items():
            begun = time.perf_counter()
            arm()
            if turn:  # each has compiled
                taken[name].append(time.perf_counter() - begun)
    return {name: round(ROWS / statistics.median(each)) for name, each in taken.items()}


def train(folder: Path) -> dict[str, Any]:
    """Return how long a training waits for its batches."""
    from dataclasses import replace

    from pipeline.data.dataset import Examples
    from pipeline.data.labels import Target
    from pipeline.training import training
    from proofs.hardware.compiled import case

    config, _ = case("efficientnetv2b0-224")
    config = replace(config, batch=BATCH, epochs=10, warmup_epochs=1, progress_seconds=2.0)
    draw = np.random.default_rng(SEED)
    pixels = draw.integers(0, 256, (4 * ROWS, SIDE, SIDE, 3), np.uint8)
    labels = (np.arange(len(pixels)) % config.num_classes).astype(np.int32)
    classes = Target("classes", tuple(map(str, range(config.num_classes))))
    examples = Examples(tuple(map(str, range(len(pixels)))), pixels, labels, classes)
    lines: list[str] = []
    training.train(
        config, folder, folder / "gpu", examples=examples, max_steps=400, show=lines.append
    )
    told = [json.loads(line) for line in lines if line.startswith("{")]
    feed = next(line for line in lines if line.startswith("Feed:"))
    numbers = {
        name: statistics.median(line[name] for line in told if name in line)
        for name in ("idle", "images_per_second")
    }
    return {"feed": feed, **numbers}


if __name__ == "__main__":
    os.environ.pop("JAX_PLATFORMS", None)  # the proof's other processes compute on the CPU
    work = {"infer": infer, "train": train}[sys.argv[1]]
    print(json.dumps(work(Path(sys.argv[2]))))
