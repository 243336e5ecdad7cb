"""The way of koshian2/TPU-Benchmark (2018): Keras' own fit, with the loaders that it took.

Adam at its default rate, categorical cross-entropy, BatchNorm's default momentum, images divided by
255 on the host. `ImageDataGenerator` is the one that Keras still has; its four workers are threads,
since a process that has JAX cannot be forked. A TPU of today computes in bfloat16 as ours does.
"""

import threading
import time
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline.config import Config
from pipeline.models import architectures
from workbench.benchmark import compilations
from workbench.benchmark.cells import GENERATOR, PATTERNS, TRUNCATED, WHOLE, Cell
from workbench.benchmark.epochs import Epoch, Times
from workbench.benchmark.images import Images

# What it gave ImageDataGenerator. Validation takes batches of 32 where it left the batch out.
SHIFT, DEFAULT_BATCH = 4 / 32, 32
BATCHNORM_MOMENTUM = 0.99  # Keras' default
UNIT = "relay_image_to_unit"  # the layer of `architectures` after which images are from 0 to 1


class ImagesTrained(keras.metrics.Metric):  # type: ignore[misc]
    """How many examples the devices were given."""

    def __init__(self) -> None:
        super().__init__(name="images")
        self.total = self.add_variable((), "zeros", dtype="int32", name="total")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count a batch."""
        self.total.assign_add(y_true.shape[0])

    def result(self) -> Any:
        """Return how many it were in this epoch."""
        return keras.ops.convert_to_tensor(self.total)


class Endless(keras.utils.PyDataset):  # type: ignore[misc]
    """A loader's batches, pass after pass, as Keras' fit_generator took them: an epoch of fewer
    steps begins where the last one ended. Keras 3 would end the second epoch with the first pass.
    """

    def __init__(self, loader: Any, workers: int) -> None:
        super().__init__(workers=workers)
        self._loader, self._lock, self._passes = loader, threading.Lock(), 0

    @property
    def num_batches(self) -> None:
        """There is no last one."""

    def __getitem__(self, index: int) -> Any:
        """Return a batch; the loader shuffles before each pass."""
        passes, place = divmod(index, len(self._loader))
        with self._lock:
            if passes > self._passes:
                self._passes = passes
                self._loader.on_epoch_end()
        return self._loader[place]


class Timer(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps an `Epoch` at the end of each, after its validation."""

    def __init__(self, begun: float, found: compilations.Compilations) -> None:
        super().__init__()
        self._begun, self._compiled, self._seen = begun, found, 0
        self.before, self.epochs = 0.0, list[Epoch]()

    def on_train_begin(self, logs: Any = None) -> None:
        """Note how long everything before took."""
        self._begun, self.before = time.monotonic(), time.monotonic() - self._begun

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note an epoch."""
        now, compiled = time.monotonic(), self._compiled.programs[self._seen :]
        self._seen += len(compiled)
        validated = "val_images" in logs
        self.epochs.append(
            Epoch(
                seconds=now - self._begun,
                images=int(logs["images"]),
                validated=int(logs.get("val_images", 0)),
                accuracy=float(logs["acc"]),
                validation_accuracy=float(logs["val_acc"]) if validated else None,
                compiling=sum(seconds for _, seconds in compiled),
                compiled=compilations.steps(compiled),
            )
        )
        self._begun = now


def train(
    cell: Cell,
    images: Images,
    files: Path | None,
    config: Config,
    epochs: int,
) -> Times:
    """Train the config's network so, and return what each epoch took.

    Args:
        cell: its pattern and feed are possible (`workbench.benchmark.cells.possible`).
        images: in memory.
        files: the same as PNG files, for a pattern that has these.
        config: whose model is trained; nothing else of it is taken.
    """
    begun = time.monotonic()
    with compilations.counted() as found:
        model = _model(config)
        given = _given(cell, images, files)
        timer = Timer(begun, found)
        with warnings.catch_warnings():
            # The loader shuffles before each pass.
            warnings.filterwarnings("ignore", "`shuffle=True` was passed", UserWarning)
            model.fit(**given, epochs=epochs, callbacks=[timer], verbose=0)
    return Times(timer.before, tuple(timer.epochs))


def _model(config: Config) -> Any:
    keras.utils.set_random_seed(config.seed)
    built = architectures.build(config, BATCHNORM_MOMENTUM)
    outputs = keras.layers.Activation("softmax", dtype="float32")(built.output)
    model = keras.Model(built.get_layer(UNIT).output, outputs)
    counted = [keras.metrics.CategoricalAccuracy("acc"), ImagesTrained()]
    model.compile(keras.optimizers.Adam(), "categorical_crossentropy", metrics=counted)
    return model


def _given(cell: Cell, images: Images, files: Path | None) -> dict[str, Any]:
    """Return the arguments of fit."""
    pattern, batch = PATTERNS[cell.pattern], cell.batch
    labels = keras.utils.to_categorical(images.train_labels, images.classes)
    test_labels = keras.utils.to_categorical(images.test_labels, images.classes)
    if cell.feed in (WHOLE, TRUNCATED):
        count = len(labels) if cell.feed == WHOLE else len(labels) // batch * batch
        given: dict[str, Any] = {
            "x": (images.train[:count] / 255.0).astype(np.float32),
            "y": labels[:count],
            "batch_size": batch,
        }
        if pattern.validation:
            test = (images.test / 255.0).astype(np.float32)
            given["validation_data"] = test, test_labels
        return given
    assert cell.feed == GENERATOR  # noqa: S101 - there is no other
    from tensorflow.keras.preprocessing.image import ImageDataGenerator

    moved = {"width_shift_range": SHIFT, "height_shift_range": SHIFT, "horizontal_flip": True}
    plain = ImageDataGenerator(rescale=1 / 255)
    loader = ImageDataGenerator(rescale=1 / 255, **moved) if pattern.augmentation else plain
    if pattern.files:
        assert files is not None  # noqa: S101 - whoever calls has written them
        height, width, channels = images.train.shape[1:]
        how: dict[str, Any] = {
            "target_size": (height, width),
            "color_mode": "grayscale" if channels == 1 else "rgb",
            "class_mode": "categorical",
            "batch_size": batch,
        }
        with redirect_stdout(StringIO()):  # it prints how many it found, for each cell
            flow = loader.flow_from_directory(str(files / "train"), **how)
            test = plain.flow_from_directory(str(files / "test"), **how)
        size = batch
    else:
        flow = loader.flow(images.train, labels, batch_size=batch)
        test, size = plain.flow(images.test, test_labels), DEFAULT_BATCH
    given = {"x": Endless(flow, pattern.workers), "steps_per_epoch": len(labels) // batch}
    if pattern.validation:
        # As many steps as there are of the training's batch, whatever the size of its own.
        steps = min(max(len(test_labels) // batch, 1), -(-len(test_labels) // size))
        test.workers = pattern.workers
        given |= {"validation_data": test, "validation_steps": steps}
    return given
