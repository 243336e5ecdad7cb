"""Segmentation: 32x32 grey pictures of cells, a mask for each; docs/segmentation.md explains it.

Command   invoke dry-run --config cells
Expect    Dice about 0.9 on 250 hidden pictures; training takes about a minute on 2 CPU cores
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
    """Return pictures and masks of train.csv, which has ids and run-length encodings."""
    table = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    masks = np.stack([decoded(rle) for rle in table["rle"]])
    return Rows(ids=list(table["id"]), inputs=pictures(folder / "train", table["id"]), labels=masks)


def read_test_cells(folder, config, ids, state):
    """Return the pictures of these ids."""
    return pictures(folder / "test", ids)


def pictures(folder, ids):
    """Return pictures, uint8 (n, 32, 32, 1)."""
    return np.stack([np.asarray(Image.open(folder / f"{name}.png")) for name in ids])[..., None]


def decoded(rle):
    """Return a mask, uint8 (32, 32): pairs of first pixel and length, from 1, down the columns."""
    flat, words = np.zeros(SIDE * SIDE, np.uint8), [int(word) for word in rle.split()]
    for start, length in zip(words[::2], words[1::2], strict=True):
        flat[start - 1 : start - 1 + length] = 1
    return flat.reshape(SIDE, SIDE).T


def encoded(mask):
    """Return the run-length encoding of a mask: the inverse of `decoded`."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.T.ravel(), [0]])))
    runs = zip(edges[::2], edges[1::2], strict=True)
    return " ".join(f"{start + 1} {end - start}" for start, end in runs)


def unet(images, num_classes, batchnorm_momentum, *, width: int = 16):
    """Return a logit for each pixel, (n, 32, 32), positive for cells."""

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
    """Return the mean cross-entropy of a picture's pixels, plus 1 - its soft Dice: (n,)."""
    masks = keras.ops.cast(masks, "float32")
    entropy = keras.ops.mean(keras.ops.softplus(logits) - logits * masks, axis=(1, 2))
    chance = keras.ops.sigmoid(logits)
    both = keras.ops.sum(chance * masks, axis=(1, 2))
    all_of_them = keras.ops.sum(chance + masks, axis=(1, 2))
    return entropy + 1 - (2 * both + 1) / (all_of_them + 1)


def dice(truth, numbers, greater_is_better=True):
    """Return the mean over pictures of twice the shared pixels over the pixels of both masks."""
    ours, theirs = numbers > 0, truth > 0
    both = (ours & theirs).sum(axis=(1, 2))
    return float((2 * both / np.maximum(ours.sum(axis=(1, 2)) + theirs.sum(axis=(1, 2)), 1)).mean())


def turned(image, mask, key):
    """Mirror and transpose a picture and its mask in the same way."""
    import jax  # here, since inference may have none

    changes = (lambda a: a[::-1], lambda a: a[:, ::-1], lambda a: a.swapaxes(0, 1))
    for made, change in zip(jax.random.bernoulli(key, shape=(3,)), changes, strict=True):
        image, mask = (jax.numpy.where(made, change(each), each) for each in (image, mask))
    return image, mask


def write_masks(ids, numbers):
    """Return the column of run-length encodings; an empty mask gets its most probable pixel."""
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
