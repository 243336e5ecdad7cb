"""Published networks that may be proposed for pictures: the best first, and those that lie here."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Published(NamedTuple):
    """A published network.

    Attributes:
        model, pretrained: as in a config.
        adds: multiply-adds of a forward pass at 224 pixels.
        known: what it is known for.
        patch: pixels, of which a side is a multiple.
        decay: as `Optimizer.layer_decay`.
        fills: GB of a core of a TPU v5e-8 that a step of `FILLING` rows takes, at 224 and at 384
            pixels; (): it was not compiled.
        file: of Keras, with its weights.
    """

    model: str
    pretrained: str
    adds: float
    known: str
    patch: int = 1
    decay: float = 1.0
    fills: tuple[float, ...] = ()
    file: str = ""

    @property
    def is_transformer(self) -> bool:
        """Whether KerasHub builds it."""
        return self.model == "published"


FILLING = 256  # rows a step
DINOV3 = "keras/dinov3/keras/dinov3_vit_{}_lvd1689m/1"
PROBED = "its features alone have {} % on ImageNet"
# Multiply-adds and ImageNet top-1: read 2026-11-22 in arXiv:2201.03545 (table 1), google/automl's
# README and Keras' table of applications; of DINOv3 counted by `plan`, and read 2026-11-29 in the
# README of yberreby/dinov3-in1k-probes (linear models at 512 pixels). Memory: compiled for the
# TPU (docs/benchmarks.md, "Published networks").
NETWORKS = (
    Published(
        *("published", DINOV3.format("large"), 63e9, PROBED.format(87.4)),
        patch=16,
        decay=0.75,
        fills=(11.1, 15.4),
    ),
    Published(
        *("published", DINOV3.format("base"), 18e9, PROBED.format(85.0)),
        patch=16,
        decay=0.75,
        fills=(3.8, 12.7),
    ),
    Published(
        *("convnext_base", "imagenet", 15.4e9, "ImageNet top-1 85.3 %"),
        decay=0.75,
        fills=(3.5, 8.7),
        file="convnext_base_notop.h5",
    ),
    Published(
        *("convnext_tiny", "imagenet", 4.5e9, "ImageNet top-1 81.3 %"),
        decay=0.75,
        file="convnext_tiny_notop.h5",
    ),
    Published(
        *("efficientnetv2s", "imagenet", 2.9e9, "ImageNet top-1 83.9 % at 384 pixels"),
        fills=(1.4, 3.8),
        file="efficientnetv2-s_notop.h5",
    ),
    Published(
        *("published", DINOV3.format("small"), 4.6e9, PROBED.format(81.4)),
        patch=16,
        decay=0.75,
    ),
    Published(
        *("efficientnetv2b3", "imagenet", 1.7e9, "ImageNet top-1 82.0 % at 300 pixels"),
        file="efficientnetv2-b3_notop.h5",
    ),
    Published(
        *("efficientnetv2b0", "imagenet", 0.72e9, "ImageNet top-1 78.7 %"),
        file="efficientnetv2-b0_notop.h5",
    ),
)


def buildable() -> tuple[Published, ...]:
    """Return the networks that this machine can rehearse: without KerasHub no transformer."""
    hub = find_spec("keras_hub") is not None
    return tuple(one for one in NETWORKS if hub or not one.is_transformer)


def at_hand() -> list[Published]:
    """Return the networks whose weights lie on this machine, the one with the fewest operations
    first. kagglehub keeps models of Kaggle, Keras those of its applications.
    """
    from pipeline.models import presets

    home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    found = [
        one
        for one in buildable()
        if (home / "models" / one.file).is_file()
        or (one.is_transformer and presets.place(one.pretrained))
    ]
    return sorted(found, key=lambda one: one.adds)
