"""The loss of each row, and the weights of rows in training.

`Config.loss` names a custom function, or "focal"; without it, the loss is the usual one for the
target (`pipeline.data.labels`). The validation loss has neither `label_smoothing` nor weights, so
that it is comparable between such settings.

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

# Optional parameters of a custom loss, after labels and outputs.
EXTRA, KEY = "extra", "key"


def asked(config: Config) -> set[str]:
    """Return which of `EXTRA` and `KEY` are parameters of the config's custom loss."""
    custom = custom_code.function(config, "loss")
    return set(inspect.signature(custom).parameters) & {EXTRA, KEY} if custom else set()


def of(config: Config, *, training: bool = False) -> Callable[..., dict[str, Any]]:
    """Return the loss: a function of labels, outputs, extra outputs by name, and a JAX random key
    (None in validation). It returns values per row, (n,), by name; their sum is minimized.

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
    truth; for several labels the mean. The exponent 2 is the best one in section 4.1 of the paper.

    Args:
        kind, labels, logits: as for `pipeline.data.labels.losses`.
    """
    import keras

    each = target.binary if kind == "multilabel" else partial(target.losses, kind)
    losses = each(labels, logits)
    losses *= keras.ops.square(1 - keras.ops.exp(-losses))
    return keras.ops.mean(losses, axis=-1) if kind == "multilabel" else losses


def smoothed(kind: str, share: float, labels: Any, logits: Any) -> Any:
    """Return the loss of each row with smoothed labels.

    Args:
        kind, labels, logits: as for `pipeline.data.labels.losses`.
        share: of each label that is spread evenly over all labels.
    """
    import keras

    if kind == "multilabel":
        return target.losses(kind, (1 - share) * labels + share / 2, logits)
    of_all = keras.ops.logsumexp(logits, axis=-1) - keras.ops.mean(logits, axis=-1)
    return (1 - share) * target.losses(kind, labels, logits) + share * of_all


def row_weights(examples: Examples, config: Config, rows: np.ndarray) -> np.ndarray | None:
    """Return the weight of each example in the loss: float32 (n,); None: equal.

    Class weights have a mean of 1 over the training rows, so that the scale of the loss and the
    learning rate stay the same. Those of a column are used unchanged.

    Args:
        examples: all of them.
        config: the run.
        rows: int64 (m,), those that train.

    Raises:
        ConfigError: if class_weights has labels that are not in the data.
        DataError: if the weights of all training rows are 0.
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
            f"class_weights and data.weight_column={config.data.weight_column!r} are 0 for all"
            f" {len(rows)} training rows; expected some above 0.\n"
            "Raise the weight of a label in the training rows, or correct the column."
        )
    return weights.astype(np.float32)
