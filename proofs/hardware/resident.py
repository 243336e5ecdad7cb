"""Images that lie on the devices: the same batches as the host's, at the rate of one batch that
stays there.

`python -m proofs.hardware.resident same|speed FOLDER` prints one JSON object.
"""

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from pipeline import config as configs
from pipeline.config import Config
from pipeline.data.dataset import Batches
from pipeline.runtime import replicas
from pipeline.session.time_limit import Session
from pipeline.training import learning_rate
from pipeline.training.feed import Feed
from pipeline.training.loop import Loop
from proofs.shared import module_process
from proofs.shared.results_table import Row, last_json

SEED, IMAGES, BATCH = 20261122, 1010, 64  # an epoch does not end with a step
DEVICES = (1, 2, 4, 8)
SIDE, TIMED, ROUNDS, SHARE = 32, 256, 9, 0.95
EPOCH = 8192
ORIGIN = {"config": {}, "data": "", "precision": "", "devices": ""}


def same_rows(root: Path, folder: Path) -> Iterator[Row]:
    """Yield the row of equal batches."""
    flags = f"{module_process.EIGHT} {module_process.UNOPTIMIZED}"
    words = ("proofs.hardware.resident", "same", folder)
    yield judged_same(last_json(module_process.output(root, *words, flags=flags)))


def judged_same(found: dict[str, Any], devices: Sequence[int] = DEVICES) -> Row:
    """Return the row that the comparison gives."""
    return Row(
        f"Augmented batches of images that lie on {', '.join(map(str, devices))} devices, over two"
        " epochs, beside the host's on one",
        "bit-equal in every step, with crop, flip, RandAugment, mixup and CutMix",
        f"{found['compared']} batches compared, {found['differing']} differ,"
        f" {found['distinct']} distinct",
        found["compared"] == len(devices) * found["steps"]
        and not found["differing"]
        and found["distinct"] == found["steps"],
        SEED,
    )


def speed_rows(root: Path, folder: Path) -> Iterator[Row]:
    """Yield the row of speed."""
    yield judged_speed(
        last_json(module_process.output(root, "proofs.hardware.resident", "speed", folder))
    )


def judged_speed(found: dict[str, Any]) -> Row:
    """Return the row that the measurement gives."""
    rates, share = found["images_per_second"], found["shares"]
    return Row(
        "An epoch fed from images on the device, beside the same step on one batch that stays"
        f" there ({SIDE}x{SIDE}x3, batch {TIMED}, crop and flip)",
        f"≥ {SHARE:.0%} of its rate",
        f"{share['device']:.1%}: {rates['device']:,} and {rates['bare']:,} images/s; fed from the"
        f" host {rates['host']:,} ({share['host']:.1%}); waited {found['idle']:.1%} of the time",
        share["device"] >= SHARE,
        SEED,
    )


def changing(batch: int, side: int, **change: Any) -> Config:
    """Return a config of images that are changed in every way."""
    digits = configs.load("digits")
    data = replace(digits.data, height=side, width=side, channels=3, crop_padding=2, flip=True)
    data = replace(data, **{name: change.pop(name) for name in list(change) if name in MIXES})
    options = {"width": 16, "stride": 4}
    optimizer = replace(digits.optimizer, base_batch=batch)
    return replace(
        digits, name="resident", batch=batch, data=data, optimizer=optimizer,
        model="strided_resnet", model_options=options, batchnorm_batch=None,
        epochs=1000, warmup_epochs=1, checkpoint_seconds=3600.0, progress_seconds=1.0, **change,
    )  # fmt: skip


MIXES = ("rand_augment", "rand_magnitude", "mixup", "cutmix")


def same(folder: Path, devices: Sequence[int] = DEVICES) -> dict[str, Any]:
    """Return how many batches were compared and how many differed."""
    draw = np.random.default_rng(SEED)
    images = draw.integers(0, 256, (IMAGES, 12, 10, 3), np.uint8)
    config = changing(BATCH, 12, rand_augment=2, rand_magnitude=0.5, mixup=0.4, cutmix=1.0)
    config = replace(config, data=replace(config.data, width=10))
    batches = Batches(images, np.arange(IMAGES) % 10, batch=BATCH, seed=SEED)
    last = -(-2 * IMAGES // BATCH)
    first, compared, differing = list[str](), 0, 0
    for count in (0, *devices):
        found = list(map(digest, seen(config, batches, count, last)))
        first = first or found
        if count:
            compared += len(found)
            differing += sum(a != b for a, b in zip(found, first, strict=True))
    told = {"compared": compared, "differing": differing, "steps": last}
    return told | {"distinct": len(set(first))}


def digest(arrays: tuple[Any, ...]) -> str:
    """Return a sha256 over some arrays."""
    return hashlib.sha256(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest()


def seen(config: Config, batches: Batches, count: int, steps: int) -> Iterator[tuple[Any, ...]]:
    """Yield images, labels and shares of each step as a training step sees them.

    Args:
        count: devices that hold the images; 0: one device that the host feeds.
    """
    from pipeline.augmentation.augmentation import Augmentation

    changes = Augmentation(config.data, SEED, config.batch)

    place: Any = jax.sharding.Mesh(np.array(jax.devices()[:count]), ("batch",)) if count else None

    class Placing:
        """What a feed needs of a step."""

        mesh, augmentation = place, changes

    def changed(held: Any, images: Any, labels: Any, draws: Any) -> Any:
        if held and place is not None:
            images = replicas.gathered(held[0], images)
        elif held:
            images = held[0][images]
        return (*changes.applied(images, draws), labels)

    program: Any = changed
    if place is not None:
        spec: Any = jax.sharding.PartitionSpec
        split, every = spec(replicas.AXIS), spec()
        program = jax.shard_map(
            changed, mesh=place, in_specs=(split, every, split, split), out_specs=split,
            check_vma=False,
        )  # fmt: skip
    program = jax.jit(program)
    way: Any = "device" if count else "host"
    with Feed(batches, Placing, 1, way) as feed:  # type: ignore[arg-type]
        for given, _ in feed.calls((step, 1) for step in range(steps)):
            yield program(feed.held, *(array[0] for array in given))


def speed(folder: Path) -> dict[str, Any]:
    """Return images/s of the bare step and of both feeds, which take turns."""
    draw = np.random.default_rng(SEED)
    images = draw.integers(0, 256, (EPOCH, SIDE, SIDE, 3), np.uint8)
    labels = (np.arange(EPOCH) % 10).astype(np.int32)
    runs = {way: made(images, labels, way, folder / way) for way in ("device", "host")}
    bare = made(images, labels, "host", folder / "bare")
    given, _ = next(bare._feed().calls(bare._calls(0, 1)))
    given = jax.device_put(given)
    steps, idle = EPOCH // TIMED, list[float]()

    def stays() -> float:
        tree = jax.tree.map(lambda leaf: leaf + 0, bare.state.tree)
        jax.block_until_ready(tree)  # type: ignore[no-untyped-call]
        begun = time.perf_counter()
        for _ in range(steps):
            tree, _totals = bare.compiled.train(tree, (), given, 1)
        jax.block_until_ready(tree)  # type: ignore[no-untyped-call]
        return time.perf_counter() - begun

    def fed(run: Loop) -> float:
        run.seconds.clear()
        with Session(None, 1800, run.output) as session:
            run.go(ORIGIN, session, max_steps=run.step + steps + 1, fresh=False)
        return run.seconds["train"]

    arms: dict[str, Callable[[], float]] = {"bare": stays}
    arms |= {way: partial(fed, run) for way, run in runs.items()}
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(ROUNDS + 1):
        names = list(arms)[turn % 3 :] + list(arms)[: turn % 3]
        for name in names:
            seconds = arms[name]()
            if turn:  # each has compiled
                taken[name].append(seconds)
    for line in (runs["device"].output / "progress.jsonl").read_text().splitlines():
        idle.append(json.loads(line).get("idle", 0.0))
    shares = {
        way: statistics.median(b / a for a, b in zip(taken[way], taken["bare"], strict=True))
        for way in runs
    }
    rates = {name: round(EPOCH / statistics.median(each)) for name, each in taken.items()}
    return {"images_per_second": rates, "shares": shares, "idle": statistics.median(idle)}


def made(images: np.ndarray, labels: np.ndarray, way: str, output: Path) -> Loop:
    """Return a loop that is fed in this way."""
    output.mkdir(parents=True)
    config = changing(TIMED, SIDE, feed=way)
    batches = Batches(images, labels, batch=TIMED, seed=SEED)
    keras.utils.set_random_seed(0)
    applied = learning_rate.apply(config, len(batches))
    return Loop(config, applied, batches, np.arange(32), output, lambda line: None, {})


if __name__ == "__main__":
    work = {"same": same, "speed": speed}[sys.argv[1]]
    print(json.dumps(work(Path(sys.argv[2]))))
