"""How fast batches of small images come, beside `ImageDataGenerator.flow`, alone and under `fit`.

Both arms use the same augmentation and take turns in one process. Each image has its number as its
label, so that the images of every epoch that is timed are counted. `python -m
proofs.competitions.feeding_speed` prints one JSON object.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.augmentation import crop_and_flip
from pipeline.data.dataset import Batches
from proofs.shared import module_process
from proofs.shared.results_table import Row, Show, last_json

SEED, ROUNDS = 20261121, 5
BATCH, STEPS, SIDE, SHIFT, CLASSES = 1024, 24, 32, 4, 10
LOADER, FIT = 13, 10
# (images, batch): an epoch that batches divide, and some that they do not.
EPOCHS = ((24_576, 1024), (50_000, 1024), (1_076, 128), (97, 8), (5, 16))
TURNS = 3


def rows(root: Path, folder: Path, *, short: bool, show: Show) -> Iterator[Row]:
    """Yield the rows; `short` counts images, and times nothing."""
    yield counted_row(counted(EPOCHS[2:] if short else EPOCHS))
    if short:
        return
    show("      batches of ours and of ImageDataGenerator.flow, alone and under fit")
    yield from judged(last_json(module_process.output(root, "proofs.competitions.feeding_speed")))


def counted_row(found: dict[str, int]) -> Row:
    """Return the row of images that were counted."""
    return Row(
        "Images in an epoch of our batches, whatever the batch, each told by its own pixels",
        f"each exactly once in each of {found['epochs']} epochs; its label with it",
        f"{found['images']:,} images counted in {found['epochs']} epochs; "
        f"{found['wrong']} not once, {found['strayed']} with another's label",
        not found["wrong"] and not found["strayed"] and found["epochs"] > 0,
        SEED,
    )


def judged(found: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows that the measurement gives."""
    rates = found["images_per_second"]
    each = f"{found['images']:,} images an epoch, each once in both arms"
    where = f"{SIDE}x{SIDE}x3, batch {BATCH}, shift by {SHIFT} and flip, medians of {ROUNDS}, "
    where += f"{found['cores']} cores"
    loader, fit = rates["ours"] / rates["theirs"], rates["fit_ours"] / rates["fit_theirs"]
    yield Row(
        f"Loader alone: our batches beside `ImageDataGenerator.flow` ({where})",
        f"≥ {LOADER}x; every image exactly once an epoch",
        f"{loader:.1f}x (ours {rates['ours']:,}/s, flow {rates['theirs']:,}/s); {each}",
        loader >= LOADER and not found["wrong"],
        SEED,
    )
    binds = {
        name: "the feed" if rates[name] < rates["fit_ready"] else "fit itself"
        for name in ("ours", "theirs")
    }
    yield Row(
        "An epoch of Keras' `fit` on our batches beside one on `ImageDataGenerator.flow` "
        f"({where}); "
        f"the model has {found['parameters']} parameters, so that little but the feed takes time",
        f"≥ {FIT}x; fit on batches that lie ready faster than either; every image exactly once an "
        "epoch",
        f"{fit:.1f}x (ours {rates['fit_ours']:,}/s, where {binds['ours']} takes most; "
        f"flow {rates['fit_theirs']:,}/s, where {binds['theirs']} does; "
        f"on batches that lie ready {rates['fit_ready']:,}/s); {each}",
        fit >= FIT
        and not found["wrong"]
        and rates["fit_ready"] > max(rates["fit_ours"], rates["fit_theirs"]),
        SEED,
    )


def measured() -> dict[str, Any]:
    """Return the median images/s of each arm, and how many images did not come exactly once in an
    epoch that was timed.
    """
    import jax
    import keras
    from keras.src.legacy.preprocessing.image import ImageDataGenerator  # its name in Keras 3

    draw = np.random.default_rng(SEED)
    pixels = draw.integers(0, 256, (STEPS * BATCH, SIDE, SIDE, 3), np.uint8)
    numbers = np.arange(len(pixels), dtype=np.int32)
    batches = Batches(pixels, numbers, batch=BATCH, seed=SEED)
    changed = jax.jit(partial(crop_and_flip.applied, padding=SHIFT))

    def made(step: int) -> tuple[np.ndarray, np.ndarray]:
        images, own = batches.at(step)
        draws = crop_and_flip.draws(SEED, step, BATCH, SHIFT, flip=True)
        return np.asarray(changed(images, draws)), own

    flow = ImageDataGenerator(
        width_shift_range=SHIFT,
        height_shift_range=SHIFT,
        horizontal_flip=True,
        fill_mode="constant",
        cval=0.0,
    ).flow(pixels.astype(np.float32), numbers, batch_size=BATCH, seed=SEED)
    ready = [made(step) for step in range(STEPS)]
    ends: list[int] = []  # of the epochs of ours

    class Fed(keras.utils.PyDataset):  # type: ignore[misc]
        """Batches as `fit` takes them; it keeps the numbers of the images, and gives classes."""

        def __init__(self, take: Callable[[int], Any], renew: Callable[[], object]) -> None:
            super().__init__()
            self.take, self.renew = take, renew
            self.seen: list[np.ndarray] = []

        def __len__(self) -> int:
            return STEPS

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            images, own = self.take(index)
            self.seen.append(own)
            return images, own % CLASSES

        def on_epoch_end(self) -> None:
            self.renew()

    arms = {
        "ours": Fed(lambda index: made(len(ends) * STEPS + index), lambda: ends.append(1)),
        "theirs": Fed(lambda index: flow[index], flow.on_epoch_end),
        "ready": Fed(lambda index: ready[index], lambda: None),
    }
    models = {name: _model() for name in arms}

    def alone(name: str) -> None:
        for step in range(STEPS):
            arms[name][step]
        arms[name].on_epoch_end()

    def fitted(name: str) -> None:
        models[name].fit(arms[name], epochs=1, verbose=0, shuffle=False)

    taken: dict[str, list[float]] = {}
    wrong = 0
    for turn in range(ROUNDS + 1):
        for prefix, work in (("", alone), ("fit_", fitted)):
            for name, fed in arms.items():
                fed.seen.clear()
                begun = time.perf_counter()
                work(name)
                if turn:  # in the first one programs are compiled
                    taken.setdefault(prefix + name, []).append(time.perf_counter() - begun)
                # Before its first epoch fit looks at one batch more.
                epoch = np.concatenate(fed.seen[-STEPS:])
                wrong += int((np.bincount(epoch, minlength=len(pixels)) != 1).sum())
                wrong += abs(len(fed.seen) - STEPS) if turn else 0
    return {
        "images_per_second": {
            name: round(len(pixels) / statistics.median(each)) for name, each in taken.items()
        },
        "images": len(pixels),
        "wrong": wrong,
        "parameters": models["ours"].count_params(),
        "cores": len(os.sched_getaffinity(0)),
    }


def _model() -> Any:
    """Return a network so small that the feed is what takes the time."""
    import keras

    inputs = keras.Input((SIDE, SIDE, 3))
    x = keras.layers.Rescaling(1 / 255)(keras.layers.GlobalAveragePooling2D()(inputs))
    built = keras.Model(inputs, keras.layers.Dense(CLASSES)(x))
    built.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return built


def counted(sizes: tuple[tuple[int, int], ...] = EPOCHS) -> dict[str, int]:
    """Return how many images and epochs were counted, how many images did not come exactly once,
    and how many came with another's label.
    """
    wrong = epochs = images = strayed = 0
    for number, batch in sizes:
        # Each image holds its number.
        own = np.arange(number, dtype="<u4").view(np.uint8).reshape(number, 1, 4, 1)
        batches = Batches(own, np.arange(number), batch=batch, seed=SEED)
        steps = [batches.at(step) for step in range(-(-TURNS * number // batch))]
        seen = np.concatenate([part.reshape(-1, 4).view("<u4")[:, 0] for part, _ in steps])
        labels = np.concatenate([label for _, label in steps])
        strayed += int((seen != labels).sum())
        for epoch in seen[: TURNS * number].reshape(TURNS, number):
            epochs, images = epochs + 1, images + len(epoch)
            wrong += int((np.bincount(epoch, minlength=number) != 1).sum())
    return {"epochs": epochs, "images": images, "wrong": wrong, "strayed": strayed}


if __name__ == "__main__":
    print(json.dumps(measured()))
