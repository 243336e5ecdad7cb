"""Updates: a step of ours beside a plain Keras `train_step`, and beside itself in micro-batches.

`python -m proofs.hardware.updates float64|float32` prints one JSON object: by case, how far the
weights are apart after some steps (the norm of the difference over the norm, the largest of all
arrays), and in float32 how far they are if each weight at the start moves to a neighbouring number.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__" and sys.argv[1] == "float64":
    os.environ["JAX_ENABLE_X64"] = "1"

import jax
import keras
import numpy as np

from pipeline import config as configs
from pipeline.config import Config
from pipeline.models import architectures
from pipeline.training import learning_rate
from pipeline.training.learning_rate import Applied
from pipeline.training.train_step import Step
from proofs.shared import module_process, perturbed_start
from proofs.shared.results_table import Row, last_json

SEED, BATCH, MICRO, STEPS, NUDGES = 20261122, 64, 8, 3, 3
EXACT, ULPS = 1e-12, 4
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"base_rate": 0.05, "weight_decay": 1e-2},
    "adam": {"base_rate": 0.002},
    "adamw": {"base_rate": 0.002, "weight_decay": 0.1},
}
PARTS = (
    f"Batch {BATCH}, base {BATCH}, micro_batch={MICRO}, without BatchNorm, beside the whole batch"
)
PLAIN = "Regularized, decayed updates beside a plain Keras train_step"


def rows(root: Path) -> Iterator[Row]:
    """Yield the rows."""
    yield from judged({kind: measured_apart(root, kind) for kind in ("float64", "float32")})


def measured_apart(root: Path, kind: str, *, short: bool = False) -> dict[str, Any]:
    """Return what `measured` does in a process of its own; `short` does not optimize programs."""
    flags, words = (module_process.UNOPTIMIZED, ["short"]) if short else ("", [])
    return last_json(
        module_process.output(root, "proofs.hardware.updates", kind, *words, flags=flags)
    )


def judged(found: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows that the measurements give."""
    for case, exact in found["float64"].items():
        rounded = found["float32"][case]
        yield Row(
            PARTS if case == "parts" else f"{PLAIN}: {case}",
            f"float64 ≤ {EXACT:.0e}; float32 ≤ {ULPS} times what one unit in the last place makes",
            f"float64 {exact['apart']:.1e}; float32 {rounded['apart']:.1e}, one unit"
            f" {rounded['ulp']:.1e}",
            exact["moved"] > 0 and exact["apart"] <= EXACT
            and rounded["apart"] <= ULPS * rounded["ulp"],
            SEED,
        )  # fmt: skip


def smooth(images: Any, num_classes: int, batchnorm_momentum: float, *, width: int = 16) -> Any:
    """Return logits of layers with regularizers, without a corner at which a last bit jumps."""
    layers, penalty = keras.layers, keras.regularizers.L2(1e-3)
    x = layers.Conv2D(width, 3, kernel_regularizer=penalty, name="conv")(images)
    x = keras.activations.gelu(x)
    x = layers.Flatten(name="flat")(layers.AveragePooling2D(2, name="pool")(x))
    x = layers.Dense(width, activity_regularizer=keras.regularizers.L2(1e-2), name="wide")(x)
    return layers.Dense(num_classes, kernel_regularizer=penalty, name="logits")(x)


def settings(name: str, **change: Any) -> Config:
    """Return a config with that optimizer; nothing of it draws."""
    digits = configs.load("digits")
    optimizer = replace(digits.optimizer, name=name, base_batch=BATCH, **OPTIMIZERS[name])
    data = replace(digits.data, crop_padding=0, flip=False)
    return replace(
        digits, batch=BATCH, batchnorm_batch=None, model="smooth", model_options={},
        warmup_epochs=0, data=data, optimizer=optimizer, **change,
    )  # fmt: skip


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the images and labels of each step."""
    draw = np.random.default_rng(SEED)
    return [
        (
            draw.integers(0, 256, (BATCH, 8, 8, 1), np.uint8),
            draw.integers(0, 10, BATCH).astype(np.int32),
        )
        for _ in range(STEPS)
    ]


def built(config: Config, nudge: int | None) -> tuple[Any, Applied]:
    """Return a model, and what it was made with."""
    keras.utils.clear_session()
    applied = learning_rate.apply(config, 100 * BATCH)
    architectures.seed(SEED)
    model = architectures.build(config, applied.batchnorm_momentum)
    if nudge is not None:
        draw = np.random.default_rng(nudge)
        model.set_weights([perturbed_start.neighbours(w, draw) for w in model.get_weights()])
    return model, applied


def by_us(config: Config, nudge: int | None = None) -> list[np.ndarray]:
    """Return the weights after the steps, and before them with a nudge below 0."""
    model, applied = built(config, nudge)
    step = Step(config, applied, model, None)
    tree = step.initial().tree
    for number, batch in enumerate(batches()):
        images, labels = (array[None] for array in batch)
        draws = step.augmentation.draws(number)[None]
        tree, _ = step.train(tree, (), (images, labels, draws), 1)
    return list(map(np.asarray, tree[0]))


def by_keras(config: Config) -> list[np.ndarray]:
    """Return the weights after the same steps of `train_step`."""
    model, applied = built(config, None)
    model.compile(
        learning_rate.optimizer(applied, model.trainable_variables),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    for images, labels in batches():
        model.train_on_batch(images, labels)
    return [np.asarray(variable.value) for variable in model.trainable_variables]


def apart(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """Return the norm of the difference over the norm, the largest of all arrays."""
    norm = np.linalg.norm
    return max(float(norm(a - b) / norm(b)) for a, b in zip(ours, theirs, strict=True))


def measured(kind: str, *, short: bool) -> dict[str, dict[str, float]]:
    """Return what came of each case in this precision; `short` takes one optimizer and one nudge.

    JAX has float64 only in a process that began with it.
    """
    found: dict[str, dict[str, float]] = {}
    with _precision(kind):
        for case in (*(["adamw"] if short else OPTIMIZERS), "parts"):
            config = settings("sgd" if case == "parts" else case)
            after, (begin, _) = by_us(config), built(config, None)
            start = [np.asarray(variable.value) for variable in begin.trainable_variables]
            moved = (np.abs(a - b).sum() for a, b in zip(after, start, strict=True))
            if case == "parts":
                difference = apart(by_us(replace(config, micro_batch=MICRO)), after)
            else:
                difference = apart(after, by_keras(config))
            found[case] = {"apart": difference, "moved": float(sum(moved))}
            if kind == "float32":
                seeds = range(1 if short else NUDGES)
                found[case]["ulp"] = max(apart(by_us(config, seed), after) for seed in seeds)
    return found


@contextmanager
def _precision(kind: str) -> Iterator[None]:
    before = keras.config.floatx(), keras.config.dtype_policy()
    architectures.MODELS["smooth"] = smooth
    keras.config.set_floatx(kind)
    keras.config.set_dtype_policy(kind)
    try:
        yield
    finally:
        del architectures.MODELS["smooth"]
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
    print(json.dumps(measured(sys.argv[1], short=sys.argv[2:] == ["short"])))
