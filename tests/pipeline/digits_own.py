"""digits with a model, a loss, a metric and an augmentation of its own: what a competitor brings.

Copied into pipeline/configs/ of a clone, nothing else is edited.
"""

from typing import Any

import keras
import numpy as np
from keras import layers

from pipeline.config import Config, Data, Optimizer

SIDE = 3  # pixels that are erased
GAMMA = 2  # of the focal loss


def squeeze_net(
    images: Any, num_classes: int, batchnorm_momentum: float, *, width: int = 24
) -> Any:
    """Return logits of convolutions with squeeze-and-excite (Hu et al. 2018, 1709.01507).

    Without corners, at which a last bit becomes a jump.
    """
    x = images
    for stage in (1, 2):
        x = layers.Conv2D(width * stage, 3, padding="same", use_bias=False, name=f"conv{stage}")(x)
        x = layers.BatchNormalization(momentum=batchnorm_momentum, name=f"norm{stage}")(x)
        x = layers.Activation("gelu", name=f"gelu{stage}")(x)
        scale = layers.GlobalAveragePooling2D(keepdims=True, name=f"squeeze{stage}")(x)
        scale = layers.Dense(width * stage, activation="sigmoid", name=f"excite{stage}")(scale)
        x = layers.Multiply(name=f"scaled{stage}")([x, scale])
        x = layers.AveragePooling2D(2, padding="same", name=f"pool{stage}")(x)
    x = layers.Dropout(0.2, name="dropout")(layers.Flatten(name="flat")(x))
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def focal(labels: Any, outputs: Any) -> Any:
    """Return the focal loss of each row (Lin et al. 2017, 1708.02002)."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)
    return (1 - keras.ops.exp(-losses)) ** GAMMA * losses


def macro_recall(truth: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean over the classes of how many of their rows are found."""
    return float(np.mean([(labels[truth == each] == each).mean() for each in np.unique(truth)]))


def erased(image: Any, key: Any) -> Any:
    """Return an image in which a square is black (Zhong et al. 2017, 1708.04896)."""
    import jax

    black = jax.numpy.zeros((SIDE, SIDE, image.shape[2]), image.dtype)
    corner = jax.random.randint(key, (2,), 0, image.shape[0] - SIDE + 1)
    return jax.lax.dynamic_update_slice(image, black, (*corner, 0))


CONFIG = Config(
    name="digits_own",
    competition="digits",
    num_classes=10,
    data=Data(height=8, width=8, channels=1, crop_padding=1),
    model="squeeze_net",
    loss="focal",
    metric="macro_recall",
    augment="erased",
    optimizer=Optimizer(name="adam", base_rate=4e-3, base_batch=128),
    batchnorm_momentum=0.9,
    batchnorm_batch=32,
    batch=128,
    epochs=40,
    warmup_epochs=4,
    progress_seconds=2,
    checkpoint_seconds=30,
)
