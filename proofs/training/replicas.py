"""Elastic: one batch on any number of replicas and micro-batches. A process of its own, with eight
virtual devices.

`python -m proofs.training.replicas FOLDER PART…` prints one JSON object: what
`proofs.training.claims` makes rows of.
"""

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from pipeline import config as configs
from pipeline.config import Config
from pipeline.data import dataset
from pipeline.models import architectures
from pipeline.session import checkpoint
from pipeline.session.time_limit import Session
from pipeline.training import learning_rate
from pipeline.training.loop import Loop
from pipeline.training.train_step import Step

SEED = 20261121
DEVICES = (1, 2, 4, 8)
IMAGES, BATCH, GROUP = 1010, 64, 8  # an epoch does not end with a step
MOVED_AT, STEPS_AFTER = 23, 50
ORIGIN = {"config": {}, "data": "", "precision": "", "devices": ""}


def plain(images: Any, num_classes: int, batchnorm_momentum: float, *, width: int = 64) -> Any:
    """Return logits without BatchNorm and dropout: what a sum over images is, exactly."""
    x = keras.layers.Conv2D(width, 3, padding="same", activation="relu", name="conv_a")(images)
    x = keras.layers.Conv2D(width, 3, padding="same", activation="relu", name="conv_b")(x)
    return keras.layers.Dense(num_classes, dtype="float32", name="logits")(
        keras.layers.Flatten(name="flat")(x)
    )


architectures.MODELS["plain"] = plain


def settings(**change: Any) -> Config:
    """Return a config with everything in it that could depend on the number of replicas, changed
    so.
    """
    digits = configs.load("digits")
    base = replace(
        digits,
        name="elastic",
        batch=BATCH,
        batchnorm_batch=GROUP,
        epochs=8,
        warmup_epochs=1,
        data=replace(digits.data, flip=True),
        model_options={"width": 8, "dropout": 0.3},
        checkpoint_seconds=3600,
        progress_seconds=3600,
    )
    return replace(base, **change)


class Recorded(Loop):
    """A run on some of the devices that keeps each step's loss, and each call's batch as the
    devices hold it.
    """

    def __init__(self, config: Config, output: Path, devices: int) -> None:
        output.mkdir(parents=True, exist_ok=True)
        draw = np.random.default_rng(SEED)
        labels = (np.arange(IMAGES) % 10).astype(np.int32)
        # A bright square tells the label, so that there is something to learn.
        pixels = draw.integers(0, 120, (IMAGES, 8, 8, 1), np.uint8)
        for number, label in enumerate(labels):
            pixels[
                number, label // 4 * 2 : label // 4 * 2 + 3, label % 4 * 2 : label % 4 * 2 + 2
            ] += 120
        batches = dataset.Batches(
            pixels,
            labels,
            rows=None,
            batch=config.batch,
            seed=config.seed,
            crop_padding=1,
            flip=config.data.flip,
        )
        chosen = keras.distribution.list_devices()[:devices]
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(devices=chosen) if devices > 1 else None
        )
        keras.utils.set_random_seed(config.seed)
        applied = learning_rate.apply(config, IMAGES)
        validation = (pixels[:32], labels[:32])
        with jax.default_device(jax.devices()[0]):
            super().__init__(config, applied, batches, validation, output, lambda line: None, {})
        keras.distribution.set_distribution(None)
        self.losses: list[float] = []

    def go_to(self, step: int) -> None:
        """Go on from the newest checkpoint to that step, and save."""
        train = self.compiled.train

        def recorded(tree: Any, *given: Any) -> Any:
            before = float(tree[-1][0])  # the sum over the epoch so far
            tree, totals = train(tree, *given)
            self.losses.append((float(totals[0]) - before) / self.config.batch)
            return tree, totals

        self.compiled.train = recorded  # type: ignore[method-assign,assignment]
        with (
            Session(None, 1800, self.output) as session,
            jax.default_device(jax.devices()[0]),
        ):
            self.go(ORIGIN, session, max_steps=step, fresh=False)
        self.compiled.train = train  # type: ignore[method-assign]


def order(folder: Path) -> dict[str, Any]:
    """Return how many sequences of batches were compared, and how many differed from the first:
    from every step of two epochs.
    """
    last = -(-2 * IMAGES // BATCH)
    first: list[str] | None = None
    compared = differing = 0
    seen: set[int] = set()
    for devices in DEVICES:
        run = Recorded(settings(), folder / f"order-{devices}", devices)
        for start in range(last):
            found = []
            for images, labels, _ in run._feed(start, last):
                # A single CPU gets the arrays as they are.
                split = images.addressable_shards if isinstance(images, jax.Array) else ()
                spread = {shard.device.id for shard in split} or {0}
                seen.add(len(spread))
                found.append(
                    hashlib.sha256(
                        np.asarray(images).tobytes() + np.asarray(labels).tobytes()
                    ).hexdigest()
                )
            first = first or found
            compared += 1
            differing += found != first[start:]
    return {"compared": compared, "differing": differing, "devices": sorted(seen), "steps": last}


def moved(folder: Path, name: str) -> dict[str, Any]:
    """Return how far a run that moves from 8 devices to 1 in the middle of an epoch is from the one
    that does not, 50 steps later.
    """
    digits = settings()
    optimizer = replace(digits.optimizer, name=name, base_batch=BATCH)
    change: dict[str, Any] = {"sgd": {"base_rate": 0.01}, "adamw": {"weight_decay": 0.01}}[name]
    optimizer = replace(optimizer, **change)
    config, to = settings(optimizer=optimizer), MOVED_AT + STEPS_AFTER
    stays = Recorded(config, folder / f"stays-{name}", 8)
    stays.go_to(to)
    Recorded(config, folder / f"moves-{name}", 8).go_to(MOVED_AT)
    # One device, four micro-batches a step: memory is another one, too.
    moves = Recorded(replace(config, micro_batch=BATCH // 4), folder / f"moves-{name}", 1)
    moves.go_to(to)
    ours, theirs = (checkpoint.latest(run.output / "checkpoints") for run in (moves, stays))
    assert ours is not None and theirs is not None and ours.step == theirs.step == to  # noqa: S101 - the proof's own
    names = [name for name in theirs.arrays if name.startswith("trainable/")]
    weights = max(_apart(ours.arrays[name], theirs.arrays[name]) for name in names)
    losses = max(
        abs(a - b) / abs(b)
        for a, b in zip(moves.losses[-STEPS_AFTER:], stays.losses[-STEPS_AFTER:], strict=True)
    )
    fell = statistics.mean(stays.losses[-5:]) / statistics.mean(stays.losses[:5])
    return {
        "weights": weights,
        "losses": losses,
        "fell_to": fell,
        "micro_batches": moves.compiled.accumulation,
    }


def accumulated(folder: Path) -> dict[str, Any]:
    """Return how far one update by accumulation is from the whole batch's, and both times, in ms."""
    digits = settings()
    base = settings(
        model="plain", model_options={"width": 64}, batch=256, warmup_epochs=0, batchnorm_batch=32,
        optimizer=replace(digits.optimizer, name="sgd", base_rate=0.1, base_batch=256),
    )  # fmt: skip
    apart = 0.0
    runs: dict[int, tuple[Step, Any, Any]] = {}
    for micro_batch in (256, 64, 32):
        run = Recorded(
            replace(base, micro_batch=micro_batch), folder / f"accumulated-{micro_batch}", 1
        )
        images, labels, _ = run._batch(0, 1)
        tree, _ = run.compiled.train(run.state.tree, images, labels, 1)
        runs[micro_batch] = (run.compiled, tree, (images, labels))
        if micro_batch != 256:
            whole = runs[256][1]
            apart = max(
                apart,
                *(
                    _apart(np.asarray(a), np.asarray(b))
                    for a, b in zip(tree[0], whole[0], strict=True)
                ),
            )

    def timed(micro_batch: int) -> float:
        step, tree, batch = runs[micro_batch]
        begun = time.perf_counter()
        for _ in range(10):
            tree, _ = step.train(tree, batch[0], batch[1], 1)
        jax.block_until_ready(tree)  # type: ignore[no-untyped-call]
        runs[micro_batch] = (step, tree, batch)
        return (time.perf_counter() - begun) / 10 * 1e3

    taken: dict[int, list[float]] = {size: [] for size in runs}
    for _ in range(9):
        for size in runs:
            taken[size].append(timed(size))
    times = {str(size): statistics.median(values) for size, values in taken.items()}
    ratios = {
        str(size): statistics.median(a / b for a, b in zip(taken[size], taken[256], strict=True))
        for size in (64, 32)
    }
    return {"apart": apart, "milliseconds": times, "ratios": ratios}


def _apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the norm of the difference over the norm."""
    return float(np.linalg.norm(ours.astype(float) - theirs) / np.linalg.norm(theirs.astype(float)))


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "order": order,
    "sgd": lambda folder: moved(folder, "sgd"),
    "adamw": lambda folder: moved(folder, "adamw"),
    "accumulated": accumulated,
}

if __name__ == "__main__":
    print(json.dumps({name: PARTS[name](Path(sys.argv[1])) for name in sys.argv[2:]}))
