"""Frozen features: the outputs of a published network that does not train, computed once, and a
linear model of them as the last layer. `pipeline.train.boosting` grows trees instead.

`Config.fit="linear"` takes minutes where fine-tuning takes hours, and is hard to beat with few
examples. The linear model is the kernel and bias of the last layer, so artifact, folds and
inference are those of any run.
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
from pipeline.data.row_gathering import blocks
from pipeline.errors import ConfigError
from pipeline.models import heads, published, trees
from pipeline.models.backbones import BACKBONES
from pipeline.runtime import devices, replicas
from pipeline.train.session import Session

FOLDER, BLOCK = "features", 4096  # in the output; rows per file
# The weakness of the penalty on the weights: scikit-learn's C, and 1 / alpha of a regression.
STRENGTHS = tuple(10.0**power for power in range(-4, 2))
TRIED_ON = 5000  # rows on which these are compared; a third validates
SHOWN = 5.0  # seconds between two lines of progress
STEPS, EXACT = 200, 1e-3  # of the solver, and its tolerance


class Linear(NamedTuple):
    """A linear model: outputs are features @ kernel + bias.

    Attributes:
        kernel: float32 (features, outputs). bias: float32 (outputs,).
        strength: of `STRENGTHS`.
    """

    kernel: np.ndarray
    bias: np.ndarray
    strength: float

    @property
    def weights(self) -> Sequence[np.ndarray]:
        """Those of the layer."""
        return self.kernel, self.bias

    @property
    def described(self) -> dict[str, Any]:
        """The strength, for the manifest."""
        return {"strength": self.strength}

    def outputs(self, features: np.ndarray) -> np.ndarray:
        """Return float32 (n, outputs)."""
        return np.asarray(features @ self.kernel + self.bias)


Head = Linear | trees.Numbers  # stands for the last layer


def parts(model: Any, config: Config) -> tuple[Any, Any]:
    """Return the model from the inputs to the features, and the last layer.

    Raises:
        ConfigError: if the last layer cannot be a linear model, or the layers below are not
            published.
    """
    try:
        last = trees.last_layer(model.outputs[0], config.fit)
    except ValueError as error:
        raise ConfigError(f"{error}.\nEnd the model with it, or leave fit out.") from error
    below = keras.Model(model.input, last.input)
    networks = [network for _, network in published.begun(model)]
    if config.model in BACKBONES:
        networks = [layer for layer in model.layers if not heads.is_new(layer)]
    known = {id(one) for network in networks for one in network.weights}
    new = [one.path for one in below.weights if id(one) not in known]
    if new or not (networks or config.model == "columns"):
        what = ", ".join(new[:2]) or "nothing"
        raise ConfigError(
            f"fit={config.fit!r} cannot work: {what} has no published weights; expected published"
            " networks below one dense layer, or model='columns'.\nSet pretrained, leave out new"
            " layers (such as pool='attention' or 'gem'), or leave fit out."
        )
    return below, last


def key(config: Config, precision: str, origins: Any, data: str) -> str:
    """Return a digest of all that determines the features.

    Args:
        origins: of the published weights, as `published.load` returns them.
        data: the fingerprint of the examples.
    """
    network = config.model, dict(config.model_options), custom_code.digest(config), config.seed
    text = json.dumps([*network, precision, origins, data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def passing(below: Any) -> Callable[[Any], np.ndarray]:
    """Return the compiled forward pass of a network, to float32 (n, features).

    Args:
        below: as `parts` returns it. All calls must have equally many inputs.
    """
    # By default a TPU rounds float32 to bfloat16.
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
    """Return the features of all inputs, float32 (n, features); None if the session ends first.

    Args:
        below: as `parts` returns it.
        batch: inputs per call.
        folder: keeps the features, from which the next session resumes.
    """
    forward, number, made = passing(below), len(inputs), []
    begun = told = time.monotonic()
    new = 0  # rows computed in this call
    for start in range(0, number, BLOCK):
        rows, path = np.arange(start, min(start + BLOCK, number)), folder / f"{start:09d}.npz"
        if (kept := _kept(path, len(rows), show)) is not None:
            made.append(kept)
            continue
        if why := session.over((time.monotonic() - begun) / max(len(made), 1)):
            show(f"Stopped at features {start:,} of {number:,}: {why}. The same command resumes.")
            return None
        computed = []
        for images, real in blocks(inputs, rows, batch):
            computed.append(forward(images)[:real])
            session.progress()
            new, ready = new + real, start + sum(map(len, computed))
            if (now := time.monotonic()) - told >= SHOWN:
                told, left = now, timedelta(seconds=int((now - begun) / new * (number - ready)))
                show(f"Features of {ready:,} of {number:,}, {left} to go")
        made.append(np.concatenate(computed))
        atomic_file.write(path, npz.to_bytes({"features": made[-1]}))
    took = f"{new:,} computed in {time.monotonic() - begun:.0f} s"
    show(f"Features of {number:,}: {took}, {number - new:,} computed before")
    return np.concatenate(made)


def _kept(path: Path, rows: int, show: Callable[[str], None]) -> np.ndarray | None:
    """Return the features in a file; None if there is no such file, or it is corrupt."""
    if not path.is_file():
        return None
    try:
        return npz.read(path)["features"].reshape(rows, -1)
    except Exception as error:  # a corrupt file makes zipfile and numpy raise a dozen kinds
        show(f"Warning: {path} cannot be read ({error}); it is computed again")
        return None


def fit(
    config: Config, features: np.ndarray, labels: np.ndarray, weights: np.ndarray | None,
    groups: np.ndarray | None, strength: float | None = None,
) -> Linear:  # fmt: skip
    """Fit a linear model to standardized features.

    Args:
        labels: as in the examples. weights: of rows; None: all equal.
        groups: of rows, which stay on one side when strengths are compared; None: split by row.
        strength: None: the best of `STRENGTHS`.
    """
    mean, spread = features.mean(axis=0), features.std(axis=0)
    spread = np.where(spread > 1e-6, spread, 1.0)
    standard, axes = (features - mean) / spread, None
    if len(standard) < standard.shape[1]:
        # The weights lie in the space that the rows span, which has fewer axes than features.
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
    """Return the strength whose model of two thirds of the rows has the least loss on the rest,
    tried in their order up to the first that is worse.
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
        own = np.take_along_axis(outputs, labels[:, None].astype(int), 1)[:, 0]
        return float((special.logsumexp(outputs, axis=1) - own).mean())
    columns = _columns(config, labels, outputs.shape[1])
    return float((np.logaddexp(0, outputs) - columns * outputs).mean())


def _columns(config: Config, labels: np.ndarray, number: int) -> np.ndarray:
    """Return labels as columns of 0 and 1: with "ordinal", whether they are above each grade."""
    if config.target == "ordinal":
        return (labels[:, None] > np.arange(number)).astype(int)
    return labels.reshape(len(labels), -1).astype(int)


def _solved(
    config: Config, features: np.ndarray, labels: np.ndarray, weights: Any, strength: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the (kernel, bias), float64, that minimize loss plus penalty."""
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
    """Return kernel and bias for a number of classes. One without rows is as likely as one row."""
    from sklearn.linear_model import LogisticRegression

    seen = np.unique(labels).astype(int)
    kernel, bias = np.zeros((features.shape[1], number)), np.zeros(number)
    if len(seen) > 1:
        model = LogisticRegression(C=strength, max_iter=STEPS, tol=EXACT)
        found = model.fit(features, labels, weights)
        # Two classes have one row of coefficients: half for the second, minus half for the first.
        halves = np.array([[-0.5], [0.5]]) if len(seen) == 2 else np.ones((1, 1))
        kernel[:, seen] = (halves * found.coef_).T
        bias[seen] = halves[:, 0] * found.intercept_
    unseen = np.setdiff1d(np.arange(number), seen)
    likely = special.logsumexp(features @ kernel[:, seen] + bias[seen], axis=1).mean()
    bias[unseen] = likely - np.log(len(labels))
    return kernel, bias
