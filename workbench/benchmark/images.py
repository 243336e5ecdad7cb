"""Load a competition's images or CIFAR-100 for a benchmark, or generate random noise."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from formats.errors import writing
from pipeline.config import Config
from pipeline.data import dataset, folds
from pipeline.errors import ConfigError

SEED = 20261124
MADE = 50_000, 10_000  # training and validation images, like CIFAR-100
CIFAR100 = "cifar100"


class Part(NamedTuple):
    """Images and their labels.

    Attributes:
        pixels: uint8 (n, height, width, channels).
        labels: int32 (n,), starting from 0.
    """

    pixels: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Images:
    """The training and validation images, which are the same for all cells.

    Attributes:
        real: False if the images are random noise.
    """

    train: Part
    test: Part
    classes: int
    real: bool
    source: str

    def first(self, train: int, test: int) -> "Images":
        parts = [(self.train, train), (self.test, test)]
        if all(most >= len(part.labels) for part, most in parts):
            return self
        cut = [Part(part.pixels[:most], part.labels[:most]) for part, most in parts]
        source = f"{self.source}, {len(cut[0].labels):,} and {len(cut[1].labels):,} of them"
        return replace(self, train=cut[0], test=cut[1], source=source)

    def whole(self, count: int) -> "Images":
        return self.first(*(len(part.labels) // count * count for part in (self.train, self.test)))


def mounted(config: Config) -> bool:
    return config.competition != CIFAR100


def require(config: Config) -> None:
    if config.target != "classes" or not config.data.images or config.data.numbers:
        raise ConfigError(
            f"{config.name} is not for image classification, which a benchmark requires.\n"
            "Use a different config: --config cifar100_wrn"
        )


def find(config: Config, folder: Path | None, show: Callable[[str], None]) -> Images:
    """Load the benchmark images.

    Args:
        folder: competition folder, some of whose labelled images are held out, as in training. If
            it is None, CIFAR-100 is used if its images have the shape that the config requires and
            Keras can download it. Otherwise, the images are random noise.
    """
    data, classes = config.data, config.classes
    if folder is not None:
        examples = dataset.read_training(folder, config, show=show)
        labels = examples.codes.astype(np.int32)
        train, test = (
            Part(np.ascontiguousarray(examples.inputs[rows]), labels[rows])
            for rows in folds.splits(examples, config)[0]
        )
        source = f"{config.competition}, in {folder.name}"
        return Images(train, test, len(examples.classes), True, source)
    if (data.shape, classes) == ((32, 32, 3), 100):
        import keras

        try:
            parts = keras.datasets.cifar100.load_data()
        except Exception as error:  # various network errors
            show(f"Keras cannot download CIFAR-100: {str(error).splitlines()[0][:120]}")
        else:
            train, test = (
                Part(pixels, labels.reshape(-1).astype(np.int32)) for pixels, labels in parts
            )
            return Images(train, test, 100, True, "CIFAR-100, by keras.datasets")
    return made(data.shape, classes)


def made(shape: tuple[int, ...], classes: int) -> Images:
    draw = np.random.default_rng(SEED)
    train, test = (
        Part(
            draw.integers(0, 256, (number, *shape), np.uint8),
            draw.integers(0, classes, number, np.int32),
        )
        for number in MADE
    )
    source = f"noise from seed {SEED}, for throughput only"
    return Images(train, test, classes, False, source)


def write(images: Images, folder: Path) -> None:
    """Write PNG files named train/LABEL/N.png and test/LABEL/N.png."""
    with writing(folder):
        for name, part in (("train", images.train), ("test", images.test)):
            places = [folder / name / f"{label:04}" for label in range(images.classes)]
            for place in places:
                place.mkdir(parents=True)
            for number, (pixels, label) in enumerate(zip(*part, strict=True)):
                Image.fromarray(pixels.squeeze()).save(places[label] / f"{number}.png")
