"""A model that fits with one image at a time trains by itself to the end.

`python -m proofs.hardware.one_image FOLDER` trains with an artificial limit of memory, which holds
for a whole process, and prints one JSON object. XLA's refusals are real.
"""

import json
import resource
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from pipeline import config as configs
from pipeline.config import Config
from pipeline.data.dataset import Examples
from pipeline.data.labels import Target
from pipeline.models import architectures
from pipeline.training import training
from pipeline.training.train_step import Step
from proofs.shared import module_process
from proofs.shared.results_table import Row, last_json

SEED, SIDE, IMAGES, BATCH, WIDTH = 20261122, 384, 20, 8, 48


def rows(root: Path, folder: Path) -> Iterator[Row]:
    """Yield the row."""
    found = last_json(module_process.output(root, "proofs.hardware.one_image", folder))
    yield judged(found)


def judged(found: dict[str, Any]) -> Row:
    """Return the row that the measurement gives."""
    tried = found["tried"]
    return Row(
        "A model of which a replica's memory holds one image at a time, batch 8: trains by itself",
        "to the end, from the whole batch down to one image; batch and learning rate stay",
        f"{found['status']}, {found['steps']} steps; micro-batches tried:"
        f" {', '.join(map(str, tried))}; of {found['needed'][0] / 1e6:.0f} MB for the batch"
        f" {found['limit'] / 1e6:.0f} MB are there",
        found["status"] == "complete" and tried[0] == BATCH and tried[-1] == 1 and len(tried) >= 4,
        SEED,
    )


def large(images: Any, num_classes: int, batchnorm_momentum: float, *, width: int) -> Any:
    """Return logits of a model with much memory for each image, and little to compute."""
    x = keras.layers.Dense(width, activation="gelu", name="wide")(images)
    x = keras.layers.Dense(width, activation="gelu", name="wider")(x)
    x = keras.layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.layers.Dense(num_classes, dtype="float32", name="logits")(x)


def settings() -> Config:
    """Return the config; with base_batch = batch there is one group."""
    digits = configs.load("digits")
    data = replace(
        digits.data, height=SIDE, width=SIDE, crop_padding=0, flip=False, validation_fraction=0.2
    )
    return replace(
        digits, name="large", batch=BATCH, batchnorm_batch=None, epochs=1, warmup_epochs=0,
        num_classes=2, data=data, model="large", model_options={"width": WIDTH},
        optimizer=replace(digits.optimizer, base_batch=BATCH),
    )  # fmt: skip


def main(folder: Path) -> None:
    """Train, and print what came of it."""
    architectures.MODELS["large"] = large
    draw = np.random.default_rng(SEED)
    pixels = draw.integers(0, 256, (IMAGES, SIDE, SIDE, 1), np.uint8)
    labels = (np.arange(IMAGES) % 2).astype(np.int32)
    ids = tuple(map(str, range(IMAGES)))
    examples = Examples(ids, pixels, labels, Target("classes", ("a", "b")))
    compile_step, train_step = Step.compile, Step.train
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    needed: list[int] = []
    tried: list[int] = []
    limit: list[int] = []
    size = resource.getpagesize()

    def starved(self: Step, *given: Any) -> None:
        # XLA ends the process where it cannot compile; a step that does not fit it refuses.
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
        if not limit:  # between what one image needs and what two do
            cuts = {cut.accumulation: cut for cut in reversed(self._cuts) if not cut.remat}
            for number in (BATCH // 2, BATCH):
                self.begin_with(cuts[number]) if number == BATCH // 2 else self._set(cuts[number])
                compile_step(self, *given)
                needed.append(self._program.memory_analysis().temp_size_in_bytes)
            self._loops = False
            self._set(cuts[1])
            limit.append(sum(needed) // 2)
        compile_step(self, *given)
        if not tried:
            needed.insert(0, self._program.memory_analysis().temp_size_in_bytes)
        tried.append(self.micro_batch)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * size
        resource.setrlimit(resource.RLIMIT_AS, (mapped + limit[0], resource.RLIM_INFINITY))

    def fed(self: Step, *given: Any) -> Any:
        # Only a first step is short of memory: what later ones find under a limit is chance.
        after = jax.block_until_ready(train_step(self, *given))  # type: ignore[no-untyped-call]
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
        return after

    Step.compile, Step.train = starved, fed  # type: ignore[method-assign,assignment]
    lines: list[str] = []
    trained = training.train(settings(), folder, folder, examples=examples, show=lines.append)
    told = {"status": trained.status, "tried": tried, "needed": needed, "limit": limit[0]}
    print(json.dumps(told | {"steps": trained.applied.total_steps, "lines": lines}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
