"""The baseline of a competition: a simple model, fitted in seconds and scored out of fold.

Images: a random forest on thumbnails and colour histograms. Tables: gradient boosting. A network
that does no better has learned nothing that these do not see.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from pipeline.config import Baseline, Config
from pipeline.data.dataset import Examples
from pipeline.errors import DataError
from pipeline.evaluate import metrics

FOREST = "a random forest on thumbnails and colour histograms"
BOOSTING = "HistGradientBoosting"
# Images, and rows of a table, that are fitted at most: of more, a random sample.
MOST_IMAGES, MOST_ROWS = 6_000, 20_000
SIDE = 12  # pixels of a thumbnail
TREES = 100
MOST_BOOSTED = 1_000  # trees of one fit: with many classes, boosting has to stop sooner
LEAST_ROWS = 10
FOLDS, FEWER_FOLDS, FEW = 5, 3, 2_000  # with more rows than `FEW`, the fewer folds

Fitted = Callable[[np.ndarray], np.ndarray]


def fit(config: Config, examples: Examples) -> Baseline:
    """Return the baseline of these examples by the config's metric.

    Args:
        config: with kind "table" it is fitted on all columns, else on pixels.
        examples: their inputs are uint8 (n, height, width, channels), or the encoded rows.

    Raises:
        DataError: if there are too few rows, or the metric has no value for them.
    """
    table = config.data.kind == "table"
    chosen = sampled(examples, MOST_ROWS if table else MOST_IMAGES, config.seed)
    metric = metrics.of(config)
    found = out_of_fold(config, chosen)
    truth = chosen.target.truth(chosen.labels)
    return Baseline(
        model=BOOSTING if table else FOREST,
        metric=metric.name,
        score=float(f"{metric(truth, found):.6g}"),
        error=float(f"{metrics.standard_error(metric, truth, found, config.seed):.3g}"),
        rows=len(chosen),
    )


def sampled(examples: Examples, most: int, seed: int) -> Examples:
    """Return at most so many of the examples, drawn at random."""
    if len(examples) <= most:
        return examples
    return part(
        examples,
        np.sort(np.random.default_rng(seed).choice(len(examples), most, replace=False)),
    )


def part(examples: Examples, rows: np.ndarray) -> Examples:
    """Return these rows of the examples."""
    groups = None if examples.groups is None else examples.groups[rows]
    return replace(
        examples,
        ids=tuple(examples.ids[row] for row in rows),
        inputs=examples.inputs[rows],
        labels=examples.labels[rows],
        groups=groups,
    )


def out_of_fold(config: Config, examples: Examples) -> np.ndarray:
    """Return a prediction for each example, float (n, k), by a model that has not seen it.

    Raises:
        DataError: if there are too few rows or groups.
    """
    target, labels = examples.target, examples.labels
    if config.data.kind == "table":
        features, categories = _columns(config, examples.inputs)
    else:
        features, categories = thumbnails(examples.inputs), None
    found = np.zeros((len(examples), len(target.names)))
    # With few rows the threads of boosting wait for each other. On a busy machine ten fits of 90
    # rows took 35 s, with one thread less than 4 (docs/dev/findings.md).
    with threadpool_limits(1 if len(examples) <= FEW else None, user_api="openmp"):
        for rows, held in _folds(examples, config.seed):
            if target.single:
                classes = len(target.names)
                predict = _classifier(features[rows], labels[rows], classes, categories, config)
            elif categories is None:
                predict = _regressor(features[rows], labels[rows], categories, config)
            else:
                predict = _each_column(features[rows], labels[rows], categories, config)
            found[held] = predict(features[held])
    return target.predictions(found) if target.kind == "regression" else found


def thumbnails(images: np.ndarray) -> np.ndarray:
    """Return thumbnails of 12x12 pixels, and the share of each of 64 colours (or 16 greys).

    Args:
        images: uint8 (n, height, width, channels), of 1 or 3 channels.

    Returns:
        float32 (n, 12 x 12 x channels + 64 or 16).

    >>> thumbnails(np.zeros((2, 5, 7, 3), np.uint8)).shape
    (2, 496)
    """
    channels, small = images.shape[3], []
    for pixels in images:
        image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
        small.append(np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX)).ravel())
    levels, bits = (16, 4) if channels == 1 else (4, 6)
    factors = levels ** np.arange(channels)
    colours = ((images >> bits) * factors.astype(np.uint8)).sum(axis=3).reshape(len(images), -1)
    count = levels**channels
    shares = [np.bincount(row, minlength=count) / colours.shape[1] for row in colours]
    return np.concatenate([np.array(small), np.array(shares) * 255], axis=1).astype(np.float32)


def _columns(config: Config, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of a table with gaps as NaN, and which of them are categories."""
    numbers = len(config.data.numeric_columns)
    known = np.where(inputs[:, numbers : 2 * numbers] > 0, np.nan, inputs[:, :numbers])
    features = np.concatenate([known, inputs[:, 2 * numbers :]], axis=1)
    return features, np.arange(features.shape[1]) >= numbers


def _folds(examples: Examples, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (training rows, held-out rows) of each fold; labels may be too rare for all folds."""
    from sklearn.model_selection import KFold, StratifiedGroupKFold, StratifiedKFold

    strata, groups = examples.target.strata(examples.labels), examples.groups
    count = FOLDS if len(examples) <= FEW else FEWER_FOLDS
    if groups is not None:
        count = min(count, len(np.unique(groups)))
    if count < 2 or len(examples) < LEAST_ROWS:
        what = "groups" if count < 2 else "rows"
        raise DataError(
            f"There are too few {what} for a baseline out of fold; expected {LEAST_ROWS} rows, and"
            " 2 groups where there are groups.\nAdd labelled rows."
        )
    kind: Any = StratifiedKFold if groups is None else StratifiedGroupKFold
    if np.unique(strata, return_counts=True)[1].max() < count:
        strata = np.zeros(len(examples), int)
        kind = KFold if groups is None else StratifiedGroupKFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label may have fewer rows than folds
        splitter = kind(count, shuffle=True, random_state=seed)
        return list(splitter.split(np.zeros(len(examples)), strata, groups))


def _classifier(
    features: np.ndarray,
    labels: np.ndarray,
    classes: int,
    categories: np.ndarray | None,
    config: Config,
) -> Fitted:
    """Return what gives the probabilities of all classes, (n, classes)."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

    seen = np.unique(labels)
    if len(seen) == 1:
        return lambda rows: np.tile(np.eye(classes)[seen[0]], (len(rows), 1))
    model: Any
    if categories is None:
        model = RandomForestClassifier(TREES, n_jobs=-1, random_state=config.seed)
    else:
        model = HistGradientBoostingClassifier(
            max_iter=min(100, max(MOST_BOOSTED // len(seen), 10)),
            categorical_features=categories,
            random_state=config.seed,
        )
    model.fit(features, labels)

    def predict(rows: np.ndarray) -> np.ndarray:
        found = np.zeros((len(rows), classes))
        found[:, seen] = model.predict_proba(rows)
        # As if one tree more said nothing: a logarithm of 0 would make the baseline too low.
        return (TREES * found + 1 / classes) / (TREES + 1)

    return predict


def _regressor(
    features: np.ndarray, labels: np.ndarray, categories: np.ndarray | None, config: Config
) -> Fitted:
    """Return what gives numbers, or shares of labels, (n, k)."""
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

    model: Any
    if categories is None:
        model = RandomForestRegressor(
            TREES, max_features="sqrt", n_jobs=-1, random_state=config.seed
        )
    else:
        model = HistGradientBoostingRegressor(
            categorical_features=categories, random_state=config.seed
        )
    model.fit(features, labels[:, 0] if labels.shape[1] == 1 else labels)
    return lambda rows: model.predict(rows).reshape(len(rows), -1)


def _each_column(
    features: np.ndarray, labels: np.ndarray, categories: np.ndarray, config: Config
) -> Fitted:
    """Return what gives the numbers or shares of all columns; boosting fits one at a time."""
    if config.target == "regression":
        models = [_regressor(features, column[:, None], categories, config) for column in labels.T]
        return lambda rows: np.concatenate([model(rows) for model in models], axis=1)
    models = [
        _classifier(features, column.astype(np.int64), 2, categories, config) for column in labels.T
    ]
    return lambda rows: np.stack([model(rows)[:, 1] for model in models], axis=1)
