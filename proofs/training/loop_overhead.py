"""What the loop adds to its steps, what a checkpoint costs, and how soon a second session trains.

`python -m proofs.training.loop_overhead loop|saves|start|phases FOLDER` prints one JSON object.
With XLA_FLAGS set to `ONE_THREAD` one core computes, as an accelerator would, and the other is the
host's.
"""

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import keras
import numpy as np

from pipeline import config as configs
from pipeline.config import Config
from pipeline.data import dataset
from pipeline.data.labels import Target
from pipeline.session.time_limit import Session
from pipeline.training import learning_rate, training
from pipeline.training.loop import Loop

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
SEED = 20261121
ORIGIN = {"config": {}, "data": "", "precision": "", "devices": ""}
IMAGES = 60_000
# Changes of `settings`, steps a chunk, chunks: about 1 ms and 20 ms a step on 2 cores. Where a step
# takes 1 ms, our loop makes several with one call; the bare loop and fit make one call a step. The
# speed of a virtual machine varies by a tenth from second to second, so the arms take turns often.
MLP: dict[str, Any] = {"model": "mlp", "model_options": {"width": 256, "depth": 2, "dropout": 0.2}}
SIZES: dict[str, tuple[dict[str, Any], int, int]] = {
    "1 ms": ({**MLP, "steps_per_call": 16}, 320, 40),
    "20 ms": (
        {"model_options": {"width": 44, "dropout": 0.3}, "batch": 32, "batchnorm_batch": 32},
        25,
        120,
    ),
}
PHASES = ("jit__several", "jit__evaluated", "jit_predict_step")


def images(number: int) -> dataset.Examples:
    """Return that many images of noise, with labels."""
    draw = np.random.default_rng(SEED)
    labels = (np.arange(number) % 10).astype(np.int32)
    pixels = draw.integers(0, 256, (number, 16, 16, 1), np.uint8)
    return dataset.Examples(
        tuple(map(str, range(number))), pixels, labels, Target("classes", tuple("0123456789"))
    )


def settings(width: int, batch: int, **change: Any) -> Config:
    """Return a config of a convolutional network of that width."""
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


def made(config: Config, found: dataset.Examples, output: Path) -> Loop:
    """Return a loop over all the images but the last hundred."""
    output.mkdir(parents=True)
    rows = np.arange(len(found) - 100)
    batches = dataset.Batches(found.inputs, found.labels, rows=rows, batch=config.batch, seed=0)
    keras.utils.set_random_seed(0)
    held = np.arange(len(rows), len(found))
    applied = learning_rate.apply(config, len(rows))
    return Loop(config, applied, batches, held, output, lambda line: None, {})


def loop(folder: Path) -> dict[str, Any]:
    """Return, for each size, the ms a step of a bare jitted loop, of ours and of Keras' fit."""
    found, results = images(IMAGES), {}
    gc.freeze()  # as `training` does, for all arms
    for name, (change, steps, chunks) in SIZES.items():
        config = replace(settings(32, 64), **change)
        run = made(config, found, folder / name)
        single = made(replace(config, steps_per_call=1), found, folder / f"{name}, single")
        given = single._feed()._call(0, 1, single.batches.at(0)[0][None])
        fit = _fit(config, run)
        taken: dict[str, list[float]] = {"bare": [], "ours": [], "fit": []}

        def bare(count: int, run: Loop = single, given: Any = given) -> float:
            tree = jax.tree.map(lambda leaf: leaf + 0, run.state.tree)
            jax.block_until_ready(tree)  # type: ignore[no-untyped-call]
            begun = time.perf_counter()
            for _ in range(count):
                tree, _totals = run.compiled.train(tree, (), given, 1)
            jax.block_until_ready(tree)  # type: ignore[no-untyped-call]
            return (time.perf_counter() - begun) / count * 1e3

        def ours(count: int, run: Loop = run) -> float:
            # Its first step, which may compile, is not in "train".
            run.seconds.clear()
            with Session(None, 1800, run.output) as session:
                run.go(
                    ORIGIN,
                    session,
                    max_steps=run.step + count + run.config.steps_per_call,
                    fresh=False,
                )
            return run.seconds["train"] / count * 1e3

        arms = (("bare", bare), ("ours", ours), ("fit", fit))
        for _, arm in reversed(arms):
            arm(5)  # each has compiled
        for turn in range(chunks):
            first = turn % len(arms)  # so that no arm always runs after the same one
            for arm_name, arm in arms[first:] + arms[:first]:
                taken[arm_name].append(arm(steps))
        medians = {arm: statistics.median(values) for arm, values in taken.items()}
        ratios = {
            arm: statistics.median(a / b for a, b in zip(taken[arm], taken["bare"], strict=True))
            for arm in ("ours", "fit")
        }
        results[name] = {"milliseconds": medians, "ratios": ratios}
    return results


def _fit(config: Config, run: Loop) -> Callable[[int], float]:
    """Return Keras' own `fit` of the same model, optimizer and batches."""

    class Feed(keras.utils.PyDataset):  # type: ignore[misc]
        steps = 1

        def __len__(self) -> int:
            return self.steps

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            return run.batches.at(index)

    from pipeline.models import architectures

    built = architectures.build(config, run.applied.batchnorm_momentum)
    built.compile(
        learning_rate.optimizer(run.applied, built.trainable_variables),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    feed = Feed(workers=1, use_multiprocessing=False, max_queue_size=4)

    def fit(count: int) -> float:
        feed.steps = count
        begun = time.perf_counter()
        built.fit(feed, epochs=1, verbose=0, shuffle=False)
        return (time.perf_counter() - begun) / count * 1e3

    return fit


def saves(folder: Path) -> dict[str, Any]:
    """Return what the checkpoints of a run with a large state cost, and how many programs it
    compiled after its first steps.
    """
    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    found = images(6_000)
    # A large state for its steps: 2.4 million parameters, three copies of them in all.
    config = settings(128, 16, checkpoint_seconds=None, epochs=2)
    run = made(config, found, folder / "saves")
    with Session(None, 1800, run.output) as session:
        run.go(ORIGIN, session, max_steps=2, fresh=False)
        before = len(compiled)
        begun = time.monotonic()
        run.seconds.clear()
        run.go(ORIGIN, session, max_steps=None, fresh=False)
    wall = time.monotonic() - begun
    written = sorted(path.name for path in (run.output / "checkpoints").iterdir())
    return {
        "wall": wall,
        "seconds": run.seconds,
        "compiled_later": len(compiled) - before,
        "written": written,
    }


def start(folder: Path) -> dict[str, Any]:
    """Return the seconds from a read competition to the end of the first step, in this process."""
    found = images(600)
    config = settings(32, 64, epochs=40)
    begun = time.monotonic()
    run = training.train(
        config, folder, folder, examples=found, max_steps=1, fresh=True, show=lambda line: None
    )
    # What it saves at its end comes after the step.
    return {"seconds": time.monotonic() - begun - run.seconds["checkpoints"]}


def phases(folder: Path) -> dict[str, Any]:
    """Return the programs in the cache of a whole run that take a batch of images."""
    config = settings(4, 32, epochs=2)
    training.train(config, folder, folder, examples=images(600), show=lambda line: None)
    names = sorted(
        path.name.split("-")[0]
        for path in (folder / "compiled").iterdir()
        if path.name.endswith("-cache")
    )
    return {
        "programs": {name: names.count(name) for name in names if name in PHASES},
        "all": len(names),
    }


if __name__ == "__main__":
    part = {"loop": loop, "saves": saves, "start": start, "phases": phases}[sys.argv[1]]
    print(json.dumps(part(Path(sys.argv[2]))))
