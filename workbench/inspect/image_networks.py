"""The networks that may be proposed for images, with the size of the images and their augmentation.

For a TPU the best comes first, for a CPU the smallest.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config import Data
from workbench.inspect.image_headers import Headers

BASE = 32  # images a step that the rates of the proposals are for
TINY = 64  # pixels: larger images get a pretrained network, and these one from scratch
POSITIONS = 256  # pixels: in smaller images it matters where something is
SIDES = (224, 288, 384)  # pixels, for pretrained networks
ROUND = 32
LEAST_SIDE = 32  # pixels; keras.applications refuses smaller images
FEW_ROWS = 1000
# Of decoded images. The host of a v5e-8 has 384 GB (cloud.google.com/tpu/docs/v5e, read
# 2026-11-21); that Kaggle gives them all is assumed.
MOST_BYTES = 100e9
ENOUGH_IMAGES = 240_000  # images that a network from scratch should see on a CPU, if there is time
MOST_EPOCHS = 400

# Multiply-adds of a forward pass at 224 pixels, and ImageNet top-1: read 2026-11-22 in
# arXiv:2201.03545 (table 1), google/automl's README and Keras' table of applications.
BACKBONES = {
    "convnext_tiny": (4.5e9, "ImageNet top-1 81.3 %"),
    "efficientnetv2s": (2.9e9, "ImageNet top-1 83.9 % at 384 pixels"),
    "efficientnetv2b3": (1.7e9, "ImageNet top-1 82.0 % at 300 pixels"),
    "efficientnetv2b0": (0.72e9, "ImageNet top-1 78.7 %"),
}


@dataclass(frozen=True)
class Candidate:
    """A network that may be proposed.

    Attributes:
        model, options: as in a config.
        data: with size and augmentation.
        operations: of one image's forward pass.
        why: in words.
        enough, most: epochs that it needs, and after which more are of little use.
        batch: most images a step.
    """

    model: str
    options: dict[str, Any]
    data: Data
    operations: float
    why: str
    enough: int
    most: int
    batch: int = 4 * BASE

    @property
    def pretrained(self) -> bool:
        """Whether it starts with published weights."""
        return self.model in BACKBONES

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.options.items())


def for_cpu(data: Data, rows: int) -> Iterator[Candidate]:
    """Yield networks that learn much per second without an accelerator, the smallest first."""
    # No mixup: its random shares take a CPU twice as long to compile, and a step a fifth longer.
    data = replace(_shifted(data, 8), flip=data.channels == 3)
    area = data.height * data.width
    enough = min(max(round(ENOUGH_IMAGES / rows), 30), 80)  # few rows are soon known by heart
    if area <= POSITIONS:
        for width in (32, 64):
            adds = area * 9 * (data.channels * width + width**2 + 6 * width**2 / 4)
            yield Candidate(
                "small_cnn",
                {"width": width, "dropout": 0.3},
                data,
                2 * adds,
                "for tiny images, where it matters what is where",
                enough,
                MOST_EPOCHS,
                2 * BASE,
            )
        return
    coarse = 1
    while max(data.height, data.width) > 16 * coarse:
        coarse *= 2
    fine = max(coarse // 2, 1)
    for stride, width in dict.fromkeys([(coarse, 32), (coarse, 48), (coarse, 64), (fine, 48)]):
        stem = 9 * data.channels * stride**2 * width
        adds = area / stride**2 * (stem + 3 * 2 * 9 * width**2 + 4 * width**2)
        yield Candidate(
            "strided_resnet",
            {"width": width, "stride": stride, "dropout": 0.2},
            data,
            2 * adds,
            "few channels at full size, so that a CPU learns much per second",
            enough,
            MOST_EPOCHS,
            2 * BASE,
        )


def for_tpu(data: Data, rows: int, target: str, headers: Headers | None) -> Iterator[Candidate]:
    """Yield networks for a TPU, the best first.

    Args:
        data: as the inspection read it.
        rows: labelled.
        target: its kind.
        headers: of image files, which can be read at any size; None for arrays and pixels.
    """
    mixing: dict[str, Any] = {
        "mixup": 0.2,
        "cutmix": 1.0 if target in ("classes", "multilabel") else 0.0,
    }
    size = (data.width, data.height) if headers is None else headers.median()
    fixed = headers is None and min(size) < LEAST_SIDE
    if max(size) <= TINY or fixed:
        yield from _from_scratch(replace(_shifted(data, 8), flip=data.channels == 3), mixing)
        return
    for side in _sides(rows, max(size)) if headers else (0,):
        sized = _shifted(_sized(data, size, side) if headers else data, 16)
        sized = replace(sized, flip=data.channels == 3, **mixing)
        for model, (adds, accuracy) in BACKBONES.items():
            yield Candidate(
                model,
                {"pretrained": "imagenet", "backbone_rate": 0.1, "dropout": 0.2},
                sized,
                2 * adds * sized.height * sized.width / 224**2,
                f"pretrained ({accuracy}), as winning notebooks do; all but the head learns at a "
                "tenth of the rate, so that little is forgotten",
                8,
                40 if rows < FEW_ROWS else 20,
            )


def _from_scratch(data: Data, mixing: dict[str, Any]) -> Iterator[Candidate]:
    area = data.height * data.width
    if min(data.height, data.width) < 16:  # nothing would be left after the poolings
        yield Candidate(
            "small_cnn",
            {"width": 32, "dropout": 0.3},
            data,
            2 * area * 9 * 6 * 32**2,
            "for tiny images, where it matters what is where",
            30,
            200,
        )
        return
    for k in (4, 1):
        yield Candidate(
            "wide_resnet",
            {"k": k, "n": 2, "kernel_size": 3},
            replace(data, **mixing),
            2 * area * 3 * 4 * 9 * (16 * k) ** 2,
            f"from scratch, since images of up to {TINY} pixels lack what 224 pixels show",
            30,
            200,
        )


def _sides(rows: int, longest: int) -> list[int]:
    """Return the sides to try, the best first: the one nearest below the pictures' own, then 224.

    >>> _sides(5000, 400), _sides(5000, 100), _sides(2_000_000, 400)
    ([384, 224], [224], [224])
    """
    fitting = [side for side in SIDES if 3 * rows * side**2 <= MOST_BYTES and side <= longest]
    return sorted({*fitting[-1:], SIDES[0]}, reverse=True)


def _sized(data: Data, size: tuple[int, int], side: int) -> Data:
    """Return the data at a longest side, in the proportions of the pictures (width, height)."""
    if data.resize == "pad":
        return replace(data, height=side, width=side)
    width, height = (max(round(each * side / max(size) / ROUND), 2) * ROUND for each in size)
    return replace(data, height=height, width=width, resize="stretch")


def _shifted(data: Data, part: int) -> Data:
    return replace(data, crop_padding=max(min(data.height, data.width) // part, 1))
