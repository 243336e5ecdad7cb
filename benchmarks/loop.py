"""Benchmark the overhead of our training loop against a bare loop and Keras' `fit`.

The bare loop calls a compiled step on a batch that is already on the device. Our loop also creates
batches, counts steps, writes a log and checks whether to save a checkpoint. `fit` creates the same
batches in its own thread.
"""

import gc
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure import Table, in_turn, write

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.data.dataset import Examples
    from pipeline.train.loop import Loop

SEED, IMAGES = 20261125, 60_000
ORIGIN = {
    "config": {"name": "pace"},
    **dict.fromkeys(("data", "precision", "devices", "code"), ""),
}
MLP: dict[str, Any] = {"model": "mlp", "model_options": {"width": 256, "depth": 2, "dropout": 0.2}}
SMALL = {"batch": 32, "batchnorm_batch": 32}
CNN: dict[str, Any] = {"model_options": {"width": 44, "dropout": 0.3}, **SMALL}
# Changes to the config, steps per turn, and number of turns. If a step takes 1 ms, our loop runs 16
# steps per call.
SIZES: dict[str, tuple[dict[str, Any], int, int]] = {
    "A step of about 1 ms (MLP, batch 64)": (MLP, 960, 15),
    "A step of about 20 ms (CNN, batch 32)": (CNN, 100, 15),
}


def main() -> None:
    begun = time.perf_counter()
    os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="2")
    found = images(IMAGES)
    gc.freeze()  # for all variants, because a training run does the same
    with tempfile.TemporaryDirectory() as folder:
        tables = []
        for name, (change, steps, turns) in SIZES.items():
            loops = variants(found, Path(folder) / name, change, steps)
            tables.append(Table(f"{name}, per step", "ms", in_turn(loops, turns)))
    write("loop", "The training loop", tables, begun)


def images(number: int) -> "Examples":
    from pipeline.data.dataset import Examples
    from pipeline.data.labels import Target

    draw = np.random.default_rng(SEED)
    labels = (np.arange(number) % 10).astype(np.int32)
    pixels = draw.integers(0, 256, (number, 16, 16, 1), np.uint8)
    ids = tuple(map(str, range(number)))
    return Examples(ids, pixels, labels, Target("classes", tuple("0123456789")))


def settings(width: int, batch: int, **change: Any) -> "Config":
    from pipeline import config as configs

    digits = configs.load("digits")
    base = replace(
        digits,
        name="pace",
        batch=batch,
        batchnorm_batch=None,
        data=replace(digits.data, height=16, width=16, crop_padding=1, flip=True),
        optimizer=replace(digits.optimizer, base_batch=batch),
        model_options={"width": width, "dropout": 0.3},
        epochs=1000,
        warmup_epochs=1,
        checkpoint_seconds=3600.0,
        progress_seconds=1.0,
    )
    return replace(base, **change)


def made(config: "Config", found: "Examples", output: Path) -> "Loop":
    """Return a training loop over all images except the last 100, which are held out."""
    import keras

    from pipeline.data.dataset import Batches
    from pipeline.models import architectures
    from pipeline.train import learning_rate
    from pipeline.train.loop import Loop

    output.mkdir(parents=True)
    rows = np.arange(len(found) - 100)
    batches = Batches(found.inputs, found.labels, rows=rows, batch=config.batch, seed=0)
    keras.utils.set_random_seed(0)
    held = np.arange(len(rows), len(found))
    applied = learning_rate.apply(config, len(rows))
    model = architectures.build(config, applied.batchnorm_momentum)
    return Loop(config, applied, model, batches, held, output, lambda line: None)


def variants(
    found: "Examples", folder: Path, change: dict[str, Any], steps: int
) -> dict[str, Callable[[], float]]:
    """Return functions that run a loop for `steps` steps and return its milliseconds per step."""
    import jax

    from pipeline.train import feed as feeding
    from pipeline.train.session import Session

    config = replace(settings(32, 64), **change)
    run = made(config, found, folder / "ours")
    single = made(config, found, folder / "bare")
    single.compiled.steps_per_call = 1
    fed = feeding.begin(config, single.batches, single.compiled, lambda line: None)
    batch, _ = next(fed.calls(iter([(0, 1)])))

    def ours() -> float:
        run.seconds.clear()
        with Session(None, run.output) as session:
            most = run.step + steps + run.compiled.steps_per_call  # the first step may compile
            run.run(ORIGIN, session, max_steps=most)
        return run.seconds["train"] / steps * 1e3

    def bare() -> float:
        state = jax.tree.map(lambda leaf: leaf + 0, single.state)
        jax.block_until_ready(state)  # type: ignore[no-untyped-call]
        begun = time.perf_counter()
        for _ in range(steps):
            state, _report = single.compiled.train(state, (), batch, 1)
        jax.block_until_ready(state)  # type: ignore[no-untyped-call]
        return (time.perf_counter() - begun) / steps * 1e3

    return {"ours": ours, "a bare loop": bare, "Keras' fit": fit(config, run, steps)}


def fit(config: "Config", run: "Loop", steps: int) -> Callable[[], float]:
    import keras

    from pipeline.models import architectures
    from pipeline.train.optimizer import optimizer

    class Feed(keras.utils.PyDataset):  # type: ignore[misc]
        """The same batches as in our loop."""

        def __len__(self) -> int:
            return steps

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            return run.batches.at(index)

    built = architectures.build(config, run.applied.batchnorm_momentum)
    built.compile(
        optimizer(run.config, run.applied, built.trainable_variables),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    feed = Feed(workers=1, use_multiprocessing=False, max_queue_size=4)

    def timed() -> float:
        begun = time.perf_counter()
        built.fit(feed, epochs=1, verbose=0, shuffle=False)
        return (time.perf_counter() - begun) / steps * 1e3

    return timed


if __name__ == "__main__":
    main()
