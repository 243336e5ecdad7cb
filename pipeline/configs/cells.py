"""Segment cells in 32x32 grey images. docs/segmentation.md explains this config.

Command   invoke dry-run --config cells
Expect    Dice of about 0.9 on 250 held-out images; training takes about a minute on 2 CPU cores
"""

import keras
import numpy as np
import pandas as pd
from keras import layers
from PIL import Image

from pipeline.config import Config, Data, Optimizer
from pipeline.data.custom_readers import Rows

SIDE = 32


def read_cells(folder, config):
    """Load images and masks from train.csv, which contains ids and run-length encodings."""
    table = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    masks = np.stack([decoded(rle) for rle in table["rle"]])
    return Rows(ids=list(table["id"]), inputs=pictures(folder / "train", table["id"]), labels=masks)


def read_test_cells(folder, config, ids, state):
    """Load the images for the given ids."""
    return pictures(folder / "test", ids)


def pictures(folder, ids):
    """Load images as uint8 (n, 32, 32, 1)."""
    return np.stack([np.asarray(Image.open(folder / f"{name}.png")) for name in ids])[..., None]


def decoded(rle):
    """Decode run lengths to uint8 (32, 32). Pixels are numbered from 1, down the columns."""
    flat, words = np.zeros(SIDE * SIDE, np.uint8), [int(word) for word in rle.split()]
    for start, length in zip(words[::2], words[1::2], strict=True):
        flat[start - 1 : start - 1 + length] = 1
    return flat.reshape(SIDE, SIDE).T


def encoded(mask):
    """Encode a mask as run lengths. This is the inverse of `decoded`."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.T.ravel(), [0]])))
    runs = zip(edges[::2], edges[1::2], strict=True)
    return " ".join(f"{start + 1} {end - start}" for start, end in runs)


def unet(images, num_classes, batchnorm_momentum, *, width: int = 16):
    """Return a logit for each pixel, (n, 32, 32), which is positive for cells."""

    def block(x, channels):
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
            x = layers.BatchNormalization(momentum=batchnorm_momentum)(x)
            x = layers.ReLU()(x)
        return x

    fine = block(images, width)
    middle = block(layers.MaxPooling2D()(fine), 2 * width)
    coarse = block(layers.MaxPooling2D()(middle), 4 * width)
    middle = block(layers.Concatenate()([layers.UpSampling2D()(coarse), middle]), 2 * width)
    fine = block(layers.Concatenate()([layers.UpSampling2D()(middle), fine]), width)
    return layers.Reshape((SIDE, SIDE))(layers.Conv2D(1, 1, dtype="float32")(fine))


def entropy_and_dice(masks, logits):
    """Return each image's loss, (n,): the mean pixelwise cross-entropy plus (1 - soft Dice)."""
    masks = keras.ops.cast(masks, "float32")
    entropy = keras.ops.mean(keras.ops.softplus(logits) - logits * masks, axis=(1, 2))
    chance = keras.ops.sigmoid(logits)
    both = keras.ops.sum(chance * masks, axis=(1, 2))
    all_of_them = keras.ops.sum(chance + masks, axis=(1, 2))
    return entropy + 1 - (2 * both + 1) / (all_of_them + 1)


def dice(truth, numbers, greater_is_better=True):
    """Return the mean Dice score: twice the shared pixels divided by the pixels of both masks."""
    ours, theirs = numbers > 0, truth > 0
    both = (ours & theirs).sum(axis=(1, 2))
    return float((2 * both / np.maximum(ours.sum(axis=(1, 2)) + theirs.sum(axis=(1, 2)), 1)).mean())


def turned(image, mask, key):
    """Flip and transpose an image and its mask in the same way."""
    import jax  # imported here, because inference may run without JAX

    changes = (lambda a: a[::-1], lambda a: a[:, ::-1], lambda a: a.swapaxes(0, 1))
    for made, change in zip(jax.random.bernoulli(key, shape=(3,)), changes, strict=True):
        image, mask = (jax.numpy.where(made, change(each), each) for each in (image, mask))
    return image, mask


def write_masks(ids, numbers):
    """Return run-length encodings. Empty masks are replaced with the most probable pixel."""
    masks = numbers >= np.minimum(numbers.max(axis=(1, 2), keepdims=True), 1e-6)
    return {"rle": [encoded(mask) for mask in masks]}


CONFIG = Config(
    name="cells",
    competition="cells",
    target="custom",
    data=Data(
        kind="custom",
        custom_inputs={"image": ("uint8", SIDE, SIDE, 1)},
        custom_labels=("uint8", SIDE, SIDE),
        label_column="rle",
        labelled=600,
    ),
    read_training="read_cells",
    read_test="read_test_cells",
    model="unet",
    loss="entropy_and_dice",
    metric="dice",
    augment="turned",
    write_submission="write_masks",
    optimizer=Optimizer(name="adam", base_rate=2e-3, base_batch=32),
    batchnorm_momentum=0.97,
    batch=32,
    epochs=20,
    warmup_epochs=2,
)
