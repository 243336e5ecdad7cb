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
from pipeline.runtime import mounts

IMAGENET, RANDOM = "imagenet", "none"


class Backbone(NamedTuple):
    """A network of keras.applications.

    It was trained with pixels x scale + offset, of pixels from 0 to 255 (red, green, blue).

    Attributes:
        application: its name in keras.applications.
        scale: one factor, or one per colour.
        offset: the same.
        prepares: whether the application would do so itself, and must be told not to.
    """

    application: str
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    prepares: bool = True


# Of red, green and blue over ImageNet, for pixels from 0 to 1.
MEANS, DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STANDARD = (
    tuple(1 / (255 * deviation) for deviation in DEVIATIONS),
    tuple(-mean / deviation for mean, deviation in zip(MEANS, DEVIATIONS, strict=True)),
)
AROUND_ZERO = ((1 / 127.5,), (-1.0,))
BACKBONES = {
    "efficientnetv2b0": Backbone("EfficientNetV2B0", *STANDARD),
    "efficientnetv2b1": Backbone("EfficientNetV2B1", *STANDARD),
    "efficientnetv2b2": Backbone("EfficientNetV2B2", *STANDARD),
    "efficientnetv2b3": Backbone("EfficientNetV2B3", *STANDARD),
    "efficientnetv2s": Backbone("EfficientNetV2S", (1 / 128,), (-1.0,)),
    "efficientnetv2m": Backbone("EfficientNetV2M", (1 / 128,), (-1.0,)),
    "convnext_tiny": Backbone("ConvNeXtTiny", *STANDARD),
    "convnext_small": Backbone("ConvNeXtSmall", *STANDARD),
    "convnext_base": Backbone("ConvNeXtBase", *STANDARD),
    "mobilenetv3_small": Backbone("MobileNetV3Small", *AROUND_ZERO),
    "mobilenetv3_large": Backbone("MobileNetV3Large", *AROUND_ZERO),
    "resnet50v2": Backbone("ResNet50V2", *AROUND_ZERO, prepares=False),
}


def logits(
    backbone: Backbone,
    images: Any,
    num_classes: int,
    batchnorm_momentum: float,
    *,
    pretrained: str = IMAGENET,
    batchnorm: str = "auto",
    dropout: float = 0.2,
    backbone_rate: float = 1.0,
) -> Any:
    """Return logits of a backbone, the mean over its pixels, dropout, and a dense layer.

    Args:
        backbone: an entry of `BACKBONES`.
        images: tensor (batch, height, width, channels), 0 to 255, 32 pixels per side or more. Grey
            becomes three equal colours.
        num_classes: length of the logits.
        batchnorm_momentum: of every BatchNormalization that is not frozen.
        pretrained: "imagenet" (what keras.applications publishes), such a file, or "none": random
            weights. See `published`.
        batchnorm: "frozen" keeps BatchNormalization's published statistics and scales, "groups"
            trains them (docs/decisions/0010), "auto" freezes those of pretrained weights, and all
            of a frozen backbone.
        dropout: share of the features dropped before the logits, in training.
        backbone_rate: factor of the learning rate for all but the head, 0 to 1. 0 freezes that: the
            head trains alone, for about a third of the computing.

    Raises:
        ValueError: if an argument cannot work.
    """
    trains = batchnorm in ("auto", "frozen") if backbone_rate == 0 else 0 < backbone_rate <= 1
    if batchnorm not in ("auto", "frozen", "groups") or not trains:
        raise ValueError(
            f"batchnorm={batchnorm!r}, backbone_rate={backbone_rate}; expected 'auto', 'frozen' or"
            " 'groups', and 0 to 1 (0 freezes what 'groups' trains)"
        )
    if images.shape[-1] == 1:
        images = layers.Concatenate(name="grey_to_colour")([images] * 3)
    scale, offset = np.array(backbone.scale, np.float32), np.array(backbone.offset, np.float32)
    # In float32 under every policy: bfloat16 has too few digits for 255 levels around a mean.
    pixels = layers.Rescaling(scale, offset, dtype="float32", name="prepared")(images)
    raw: dict[str, Any] = {"include_preprocessing": False} if backbone.prepares else {}
    network = getattr(keras.applications, backbone.application)(
        include_top=False,
        weights=None,
        input_tensor=pixels,
        input_shape=tuple(pixels.shape[1:]),
        pooling="avg",
        **raw,
    )
    frozen = batchnorm == "frozen" or (batchnorm == "auto" and pretrained != RANDOM)
    for layer in network.layers:
        if not backbone_rate:
            layer.trainable = False
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = batchnorm_momentum
            layer.trainable = layer.trainable and not frozen
    x = layers.Dropout(dropout, name="head_dropout")(network.output)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


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
    source = str(config.model_options.get("pretrained", IMAGENET))
    return None if source == RANDOM else _read(BACKBONES[config.model].application, source)


def load_published(model: Any, config: Config) -> dict[str, str | None] | None:
    """Set the published weights of a model that `logits` built.

    Returns:
        For the manifest: their source, and the sha256 of all numbers in order; None without any.
    """
    weights = published(config)
    if weights is None:
        return None
    digest = hashlib.sha256()
    *backbone, _ = (layer for layer in model.layers if layer.weights)  # the last is the head
    for layer, arrays in zip(backbone, weights, strict=True):
        layer.set_weights(arrays)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
    source = str(config.model_options.get("pretrained", IMAGENET))
    return {"source": source, "arrays_sha256": digest.hexdigest()}


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
            f"model_options['pretrained']={source!r} cannot work: {type(error).__name__}: {error}."
            "\nExpected 'imagenet', 'none' (random weights), or a file with the weights of"
            f" {application} without its top, as keras.applications publishes them (…_notop.h5) or"
            " as save_weights writes them (….weights.h5). Correct model, or the path.\n"
            "imagenet needs the internet. Turn it on for the train notebook (enable_internet, for"
            " an account whose phone is verified; invoke dry-run --internet), or mount the file:"
            ' make a dataset of it, write "dataset_sources": ["owner/slug"] into'
            ' kernels/train-tpu/kernel-metadata.json, and set pretrained="owner/slug/file".'
        ) from error
    return [layer.get_weights() for layer in network.layers if layer.weights]
