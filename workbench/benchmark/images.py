"""The images of a benchmark: a competition's own, CIFAR-100, or others of its shape made from a
seed, which serve for throughput only.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from formats.errors import writing
from pipeline.config import Config
from pipeline.data import dataset, folds
from pipeline.errors import ConfigError

SEED = 20261124
MADE = 50_000, 10_000  # images to train on and to validate on, as CIFAR-100 has
CIFAR100 = "cifar100"
DONE = "complete"  # beside PNG files, once all of them are written


@dataclass(frozen=True)
class Images:
    """What every cell trains on.

    Attributes:
        train, test: uint8 (n, height, width, channels).
        train_labels, test_labels: int32 (n,), from 0 on.
        classes: number of labels.
        real: whether a network can learn from them.
        source: where they come from, in words.
    """

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    classes: int
    real: bool
    source: str

    def first(self, most: int) -> "Images":
        """Return at most so many of the training images, and as large a share of the others."""
        if most >= len(self.train):
            return self
        other = max(round(len(self.test) * most / len(self.train)), 1)
        return replace(
            self,
            train=self.train[:most],
            train_labels=self.train_labels[:most],
            test=self.test[:other],
            test_labels=self.test_labels[:other],
            source=f"{self.source}, {most:,} of them",
        )

    def split_over(self, count: int) -> "Images":
        """Return as many of them as split over so many devices, ragged batches included."""
        train, test = (len(part) // count * count for part in (self.train, self.test))
        if (train, test) == (len(self.train), len(self.test)):
            return self
        return replace(
            self,
            train=self.train[:train],
            train_labels=self.train_labels[:train],
            test=self.test[:test],
            test_labels=self.test_labels[:test],
            source=f"{self.source}, {train:,} and {test:,} of them, for {count} devices",
        )


def find(config: Config, folder: Path | None, show: Callable[[str], None]) -> Images:
    """Return the images to train on.

    Args:
        config: whose images they are like.
        folder: a competition's, as the config reads it; a part of its labelled images is held out
            as in a training. None: those that Keras has of CIFAR-100, if the config is of its shape
            and Keras reaches them; otherwise others of that shape, made from a seed.

    Raises:
        ConfigError: if the config has no images in classes.
        DataError: if the folder is not what the config says.
    """
    require(config)
    data = config.data
    if folder is not None:
        examples = dataset.read_training(folder, config, show=show)
        rows, held = folds.splits(examples, config)[0]
        labels = examples.labels.astype(np.int32)
        parts = [np.ascontiguousarray(examples.inputs[part]) for part in (rows, held)]
        source = f"{config.competition}, in {folder.name}"
        return Images(
            *(parts[0], labels[rows], parts[1], labels[held]), len(examples.classes), True, source
        )
    if (data.shape, config.num_classes) == ((32, 32, 3), 100):
        found = _of_keras(show)
        if found is not None:
            return found
    return made(data.shape, config.num_classes)


def mounted(config: Config) -> bool:
    """Return whether a competition has the images; Keras has CIFAR-100."""
    return config.competition != CIFAR100


def require(config: Config) -> None:
    """Raise `ConfigError` if a config has no images in classes."""
    data = config.data
    if config.target != "classes" or not data.images or data.numbers:
        raise ConfigError(
            f"{config.name} has no images in classes; a benchmark expects such a config.\n"
            "Choose another: --config cifar100_wrn"
        )


def _of_keras(show: Callable[[str], None]) -> Images | None:
    """Return CIFAR-100 as Keras keeps or fetches it, whose bytes it checks; None without."""
    import keras

    try:
        (train, labels), (test, others) = keras.datasets.cifar100.load_data()
    except Exception as error:
        show(f"Keras does not reach CIFAR-100: {str(error).splitlines()[0][:120]}")
        return None
    of = [part.reshape(-1).astype(np.int32) for part in (labels, others)]
    return Images(train, of[0], test, of[1], 100, True, "CIFAR-100, by keras.datasets")


def made(shape: tuple[int, ...], classes: int) -> Images:
    """Return images of noise, from a seed."""
    draw = np.random.default_rng(SEED)
    parts: list[np.ndarray] = []
    for number in MADE:
        parts.append(draw.integers(0, 256, (number, *shape), np.uint8))
        parts.append(draw.integers(0, classes, number, np.int32))
    source = f"made from seed {SEED}, for throughput only"
    return Images(parts[0], parts[1], parts[2], parts[3], classes, False, source)


def as_files(images: Images, folder: Path, show: Callable[[str], None]) -> Path:
    """Return a folder with train/LABEL/N.png and test/LABEL/N.png of all images.

    It is written once; what a killed run wrote of it is written again.
    """
    if (folder / DONE).exists():
        return folder
    parts = {
        "train": (images.train, images.train_labels),
        "test": (images.test, images.test_labels),
    }
    show(f"Writing {sum(len(pixels) for pixels, _ in parts.values()):,} PNG files")
    digits = len(str(images.classes - 1))
    with writing(folder):
        for name, (pixels, labels) in parts.items():
            for label in range(images.classes):
                (folder / name / f"{label:0{digits}}").mkdir(parents=True, exist_ok=True)
            for number, (one, label) in enumerate(zip(pixels, labels, strict=True)):
                path = folder / name / f"{label:0{digits}}" / f"{number}.png"
                Image.fromarray(one.squeeze()).save(path)
        (folder / DONE).touch()
    return folder
