"""Losses: what a training minimizes for each row, and how much each row counts.

`Config.loss` names a function of the config's own file, or one of ours: "focal". Without a name it
is the usual loss of the target (`pipeline.data.labels`). The validation loss is the same function
without `label_smoothing`, and counts all rows alike, so that it compares between such settings.

Sources: label smoothing, Szegedy et al. 2016, arXiv:1512.00567; focal loss, Lin et al. 2017,
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

# What a custom loss may ask for by the name of a parameter, beside labels and outputs.
EXTRA, KEY = "extra", "key"


def asked(config: Config) -> set[str]:
    """Return what the custom loss of a config asks for: `EXTRA`, `KEY`, both or nothing."""
    custom = custom_code.function(config, "loss")
    return set(inspect.signature(custom).parameters) & {EXTRA, KEY} if custom else set()


def of(config: Config, *, training: bool = False) -> Callable[..., dict[str, Any]]:
    """Return the loss as a function of labels, outputs, extra outputs by name, and a key of JAX's
    random numbers (None in validation), which gives numbers per row, (n,), by name. Their sum is
    minimized.

    Args:
        config: the run.
        training: smooth the labels.
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
    """Return the cross-entropy of each row times (1 - p) ** 2, where p is the probability of the
    truth; of several labels the mean. Section 4.1 of its paper finds the exponent 2 best.

    Args:
        kind, labels, logits: as `pipeline.data.labels.losses` takes them.
    """
    import keras

    each = target.binary if kind == "multilabel" else partial(target.losses, kind)
    losses = each(labels, logits)
    losses *= keras.ops.square(1 - keras.ops.exp(-losses))
    return keras.ops.mean(losses, axis=-1) if kind == "multilabel" else losses


def smoothed(kind: str, share: float, labels: Any, logits: Any) -> Any:
    """Return the loss of each row, of labels that are wrong with a small probability.

    Args:
        kind, labels, logits: as `pipeline.data.labels.losses` takes them.
        share: of each label that all labels get in equal parts.
    """
    import keras

    if kind == "multilabel":
        return target.losses(kind, (1 - share) * labels + share / 2, logits)
    of_all = keras.ops.logsumexp(logits, axis=-1) - keras.ops.mean(logits, axis=-1)
    return (1 - share) * target.losses(kind, labels, logits) + share * of_all


def row_weights(examples: Examples, config: Config, rows: np.ndarray) -> np.ndarray | None:
    """Return how much each example's loss counts: float32 (n,); None: all count alike.

    The weights of classes have a mean of 1 over the training rows, so that they change neither the
    scale of the loss nor what a learning rate does. Those of a column count as they are.

    Args:
        examples: all of them.
        config: the run.
        rows: int64 (m,), those that train.

    Raises:
        ConfigError: if class_weights has other labels than the data.
        DataError: if all training rows get 0.
    """
    weights, by_class = examples.weights, config.class_weights
    if by_class:
        names, codes = examples.classes, examples.labels
        if isinstance(by_class, str):
            of_class = 1 / np.maximum(np.bincount(codes[rows], minlength=len(names)), 1)
        else:
            if unknown := sorted(set(by_class) - set(names)):
                raise ConfigError(
                    f"class_weights has {', '.join(map(repr, unknown[:5]))}; expected labels of the"
                    f" data: {', '.join(map(repr, names[:12]))}.\nCorrect the spelling."
                )
            of_class = np.array([by_class.get(name, 1.0) for name in names])
        each = of_class[codes]
        each = each / (each[rows].mean() or 1.0)
        weights = each if weights is None else each * weights
    if weights is None:
        return None
    if not weights[rows].any():
        raise DataError(
            f"class_weights and data.weight_column={config.data.weight_column!r} give 0 to each of"
            f" {len(rows)} training rows; expected some above 0.\n"
            "Raise the weight of a label that training has, or correct the column."
        )
    return weights.astype(np.float32)
