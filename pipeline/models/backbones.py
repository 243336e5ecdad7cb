"""Build keras.applications networks with a new head, and load their published weights.

Pixels are preprocessed inside the model, in float32, so training and inference cannot differ. Only
training reads the published weights, because the artifact contains the trained weights. To add a
network, add a line with its `preprocess_input` parameters to `BACKBONES`.
"""

import functools
import hashlib
import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers

from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.models import families, heads
from pipeline.models.families import Pixels
from pipeline.models.layer_tree import descendants
from pipeline.runtime import mounts

IMAGENET, RANDOM = "imagenet", "none"


class Backbone(NamedTuple):
    """A keras.applications network.

    Attributes:
        application: name of the function in keras.applications.
        prepares: whether the function has an `include_preprocessing` argument.
        random: whether training starts from random weights (`Config.pretrained`).
    """

    application: str
    pixels: Pixels
    prepares: bool = True
    random: bool = False


BACKBONES = {
    "efficientnetv2b0": Backbone("EfficientNetV2B0", families.IMAGENET),
    "efficientnetv2b1": Backbone("EfficientNetV2B1", families.IMAGENET),
    "efficientnetv2b2": Backbone("EfficientNetV2B2", families.IMAGENET),
    "efficientnetv2b3": Backbone("EfficientNetV2B3", families.IMAGENET),
    "efficientnetv2s": Backbone("EfficientNetV2S", Pixels((1 / 128,), (-1.0,))),
    "efficientnetv2m": Backbone("EfficientNetV2M", Pixels((1 / 128,), (-1.0,))),
    "convnext_tiny": Backbone("ConvNeXtTiny", families.IMAGENET),
    "convnext_small": Backbone("ConvNeXtSmall", families.IMAGENET),
    "convnext_base": Backbone("ConvNeXtBase", families.IMAGENET),
    "mobilenetv3_small": Backbone("MobileNetV3Small", families.AROUND_ZERO),
    "mobilenetv3_large": Backbone("MobileNetV3Large", families.AROUND_ZERO),
    "resnet50v2": Backbone("ResNet50V2", families.AROUND_ZERO, prepares=False),
}


class Frozen(NamedTuple):
    """The frozen parts of a published network.

    Attributes:
        batchnorm_momentum: momentum of BatchNormalization; None to freeze its statistics and
            scales.
    """

    all: bool
    batchnorm_momentum: float | None

    @classmethod
    def of(
        cls, batchnorm: str, backbone_rate: float, momentum: float, *, random: bool = False
    ) -> "Frozen":
        if batchnorm not in ("auto", "frozen", "groups"):
            raise ValueError(f"batchnorm={batchnorm!r}; expected 'auto', 'frozen' or 'groups'")
        if not isinstance(backbone_rate, int | float) or not 0 <= backbone_rate <= 1:
            raise ValueError(f"backbone_rate={backbone_rate!r}; expected a number from 0 to 1")
        if backbone_rate == 0 and batchnorm == "groups":
            raise ValueError("backbone_rate=0 freezes what batchnorm='groups' trains; use only one")
        frozen = batchnorm == "frozen" or (batchnorm == "auto" and not random)
        return cls(not backbone_rate, None if frozen else momentum)

    def set(self, network: Any) -> None:
        for layer in descendants(network):
            if self.all:
                layer.trainable = False
            if isinstance(layer, layers.BatchNormalization):
                layer.momentum = self.batchnorm_momentum or layer.momentum
                layer.trainable = layer.trainable and self.batchnorm_momentum is not None


def prepared(images: Any, pixels: Pixels, name: str = "prepared") -> Any:
    """Preprocess images (batch, height, width, 1 or 3), and return them with three channels."""
    if images.shape[-1] == 1:
        images = layers.Concatenate()([images] * 3)
    scale, offset = (np.array(each, np.float32) for each in pixels)
    # Always in float32, because bfloat16 is not precise enough for 255 levels around a mean.
    return layers.Rescaling(scale, offset, dtype="float32", name=name)(images)


def logits(
    backbone: Backbone,
    images: Any,
    num_classes: int,
    batchnorm_momentum: float,
    *,
    batchnorm: str = "auto",
    dropout: float = 0.2,
    backbone_rate: float = 1.0,
    pool: str = "auto",
) -> Any:
    """Return the logits of a backbone with a new head (`pipeline.models.heads`).

    Args:
        backbone: entry of `BACKBONES`.
        images: tensor (batch, height, width, channels), 0 to 255, at least 32x32 pixels. Grayscale
            images are repeated to three channels.
        batchnorm_momentum: momentum of all BatchNormalization layers that are not frozen.
        batchnorm: "frozen" keeps the published BatchNormalization statistics and scales, "groups"
            trains them (docs/decisions/0010), and "auto" freezes them unless the weights are
            random.
        dropout: dropout rate before the logits.
        backbone_rate: learning rate factor for the backbone, 0 to 1. 0 only trains the head, which
            takes about a third of the compute.
        pool: pooling of the feature map (see `heads.logits`).
    """
    frozen = Frozen.of(batchnorm, backbone_rate, batchnorm_momentum, random=backbone.random)
    pixels = prepared(images, backbone.pixels)
    raw: dict[str, Any] = {"include_preprocessing": False} if backbone.prepares else {}
    # keras.applications pools before ConvNeXt's final normalization.
    own = pool not in ("auto", "mean")
    network = getattr(keras.applications, backbone.application)(
        include_top=False,
        weights=None,
        input_tensor=pixels,
        input_shape=tuple(pixels.shape[1:]),
        pooling=None if own else "avg",
        **raw,
    )
    frozen.set(network)
    return heads.logits(network.output, num_classes, dropout, pool if own else "auto")


def published(config: Config) -> list[list[np.ndarray]] | None:
    """Return the published weights of the config's backbone by layer, or None if the model starts
    from other weights.

    keras.applications downloads "imagenet", verifies its hash and caches it in ~/.keras/models. A
    file is read from its path or from `owner/slug/path` in a mounted dataset. Keras reads both
    with h5py, which does not load code.
    """
    if config.model not in BACKBONES or config.init_from:  # weights from another run
        return None
    source = config.pretrained or IMAGENET
    return None if source == RANDOM else _read(BACKBONES[config.model].application, str(source))


def load_published(model: Any, config: Config) -> dict[str, str | None] | None:
    """Load the published weights into a model built by `logits`. Return their source and SHA-256
    for the manifest, or None if the model does not use published weights.
    """
    weights = published(config)
    if weights is None:
        return None
    backbone = [layer for layer in model.layers if layer.weights and not heads.is_new(layer)]
    for layer, arrays in zip(backbone, weights, strict=True):
        layer.set_weights(arrays)
    sha256 = arrays_sha256(chain.from_iterable(weights))
    return {"source": str(config.pretrained or IMAGENET), "arrays_sha256": sha256}


def arrays_sha256(arrays: Iterable[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@functools.lru_cache(maxsize=1)  # reused by every fold
def _read(application: str, source: str) -> list[list[np.ndarray]]:
    path: str | Path = source
    if source != IMAGENET and not os.path.isfile(source):  # noqa: PTH113 - is_file refuses long names
        path = mounts.file(mounts.root() / "input", source) or source
    try:
        # The weights do not depend on the image size.
        network = getattr(keras.applications, application)(
            include_top=False, weights=str(path), input_shape=(64, 64, 3)
        )
    except Exception as error:  # Keras raises a plain Exception if a download fails
        raise ConfigError(
            f"pretrained={source!r} cannot be read: {type(error).__name__}: {error}."
            "\nExpected 'imagenet', 'none' (random weights), or a weights file for"
            f" {application} without its top. This is a …_notop.h5 file that keras.applications"
            " published, or a ….weights.h5 file that save_weights wrote. Correct the model or the"
            " path.\n"
            "'imagenet' requires internet access. To enable it for the train notebook, set"
            " enable_internet, which requires a verified phone number. In a rehearsal, use invoke"
            " dry-run --internet. Alternatively, upload the file as a dataset and set"
            ' pretrained="owner/slug/file".'
        ) from error
    return [layer.get_weights() for layer in network.layers if layer.weights]
