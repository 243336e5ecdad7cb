"""Compute the outputs of a frozen published network once, and fit a linear model to them.

`Config.fit="linear"` takes minutes where fine-tuning takes hours, and is hard to beat with few
examples. The linear model becomes the kernel and bias of the last layer, so the artifact, the folds
and inference work as they do in any other run. `pipeline.train.boosting` fits trees instead.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import keras
import numpy as np
from scipy import linalg, special  # type: ignore[import-untyped]

from formats import atomic_file, npz
from pipeline.config import Config, custom_code
from pipeline.data.labels import repeated
from pipeline.data.row_gathering import blocks
from pipeline.errors import ConfigError
from pipeline.models import heads, published, trees
from pipeline.models.backbones import BACKBONES
from pipeline.runtime import devices, replicas
from pipeline.train.session import Session

FOLDER, BLOCK = "features", 4096  # subfolder of the output, and rows per file
# Inverse regularization strengths: scikit-learn's C, and 1 / alpha for regression.
STRENGTHS = tuple(10.0**power for power in range(-4, 2))
TRIED_ON = 5000  # number of rows used to compare strengths, a third of them for validation
SHOWN = 5.0  # seconds between progress lines
STEPS, EXACT = 200, 1e-3  # maximum solver iterations, and tolerance


class Linear(NamedTuple):
    """A linear model that computes features @ kernel + bias.

    The kernel is float32 (features, outputs), and the strength is one of `STRENGTHS`.
    """

    kernel: np.ndarray
    bias: np.ndarray
    strength: float

    @property
    def weights(self) -> Sequence[np.ndarray]:
        return self.kernel, self.bias

    @property
    def described(self) -> dict[str, Any]:
        return {"strength": self.strength}

    def outputs(self, features: np.ndarray) -> np.ndarray:
        return np.asarray(features @ self.kernel + self.bias)


Head = Linear | trees.Numbers  # replaces the last layer


def parts(model: Any, config: Config) -> tuple[Any, Any]:
    try:
        last = trees.last_layer(model.outputs[0], config.fit)
    except ValueError as error:
        raise ConfigError(f"{error}.\nMake it the last layer, or remove fit.") from error
    below = keras.Model(model.input, last.input)
    networks = [network for _, network in published.begun(model)]
    if config.model in BACKBONES:
        networks = [layer for layer in model.layers if not heads.is_new(layer)]
    known = {id(one) for network in networks for one in network.weights}
    new = [one.path for one in below.weights if id(one) not in known]
    if new or not (networks or config.model == "columns"):
        what = ", ".join(new[:2]) or "the model"
        raise ConfigError(
            f"Invalid fit={config.fit!r}: {what} has no published weights; expected published"
            " networks followed by one dense layer, or model='columns'.\nSet pretrained, remove new"
            " layers (such as pool='attention' or 'gem'), or remove fit."
        )
    return below, last


def key(config: Config, precision: str, origins: Any, data: str) -> str:
    """Return a digest of everything that determines the features.

    `origins` describes where the published weights come from, as returned by `published.load`, and
    `data` is the fingerprint of the examples.
    """
    network = config.model, dict(config.model_options), custom_code.digest(config), config.seed
    text = json.dumps([*network, precision, origins, data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def passing(below: Any) -> Callable[[Any], np.ndarray]:
    """Compile a network's forward pass, which returns float32 (n, features). Every call must have
    the same number of inputs.
    """
    # TPUs round float32 to bfloat16 by default.
    multiplied = devices.matmul_precision(keras.config.dtype_policy().name)
    mesh, kinds = replicas.mesh(), (below.trainable_variables, below.non_trainable_variables)
    weights = [[one.value for one in variables] for variables in kinds]

    def forward(weights: Any, images: Any) -> Any:
        with jax.default_matmul_precision(multiplied):
            features, _ = below.stateless_call(*weights, images, training=False)
        return features.astype("float32")

    compiled = jax.jit(forward, out_shardings=replicas.everywhere(mesh))
    return lambda images: np.asarray(compiled(weights, *replicas.put(mesh, images)))


def of(
    below: Any, inputs: Any, batch: int, folder: Path, session: Session, show: Callable[[str], None]
) -> np.ndarray | None:
    """Return the features of all inputs, float32 (n, features), or None if the session ends first.

    They are saved in `folder`, so that the next session can resume.
    """
    forward, number, made = passing(below), len(inputs), []
    begun = told = time.monotonic()
    new = 0  # rows computed in this call
    for start in range(0, number, BLOCK):
        rows, path = np.arange(start, min(start + BLOCK, number)), folder / f"{start:09d}.npz"
        if (kept := _read_features(path, len(rows), show)) is not None:
            made.append(kept)
            continue
        if why := session.over((time.monotonic() - begun) / max(len(made), 1)):
            show(f"Stopped after {start:,} of {number:,} features: {why}. Run again to resume.")
            return None
        computed = []
        for images, real in blocks(inputs, rows, batch):
            computed.append(forward(images)[:real])
            session.progress()
            new, ready = new + real, start + sum(map(len, computed))
            if (now := time.monotonic()) - told >= SHOWN:
                told, left = now, timedelta(seconds=int((now - begun) / new * (number - ready)))
                show(f"Features: {ready:,} of {number:,}, {left} left")
        made.append(np.concatenate(computed))
        atomic_file.write(path, npz.to_bytes({"features": made[-1]}))
    took = f"{new:,} computed in {time.monotonic() - begun:.0f} s"
    show(f"Features: {number:,} in total, {took}, {number - new:,} computed earlier")
    return np.concatenate(made)


def _read_features(path: Path, rows: int, show: Callable[[str], None]) -> np.ndarray | None:
    if not path.is_file():
        return None
    try:
        return npz.read(path)["features"].reshape(rows, -1)
    except Exception as error:  # zipfile and numpy raise many types for corrupt files
        show(f"Warning: cannot read {path} ({error}); computing it again")
        return None


def fit(
    config: Config, features: np.ndarray, labels: np.ndarray, weights: np.ndarray | None,
    groups: np.ndarray | None, strength: float | None = None,
) -> Linear:  # fmt: skip
    """Fit a linear model to standardized features.

    Args:
        weights: row weights; None if they are all equal.
        groups: groups of rows that are not split when strengths are compared; None to split by row.
        strength: None to use the best of `STRENGTHS`.
    """
    mean, spread = features.mean(axis=0), features.std(axis=0)
    spread = np.where(spread > 1e-6, spread, 1.0)
    standard, axes = (features - mean) / spread, None
    if len(standard) < standard.shape[1]:
        # The weights are in the span of the rows, which has fewer dimensions than the features.
        values, lengths, axes = linalg.svd(standard, full_matrices=False)
        standard = values * lengths
    if strength is None:
        strength = _best(config, standard, labels, weights, groups)
    kernel, bias = _solved(config, standard, labels, weights, strength)
    kernel = (kernel if axes is None else axes.T @ kernel) / spread[:, None]
    return Linear(kernel.astype(np.float32), (bias - mean @ kernel).astype(np.float32), strength)


def _best(
    config: Config, features: np.ndarray, labels: np.ndarray, weights: Any, groups: Any
) -> float:
    """Return the regularization strength with the lowest loss on a held-out third of the rows.
    Strengths are tried in order until the loss increases.
    """
    from sklearn.model_selection import GroupShuffleSplit

    draw = np.random.default_rng(config.seed)
    some = np.sort(draw.permutation(len(labels))[:TRIED_ON])
    of_rows = some if groups is None else groups[some]
    if len(np.unique(of_rows)) < 2:
        of_rows = some
    split = GroupShuffleSplit(1, test_size=1 / 3, random_state=config.seed % 2**32)
    ours, theirs = (some[each] for each in next(split.split(some, groups=of_rows)))

    def loss(strength: float) -> float:
        part = None if weights is None else weights[ours]
        kernel, bias = _solved(config, features[ours], labels[ours], part, strength)
        return _loss(config, features[theirs] @ kernel + bias, labels[theirs])

    losses = {STRENGTHS[0]: loss(STRENGTHS[0])}
    for before, strength in pairwise(STRENGTHS):
        losses[strength] = loss(strength)
        if losses[strength] > losses[before]:
            break
    return min(losses, key=lambda strength: losses[strength])


def _loss(config: Config, outputs: np.ndarray, labels: np.ndarray) -> float:
    if config.target == "regression":
        return float(np.square(outputs - labels.reshape(outputs.shape)).mean())
    if config.target == "classes":
        if labels.ndim > 1:
            own = (outputs * labels).sum(axis=1)
        else:
            own = np.take_along_axis(outputs, labels[:, None].astype(int), 1)[:, 0]
        return float((special.logsumexp(outputs, axis=1) - own).mean())
    columns = _columns(config, labels, outputs.shape[1])
    return float((np.logaddexp(0, outputs) - columns * outputs).mean())


def _columns(config: Config, labels: np.ndarray, number: int) -> np.ndarray:
    """Return the labels as columns of zeros and ones. For "ordinal", 1 means that the label is
    higher than the column's grade.
    """
    if config.target == "ordinal":
        return (labels[:, None] > np.arange(number)).astype(int)
    return labels.reshape(len(labels), -1).astype(int)


def _solved(
    config: Config, features: np.ndarray, labels: np.ndarray, weights: Any, strength: float
) -> tuple[np.ndarray, np.ndarray]:
    if config.target == "regression":
        from sklearn.linear_model import Ridge

        ridge = Ridge(alpha=1 / strength).fit(features, labels.reshape(len(labels), -1), weights)
        return np.atleast_2d(ridge.coef_).T, np.atleast_1d(ridge.intercept_)
    if config.target == "classes":
        return _of_classes(features, labels, weights, strength, config.outputs)
    columns = _columns(config, labels, config.outputs)
    pairs = [_of_classes(features, each, weights, strength, 2) for each in columns.T]
    kernel = np.stack([kernel[:, 1] - kernel[:, 0] for kernel, _ in pairs], axis=1)
    return kernel, np.array([bias[1] - bias[0] for _, bias in pairs])


def _of_classes(
    features: np.ndarray, labels: np.ndarray, weights: Any, strength: float, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return each class's kernel and bias. A class without rows is treated as if it had one row."""
    from sklearn.linear_model import LogisticRegression

    features, labels, weights = repeated(features, labels, weights)
    seen = np.unique(labels).astype(int)
    kernel, bias = np.zeros((features.shape[1], number)), np.zeros(number)
    if len(seen) > 1:
        model = LogisticRegression(C=strength, max_iter=STEPS, tol=EXACT)
        found = model.fit(features, labels, weights)
        # For two classes, scikit-learn returns one row of coefficients. The second class gets half
        # of each coefficient, and the first class gets minus half.
        halves = np.array([[-0.5], [0.5]]) if len(seen) == 2 else np.ones((1, 1))
        kernel[:, seen] = (halves * found.coef_).T
        bias[seen] = halves[:, 0] * found.intercept_
    unseen = np.setdiff1d(np.arange(number), seen)
    likely = special.logsumexp(features @ kernel[:, seen] + bias[seen], axis=1).mean()
    bias[unseen] = likely - np.log(len(labels))
    return kernel, bias
