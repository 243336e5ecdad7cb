"""Time the epochs of training with Keras' fit (as in 2018) or with this project's training.

Both train the config's network. Keras' fit uses Adam with its default learning rate, categorical
cross-entropy and the default BatchNorm momentum. The four workers are threads, because a process
that uses JAX cannot fork. This project's training also uses the rest of the config, but does not
save anything.
"""

import time
from contextlib import redirect_stdout
from dataclasses import fields, replace
from functools import cache
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from pipeline.config import Config
from pipeline.config.data_layout import AUGMENTATIONS, Data
from pipeline.data import image_arrays, image_files
from pipeline.data.dataset import Batches
from pipeline.data.row_gathering import padded
from pipeline.models import architectures
from pipeline.runtime import replicas
from pipeline.train import feed, learning_rate
from pipeline.train.loop import EVALUATIONS, CallQueue
from pipeline.train.state import TrainState
from pipeline.train.step import TrainStep
from workbench.benchmark import grid
from workbench.benchmark.grid import PATTERNS, Cell
from workbench.benchmark.images import Images, Part

SHIFT = 4 / 32  # fraction of the image size, as in 2018
VALIDATES = 32  # batch size for validating arrays with the loader (the default, as in 2018)
BATCHNORM_MOMENTUM = 0.99  # Keras' default
UNIT = "relay_image_to_unit"  # the layer of `architectures` that scales images to 0 to 1
COMPILED = "/jax/core/compile/backend_compile_duration"


@cache  # JAX cannot remove listeners, so register only one
def compilations() -> list[float]:
    """Return a list that collects the duration in seconds of each later compilation."""
    found: list[float] = []

    def heard(event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED:
            found.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(heard)
    return found


class Clock:
    """A clock that starts when it is created, and times the epochs of a training run.

    Attributes:
        before: seconds for building the network and reading the images.
        epochs: see `Measured`.
    """

    def __init__(self) -> None:
        self.before, self.epochs = 0.0, list[dict[str, Any]]()
        self._began, self._compiled = time.monotonic(), sum(compilations())

    def start(self) -> None:
        self.before = self._lap()["seconds"]

    def end(self, **counted: float | None) -> None:
        self.epochs.append(self._lap() | counted)

    def _lap(self) -> dict[str, Any]:
        began, compiled = self._began, self._compiled
        self._began, self._compiled = time.monotonic(), sum(compilations())
        return {"seconds": self._began - began, "compiling": self._compiled - compiled}


# Keras' fit


class Count(keras.metrics.Sum):  # type: ignore[misc]
    """A metric that counts the examples received by the devices."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        super().update_state(keras.ops.ones(y_true.shape[0]))


class Endless(keras.utils.PyDataset):  # type: ignore[misc]
    """An infinite sequence of a loader's batches.

    If an epoch has fewer steps than the loader, the next epoch continues where it stopped, as in
    2018. Otherwise, Keras 3 would end the second epoch at the end of the loader's first pass.
    """

    num_batches = None  # unlimited

    def __init__(self, loader: Any, workers: int) -> None:
        super().__init__(workers=workers)
        self._loader = loader

    def __getitem__(self, index: int) -> Any:
        return next(self._loader)


def fit(cell: Cell, images: Images, files: Path, config: Config, epochs: int) -> Clock:
    """Train the config's network with Keras' fit. Some patterns read the PNG files in `files`."""
    clock = Clock()
    keras.utils.set_random_seed(config.seed)
    built = architectures.build(config, BATCHNORM_MOMENTUM)
    outputs = keras.layers.Activation("softmax", dtype="float32")(built.output)
    model = keras.Model(built.get_layer(UNIT).output, outputs)
    metrics = [keras.metrics.CategoricalAccuracy("accuracy"), Count("images")]
    model.compile(keras.optimizers.Adam(), "categorical_crossentropy", metrics=metrics)

    def ended(epoch: int, logs: dict[str, float]) -> None:
        clock.end(
            images=int(logs["images"]),
            accuracy=float(logs["accuracy"]),
            validated=int(logs.get("val_images", 0)),
            validation_accuracy=logs.get("val_accuracy"),
        )

    timer = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: clock.start(), on_epoch_end=ended
    )
    given = _loaded(cell, images, files) if cell.feed == grid.GENERATOR else _arrays(cell, images)
    model.fit(**given, epochs=epochs, callbacks=[timer], verbose=0)
    return clock


def _arrays(cell: Cell, images: Images) -> dict[str, Any]:
    def unit(part: Part, batch: int = 1) -> tuple[np.ndarray, np.ndarray]:
        count = len(part.labels) // batch * batch
        labels = keras.utils.to_categorical(part.labels[:count], images.classes)
        return (part.pixels[:count] / 255.0).astype(np.float32), labels

    x, y = unit(images.train, cell.batch if cell.feed == grid.TRUNCATED else 1)
    validation = unit(images.test) if grid.VALIDATION in PATTERNS[cell.pattern] else None
    return {"x": x, "y": y, "batch_size": cell.batch, "validation_data": validation}


def _loaded(cell: Cell, images: Images, files: Path) -> dict[str, Any]:
    from tensorflow.keras.preprocessing.image import ImageDataGenerator

    pattern, batch = PATTERNS[cell.pattern], cell.batch
    workers = 4 if grid.WORKERS in pattern else 1
    _, height, width, channels = images.train.pixels.shape

    def load(name: str, part: Part, batch: int, **moved: Any) -> Any:
        loader = ImageDataGenerator(rescale=1 / 255, **moved)
        if grid.FILES not in pattern:
            labels = keras.utils.to_categorical(part.labels, images.classes)
            return loader.flow(part.pixels, labels, batch_size=batch)
        with redirect_stdout(StringIO()):  # it prints the number of files for each cell
            return loader.flow_from_directory(
                str(files / name),
                target_size=(height, width),
                color_mode="grayscale" if channels == 1 else "rgb",
                batch_size=batch,
            )

    moved = {"width_shift_range": SHIFT, "height_shift_range": SHIFT, "horizontal_flip": True}
    train = load("train", images.train, batch, **(moved if grid.AUGMENTATION in pattern else {}))
    given = {
        "x": Endless(train, workers),
        "shuffle": False,  # the loader shuffles
        "steps_per_epoch": len(images.train.labels) // batch,
    }
    if grid.VALIDATION in pattern:
        # The number of steps is based on the training batch size, regardless of the loader's batch
        # size.
        test = load("test", images.test, batch if grid.FILES in pattern else min(VALIDATES, batch))
        steps = max(len(images.test.labels) // batch, 1)
        test.workers = workers
        given |= {"validation_data": test, "validation_steps": steps}
    return given


# This project's training


def ours(cell: Cell, images: Images, files: Path, config: Config, epochs: int) -> Clock:
    """Train the config's network with this project's training.

    An epoch ends with the step that contains its last image. Since all batches are full, this step
    may also contain images from the next epoch.
    """
    clock, pattern, config = Clock(), PATTERNS[cell.pattern], of_cell(config, cell, epochs)
    train = decoded(files / "train", config.data) if grid.FILES in pattern else images.train
    batches = Batches(*train, batch=config.batch, seed=config.seed)
    applied = learning_rate.apply(config, len(batches))
    architectures.seed(config.seed)
    model = architectures.build(config, applied.batchnorm_momentum)
    step = TrainStep(config, applied, model, replicas.mesh())
    state, calls, done = step.layout.initial(), CallQueue(step.replicas), 0
    ends = [-(-len(batches) * number // config.batch) for number in range(1, epochs + 1)]
    spans = (
        (first, min(step.steps_per_call, end - first))
        for start, end in pairwise([0, *ends])
        for first in range(start, end, step.steps_per_call)
    )
    with feed.begin(config, batches, step, lambda line: None) as fed:
        clock.start()
        for given, number in fed.calls(spans):
            calls.begin()
            state, report = step.train(state, fed.held, given, number)
            done += number
            calls.add(done, report)
            for ended, _ in calls.ended(sum(array.nbytes for array in jax.tree.leaves(given))):
                fed.ended(ended)
            if done in ends:
                count, right = int(report.totals.count), float(report.totals.metric)
                validated = len(images.test.labels) if grid.VALIDATION in pattern else 0
                accuracy = _validated(step, state, images.test) if validated else None
                fed.ended(done)
                clock.end(
                    images=count,
                    accuracy=right / count,
                    validated=validated,
                    validation_accuracy=accuracy,
                )
                state = state._replace(totals=step.layout.zeros())
                calls.restart()
    return clock


def of_cell(config: Config, cell: Cell, epochs: int) -> Config:
    plain: dict[str, Any] = {one.name: one.default for one in fields(Data)}
    change = {name: plain[name] for name in AUGMENTATIONS}
    if grid.AUGMENTATION in PATTERNS[cell.pattern]:
        change |= {"crop_padding": int(max(config.data.shape[:2]) * SHIFT), "flip": True}
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
        data=replace(config.data, **change),
    )


def decoded(folder: Path, data: Data) -> Part:
    layout = replace(data, train_csv=None, train_images=folder.name)
    paths, table = image_files.class_folders(folder.parent, layout)
    pixels, _ = image_arrays.read(paths, layout)
    return Part(pixels, table[data.labels[0]].to_numpy().astype(np.int32))


def _validated(step: TrainStep, state: TrainState, part: Part) -> float:
    params, buffers = step.layout.for_inference(state)
    size, right = step.micro_batch * step.replicas, list[Any]()
    for number, (pixels, real) in enumerate(padded(part.pixels, size)):
        labels = np.resize(part.labels[number * size :], size)  # padding is not counted
        placed = replicas.put(step.mesh, pixels, labels)
        right.append(step.evaluate(params, buffers, *placed, real)[1])
        if len(right) > EVALUATIONS:
            right[-EVALUATIONS] = jax.device_get(right[-EVALUATIONS])
    return sum(map(float, right)) / len(part.labels)
