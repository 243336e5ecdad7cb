"""List published networks for images, and find networks with weights on this machine."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple


class Published(NamedTuple):
    """A published network.

    Attributes:
        adds: multiply-adds of a forward pass at 224 pixels.
        known: its published accuracy.
        patch: patch size in pixels. The image height and width must be multiples of it.
        decay: value for `Optimizer.layer_decay`.
        fills: memory in GB per TPU v5e-8 core that a step with `FILLING` rows uses at 224 and at
            384 pixels, or () if the step was not compiled.
        file: name of the weights file in Keras' cache.
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
        return self.model == "published"


FILLING = 256  # rows per step
DINOV3 = "keras/dinov3/keras/dinov3_vit_{}_lvd1689m/1"


def _dinov3(size: str, adds: float, top: float, **more: Any) -> Published:
    known = f"a linear model on its features reaches {top} % on ImageNet"
    return Published("published", DINOV3.format(size), adds, known, patch=16, decay=0.75, **more)


def _of_keras(model: str, adds: float, top: str, **more: Any) -> Published:
    file = f"{model.replace('netv2', 'netv2-')}_notop.h5"
    return Published(model, "imagenet", adds, f"ImageNet top-1 {top}", file=file, **more)


# Networks from best to worst. Multiply-adds and ImageNet top-1 accuracies are from arXiv:2201.03545
# (table 1), google/automl's README and the table in the Keras documentation (all read 2026-11-22).
# For DINOv3, multiply-adds were counted by `plan`, and accuracies are from the README of
# yberreby/dinov3-in1k-probes (linear models at 512 pixels, read 2026-11-29). Memory was determined
# by compiling for the TPU (docs/benchmarks.md, "Published networks").
NETWORKS = (
    _dinov3("large", 63e9, 87.4, fills=(11.1, 15.4)),
    _dinov3("base", 18e9, 85.0, fills=(3.8, 12.7)),
    _of_keras("convnext_base", 15.4e9, "85.3 %", decay=0.75, fills=(3.5, 8.7)),
    _of_keras("convnext_tiny", 4.5e9, "81.3 %", decay=0.75),
    _of_keras("efficientnetv2s", 2.9e9, "83.9 % at 384 pixels", fills=(1.4, 3.8)),
    _dinov3("small", 4.6e9, 81.4),
    _of_keras("efficientnetv2b3", 1.7e9, "82.0 % at 300 pixels"),
    _of_keras("efficientnetv2b0", 0.72e9, "78.7 %"),
)


def buildable() -> tuple[Published, ...]:
    hub = find_spec("keras_hub") is not None
    return tuple(one for one in NETWORKS if hub or not one.is_transformer)


def at_hand() -> list[Published]:
    """Return the networks with cached weights, fastest first."""
    from pipeline.models import presets

    home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    found = [
        one
        for one in buildable()
        if (home / "models" / one.file).is_file()
        or (one.is_transformer and presets.place(one.pretrained))
    ]
    return sorted(found, key=lambda one: one.adds)
