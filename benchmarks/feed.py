"""Compare how fast we gather and augment batches of images with tf.data and Grain.

On an accelerator, the memory allocator keeps freed memory. On a CPU, it returns freed memory to the
operating system, so each batch would have to allocate new pages. This process therefore keeps freed
memory.
"""

import ctypes
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.measure import Table, in_turn, rate, write

SEED, TURNS, CORES = 20261125, 7, 2
SIDE, IMAGES, BATCH, PADDING = 224, 1024, 128, 28


def main() -> None:
    begun = time.perf_counter()
    backend_for_two_devices()
    tables = [gathered()]
    keep_memory()
    tables.append(augmented(24))
    write("feed", "Feeding", tables, begun)


def backend_for_two_devices() -> None:
    """Select one device per core. This must be called before JAX is imported."""
    os.environ.update(
        KERAS_BACKEND="jax",
        JAX_PLATFORMS="cpu",
        TF_CPP_MIN_LOG_LEVEL="2",
        XLA_FLAGS=f"--xla_force_host_platform_device_count={CORES}",
    )


def keep_memory() -> None:
    # M_MMAP_MAX and M_TRIM_THRESHOLD of glibc.
    mallopt = ctypes.CDLL(None).mallopt
    if not (mallopt(-4, 0) and mallopt(-1, 2**31 - 1)):
        raise OSError("mallopt failed, so this process does not keep freed memory")


def photographs() -> np.ndarray:
    draw = np.random.default_rng(SEED)
    return draw.integers(0, 256, (IMAGES, SIDE, SIDE, 3), np.uint8)


def gathered() -> Table:
    from pipeline.data.dataset import Batches
    from pipeline.data.row_gathering import Gatherer

    images = photographs()
    rows = Batches(images, np.zeros(IMAGES, np.int32), batch=BATCH, seed=SEED).rows_of(0)
    buffer, same = np.zeros((BATCH, SIDE, SIDE, 3), np.uint8), images[:BATCH].copy()
    pool, gatherer, half = ThreadPoolExecutor(CORES), Gatherer(images, CORES), BATCH // 2

    def copied(part: int) -> None:
        np.copyto(buffer[part * half :][:half], same[part * half :][:half])

    work: dict[str, Callable[[], object]] = {
        "ours, two threads": lambda: [f.result() for f in gatherer.begin(rows, buffer)],
        "numpy.copyto, two threads": lambda: list(pool.map(copied, (0, 1))),
        "images[rows]": lambda: images[rows],
    }
    variants = {
        name: rate(24 * BATCH, partial(lambda once: [once() for _ in range(24)], once))
        for name, once in work.items()
    }
    variants["tf.data"] = rate(24 * BATCH, drained(tf_data(images, change=False), 24))
    return Table(
        f"Rows gathered, {SIDE}x{SIDE}x3, batch {BATCH}", "images/s", in_turn(variants, TURNS)
    )


def augmented(steps: int) -> Table:
    images = photographs()
    variants = {
        "ours": rate(steps * BATCH, partial(ours_on_devices(images), steps)),
        "tf.data": rate(steps * BATCH, drained(tf_data(images, change=True), steps)),
    }
    if find_spec("grain"):
        variants["Grain"] = rate(steps * BATCH, drained(grain(images), steps))
    title = f"Batches on the devices, crop and flip, {SIDE}x{SIDE}x3, batch {BATCH}"
    return Table(title, "images/s", in_turn(variants, TURNS))


def ours_on_devices(images: np.ndarray) -> Callable[[int], None]:
    """Return a function that gathers rows on the host and augments the images on both devices."""
    import jax

    from pipeline.augment.augmentation import Augmentation
    from pipeline.config import Data
    from pipeline.data.dataset import Batches
    from pipeline.data.row_gathering import Gatherer
    from pipeline.runtime import replicas

    data = Data(height=SIDE, width=SIDE, channels=3, crop_padding=PADDING, flip=True)
    changes = Augmentation(data, SEED, BATCH)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), (replicas.AXIS,))
    split: Any = jax.sharding.PartitionSpec
    split = split(replicas.AXIS)
    program = jax.jit(
        jax.shard_map(
            lambda images, draws: changes.applied(images, draws)[0],
            mesh=mesh,
            in_specs=split,
            out_specs=split,
            check_vma=False,
        )
    )
    batches = Batches(images, np.zeros(IMAGES, np.int32), batch=BATCH, seed=SEED)
    gatherer = Gatherer(images, CORES)
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


def tf_data(images: np.ndarray, *, change: bool) -> Callable[[int], Iterable[Any]]:
    import tensorflow as tf

    held = tf.constant(images)
    data = tf.data.Dataset.range(IMAGES).shuffle(IMAGES, SEED).repeat()
    if not change:
        data = data.batch(BATCH).map(lambda rows: tf.gather(held, rows), tf.data.AUTOTUNE)
        return lambda steps: data.take(steps).prefetch(tf.data.AUTOTUNE)

    def changed(row: Any) -> Any:
        wide = SIDE + 2 * PADDING
        image = tf.image.pad_to_bounding_box(held[row], PADDING, PADDING, wide, wide)
        return tf.image.random_flip_left_right(tf.image.random_crop(image, (SIDE, SIDE, 3)))

    data = data.map(changed, tf.data.AUTOTUNE, deterministic=False).batch(BATCH)
    return lambda steps: data.take(steps).prefetch(tf.data.AUTOTUNE)


def grain(images: np.ndarray) -> Callable[[int], Iterable[Any]]:
    """Return a function that takes a number of batches, and creates a Grain pipeline for them.

    The pipeline uses one thread per core.
    """
    import grain as library

    def changed(row: int, draw: np.random.Generator) -> np.ndarray:
        sides = ((PADDING, PADDING), (PADDING, PADDING), (0, 0))
        top, left = draw.integers(0, 2 * PADDING + 1, 2)
        image = np.pad(images[row], sides)[top : top + SIDE, left : left + SIDE]
        return image[:, ::-1] if draw.random() < 0.5 else image

    data = library.MapDataset.range(IMAGES).shuffle(SEED).repeat().seed(SEED).random_map(changed)
    options = library.ReadOptions(num_threads=CORES, prefetch_buffer_size=2 * BATCH)
    return lambda steps: data[: steps * BATCH].to_iter_dataset(options).batch(BATCH)


def drained(pipeline: Callable[[int], Iterable[Any]], steps: int) -> Callable[[], None]:
    def take_all() -> None:
        taken = sum(1 for _ in pipeline(steps))
        if taken != steps:
            raise ValueError(f"The pipeline produced {taken} batches, but {steps} were expected.")

    return take_all


if __name__ == "__main__":
    main()
