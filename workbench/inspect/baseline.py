"""The baseline of a competition: a simple model, fitted in seconds and scored out of fold.

Images: a random forest on thumbnails and colour histograms. Tables: gradient boosting. Either with
many classes: the nearest neighbours. A network that does no better has learned nothing that these
do not see.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from pipeline.config import Baseline, Config
from pipeline.data import folds
from pipeline.data.dataset import Examples
from pipeline.errors import DataError
from pipeline.evaluate import metrics

FOREST = "a random forest on thumbnails and colour histograms"
BOOSTING = "HistGradientBoosting"
NEIGHBOURS = "the five nearest neighbours"
# Images, and rows of a table, that are fitted at most: of more, a random sample.
MOST_IMAGES, MOST_ROWS = 6_000, 20_000
SIDE = 12  # pixels of a thumbnail
TREES = 100
MOST_BOOSTED = 1_000  # trees of one fit: with many classes, boosting has to stop sooner
# Classes: of more, a forest, whose every leaf holds a number for each, takes too much memory (8 GB
# for 2,000 classes), and boosting, with a tree for each, too long.
MOST_TREED = 200
LEAST_ROWS = 10
FOLDS, FEWER_FOLDS, FEW = 5, 3, 2_000  # with more rows than `FEW`, the fewer folds


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
        model=NEIGHBOURS if config.num_classes > MOST_TREED else BOOSTING if table else FOREST,
        metric=metric.name,
        score=float(f"{metric(truth, found):.6g}"),
        error=float(f"{metrics.standard_error(metric, truth, found, config.seed):.3g}"),
        rows=len(chosen),
    )


def sampled(examples: Examples, most: int, seed: int) -> Examples:
    """Return at most so many of the examples, drawn at random."""
    if len(examples) <= most:
        return examples
    rows = np.random.default_rng(seed).choice(len(examples), most, replace=False)
    return part(examples, np.sort(rows))


def part(examples: Examples, rows: np.ndarray) -> Examples:
    """Return these rows of the examples."""
    return replace(
        examples,
        ids=tuple(examples.ids[row] for row in rows),
        inputs=examples.inputs[rows],
        labels=examples.labels[rows],
        groups=None if examples.groups is None else examples.groups[rows],
    )


def out_of_fold(config: Config, examples: Examples) -> np.ndarray:
    """Return a prediction for each example, float (n, k), by a model that has not seen it.

    Raises:
        DataError: if there are too few rows or groups.
    """
    if len(examples) < LEAST_ROWS:
        raise DataError(
            f"There are too few rows for a baseline out of fold: {len(examples)}; expected "
            f"{LEAST_ROWS}.\nAdd labelled rows."
        )
    target, labels, categories = examples.target, examples.labels, None
    if config.data.kind == "table":
        features, categories = _columns(config, examples.inputs)
    else:
        features = thumbnails(examples.inputs)
    if labels.ndim > 1 and labels.shape[1] == 1:
        labels = labels[:, 0]
    found = np.zeros((len(examples), len(target.names)))
    several = replace(config, folds=FOLDS if len(examples) <= FEW else FEWER_FOLDS)
    # With few rows the threads of boosting wait for each other. On a busy machine ten fits of 90
    # rows took 35 s, with one thread less than 4 (docs/dev/findings.md).
    with threadpool_limits(1 if len(examples) <= FEW else None, user_api="openmp"):
        for rows, held in folds.splits(examples, several):
            model = _model(config, labels[rows], categories, classes=target.single)
            model.fit(features[rows], labels[rows])
            if target.single:
                found[np.ix_(held, model.classes_)] = model.predict_proba(features[held])
            else:
                found[held] = model.predict(features[held]).reshape(len(held), -1)
    if target.single:  # as if one tree more said nothing: a logarithm of 0 would be unfair
        return (TREES * found + 1 / len(target.names)) / (TREES + 1)
    return target.predictions(found) if target.kind == "regression" else found.clip(0, 1)


def _model(
    config: Config, labels: np.ndarray, categories: np.ndarray | None, *, classes: bool
) -> Any:
    """Return the model for these labels.

    Args:
        categories: which features are categories, bool (k,); None: they are of images.
        classes: whether each row has one of several labels; else labels are numbers or shares.
    """
    from sklearn import dummy, ensemble, impute, multioutput, neighbors, pipeline, preprocessing

    seed: dict[str, Any] = {"random_state": config.seed}
    boosted = {"categorical_features": categories, **seed}
    number = len(np.unique(labels))
    if classes and number == 1:
        return dummy.DummyClassifier()
    if config.num_classes > MOST_TREED:
        nearest = neighbors.KNeighborsClassifier(weights="distance")
        scaled = impute.SimpleImputer(), preprocessing.StandardScaler()
        return pipeline.make_pipeline(*scaled, nearest)
    if categories is None and classes:
        return ensemble.RandomForestClassifier(TREES, n_jobs=-1, **seed)
    if categories is None:
        return ensemble.RandomForestRegressor(TREES, max_features="sqrt", n_jobs=-1, **seed)
    if classes:
        trees = min(100, max(MOST_BOOSTED // number, 10))
        return ensemble.HistGradientBoostingClassifier(max_iter=trees, **boosted)
    model = ensemble.HistGradientBoostingRegressor(**boosted)
    return model if labels.ndim == 1 else multioutput.MultiOutputRegressor(model)


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
    numbers = len(config.data.number_names)
    known = np.where(inputs[:, numbers : 2 * numbers] > 0, np.nan, inputs[:, :numbers])
    features = np.concatenate([known, inputs[:, 2 * numbers :]], axis=1)
    return features, np.arange(features.shape[1]) >= numbers
