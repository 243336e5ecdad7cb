"""Fit a simple model within seconds as a baseline, and compute its out-of-fold score.

For images, the baseline is a random forest that uses thumbnails, colour histograms and any table
columns. For tables, it is gradient boosting. For images and tables with many classes, it is nearest
neighbours instead. For texts, the baseline is a linear model on TF-IDF features. For segmentation,
it is the mean mask.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from pipeline.config import Baseline, Config
from pipeline.data import folds
from pipeline.data.dataset import Examples
from pipeline.errors import DataError
from pipeline.evaluate import metrics
from pipeline.evaluate.metrics import Metric

FOREST = "a random forest on thumbnails and colour histograms"
BOOSTING = "HistGradientBoosting"
MEAN_MASK = "the mean mask of the training images"
BESIDE = "a random forest on thumbnails, colour histograms and columns"
LINEAR = "TF-IDF and {}"  # logistic regression, or ridge
NEIGHBOURS = "the five nearest neighbours"
MOST_TERMS, SURE = 50_000, 10.0  # vocabulary size, and inverse regularization strength
MASK_SIDE = 64  # pixels; size at which a mean mask is scored
LEVELS = np.arange(1, 10) / 10  # thresholds to try for the fraction of masks that cover a pixel
COMPONENTS = 16  # principal components of thumbnails, if there are columns
MOST_TRIED = 2_000  # rows for testing whether columns improve on images alone
# Maximum number of images, table rows and table cells to fit. Larger sets are sampled at random.
# Texts are also sampled if their number of terms times labels is too large.
MOST_IMAGES, MOST_ROWS, MOST_NUMBERS = 6_000, 20_000, 4_000_000
MOST_LINEAR, MOST_WEIGHTS = 50_000_000, 4_000_000  # a fit keeps 25 copies of the weights
SIDE = 12  # pixels; width and height of a thumbnail
TREES = 100
MOST_BOOSTED = 1_000  # trees per fit, so boosting has fewer iterations if there are many labels
MOST_TREED = 100  # labels; with more, forests and boosting are too slow or too large
MOST_GROWN = 2_000  # trees of a forest times labels, to limit time (docs/dev/findings.md)
LEAST_ROWS = 10
FOLDS, FEWER_FOLDS, FEW = 5, 3, 2_000  # FEWER_FOLDS are used if there are more rows than FEW


def fit(config: Config, examples: Examples, beside: Any = None) -> Baseline:
    """Fit the baseline, and score it with the config's metric.

    Args:
        config: the config. If its `data.kind` is "table", the baseline uses columns, not pixels.
        examples: images, uint8 (n, height, width, channels), or encoded table rows.
        beside: rows of `workbench.inspect.inputs.Reader.features` for these examples. If they are
            sparse, as they are for texts, no other inputs are used.

    Raises:
        DataError: if there are too few rows, or if the metric is undefined for them.
    """
    masks, linear = config.target == "custom", hasattr(beside, "tocsr")
    labels = max(len(examples.target.names), 1)
    if linear:  # keep only the most frequent terms
        columns = np.argsort(-beside.getnnz(axis=0), kind="stable")[: MOST_WEIGHTS // labels]
        beside = beside[:, np.sort(columns)]
        most = min(MOST_ROWS, MOST_LINEAR * len(examples) // (max(beside.nnz, 1) * labels))
    elif config.data.kind == "table":
        most = min(MOST_ROWS, MOST_NUMBERS // examples.inputs.shape[1])
    else:
        most = MOST_IMAGES
    chosen = sampled(examples, most, config.seed)
    if masks:
        step = max(-(-max(examples.labels.shape[1:]) // MASK_SIDE), 1)
        chosen = replace(chosen, labels=chosen.labels[:, ::step, ::step])
    elif linear:
        chosen = replace(chosen, inputs=beside[_places(examples, chosen)])
    elif beside is not None:
        both = thumbnails(chosen.inputs), beside[_places(examples, chosen)]
        chosen = replace(chosen, inputs=np.concatenate(both, axis=1))
    metric = metrics.of(config)
    found = _mean_masks(config, chosen, metric) if masks else out_of_fold(config, chosen)
    truth = chosen.target.truth(chosen.labels)
    names = {"table": BOOSTING, "custom": MEAN_MASK if masks else BESIDE}
    if linear:
        hard = chosen.target.single and chosen.labels.ndim == 1
        names["custom"] = LINEAR.format("logistic regression" if hard else "ridge")
    name = names.get(config.data.kind, FOREST)
    if labels > MOST_TREED and not linear:
        name = NEIGHBOURS
    return Baseline(
        model=name,
        metric=metric.name,
        score=float(f"{metric(truth, found):.6g}"),
        error=float(f"{metrics.standard_error(metric, truth, found, config.seed):.3g}"),
        rows=len(chosen),
    )


def _places(examples: Examples, chosen: Examples) -> np.ndarray:
    places = {name: place for place, name in enumerate(examples.ids)}
    return np.array([places[name] for name in chosen.ids])


def of_texts(texts: "pd.Series[str]", beside: np.ndarray | None) -> Any:
    """Return a sparse matrix of TF-IDF features, followed by other columns, float32 (n, k)."""
    from scipy import sparse  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import TfidfVectorizer

    terms = TfidfVectorizer(sublinear_tf=True, max_features=MOST_TERMS, dtype=np.float32)
    found = [terms.fit_transform(texts), *([] if beside is None else [beside])]
    return sparse.hstack(found).tocsr()


def gain(
    images: np.ndarray, beside: np.ndarray, labels: Any, kind: str
) -> tuple[float, float, float]:
    """Compare a simple model with one that also uses columns, on at most `MOST_TRIED` images.

    Returns:
        The scores without and with columns, and the difference between them that chance alone would
        explain. The score is the accuracy if `kind` is "classes", and the explained variance
        otherwise.
    """
    from sklearn import decomposition, model_selection

    rows = np.random.default_rng(0).permutation(len(images))[:MOST_TRIED]
    classes = kind == "classes"
    truth = np.asarray(labels)[rows].squeeze()
    truth = truth if classes else truth.astype(float)
    many = _numbers(truth, classes=classes) > MOST_TREED
    model = _neighbours(classes=classes) if many else _forest(truth, 0, classes=classes)
    alone = thumbnails(images[rows])  # reduced, so that trees also split on columns
    reduced = decomposition.PCA(min(COMPONENTS, *alone.shape), random_state=0)
    with threadpool_limits(1):  # see `out_of_fold` for the reason
        alone = reduced.fit_transform(alone)
    parts = model_selection.KFold(3)
    with warnings.catch_warnings():  # scikit-learn warns if there are many classes
        warnings.simplefilter("ignore", UserWarning)
        scores = [
            model_selection.cross_val_score(model, each, truth, cv=parts)
            for each in (alone, np.concatenate([alone, beside[rows]], axis=1))
        ]
    error = max(float(np.std(scores[1] - scores[0])), 0.5 / len(rows) ** 0.5 / 3)
    return float(scores[0].mean()), float(scores[1].mean()), error


def _mean_masks(config: Config, examples: Examples, metric: Metric) -> np.ndarray:
    """Predict each mask as the mean of the masks in the other folds, float32 (n, height, width).

    Pixels with values above 0 belong to the mask.
    """
    labels = examples.labels
    found = np.zeros(labels.shape, np.float32)
    for rows, held in folds.splits(examples, replace(config, folds=FEWER_FOLDS)):
        mean = labels[rows].mean(axis=0)
        tried = [np.broadcast_to(mean - level, labels[rows].shape) for level in LEVELS]
        best = LEVELS[np.argmax([metric.sign * metric(labels[rows], each) for each in tried])]
        found[held] = mean - best
    return found


def sampled(examples: Examples, most: int, seed: int) -> Examples:
    if len(examples) <= most:
        return examples
    rows = np.random.default_rng(seed).choice(len(examples), most, replace=False)
    return part(examples, np.sort(rows))


def part(examples: Examples, rows: np.ndarray) -> Examples:
    return replace(
        examples,
        ids=tuple(examples.ids[row] for row in rows),
        inputs=examples.inputs[rows],
        labels=examples.labels[rows],
        groups=None if examples.groups is None else examples.groups[rows],
    )


def out_of_fold(config: Config, examples: Examples) -> np.ndarray:
    """Predict each example with a model that was fitted on other examples.

    Returns:
        The predictions, float (n, k).
    Raises:
        DataError: if there are too few rows or groups.
    """
    if len(examples) < LEAST_ROWS:
        raise DataError(
            f"There are too few labelled rows for a baseline: at least {LEAST_ROWS} are required, "
            f"but there are only {len(examples)}.\nAdd labelled rows."
        )
    target, labels, categories = examples.target, examples.labels, None
    if config.data.kind == "table":
        features, categories = _columns(config, examples.inputs)
    elif config.data.kind == "custom":
        features = examples.inputs
    else:
        features = thumbnails(examples.inputs)
    linear = hasattr(features, "tocsr")
    if labels.ndim > 1 and labels.shape[1] == 1:
        labels = labels[:, 0]
    found = np.zeros((len(examples), len(target.names)))
    classes = target.single and labels.ndim == 1  # soft labels are fitted like numbers
    several = replace(config, folds=FOLDS if len(examples) <= FEW else FEWER_FOLDS)
    # Use a single thread, because threads wait for each other on a busy machine. There, boosting on
    # 3,350 rows took 136 s, but only 4 s with one thread (docs/dev/findings.md).
    with threadpool_limits(1):
        for rows, held in folds.splits(examples, several):
            if linear:
                model = _linear(classes=classes)
            elif len(target.names) > MOST_TREED:
                model = _neighbours(classes=classes)
            else:
                model = _model(config, labels[rows], categories, classes=classes)
            model.fit(features[rows], labels[rows])
            if classes:
                found[np.ix_(held, model.classes_)] = model.predict_proba(features[held])
            else:
                found[held] = model.predict(features[held]).reshape(len(held), -1)
    if target.single and not classes:
        found = found.clip(0, 1)
        found = (TREES * found + 1 / len(target.names)) / (TREES * found.sum(1, keepdims=True) + 1)
        return np.asarray(found)
    if target.single and not linear:  # add a uniform tree to avoid log(0)
        return (TREES * found + 1 / len(target.names)) / (TREES + 1)
    return target.predictions(found) if target.kind == "regression" else found.clip(0, 1)


def _linear(*, classes: bool) -> Any:
    from sklearn import linear_model

    if classes:
        return linear_model.LogisticRegression(C=SURE, max_iter=300)
    return linear_model.Ridge()


def _model(
    config: Config, labels: np.ndarray, categories: np.ndarray | None, *, classes: bool
) -> Any:
    from sklearn import dummy, ensemble, multioutput

    number = _numbers(labels, classes=classes)
    if classes and number == 1:
        return dummy.DummyClassifier()
    if categories is None:
        return _forest(labels, config.seed, classes=classes)
    trees = min(100, max(MOST_BOOSTED // number, 10))
    boosted = {"max_iter": trees, "categorical_features": categories, "random_state": config.seed}
    if classes:
        return ensemble.HistGradientBoostingClassifier(**boosted)
    model = ensemble.HistGradientBoostingRegressor(**boosted)
    return model if labels.ndim == 1 else multioutput.MultiOutputRegressor(model)


def _numbers(labels: np.ndarray, *, classes: bool) -> int:
    return len(np.unique(labels)) if classes else int(np.prod(labels.shape[1:]))


def _forest(labels: np.ndarray, seed: int, *, classes: bool) -> Any:
    from sklearn import ensemble

    forest = ensemble.RandomForestClassifier if classes else ensemble.RandomForestRegressor
    trees = min(TREES, MOST_GROWN // _numbers(labels, classes=classes))
    return forest(trees, max_features="sqrt", n_jobs=-1, random_state=seed)


def _neighbours(*, classes: bool) -> Any:
    from sklearn import impute, neighbors, pipeline, preprocessing

    nearest = neighbors.KNeighborsClassifier if classes else neighbors.KNeighborsRegressor
    scaled = impute.SimpleImputer(), preprocessing.StandardScaler()
    return pipeline.make_pipeline(*scaled, nearest(weights="distance"))


def thumbnails(images: np.ndarray) -> np.ndarray:
    """Return thumbnails of 12x12 pixels and histograms with 64 colours or 16 grey levels.

    Args:
        images: uint8 (n, height, width, channels), with 1 or 3 channels.

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
    """Return a table's columns, with NaN for missing values, and whether they are categorical."""
    numbers = len(config.data.number_names)
    known = np.where(inputs[:, numbers : 2 * numbers] > 0, np.nan, inputs[:, :numbers])
    features = np.concatenate([known, inputs[:, 2 * numbers :]], axis=1)
    return features, np.arange(features.shape[1]) >= numbers
