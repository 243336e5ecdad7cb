"""The baseline of a competition: a simple model, fitted in seconds and scored out of fold.

Images get a random forest on thumbnails and colour histograms, and on the columns beside them.
Tables get gradient boosting, and both get nearest neighbours if there are many classes. Texts get a
linear model on TF-IDF, masks the mean mask. A network that scores no better has learned nothing
more than these.
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
MEAN_MASK = "the mean mask of the training pictures"
BESIDE = "a random forest on thumbnails, colour histograms and columns"
LINEAR = "TF-IDF and {}"  # logistic regression, or ridge
NEIGHBOURS = "the five nearest neighbours"
MOST_TERMS, SURE = 50_000, 10.0  # words in the vocabulary, and the inverse of the regularization
MASK_SIDE = 64  # pixels: a mean mask is scored at this size
LEVELS = np.arange(1, 10) / 10  # thresholds to try: the share of masks that cover a pixel
COMPONENTS = 16  # of thumbnails, beside columns
MOST_TRIED = 2_000  # rows that show what columns add to pictures
# The most images, table rows and numbers in a table to fit. Larger sets are sampled at random, as
# are texts with more terms times labels.
MOST_IMAGES, MOST_ROWS, MOST_NUMBERS = 6_000, 20_000, 4_000_000
MOST_LINEAR, MOST_WEIGHTS = 50_000_000, 4_000_000  # and weights, of which a fit keeps 25 copies
SIDE = 12  # pixels of a thumbnail
TREES = 100
MOST_BOOSTED = 1_000  # trees of one fit: with many labels, boosting stops sooner
MOST_TREED = 100  # labels: with more, forests and boosting are too slow, and forests take gigabytes
MOST_GROWN = 2_000  # trees of a forest times labels: both take time (docs/dev/findings.md)
LEAST_ROWS = 10
FOLDS, FEWER_FOLDS, FEW = 5, 3, 2_000  # FEWER_FOLDS with more rows than FEW


def fit(config: Config, examples: Examples, beside: Any = None) -> Baseline:
    """Return the baseline of these examples by the config's metric.

    Args:
        config: with kind "table" it is fitted on all columns, else on pixels.
        examples: their inputs are uint8 (n, height, width, channels), or the encoded rows.
        beside: these rows of `workbench.inspect.inputs.Reader.features`. Sparse ones, of texts,
            are fitted alone.

    Raises:
        DataError: if there are too few rows, or the metric has no value for them.
    """
    masks, linear = config.target == "custom", hasattr(beside, "tocsr")
    labels = max(len(examples.target.names), 1)
    if linear:  # the most frequent terms
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
        names["custom"] = LINEAR.format("logistic regression" if chosen.target.single else "ridge")
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
    """Return the positions of the chosen examples."""
    places = {name: place for place, name in enumerate(examples.ids)}
    return np.array([places[name] for name in chosen.ids])


def of_texts(texts: "pd.Series[str]", beside: np.ndarray | None) -> Any:
    """Return the features of texts for a linear model: TF-IDF of their words, and columns beside
    them, if any. Sparse float32 (n, k).
    """
    from scipy import sparse  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import TfidfVectorizer

    terms = TfidfVectorizer(sublinear_tf=True, max_features=MOST_TERMS, dtype=np.float32)
    found = [terms.fit_transform(texts), *([] if beside is None else [beside])]
    return sparse.hstack(found).tocsr()


def gain(
    images: np.ndarray, beside: np.ndarray, labels: Any, kind: str
) -> tuple[float, float, float]:
    """Return the score of a simple model on images alone, its score on images and columns, and the
    gain that may be chance. Scores are accuracies for "classes", otherwise explained variances.

    At most `MOST_TRIED` rows are fitted.
    """
    from sklearn import decomposition, model_selection

    rows = np.random.default_rng(0).permutation(len(images))[:MOST_TRIED]
    classes = kind == "classes"
    truth = np.asarray(labels)[rows].squeeze()
    truth = truth if classes else truth.astype(float)
    many = _numbers(truth, classes=classes) > MOST_TREED
    model = _neighbours(classes=classes) if many else _forest(truth, 0, classes=classes)
    alone = thumbnails(images[rows])  # reduced, or a tree would hardly ever pick a column
    reduced = decomposition.PCA(min(COMPONENTS, *alone.shape), random_state=0)
    with threadpool_limits(1):  # see `out_of_fold`
        alone = reduced.fit_transform(alone)
    parts = model_selection.KFold(3)
    with warnings.catch_warnings():  # each fit warns that many classes may be amounts
        warnings.simplefilter("ignore", UserWarning)
        scores = [
            model_selection.cross_val_score(model, each, truth, cv=parts)
            for each in (alone, np.concatenate([alone, beside[rows]], axis=1))
        ]
    error = max(float(np.std(scores[1] - scores[0])), 0.5 / len(rows) ** 0.5 / 3)
    return float(scores[0].mean()), float(scores[1].mean()), error


def _mean_masks(config: Config, examples: Examples, metric: Metric) -> np.ndarray:
    """Return the mean of the other folds' masks for each example, above 0 where it predicts a mask:
    float32 (n, height, width).
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
    """Return at most `most` of the examples, drawn at random."""
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
            f"There are too few rows for a baseline: {len(examples)}; expected {LEAST_ROWS}.\n"
            "Add labelled rows."
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
    several = replace(config, folds=FOLDS if len(examples) <= FEW else FEWER_FOLDS)
    # Threads of one fit wait for each other: on a busy machine boosting on 3,350 rows took 136 s,
    # with one thread 4 s (docs/dev/findings.md).
    with threadpool_limits(1):
        for rows, held in folds.splits(examples, several):
            if linear:
                model = _linear(classes=target.single)
            elif len(target.names) > MOST_TREED:
                model = _neighbours(classes=target.single)
            else:
                model = _model(config, labels[rows], categories, classes=target.single)
            model.fit(features[rows], labels[rows])
            if target.single:
                found[np.ix_(held, model.classes_)] = model.predict_proba(features[held])
            else:
                found[held] = model.predict(features[held]).reshape(len(held), -1)
    if target.single and not linear:  # as if one more tree were uniform: no logarithm of 0
        return (TREES * found + 1 / len(target.names)) / (TREES + 1)
    return target.predictions(found) if target.kind == "regression" else found.clip(0, 1)


def _linear(*, classes: bool) -> Any:
    """Return the model for texts."""
    from sklearn import linear_model

    if classes:
        return linear_model.LogisticRegression(C=SURE, max_iter=300)
    return linear_model.Ridge()


def _model(
    config: Config, labels: np.ndarray, categories: np.ndarray | None, *, classes: bool
) -> Any:
    """Return the model for these labels.

    Args:
        categories: which features are categories, bool (k,); None for images.
        classes: whether each row has one label of several; otherwise labels are numbers.
    """
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
    """Return the number of outputs per row."""
    return len(np.unique(labels)) if classes else int(np.prod(labels.shape[1:]))


def _forest(labels: np.ndarray, seed: int, *, classes: bool) -> Any:
    """Return a forest for these labels."""
    from sklearn import ensemble

    forest = ensemble.RandomForestClassifier if classes else ensemble.RandomForestRegressor
    trees = min(TREES, MOST_GROWN // _numbers(labels, classes=classes))
    return forest(trees, max_features="sqrt", n_jobs=-1, random_state=seed)


def _neighbours(*, classes: bool) -> Any:
    """Return the model for many labels."""
    from sklearn import impute, neighbors, pipeline, preprocessing

    nearest = neighbors.KNeighborsClassifier if classes else neighbors.KNeighborsRegressor
    scaled = impute.SimpleImputer(), preprocessing.StandardScaler()
    return pipeline.make_pipeline(*scaled, nearest(weights="distance"))


def thumbnails(images: np.ndarray) -> np.ndarray:
    """Return thumbnails of 12x12 pixels, and the shares of 64 colours (or 16 greys).

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
    """Return the columns of a table, with NaN for gaps, and which of them are categories."""
    numbers = len(config.data.number_names)
    known = np.where(inputs[:, numbers : 2 * numbers] > 0, np.nan, inputs[:, :numbers])
    features = np.concatenate([known, inputs[:, 2 * numbers :]], axis=1)
    return features, np.arange(features.shape[1]) >= numbers
