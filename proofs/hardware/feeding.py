"""Feeding at 224x224, beside what others have: rows gathered, and augmented batches on the device.

`python -m proofs.hardware.feeding FOLDER` prints one JSON object. All arms run in this process, one
after the other, turn by turn, on the same two cores; each ends with a batch on the device. Grain is
measured if it is installed; what commit 07ff1c6 did is read from git.

An accelerator's allocator keeps memory that is freed. A CPU's gives it back, and each batch then
pays for new pages. So all arms are measured with memory kept, and the first two also without.
"""

import ctypes
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pipeline.augmentation.augmentation import Augmentation
from pipeline.config import Data
from pipeline.data.dataset import Batches
from pipeline.data.row_gathering import Gatherer, take
from pipeline.runtime import replicas
from proofs.shared import module_process
from proofs.shared.results_table import Row, last_json

SEED, SIDE, IMAGES, BATCH, PADDING = 20261122, 224, 1024, 128, 28
ROUNDS, THREADS = 7, 2
STEPS, SLOW_STEPS = 24, 3  # a turn: with RandAugment, tf.data makes 80 images a second
SHARE, TIMES = 0.8, 2.0
OLD = "07ff1c6"
ROOT = Path(__file__).resolve().parents[2]


def rows(root: Path) -> Iterator[Row]:
    """Yield the rows."""
    flags = f"--xla_force_host_platform_device_count={THREADS}"
    yield from judged(
        last_json(module_process.output(root, "proofs.hardware.feeding", flags=flags))
    )


def judged(found: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows that the measurement gives."""
    gather, where = found["gather"], f"{SIDE}x{SIDE}x3, batch {BATCH}"
    for number in ("one", "two"):
        share = found["shares"][number]
        yield Row(
            f"Gather alone by {number} thread{'s' * (number == 'two')} beside numpy.copyto of the"
            f" same bytes ({where})",
            f"≥ {SHARE:.0%}",
            f"{share:.0%}: {gather[f'ours {number}']:,} and {gather[f'copyto {number}']:,} images/s"
            + "".join(
                f"; {name} {gather[name]:,}" for name in ("tf.data", "Grain") if name in gather
            ),
            share >= SHARE,
            SEED,
        )
    for name, arms in found["augmented"].items():
        others = {arm: rate for arm, rate in arms.items() if arm in ("tf.data", "Grain")}
        best = max(others.values())
        told = ", ".join(f"{arm} {rate:,}" for arm, rate in arms.items())
        given_back = found["given back"].get(name, {})
        if given_back:
            told += "; with memory given back: "
            told += ", ".join(f"{arm} {rate:,}" for arm, rate in given_back.items())
        yield Row(
            f"Augmented batches on the device, {name} ({where}), on the same {THREADS} cores",
            f"≥ {TIMES:g}x the better of tf.data and Grain",
            f"{arms['ours'] / best:.1f}x; images/s: {told}",
            arms["ours"] >= TIMES * best,
            SEED,
        )


def measured() -> dict[str, Any]:
    """Return images/s of every arm: medians over rounds in which all arms take turns."""
    draw = np.random.default_rng(SEED)
    images = draw.integers(0, 256, (IMAGES, SIDE, SIDE, 3), np.uint8)
    shares, gather = gathered(images)
    plain, more = "crop and flip", "crop, flip and RandAugment of 2"
    before_that = {plain: timed(arms(images, 0), STEPS)}
    keep_memory()
    augmented = {plain: timed(arms(images, 0), STEPS), more: timed(arms(images, 2), SLOW_STEPS)}
    return {"gather": gather, "shares": shares, "augmented": augmented, "given back": before_that}


def keep_memory() -> None:
    """Let this process keep memory that is freed: glibc's M_MMAP_MAX and M_TRIM_THRESHOLD."""
    mallopt = ctypes.CDLL(None).mallopt
    if not (mallopt(-4, 0) and mallopt(-1, 2**31 - 1)):
        raise OSError("mallopt refused to keep memory")


def timed(arms: dict[str, Callable[[int], None]], steps: int) -> dict[str, int]:
    """Return the median images/s of arms, each of which makes so many batches at a time."""
    taken = turns(arms, steps)
    return {name: round(steps * BATCH / statistics.median(each)) for name, each in taken.items()}


def turns(arms: dict[str, Callable[[int], None]], steps: int) -> dict[str, list[float]]:
    """Return the seconds of each arm in each round; in the first one, programs are compiled."""
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(ROUNDS + 1):
        for name, arm in arms.items():
            begun = time.perf_counter()
            arm(steps)
            if turn:
                taken[name].append(time.perf_counter() - begun)
    return taken


def gathered(images: np.ndarray) -> tuple[dict[str, float], dict[str, int]]:
    """Return our share of copyto's rate by one thread and by two, and images/s of every arm."""
    batches, into = Batches(images, np.zeros(IMAGES, np.int32), batch=BATCH, seed=SEED), []
    into += [np.zeros((BATCH, SIDE, SIDE, 3), np.uint8), images[:BATCH].copy()]
    buffer, same = into
    rows = batches.rows_of(0)
    half = BATCH // 2
    pool, gatherer = ThreadPoolExecutor(THREADS), Gatherer(images, THREADS)

    def each(steps: int, work: Callable[[], object]) -> None:
        for _ in range(steps):
            work()

    def copied(part: int) -> None:
        np.copyto(buffer[part * half :][:half], same[part * half :][:half])

    def both() -> None:
        for future in gatherer.begin(rows, buffer):
            future.result()

    found: dict[str, Callable[[int], None]] = {
        "ours one": partial(each, work=lambda: take(images, rows, buffer)),
        "copyto one": partial(each, work=lambda: np.copyto(buffer, same)),
        "ours two": partial(each, work=both),
        "copyto two": partial(each, work=lambda: list(pool.map(copied, (0, 1)))),
        "tf.data": drained(tf_data(images, None)),
    }
    if find_spec("grain"):
        found["Grain"] = drained(grain(images, None))
    taken = turns(found, STEPS)
    shares = {
        number: statistics.median(
            theirs / ours
            for ours, theirs in zip(taken[f"ours {number}"], taken[f"copyto {number}"], strict=True)
        )
        for number in ("one", "two")
    }
    count = STEPS * BATCH
    return shares, {name: round(count / statistics.median(each)) for name, each in taken.items()}


def arms(images: np.ndarray, operations: int) -> dict[str, Callable[[int], None]]:
    """Return what makes augmented batches on the device, by name."""
    found = {"ours": ours(images, operations), "tf.data": drained(tf_data(images, operations))}
    old = before(images, operations)
    if find_spec("grain"):
        found["Grain"] = drained(grain(images, operations))
    return found | ({OLD: old} if old else {})


def ours(images: np.ndarray, operations: int) -> Callable[[int], None]:
    """Return our way: the host gathers by both cores, both devices change the images."""
    import jax

    data = Data(
        height=SIDE, width=SIDE, channels=3, crop_padding=PADDING, flip=True,
        rand_augment=operations, rand_magnitude=0.5,
    )  # fmt: skip
    changes = Augmentation(data, SEED, BATCH)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), (replicas.AXIS,))
    split: Any = jax.sharding.PartitionSpec
    split = split(replicas.AXIS)
    program = jax.jit(
        jax.shard_map(
            lambda images, draws: changes.applied(images, draws)[0],
            mesh=mesh, in_specs=split, out_specs=split, check_vma=False,
        )
    )  # fmt: skip
    batches = Batches(images, np.zeros(IMAGES, np.int32), batch=BATCH, seed=SEED)
    gatherer = Gatherer(images, THREADS)
    buffers = [np.zeros((BATCH, SIDE, SIDE, 3), np.uint8) for _ in range(2)]

    def make(steps: int) -> None:
        done: list[Any] = [None, None]
        for step in range(steps):
            turn = step % 2
            if done[turn] is not None:
                jax.block_until_ready(done[turn])  # type: ignore[no-untyped-call]
            for future in gatherer.begin(batches.rows_of(step), buffers[turn]):
                future.result()
            done[turn] = program(*replicas.put(mesh, buffers[turn], changes.draws(step)))
        jax.block_until_ready(done)  # type: ignore[no-untyped-call]

    return make


def tf_data(images: np.ndarray, operations: int | None) -> Callable[[int], Iterable[Any]]:
    """Return a tf.data pipeline of so many batches; operations None: they are not changed."""
    import tensorflow as tf

    held = tf.constant(images)
    data = tf.data.Dataset.range(IMAGES).shuffle(IMAGES, SEED).repeat()
    if operations is None:
        data = data.batch(BATCH).map(lambda rows: tf.gather(held, rows), tf.data.AUTOTUNE)
    else:
        layers = keras_layers() if operations else []
        choices = [partial(one_changed, layer) for layer in layers]

        def change(row: Any) -> Any:
            image = tf.image.pad_to_bounding_box(
                held[row], PADDING, PADDING, SIDE + 2 * PADDING, SIDE + 2 * PADDING
            )
            image = tf.image.random_flip_left_right(tf.image.random_crop(image, (SIDE, SIDE, 3)))
            for _ in range(operations):
                drawn = tf.random.uniform((), 0, len(choices), tf.int32)
                image = tf.switch_case(drawn, [partial(each, image) for each in choices])
            return image

        data = data.map(change, tf.data.AUTOTUNE, deterministic=False).batch(BATCH)
    return lambda steps: data.take(steps).prefetch(tf.data.AUTOTUNE)


def keras_layers() -> list[Any]:
    """Return what Keras' RandAugment draws from, for one of them an image.

    `keras.layers.RandAugment` itself computes all of them for every image: 50 images/s here.
    """
    from keras import layers

    wide = {"value_range": (0, 255), "data_format": "channels_last"}
    half = 0.25
    return [
        layers.AutoContrast(**wide),
        layers.Equalization(**wide),
        layers.Solarization(threshold_factor=half, **wide),
        layers.RandomPosterization(4, **wide),
        layers.RandomBrightness(half, **wide),
        layers.RandomContrast(half, **wide),
        layers.RandomColorDegeneration(half, **wide),
        layers.RandomSharpness(half, **wide),
        layers.RandomShear(half, half, data_format="channels_last"),
        layers.RandomTranslation(half, half, data_format="channels_last"),
        layers.RandomRotation(half / 2, data_format="channels_last"),
    ]


def one_changed(layer: Any, image: Any) -> Any:
    """Return an image as a layer of Keras changes it."""
    import tensorflow as tf

    found = layer(tf.cast(image, tf.float32)[None], training=True)[0]
    return tf.cast(tf.clip_by_value(found, 0, 255), tf.uint8)


class Changed:
    """A Grain transformation by numpy and Pillow, as a user writes it."""

    def __init__(self, images: np.ndarray, operations: int) -> None:
        self.images, self.operations = images, operations
        self.old = history("augmentation") if operations else None

    def __call__(self, row: int, draw: np.random.Generator) -> np.ndarray:
        """Return one image, changed."""
        sides = ((PADDING, PADDING), (PADDING, PADDING), (0, 0))
        top, left = draw.integers(0, 2 * PADDING + 1, 2)
        image = np.pad(self.images[row], sides)[top : top + SIDE, left : left + SIDE]
        image = image[:, ::-1] if draw.random() < 0.5 else image
        if self.old:
            image = self.old.randomly(image[None], int(row), 0, self.operations, 0.5)[0]
        return image


def grain(images: np.ndarray, operations: int | None) -> Callable[[int], Iterable[Any]]:
    """Return a Grain pipeline of so many batches, with as many threads as cores."""
    import grain as library

    data = library.MapDataset.range(IMAGES).shuffle(SEED).repeat()
    if operations is None:
        data = data.map(lambda row: images[row])
    else:
        data = data.seed(SEED).random_map(Changed(images, operations))
    options = library.ReadOptions(num_threads=THREADS, prefetch_buffer_size=2 * BATCH)
    return lambda steps: data[: steps * BATCH].to_iter_dataset(options).batch(BATCH)


def drained(pipeline: Callable[[int], Iterable[Any]]) -> Callable[[int], None]:
    """Return what takes so many batches; nothing of the pipeline goes on after them."""

    def take_some(steps: int) -> None:
        taken = sum(1 for _ in pipeline(steps))
        if taken != steps:
            raise ValueError(f"the pipeline gave {taken} batches, expected {steps}")

    return take_some


def history(name: str) -> ModuleType | None:
    """Return a module of the model side as it was in the old commit; None without its history."""
    done = subprocess.run(
        ["git", "show", f"{OLD}:pipeline/{name}.py"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}_{OLD}.py"
        path.write_text(done.stdout)
        spec: Any = importlib.util.spec_from_file_location(path.stem, path)
        module: ModuleType = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def before(images: np.ndarray, operations: int) -> Callable[[int], None] | None:
    """Return what the old commit did, in the loop's own thread."""
    import jax

    windows, augmentation = history("windows"), history("augmentation")
    if windows is None or augmentation is None:
        return None
    batches = Batches(images, np.zeros(IMAGES, np.int32), batch=BATCH, seed=SEED)

    def make(steps: int) -> None:
        for step in range(steps):
            draw = np.random.default_rng((SEED, 2, step))
            down, right = draw.integers(0, 2 * PADDING + 1, (2, BATCH))
            mirrored = draw.random(BATCH) < 0.5
            found = windows.shifted(images[batches.rows_of(step)], PADDING, down, right)
            found[mirrored] = windows.mirrored(found[mirrored])
            if operations:
                found = augmentation.randomly(found, SEED, step, operations, 0.5)
            jax.block_until_ready(jax.device_put(found))  # type: ignore[no-untyped-call]

    return make


if __name__ == "__main__":
    print(json.dumps(measured()))
    sys.stdout.flush()
