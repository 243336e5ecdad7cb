"""Networks of keras.applications under a new head, and their published weights.

A backbone prepares its pixels inside the model, in float32, so that training and inference cannot
differ. Building one needs no internet. `published` reads the weights, in training only; the
artifact carries the trained ones.

To add one, add a line to `BACKBONES` with the numbers of its `preprocess_input`.
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
    """A network of keras.applications.

    Attributes:
        application: its name in keras.applications.
        pixels: how its images were prepared.
        prepares: whether the application would prepare them itself unless told otherwise.
        random: whether it starts from random weights (`Config.pretrained`).
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
    """What of a published network does not train.

    Attributes:
        all: whether none of it does.
        batchnorm_momentum: of its BatchNormalization; None: this keeps its statistics and scales.
    """

    all: bool
    batchnorm_momentum: float | None

    @classmethod
    def of(
        cls, batchnorm: str, backbone_rate: float, momentum: float, *, random: bool = False
    ) -> "Frozen":
        """Return what a model's options freeze.

        Args:
            batchnorm: "frozen", "groups", or "auto": trained if the weights are random, else
                frozen.
            backbone_rate: 0 freezes everything.
            momentum: of BatchNormalization that trains.

        Raises:
            ValueError: if one is invalid, or they contradict each other.
        """
        if batchnorm not in ("auto", "frozen", "groups"):
            raise ValueError(f"batchnorm={batchnorm!r}; expected 'auto', 'frozen' or 'groups'")
        if not isinstance(backbone_rate, int | float) or not 0 <= backbone_rate <= 1:
            raise ValueError(f"backbone_rate={backbone_rate!r}; expected a number from 0 to 1")
        if backbone_rate == 0 and batchnorm == "groups":
            raise ValueError(
                "backbone_rate=0 freezes what batchnorm='groups' trains; expected only one of them"
            )
        frozen = batchnorm == "frozen" or (batchnorm == "auto" and not random)
        return cls(not backbone_rate, None if frozen else momentum)

    def set(self, network: Any) -> None:
        """Freeze layers of a Keras model, at any depth."""
        for layer in descendants(network):
            if self.all:
                layer.trainable = False
            if isinstance(layer, layers.BatchNormalization):
                layer.momentum = self.batchnorm_momentum or layer.momentum
                layer.trainable = layer.trainable and self.batchnorm_momentum is not None


def prepared(images: Any, pixels: Pixels, name: str = "prepared") -> Any:
    """Return images prepared for a network, with three channels.

    Args:
        images: tensor (batch, height, width, 1 or 3).
        name: of the layer.
    """
    if images.shape[-1] == 1:
        images = layers.Concatenate()([images] * 3)
    scale, offset = (np.array(each, np.float32) for each in pixels)
    # In float32 under every policy: bfloat16 has too few digits for 255 levels around a mean.
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
    """Return logits of a backbone under a head (`pipeline.models.heads`).

    Args:
        backbone: an entry of `BACKBONES`.
        images: tensor (batch, height, width, channels), 0 to 255, 32 pixels per side or more. Grey
            becomes three equal channels.
        num_classes: length of the logits.
        batchnorm_momentum: of every BatchNormalization that is not frozen.
        batchnorm: "frozen" keeps BatchNormalization's published statistics and scales, "groups"
            trains them (docs/decisions/0010), "auto" freezes them unless the weights are random.
        dropout: share of the features dropped before the logits, in training.
        backbone_rate: factor of the learning rate below the head, 0 to 1. With 0 only the head
            trains, for about a third of the computing.
        pool: of the map, as `heads.logits` takes it.

    Raises:
        ValueError: if an argument is invalid.
    """
    frozen = Frozen.of(batchnorm, backbone_rate, batchnorm_momentum, random=backbone.random)
    pixels = prepared(images, backbone.pixels)
    raw: dict[str, Any] = {"include_preprocessing": False} if backbone.prepares else {}
    # The application's own mean comes before ConvNeXt's last norm.
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
    """Return the published weights that the config's backbone starts from, layer by layer; None if
    it starts from others.

    keras.applications downloads "imagenet", checks its hash and caches it in ~/.keras/models. A
    file is read in place, by its path or by `owner/slug/path` in a mounted dataset. Keras reads
    both (h5py: arrays and their names, no code).

    Raises:
        ConfigError: if there is no internet, no such file, or it is of a different network.
    """
    if config.model not in BACKBONES or config.init_from:  # which has other weights
        return None
    source = config.pretrained or IMAGENET
    return None if source == RANDOM else _read(BACKBONES[config.model].application, str(source))


def load_published(model: Any, config: Config) -> dict[str, str | None] | None:
    """Set the published weights of a model that `logits` built.

    Returns:
        For the manifest: their source, and the sha256 of all numbers in order; None if it has none.
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
    """Return the sha256 of all numbers in order."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@functools.lru_cache(maxsize=1)  # each fold starts from them
def _read(application: str, source: str) -> list[list[np.ndarray]]:
    path: str | Path = source
    if source != IMAGENET and not os.path.isfile(source):  # noqa: PTH113 - is_file refuses long names
        path = mounts.file(mounts.root() / "input", source) or source
    try:
        # Weights do not depend on the size of images.
        network = getattr(keras.applications, application)(
            include_top=False, weights=str(path), input_shape=(64, 64, 3)
        )
    except Exception as error:  # Keras raises Exception itself if it cannot download
        raise ConfigError(
            f"pretrained={source!r} cannot be read: {type(error).__name__}: {error}."
            "\nExpected 'imagenet', 'none' (random weights), or a file with the weights of"
            f" {application} without its top, as keras.applications publishes them (…_notop.h5) or"
            " as save_weights writes them (….weights.h5). Correct model, or the path.\n"
            "imagenet needs the internet. Turn it on for the train notebook (enable_internet, which"
            " needs a verified phone number; invoke dry-run --internet), or upload the file as a"
            ' dataset and set pretrained="owner/slug/file".'
        ) from error
    return [layer.get_weights() for layer in network.layers if layer.weights]
