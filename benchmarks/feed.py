"""Batches of images: gathered, shifted and mirrored, beside tf.data, Grain and Keras' generator.

An accelerator's allocator keeps memory that is freed. A CPU's gives it back, and each batch would
then pay for new pages. So this process keeps its memory, for all variants alike.
"""

import ctypes
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.measure import Table, in_turn, rate, write

SEED, TURNS, CORES = 20261125, 7, 2
SMALL, SMALL_BATCH, STEPS, SHIFT = 32, 1024, 24, 4
SIDE, IMAGES, BATCH, PADDING = 224, 1024, 128, 28


def main() -> None:
    """Measure, and write the section."""
    begun = time.perf_counter()
    backend_for_two_devices()
    tables = [*small_images(), gathered()]
    keep_memory()
    tables += [augmented(0, 24), augmented(2, 3)]
    write("feed", "Feeding", tables, begun)


def backend_for_two_devices() -> None:
    """Choose JAX with a device per core, before anything imports it."""
    import os

    os.environ.update(
        KERAS_BACKEND="jax",
        JAX_PLATFORMS="cpu",
        TF_CPP_MIN_LOG_LEVEL="2",
        XLA_FLAGS=f"--xla_force_host_platform_device_count={CORES}",
    )


def keep_memory() -> None:
    """Let this process keep memory that is freed: glibc's M_MMAP_MAX and M_TRIM_THRESHOLD."""
    mallopt = ctypes.CDLL(None).mallopt
    if not (mallopt(-4, 0) and mallopt(-1, 2**31 - 1)):
        raise OSError("mallopt refused to keep memory")


def small_images() -> list[Table]:
    """Return the loaders of small images alone, and under Keras' fit."""
    import jax
    import keras
    from keras.src.legacy.preprocessing.image import ImageDataGenerator  # its name in Keras 3

    from pipeline.augmentation import crop_and_flip
    from pipeline.data.dataset import Batches

    draw = np.random.default_rng(SEED)
    pixels = draw.integers(0, 256, (STEPS * SMALL_BATCH, SMALL, SMALL, 3), np.uint8)
    labels = (np.arange(len(pixels)) % 10).astype(np.int32)
    batches = Batches(pixels, labels, batch=SMALL_BATCH, seed=SEED)
    changed = jax.jit(partial(crop_and_flip.applied, padding=SHIFT))

    def ours(step: int) -> tuple[np.ndarray, np.ndarray]:
        images, own = batches.at(step)
        draws = crop_and_flip.draws(SEED, step, SMALL_BATCH, SHIFT, flip=True)
        return np.asarray(changed(images, draws)), own

    flow = ImageDataGenerator(
        width_shift_range=SHIFT,
        height_shift_range=SHIFT,
        horizontal_flip=True,
        fill_mode="constant",
        cval=0.0,
    ).flow(pixels.astype(np.float32), labels, batch_size=SMALL_BATCH, seed=SEED)
    ready = [ours(step) for step in range(STEPS)]

    class Fed(keras.utils.PyDataset):  # type: ignore[misc]
        """Batches as fit takes them."""

        def __init__(self, take: Callable[[int], Any]) -> None:
            super().__init__()
            self.take = take

        def __len__(self) -> int:
            return STEPS

        def __getitem__(self, index: int) -> Any:
            return self.take(index)

    variants = {"ours": ours, "ImageDataGenerator.flow": flow.__getitem__}
    alone = {
        name: rate(len(pixels), partial(lambda take: [take(s) for s in range(STEPS)], take))
        for name, take in variants.items()
    }
    fits = {
        name: rate(
            len(pixels), partial(small_model().fit, Fed(take), epochs=1, verbose=0, shuffle=False)
        )
        for name, take in {**variants, "batches that lie ready": ready.__getitem__}.items()
    }
    where = f"{SMALL}x{SMALL}x3, batch {SMALL_BATCH:,}, shift by {SHIFT} and flip"
    return [
        Table(f"Loader alone, {where}", "images/s", in_turn(alone, TURNS)),
        Table(f"Under `fit` of 40 parameters, {where}", "images/s", in_turn(fits, TURNS)),
    ]


def small_model() -> Any:
    """Return a network so small that the feed is what takes the time."""
    import keras

    inputs = keras.Input((SMALL, SMALL, 3))
    x = keras.layers.Rescaling(1 / 255)(keras.layers.GlobalAveragePooling2D()(inputs))
    built = keras.Model(inputs, keras.layers.Dense(10)(x))
    built.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return built


def photographs() -> np.ndarray:
    """Return images of noise, uint8 (IMAGES, SIDE, SIDE, 3)."""
    draw = np.random.default_rng(SEED)
    return draw.integers(0, 256, (IMAGES, SIDE, SIDE, 3), np.uint8)


def gathered() -> Table:
    """Return how fast rows are gathered into a batch, beside a plain copy of as many bytes."""
    from pipeline.data.dataset import Batches
    from pipeline.data.row_gathering import Gatherer, take

    images = photographs()
    rows = Batches(images, np.zeros(IMAGES, np.int32), batch=BATCH, seed=SEED).rows_of(0)
    buffer, same = np.zeros((BATCH, SIDE, SIDE, 3), np.uint8), images[:BATCH].copy()
    pool, gatherer, half = ThreadPoolExecutor(CORES), Gatherer(images, CORES), BATCH // 2

    def copied(part: int) -> None:
        np.copyto(buffer[part * half :][:half], same[part * half :][:half])

    work: dict[str, Callable[[], object]] = {
        "ours, two threads": lambda: [f.result() for f in gatherer.begin(rows, buffer)],
        "ours, one thread": lambda: take(images, rows, buffer),
        "numpy.copyto, two threads": lambda: list(pool.map(copied, (0, 1))),
        "numpy.copyto, one thread": lambda: np.copyto(buffer, same),
        "images[rows]": lambda: images[rows],
    }
    variants = {
        name: rate(24 * BATCH, partial(lambda once: [once() for _ in range(24)], once))
        for name, once in work.items()
    }
    variants["tf.data"] = rate(24 * BATCH, drained(tf_data(images, None), 24))
    if find_spec("grain"):
        variants["Grain"] = rate(24 * BATCH, drained(grain(images, change=False), 24))
    return Table(
        f"Rows gathered, {SIDE}x{SIDE}x3, batch {BATCH}", "images/s", in_turn(variants, TURNS)
    )


def augmented(operations: int, steps: int) -> Table:
    """Return how fast batches are gathered, changed, and on the devices."""
    images = photographs()
    variants = {
        "ours": rate(steps * BATCH, partial(ours_on_devices(images, operations), steps)),
        "tf.data": rate(steps * BATCH, drained(tf_data(images, operations), steps)),
    }
    if find_spec("grain") and not operations:
        variants["Grain"] = rate(steps * BATCH, drained(grain(images, change=True), steps))
    what = "crop and flip" + f", RandAugment of {operations}" * bool(operations)
    note = "tf.data draws one of Keras' layers per image; `keras.layers.RandAugment` computes all."
    return Table(
        f"Batches on the devices, {what}, {SIDE}x{SIDE}x3, batch {BATCH}",
        "images/s",
        in_turn(variants, TURNS),
        note if operations else "",
    )


def ours_on_devices(images: np.ndarray, operations: int) -> Callable[[int], None]:
    """Return our way: the host gathers with both cores, both devices change the images."""
    import jax

    from pipeline.augmentation.augmentation import Augmentation
    from pipeline.config import Data
    from pipeline.data.dataset import Batches
    from pipeline.data.row_gathering import Gatherer
    from pipeline.runtime import replicas

    data = Data(
        height=SIDE,
        width=SIDE,
        channels=3,
        crop_padding=PADDING,
        flip=True,
        rand_augment=operations,
        rand_magnitude=0.5,
    )
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


def tf_data(images: np.ndarray, operations: int | None) -> Callable[[int], Iterable[Any]]:
    """Return a tf.data pipeline of so many batches; operations None: they are not changed."""
    import tensorflow as tf

    held = tf.constant(images)
    data = tf.data.Dataset.range(IMAGES).shuffle(IMAGES, SEED).repeat()
    if operations is None:
        data = data.batch(BATCH).map(lambda rows: tf.gather(held, rows), tf.data.AUTOTUNE)
        return lambda steps: data.take(steps).prefetch(tf.data.AUTOTUNE)
    choices = [partial(one_changed, layer) for layer in (keras_layers() if operations else [])]

    def change(row: Any) -> Any:
        wide = SIDE + 2 * PADDING
        image = tf.image.pad_to_bounding_box(held[row], PADDING, PADDING, wide, wide)
        image = tf.image.random_flip_left_right(tf.image.random_crop(image, (SIDE, SIDE, 3)))
        for _ in range(operations):
            drawn = tf.random.uniform((), 0, len(choices), tf.int32)
            image = tf.switch_case(drawn, [partial(each, image) for each in choices])
        return image

    data = data.map(change, tf.data.AUTOTUNE, deterministic=False).batch(BATCH)
    return lambda steps: data.take(steps).prefetch(tf.data.AUTOTUNE)


def keras_layers() -> list[Any]:
    """Return what Keras' RandAugment draws from."""
    from keras import layers

    values = {"value_range": (0, 255), "data_format": "channels_last"}
    return [
        layers.AutoContrast(**values),
        layers.Equalization(**values),
        layers.Solarization(threshold_factor=0.25, **values),
        layers.RandomPosterization(4, **values),
        layers.RandomBrightness(0.25, **values),
        layers.RandomContrast(0.25, **values),
        layers.RandomColorDegeneration(0.25, **values),
        layers.RandomSharpness(0.25, **values),
        layers.RandomShear(0.25, 0.25, data_format="channels_last"),
        layers.RandomTranslation(0.25, 0.25, data_format="channels_last"),
        layers.RandomRotation(0.125, data_format="channels_last"),
    ]


def one_changed(layer: Any, image: Any) -> Any:
    """Return an image as a layer of Keras changes it."""
    import tensorflow as tf

    found = layer(tf.cast(image, tf.float32)[None], training=True)[0]
    return tf.cast(tf.clip_by_value(found, 0, 255), tf.uint8)


def grain(images: np.ndarray, *, change: bool) -> Callable[[int], Iterable[Any]]:
    """Return a Grain pipeline of so many batches, with a thread per core."""
    import grain as library

    def changed(row: int, draw: np.random.Generator) -> np.ndarray:
        sides = ((PADDING, PADDING), (PADDING, PADDING), (0, 0))
        top, left = draw.integers(0, 2 * PADDING + 1, 2)
        image = np.pad(images[row], sides)[top : top + SIDE, left : left + SIDE]
        return image[:, ::-1] if draw.random() < 0.5 else image

    data = library.MapDataset.range(IMAGES).shuffle(SEED).repeat()
    data = data.seed(SEED).random_map(changed) if change else data.map(lambda row: images[row])
    options = library.ReadOptions(num_threads=CORES, prefetch_buffer_size=2 * BATCH)
    return lambda steps: data[: steps * BATCH].to_iter_dataset(options).batch(BATCH)


def drained(pipeline: Callable[[int], Iterable[Any]], steps: int) -> Callable[[], None]:
    """Return what takes so many batches; nothing of the pipeline goes on after them."""

    def take_all() -> None:
        taken = sum(1 for _ in pipeline(steps))
        if taken != steps:
            raise ValueError(f"the pipeline gave {taken} batches, expected {steps}")

    return take_all


if __name__ == "__main__":
    main()
