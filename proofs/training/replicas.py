"""One batch on any number of replicas and micro-batches, in a process with eight virtual devices.

`python -m proofs.training.replicas FOLDER PART…` prints one JSON object, of which
`proofs.training.claims` makes rows.

Rounding differs between devices. So the distance that a move makes is compared with another one:
the run stays on its devices, and at that moment each weight changes by one unit in the last place.
"""

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
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
from proofs.shared import own_functions, perturbed_start

SEED = 20261121
DEVICES = (1, 2, 4, 8)
IMAGES, BATCH, GROUP = 1010, 64, 8  # an epoch does not end with a step
MOVED_AT, STEPS_AFTER = 23, 50
PERTURBED = 2  # runs whose weights are changed by one unit in the last place
ORIGIN = {"config": {}, "data": "", "precision": "", "devices": ""}


def plain(images: Any, num_classes: int, batchnorm_momentum: float, *, width: int = 64) -> Any:
    """Return logits without BatchNorm and dropout, whose gradient is a sum over images."""
    x = keras.layers.Conv2D(width, 3, padding="same", activation="relu", name="conv_a")(images)
    x = keras.layers.Conv2D(width, 3, padding="same", activation="relu", name="conv_b")(x)
    return keras.layers.Dense(num_classes, dtype="float32", name="logits")(
        keras.layers.Flatten(name="flat")(x)
    )


def smooth(images: Any, num_classes: int, batchnorm_momentum: float, *, width: int = 8) -> Any:
    """Return logits with BatchNorm and dropout, by functions without a corner.

    At a corner, as of ReLU and of the largest of four pixels, a last bit becomes a jump: two runs
    that round differently are then a billionth or a thousandth apart, by chance.
    """
    x = images
    for number, filters in enumerate((width, 2 * width)):
        x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"conv_{number}")(
            x
        )
        x = keras.layers.BatchNormalization(momentum=batchnorm_momentum, name=f"bn_{number}")(x)
        x = keras.layers.AveragePooling2D(2, name=f"pool_{number}")(keras.activations.gelu(x))
    x = keras.layers.Dropout(0.3, name="drop")(keras.layers.Flatten(name="flat")(x))
    return keras.layers.Dense(num_classes, dtype="float32", name="logits")(x)


architectures.MODELS.update(plain=plain, smooth=smooth)


def settings(**change: Any) -> Config:
    """Return a config with everything in it that could depend on the number of replicas."""
    digits = configs.load("digits")
    base = replace(
        digits,
        name="elastic",
        batch=BATCH,
        batchnorm_batch=GROUP,
        epochs=8,
        warmup_epochs=1,
        data=replace(digits.data, crop_padding=1, flip=True),
        model="smooth",
        model_options={},
        checkpoint_seconds=3600,
        progress_seconds=3600,
    )
    return own_functions.used(replace(base, **change))


class Recorded(Loop):
    """A run on some of the devices that records the loss of each step."""

    def __init__(self, config: Config, output: Path, devices: int) -> None:
        output.mkdir(parents=True, exist_ok=True)
        draw = np.random.default_rng(SEED)
        labels = (np.arange(IMAGES) % 10).astype(np.int32)
        # The place of a bright square is the label, so that there is something to learn.
        pixels = draw.integers(0, 120, (IMAGES, 8, 8, 1), np.uint8)
        for image, label in zip(pixels, labels, strict=True):
            top, left = label // 4 * 2, label % 4 * 2
            image[top : top + 3, left : left + 2] += 120
        batches = dataset.Batches(pixels, labels, batch=config.batch, seed=config.seed)
        chosen = keras.distribution.list_devices()[:devices]
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(devices=chosen) if devices > 1 else None
        )
        architectures.seed(config.seed)
        applied = learning_rate.apply(config, IMAGES)
        held = np.arange(32)
        with jax.default_device(jax.devices()[0]):
            super().__init__(config, applied, batches, held, output, lambda line: None, {})
        keras.distribution.set_distribution(None)
        self.losses: list[float] = []

    def go_to(self, step: int) -> None:
        """Resume from the newest checkpoint, train to that step, and save."""
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


def order(
    folder: Path, every: int = 1, counts: Sequence[int] = DEVICES, made: Sequence[Recorded] = ()
) -> dict[str, Any]:
    """Return how many sequences of batches were compared, and how many differed from the first.

    Args:
        folder: for the runs.
        every: how many steps are between two beginnings, over two epochs.
        counts: of devices.
        made: the runs on that many devices, if there are any already.
    """
    last = -(-2 * IMAGES // BATCH)
    first: list[str] | None = None
    compared = differing = 0
    seen: set[int] = set()
    runs = made or [Recorded(settings(), folder / f"order-{count}", count) for count in counts]
    for run in runs:
        for start in range(0, last, every):
            found = []
            for given, _ in run._feed().calls(run._calls(start, last)):
                # A single CPU gets the arrays as they are.
                images = given[0]
                split = images.addressable_shards if isinstance(images, jax.Array) else ()
                spread = {shard.device.id for shard in split} or {0}
                seen.add(len(spread))
                found.append(
                    hashlib.sha256(
                        b"".join(np.asarray(array).tobytes() for array in given)
                    ).hexdigest()
                )
            first = first or found
            compared += 1
            differing += found != first[start:]
    starts = len(range(0, last, every))
    wanted = {"steps": last, "starts": starts, "wanted": list(counts)}
    return {"compared": compared, "differing": differing, "devices": sorted(seen), **wanted}


def short(folder: Path) -> dict[str, Any]:
    """Return what `moved` finds for SGD, and `order` for two of its runs, a sample of the steps."""
    found, *runs = _moved(folder, "sgd", perturbed=1)
    return {"sgd": found, "order": order(folder, every=8, counts=(1, 8), made=runs)}


def moved(folder: Path, name: str) -> dict[str, Any]:
    """Return how far a run that moves from 8 devices to 1 within an epoch is from one that stays,
    50 steps later; and how far from it those are whose weights are perturbed at that moment.
    """
    return _moved(folder, name, PERTURBED)[0]


def _moved(folder: Path, name: str, perturbed: int) -> tuple[dict[str, Any], Recorded, Recorded]:
    """Return what `moved` does, the run that moves to one device, and the one that stays."""
    digits = settings()
    optimizer = replace(digits.optimizer, name=name, base_batch=BATCH)
    change: dict[str, Any] = {"sgd": {"base_rate": 0.01}, "adamw": {"weight_decay": 0.01}}[name]
    optimizer = replace(optimizer, **change)
    config, to = settings(optimizer=optimizer), MOVED_AT + STEPS_AFTER
    stays = Recorded(config, folder / f"stays-{name}", 8)
    stays.go_to(to)
    Recorded(config, folder / f"moves-{name}", 8).go_to(MOVED_AT)
    others = []
    for number in range(perturbed):
        perturb(folder / f"moves-{name}", folder / f"perturbed-{number}-{name}", number)
        others.append(Recorded(config, folder / f"perturbed-{number}-{name}", 8))
        others[-1].go_to(to)
    # One device, four micro-batches a step: memory is another one, too.
    moves = Recorded(replace(config, micro_batch=BATCH // 4), folder / f"moves-{name}", 1)
    moves.go_to(to)
    fell = statistics.mean(stays.losses[-5:]) / statistics.mean(stays.losses[:5])
    ulps = [_distances(run, stays, to) for run in others]
    found = {
        "moved": _distances(moves, stays, to),
        "ulp": {key: max(found[key] for found in ulps) for key in ("weights", "losses")},
        "steps": to,
        "fell_to": fell,
        "micro_batches": moves.compiled.cut.accumulation,
    }
    return found, moves, stays


def perturb(source: Path, target: Path, seed: int) -> None:
    """Write the checkpoint of one run for another, with each weight moved to a number beside it."""
    found = checkpoint.latest(source / "checkpoints")
    assert found is not None  # noqa: S101 - the proof's own
    draw, arrays = np.random.default_rng(seed), dict(found.arrays)
    for name in [name for name in arrays if name.startswith("trainable/")]:
        arrays[name] = perturbed_start.neighbours(arrays[name], draw)
    (target / "checkpoints").mkdir(parents=True)
    checkpoint.save(target / "checkpoints", found.step, arrays, found.details)


def _distances(one: Recorded, other: Recorded, step: int) -> dict[str, float]:
    """Return how far two runs are apart, relatively: in the weights at that step, and in the losses
    of the last steps.
    """
    found = [checkpoint.latest(run.output / "checkpoints") for run in (one, other)]
    ours, theirs = (checkpoint.arrays for checkpoint in found if checkpoint is not None)
    assert all(each is not None and each.step == step for each in found)  # noqa: S101 - ours
    names = [name for name in theirs if name.startswith("trainable/")]
    pairs = zip(one.losses[-STEPS_AFTER:], other.losses[-STEPS_AFTER:], strict=True)
    return {
        "weights": max(_apart(ours[name], theirs[name]) for name in names),
        "losses": max(abs(a - b) / abs(b) for a, b in pairs),
    }


def accumulated(folder: Path) -> dict[str, Any]:
    """Return how far one update by accumulation is from one by the whole batch, and both in ms."""
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
        given, _ = next(run._feed().calls(run._calls(0, 1)))
        tree, _ = run.compiled.train(run.state.tree, (), given, 1)
        runs[micro_batch] = (run.compiled, tree, given)
        whole = runs[256][1]
        pairs = zip(tree[0], whole[0], strict=True)
        apart = max(apart, *(_apart(np.asarray(a), np.asarray(b)) for a, b in pairs))

    def timed(micro_batch: int) -> float:
        step, tree, batch = runs[micro_batch]
        begun = time.perf_counter()
        for _ in range(10):
            tree, _ = step.train(tree, (), batch, 1)
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
    return {"apart": apart, "images": base.batch, "milliseconds": times, "ratios": ratios}


def _apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the norm of the difference over the norm."""
    return float(np.linalg.norm(ours.astype(float) - theirs) / np.linalg.norm(theirs.astype(float)))


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "order": order,
    "short": short,
    "sgd": partial(moved, name="sgd"),
    "adamw": partial(moved, name="adamw"),
    "accumulated": accumulated,
}

if __name__ == "__main__":
    perturbed_start.install()
    parts = [word for word in sys.argv[2:] if word in PARTS]
    print(json.dumps({name: PARTS[name](Path(sys.argv[1])) for name in parts}))
