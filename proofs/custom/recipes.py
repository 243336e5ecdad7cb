"""Recipe options, one at a time: the same on any devices and in micro-batches, and not without
effect.

`python -m proofs.custom.recipes` prints one JSON object: of each option, how far the weights after
some steps are apart (the norm of the difference over the norm, the largest of all arrays) from
those of one device that computes the whole batch. Beside it: how far they are if each weight at the
start moves to a neighbouring number, and how far without the option.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import keras
import numpy as np

from pipeline import config as configs
from pipeline import losses
from pipeline.config import Config
from pipeline.data.dataset import Batches, Examples
from pipeline.data.labels import Target
from pipeline.models import architectures
from pipeline.runtime import replicas
from pipeline.training import learning_rate
from pipeline.training.train_step import Step
from proofs.shared import perturbed_start

SEED, IMAGES, BATCH, GROUP, STEPS, NUDGES = 20261123, 1010, 64, 8, 3, 2
# Devices, and images of a micro-batch.
WAYS = ((1, None), (2, None), (4, None), (8, None), (1, BATCH // 4), (2, BATCH // 8))
# By option: the change of the config that is tried, and what stands in place of the option without.
Change = dict[str, Any]
OPTIONS: dict[str, tuple[Change, Change]] = {
    "label_smoothing": ({"label_smoothing": 0.1}, {}),
    "loss": ({"loss": "focal"}, {}),
    "class_weights": ({"class_weights": "balanced"}, {}),
    "weight_column": ({"data.weight_column": "sure", "data.mixup": 0.4}, {"data.mixup": 0.4}),
    "weight_decay": (
        {"optimizer.name": "adamw", "optimizer.weight_decay": 0.1},
        {"optimizer.name": "adamw", "optimizer.weight_decay": 0.1, "optimizer.decay_biases": True},
    ),
    "clip_norm": ({"optimizer.clip_norm": 0.1}, {}),
    "layer_decay": ({"optimizer.layer_decay": 0.7}, {}),
    "one_cycle": ({"optimizer.schedule": "one_cycle"}, {}),
    "constant": (
        {"optimizer.schedule": "constant", "optimizer.decay_share": 0.99, "warmup_epochs": 0},
        {"warmup_epochs": 0},
    ),
    "flip_vertical": ({"data.flip_vertical": True}, {}),
    "rotate": ({"data.rotate": True}, {}),
    "crop_scale": ({"data.crop_scale": 0.3}, {}),
    "drop_path": ({"drop_path": 0.3}, {}),
}


def residual(
    images: Any, num_classes: int, batchnorm_momentum: float, *, drop_path: float = 0.0
) -> Any:
    """Return logits of a residual network, by functions without a corner."""
    layers, x = keras.layers, images
    x = layers.Conv2D(8, 3, padding="same", name="stem")(x)
    for block in (1, 2):
        y = layers.Conv2D(8, 3, padding="same", use_bias=False, name=f"conv{block}")(x)
        y = layers.BatchNormalization(momentum=batchnorm_momentum, name=f"norm{block}")(y)
        y = layers.Activation("gelu", name=f"gelu{block}")(y)
        x = architectures._added(x, y, drop_path * block / 2, f"block{block}")
    x = layers.Flatten(name="flat")(layers.AveragePooling2D(2, name="pool")(x))
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def settings(changes: Change) -> Config:
    """Return a config with these changes, "data.flip" being a field of its data."""
    digits = configs.load("digits")
    parts: dict[str, Change] = {"": {}, "data": {}, "optimizer": {"base_batch": BATCH}}
    parts["optimizer"] |= {"name": "sgd", "base_rate": 0.05}
    for name, value in changes.items():
        part, _, field = name.rpartition(".")
        parts[part][field] = value
    base = replace(
        digits, model="residual", model_options={}, batch=BATCH, batchnorm_batch=GROUP, epochs=8,
        warmup_epochs=1,
    )  # fmt: skip
    data = replace(digits.data, crop_padding=1, **parts["data"])
    optimizer = replace(digits.optimizer, **parts["optimizer"])
    return replace(base, data=data, optimizer=optimizer, **parts[""])


@cache
def examples() -> Examples:
    """Return images of noise, with labels of which each is rarer than the one before."""
    draw = np.random.default_rng(SEED)
    pixels = draw.integers(0, 256, (IMAGES, 8, 8, 1), np.uint8)
    labels = (np.arange(IMAGES) % 55).astype(np.int32)
    labels = (10 - (np.sqrt(8 * labels + 1) + 1) / 2).astype(np.int32).clip(0, 9)
    target = Target("classes", tuple(map(str, range(10))))
    ids = tuple(map(str, range(IMAGES)))
    return Examples(ids, pixels, labels, target, weights=draw.random(IMAGES))


def after(
    config: Config, count: int, micro_batch: int | None, nudges: int = 0
) -> Iterator[list[np.ndarray]]:
    """Yield the weights after the steps on so many devices, then those of nudged starts."""
    chosen = keras.distribution.list_devices()[:count]
    several = keras.distribution.DataParallel(devices=chosen) if count > 1 else None
    keras.distribution.set_distribution(several)
    config = replace(config, micro_batch=micro_batch)
    architectures.seed(SEED)
    applied = learning_rate.apply(config, IMAGES)
    rows, given = np.arange(IMAGES), examples()
    if config.data.weight_column is None:
        given = replace(given, weights=None)
    batches = Batches.of(given, config, rows, losses.row_weights(given, config, rows))
    with jax.default_device(jax.devices()[0]):
        model = architectures.build(config, applied.batchnorm_momentum)
        step = Step(config, applied, model, replicas.mesh())
        keras.distribution.set_distribution(None)
        begin = step.initial()
        start = begin.arrays()
        for seed in range(nudges + 1):
            draw, arrays = np.random.default_rng(seed), dict(start)
            for name in [name for name in start if seed and name.startswith("trainable/")]:
                arrays[name] = perturbed_start.neighbours(arrays[name], draw)
            tree = begin.restored(arrays).tree
            for number in range(STEPS):
                batch = *batches.at(number), step.augmentation.draws(number)
                placed = replicas.put(
                    step.mesh, *jax.tree.map(lambda array: array[None], batch), axis=1
                )
                tree, _ = step.train(tree, (), placed, 1)
            yield list(map(np.asarray, tree[0]))


def apart(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """Return the norm of the difference over the norm, the largest of all arrays."""
    norm = np.linalg.norm
    return max(float(norm(a - b) / norm(b)) for a, b in zip(ours, theirs, strict=True))


def measured(option: str) -> dict[str, float]:
    """Return the distances of an option: the largest of all ways, one unit, and without it."""
    tried, without = map(settings, OPTIONS[option])
    whole, *nudged = after(tried, 1, None, NUDGES)
    ways = [next(after(tried, *way)) for way in WAYS[1:]]
    (plain,) = after(without, 1, None)
    return {
        "apart": max(apart(way, whole) for way in ways),
        "ulp": max(apart(other, whole) for other in nudged),
        "without": apart(plain, whole),
    }


if __name__ == "__main__":
    architectures.MODELS["residual"] = residual
    print(json.dumps({option: measured(option) for option in OPTIONS}))
