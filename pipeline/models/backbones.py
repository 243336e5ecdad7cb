"""Networks of keras.applications under a new head, and their published weights.

A backbone prepares its pixels inside the model, in float32, so that training and inference cannot
differ. To build one needs no network. `published` reads the weights, in training only, and the
artifact carries the trained ones.

To add one, name it in `BACKBONES` with the numbers of its `preprocess_input`.
"""

import functools
import hashlib
import os
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
        pixels: how it was trained.
        prepares: whether the application would do so itself, and must be told not to.
        random: whether its weights are (`Config.pretrained`).
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
        all: whether nothing of it does.
        batchnorm_momentum: of its BatchNormalization; None: that keeps its statistics and scales.
    """

    all: bool
    batchnorm_momentum: float | None

    @classmethod
    def of(
        cls, batchnorm: str, backbone_rate: float, momentum: float, *, random: bool = False
    ) -> "Frozen":
        """Return what the options of a model say.

        Args:
            batchnorm: "frozen", "groups", or "auto": as published, and trained where the weights
                are random.
            backbone_rate: 0 freezes all.
            momentum: of BatchNormalization that trains.

        Raises:
            ValueError: if one of them cannot be, or they cannot be together.
        """
        if batchnorm not in ("auto", "frozen", "groups"):
            raise ValueError(f"batchnorm={batchnorm!r}; expected 'auto', 'frozen' or 'groups'")
        if not isinstance(backbone_rate, int | float) or not 0 <= backbone_rate <= 1:
            raise ValueError(f"backbone_rate={backbone_rate!r}; expected a number from 0 to 1")
        if backbone_rate == 0 and batchnorm == "groups":
            raise ValueError(
                "backbone_rate=0 freezes what batchnorm='groups' trains; expected one of both"
            )
        frozen = batchnorm == "frozen" or (batchnorm == "auto" and not random)
        return cls(not backbone_rate, None if frozen else momentum)

    def set(self, network: Any) -> None:
        """Freeze the layers of a Keras model, at any depth."""
        for layer in descendants(network):
            if self.all:
                layer.trainable = False
            if isinstance(layer, layers.BatchNormalization):
                layer.momentum = self.batchnorm_momentum or layer.momentum
                layer.trainable = layer.trainable and self.batchnorm_momentum is not None


def prepared(images: Any, pixels: Pixels, name: str = "prepared") -> Any:
    """Return images as a network was trained with them, in three colours.

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
            becomes three equal colours.
        num_classes: length of the logits.
        batchnorm_momentum: of every BatchNormalization that is not frozen.
        batchnorm: "frozen" keeps BatchNormalization's published statistics and scales, "groups"
            trains them (docs/decisions/0010), "auto" freezes those of pretrained weights, and all
            of a frozen backbone.
        dropout: share of the features dropped before the logits, in training.
        backbone_rate: factor of the learning rate for all but the head, 0 to 1. 0 freezes that: the
            head trains alone, for about a third of the computing.
        pool: of the map, as `heads.logits` takes it.

    Raises:
        ValueError: if an argument cannot work.
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
    """Return the published weights that the config's backbone starts with, those of each layer in
    their order; None if it starts with others.

    keras.applications downloads "imagenet", checks its hash and caches it in ~/.keras/models. A
    file is read in place: by its path, or by `owner/slug/path` in a dataset that the train notebook
    mounts. Keras' reader of weights reads both (h5py: arrays and their names, no code).

    Raises:
        ConfigError: if there is no internet, no such file, or one of another network.
    """
    if config.model not in BACKBONES or config.init_from:  # which starts with other weights
        return None
    source = config.pretrained or IMAGENET
    return None if source == RANDOM else _read(BACKBONES[config.model].application, str(source))


def load_published(model: Any, config: Config) -> dict[str, str | None] | None:
    """Set the published weights of a model that `logits` built.

    Returns:
        For the manifest: their source, and the sha256 of all numbers in order; None without any.
    """
    weights = published(config)
    if weights is None:
        return None
    digest = hashlib.sha256()
    backbone = [layer for layer in model.layers if layer.weights and not heads.is_new(layer)]
    for layer, arrays in zip(backbone, weights, strict=True):
        layer.set_weights(arrays)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
    return {"source": str(config.pretrained or IMAGENET), "arrays_sha256": digest.hexdigest()}


@functools.lru_cache(maxsize=1)  # each fold starts with them
def _read(application: str, source: str) -> list[list[np.ndarray]]:
    path: str | Path = source
    if source != IMAGENET and not os.path.isfile(source):  # noqa: PTH113 - is_file refuses long names
        path = mounts.file(mounts.root() / "input", source) or source
    try:
        # Weights do not depend on the size of the images.
        network = getattr(keras.applications, application)(
            include_top=False, weights=str(path), input_shape=(64, 64, 3)
        )
    except Exception as error:  # Keras raises Exception itself if it cannot download
        raise ConfigError(
            f"pretrained={source!r} cannot work: {type(error).__name__}: {error}."
            "\nExpected 'imagenet', 'none' (random weights), or a file with the weights of"
            f" {application} without its top, as keras.applications publishes them (…_notop.h5) or"
            " as save_weights writes them (….weights.h5). Correct model, or the path.\n"
            "imagenet needs the internet. Turn it on for the train notebook (enable_internet, for"
            " an account whose phone is verified; invoke dry-run --internet), or mount the file:"
            ' make a dataset of it, and set pretrained="owner/slug/file".'
        ) from error
    return [layer.get_weights() for layer in network.layers if layer.weights]
