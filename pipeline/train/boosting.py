"""Fit gradient-boosted trees to the columns of a table or the features of a published network.

scikit-learn fits trees (`HistGradientBoosting`, 255 bins). The trees are converted to the weights
of a layer (`pipeline.models.trees`), so inference requires neither scikit-learn nor pickle.
"""

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from pipeline.config import Config
from pipeline.data.labels import repeated
from pipeline.errors import ConfigError
from pipeline.models.trees import DEPTH, LEAVES, Numbers, iterations

CHECKED = 1_000  # number of rows used to compare the layer with scikit-learn
CLOSE = 1e-4  # maximum difference between float32 and float64, relative to the largest output
UNSEEN = 0.5  # number of rows to assume for a label that does not have any


def fit(
    config: Config, features: np.ndarray, labels: np.ndarray, weights: np.ndarray | None
) -> Numbers:
    """Fit trees to the rows' features, float32 (n, k), and return them as arrays."""
    made = Numbers.blank(config.outputs)
    if config.target == "classes":
        features, labels, weights = repeated(features, labels, weights)
        _grow_classes(config, features, labels.astype(int), weights, made)
        return made
    columns = labels.reshape(len(labels), -1)
    if config.target == "ordinal":
        columns = labels.reshape(-1, 1) > np.arange(config.outputs)
    for output, column in enumerate(columns.T):
        yes = column if config.target == "regression" else column.astype(int)
        if (
            config.target != "regression" and len(np.unique(yes)) < 2
        ):  # all rows have this label, or no row does
            made.first[output] = np.log((yes.sum() + UNSEEN) / ((1 - yes).sum() + UNSEEN))
        else:
            _grow(config, features, yes, weights, made, {0: output})
    return made


def _grow_classes(
    config: Config, features: np.ndarray, labels: np.ndarray, weights: Any, made: Numbers
) -> None:
    seen = np.unique(labels)
    made.first[:] = np.log(UNSEEN / len(labels))
    if len(seen) == 1:
        made.first[seen] = 0.0
    elif len(seen) == 2:  # a single tree for the log-odds of the second class
        made.first[seen] = 0.0
        _grow(config, features, (labels == seen[1]).astype(int), weights, made, {0: seen[1]})
    else:
        places = np.searchsorted(seen, labels)
        _grow(config, features, places, weights, made, dict(enumerate(seen)))


def _grow(
    config: Config, features: np.ndarray, labels: np.ndarray, weights: Any, made: Numbers,
    outputs: dict[int, Any],
) -> None:  # fmt: skip
    """Fit trees and store them in `made`. `outputs` maps the position of a tree within an iteration
    to the index of the output that it predicts.
    """
    from sklearn import ensemble

    regression, some = config.target == "regression", features[:CHECKED]
    name = f"HistGradientBoosting{'Regressor' if regression else 'Classifier'}"
    limits = {"max_leaf_nodes": LEAVES, "max_depth": DEPTH, "random_state": config.seed}
    # Early stopping would hold out random rows and ignore groups.
    limits |= {"max_iter": iterations(config.outputs), "early_stopping": False}
    model = getattr(ensemble, name)(**limits)
    with threadpool_limits(1):  # the threads of a fit block each other (docs/dev/findings.md)
        model.fit(features, labels, weights)
        wanted = model.predict(some) if regression else model.decision_function(some)
    ordered = np.sort(features, axis=0)
    try:
        for number, output in outputs.items():
            made.first[output] = model._baseline_prediction.ravel()[number]
            for iteration, grown in enumerate(model._predictors):
                _put(grown[number].nodes, ordered, made, output, iteration)
        places = list(outputs.values())
        found = Numbers(*(each[places] for each in made)).outputs(some)
        largest = max(np.abs(wanted).max(), 1.0)
        apart = np.abs(found - wanted.reshape(found.shape)).max() / largest
    except (AttributeError, IndexError, ValueError) as error:
        apart = error
    if not (isinstance(apart, float | np.floating) and apart <= CLOSE):
        import sklearn

        raise ConfigError(
            f"fit='boosting' does not support scikit-learn {sklearn.__version__}, whose trees have"
            f" an unknown format ({apart}); expected a tested version, 1.5 to 1.9.\n"
            "pip install 'scikit-learn>=1.5,<2'"
        )


def _put(nodes: Any, ordered: np.ndarray, made: Numbers, output: int, tree: int) -> None:
    """Copy the nodes of a scikit-learn tree into `made`. scikit-learn has no public API to read
    them.

    A feature value that equals a threshold on this device could be slightly larger on another. Each
    threshold is therefore moved to the midpoint between the feature values on either side of it.
    `ordered` contains the sorted values of each feature.
    """
    count, leaves = len(nodes), nodes["is_leaf"].astype(bool)
    wide = nodes["num_threshold"].copy()
    for node in np.flatnonzero(~leaves):
        column = ordered[:, nodes["feature_idx"][node]]
        place = min(max(np.searchsorted(column, wide[node], side="right"), 1), len(column) - 1)
        wide[node] = (float(column[place - 1]) + float(column[place])) / 2
    # Inputs are float32, so rounding a threshold down never moves a value to the other side of it.
    narrow = wide.astype(np.float32)
    narrow = np.where(narrow > wide, np.nextafter(narrow, np.float32(-np.inf)), narrow)
    made.features[output, tree, :count] = np.where(leaves, 0, nodes["feature_idx"])
    made.thresholds[output, tree, :count] = np.where(leaves, 0, narrow)
    for side, name in enumerate(("left", "right")):
        made.children[output, tree, :count, side] = np.where(leaves, np.arange(count), nodes[name])
    made.values[output, tree, :count] = np.where(leaves, nodes["value"], 0)
