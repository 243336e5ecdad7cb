"""Our way: the steps, the feed and the learning rate of a training of this project.

Nothing is saved. An epoch ends with the step that reaches the last of its images, as in a training;
every batch is whole, so the next epoch begins with the next one's images.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pipeline.config import Config
from pipeline.config.data_layout import AUGMENTATIONS, Data
from pipeline.data import image_arrays, image_files
from pipeline.data.dataset import Batches
from pipeline.data.row_gathering import padded
from pipeline.models import architectures
from pipeline.runtime import replicas
from pipeline.train import feed as feeding
from pipeline.train import learning_rate
from pipeline.train.loop import EVALUATIONS, CallQueue
from pipeline.train.state import TrainState
from pipeline.train.step import TrainStep
from workbench.benchmark import compilations
from workbench.benchmark.cells import PATTERNS, UNSCALED, Cell
from workbench.benchmark.epochs import Epoch, Times
from workbench.benchmark.images import Images


def train(
    cell: Cell,
    images: Images,
    files: Path | None,
    config: Config,
    epochs: int,
) -> Times:
    """Train so, and return what each epoch took.

    Args:
        cell: with the batch; of the way `UNSCALED` it has the rate and BatchNorm of the base batch.
        images, files: as `workbench.benchmark.fit_way.train` takes them.
        config: whose network, optimizer and precision are taken; its augmentation is crop and flip
            if the pattern has any.
    """
    begun = time.monotonic()
    pattern = PATTERNS[cell.pattern]
    config = of_cell(config, cell, epochs)
    with compilations.counted() as found:
        inputs, labels = images.train, images.train_labels
        if pattern.files:
            assert files is not None  # noqa: S101 - whoever calls has written them
            inputs, labels = decoded(files / "train", config.data)
        batches = Batches(inputs, labels, batch=config.batch, seed=config.seed)
        applied = learning_rate.apply(config, len(batches))
        architectures.seed(config.seed)
        model = architectures.build(config, applied.batchnorm_momentum)
        step = TrainStep(config, applied, model, replicas.mesh())
        state = step.layout.initial()
        ends = [-(-len(batches) * number // config.batch) for number in range(1, epochs + 1)]
        done, seen, kept = 0, 0, list[Epoch]()
        calls = CallQueue(step.replicas)
        with feeding.begin(config, batches, step, _quiet) as feed:
            before, began = time.monotonic() - begun, time.monotonic()
            for given, number in feed.calls(_spans(ends, step.steps_per_call)):
                calls.begin()
                state, report = step.train(state, feed.held, given, number)
                done += number
                calls.add(done, report)
                sent = sum(array.nbytes for array in jax.tree.leaves(given))
                for ended, _ in calls.ended(sent):
                    feed.ended(ended)
                if done < ends[len(kept)]:
                    continue
                right, trained = float(report.totals.metric), float(report.totals.count)
                accuracy = _validate(step, state, images) if pattern.validation else None
                feed.ended(done)
                now, compiled = time.monotonic(), found.programs[seen:]
                seen += len(compiled)
                kept.append(
                    Epoch(
                        seconds=now - began,
                        images=int(trained),
                        validated=len(images.test) if pattern.validation else 0,
                        accuracy=right / trained,
                        validation_accuracy=accuracy,
                        compiling=sum(seconds for _, seconds in compiled),
                        compiled=compilations.steps(compiled),
                    )
                )
                state = state._replace(totals=step.layout.zeros())
                calls.restart()
                began = time.monotonic()
    return Times(before, tuple(kept))


def of_cell(config: Config, cell: Cell, epochs: int) -> Config:
    """Return the config that a cell trains.

    Unscaled, its base batch is the cell's, so that rate and BatchNorm stay as they are.
    """
    pattern, data, optimizer = PATTERNS[cell.pattern], config.data, config.optimizer
    side = max(data.height, data.width)
    plain: dict[str, Any] = {
        one.name: one.default for one in fields(Data) if one.name in AUGMENTATIONS
    }
    moved = {"crop_padding": side // 8, "flip": True} if pattern.augmentation else {}
    base = cell.batch if cell.way == UNSCALED else optimizer.base_batch
    return replace(
        config,
        batch=cell.batch,
        epochs=epochs,
        warmup_epochs=min(config.warmup_epochs, epochs / 4),
        micro_batch=None,
        batchnorm_batch=None,
        folds=None,
        views=1,
        feed="auto",
        data=replace(data, **{**plain, **moved}),
        optimizer=replace(optimizer, base_batch=base),
    )


def _spans(ends: Sequence[int], several: int) -> Iterator[tuple[int, int]]:
    """Yield (first step, number) of each call, all of one epoch."""
    start = 0
    for end in ends:
        for first in range(start, end, several):
            yield first, min(several, end - first)
        start = end


def decoded(folder: Path, data: Data) -> tuple[Any, np.ndarray]:
    """Return the images of PNG files, decoded by every core, and their labels."""
    form = replace(data, train_csv=None, train_images=folder.name)
    paths, table = image_files.class_folders(folder.parent, form)
    pixels, broken = image_arrays.read(paths, form, None, _quiet)
    assert not broken  # noqa: S101 - they were written right before
    return pixels, table[data.labels[0]].to_numpy().astype(np.int32)


def _validate(step: TrainStep, state: TrainState, images: Images) -> float:
    """Return the accuracy on the test images."""
    params, buffers = step.layout.for_inference(state)
    size, found = step.micro_batch * step.replicas, list[Any]()
    starts = range(0, len(images.test), size)
    for start, (pixels, real) in zip(starts, padded(images.test, size), strict=True):
        expected = np.zeros(size, np.int32)
        expected[:real] = images.test_labels[start : start + real]
        placed = replicas.put(step.mesh, pixels, expected)
        found.append(step.evaluate(params, buffers, *placed, real)[1])
        if len(found) > EVALUATIONS:
            found[-EVALUATIONS] = jax.device_get(found[-EVALUATIONS])
    return float(sum(map(float, found))) / len(images.test)


def _quiet(line: str) -> None:
    """Leave it out: the grid has a line for each cell."""
