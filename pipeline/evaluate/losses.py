"""Compute the loss and the weight of each row.

The validation loss uses neither `label_smoothing` nor weights, so runs with different settings can
be compared.

References: label smoothing, Szegedy et al. 2016, arXiv:1512.00567; focal loss, Lin et al. 2017,
arXiv:1708.02002.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from pipeline.config import Config, custom_code
from pipeline.data import labels as target
from pipeline.data.dataset import Examples
from pipeline.errors import ConfigError, DataError

# Optional parameters of a custom loss, which follow the labels and outputs.
EXTRA, KEY = "extra", "key"


def asked(config: Config) -> set[str]:
    custom = custom_code.function(config, "loss")
    return set(inspect.signature(custom).parameters) & {EXTRA, KEY} if custom else set()


def of(config: Config, *, training: bool = False) -> Callable[..., dict[str, Any]]:
    """Return the loss function.

    Its arguments are the labels, the outputs, the extra outputs by name, and a JAX random key (None
    in validation). It returns {name: a value per row, (n,)}. Training minimizes the sum of these.
    """
    custom: Any = custom_code.function(config, "loss")
    wanted = asked(config)
    ours: Callable[[Any, Any], Any] = partial(target.losses, config.target)
    if config.loss:
        ours = partial(focal, config.target)
    elif training and config.label_smoothing:
        ours = partial(smoothed, config.target, config.label_smoothing)

    def loss(labels: Any, outputs: Any, extra: Any = None, key: Any = None) -> dict[str, Any]:
        more = {name: value for name, value in ((EXTRA, extra), (KEY, key)) if name in wanted}
        result = (custom or ours)(labels, outputs, **more)
        return dict(result) if isinstance(result, Mapping) else {"loss": result}

    return loss


def focal(kind: str, labels: Any, logits: Any) -> Any:
    """Return each row's cross-entropy times (1 - p) ** 2.

    p is the probability of the true label or, for soft labels, exp(-cross-entropy). If a row has
    several labels, the values are averaged. An exponent of 2 was best in the paper (section 4.1).
    """
    import keras

    each = target.binary if kind == "multilabel" else partial(target.losses, kind)
    losses = each(labels, logits)
    losses *= keras.ops.square(1 - keras.ops.exp(-losses))
    return keras.ops.mean(losses, axis=-1) if kind == "multilabel" else losses


def smoothed(kind: str, share: float, labels: Any, logits: Any) -> Any:
    """Return each row's loss after spreading a fraction of each label evenly over all labels."""
    import keras

    if kind == "multilabel":
        return target.losses(kind, (1 - share) * labels + share / 2, logits)
    of_all = keras.ops.logsumexp(logits, axis=-1) - keras.ops.mean(logits, axis=-1)
    return (1 - share) * target.losses(kind, labels, logits) + share * of_all


def row_weights(examples: Examples, config: Config, rows: np.ndarray) -> np.ndarray | None:
    """Return each example's weight in the loss, float32 (n,), or None if all weights are the same.

    Class weights are scaled to a mean of 1 over the training rows, which preserves the scale of the
    loss and the learning rate. Weights from a column are not scaled. A row with soft labels counts
    as a fraction of a row of each class.

    Args:
        rows: int64 (m,), training rows.

    Raises:
        ConfigError: if class_weights contains labels that are not in the data.
        DataError: if all training rows have a weight of 0.
    """
    weights, by_class = examples.weights, config.class_weights
    if by_class:
        names, labels = examples.classes, examples.labels
        if isinstance(by_class, str) and labels.ndim > 1:
            of_class = 1 / np.maximum(labels[rows].sum(axis=0, dtype=np.float64), 1)
        elif isinstance(by_class, str):
            of_class = 1 / np.maximum(np.bincount(labels[rows], minlength=len(names)), 1)
        else:
            if unknown := sorted(set(by_class) - set(names)):
                raise ConfigError(
                    f"class_weights lists {', '.join(map(repr, unknown[:5]))}; expected labels of"
                    f" the data: {', '.join(map(repr, names[:12]))}.\nCorrect the spelling."
                )
            of_class = np.array([by_class.get(name, 1.0) for name in names])
        each = (labels * of_class).sum(axis=1) if labels.ndim > 1 else of_class[labels]
        each = each / (each[rows].mean() or 1.0)
        weights = each if weights is None else each * weights
    if weights is None:
        return None
    if not weights[rows].any():
        raise DataError(
            f"class_weights and data.weight_column={config.data.weight_column!r} are 0 for all"
            f" {len(rows)} training rows; expected at least one above 0.\n"
            "Raise the weight of a label in the training rows, or correct the column."
        )
    return weights.astype(np.float32)
