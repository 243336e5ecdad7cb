"""Create a report's sections about predictions, calibration and the worst rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from sklearn.metrics import confusion_matrix

from pipeline.evaluate.held_out_rows import EXAMPLES, MOST_EXAMPLES, worst
from workbench.pages import charts, statistics
from workbench.pages.html import picture, quoted
from workbench.pages.statistics import Estimate
from workbench.report.run_results import CLASSES, PROBABILITIES, REGRESSION, Results

MATRIX = 30  # maximum number of classes for a readable confusion matrix
ROWS, PAIRS = 100, 10  # maximum number of rows in the tables of classes and confusions
HALF = 0.5  # labels with a larger probability are predicted


@dataclass(frozen=True)
class Predictions:
    """A report's content about predictions.

    Attributes:
        title: title of the first section.
        estimate: the score in the headline.
        measures: other metrics by name.
        worst: the rows with the largest losses. The keys `note`, `head`, `rows` and `numbers`
            describe a table, and `cards` contains images.
        note: note below the first section.
        classes: `head`, `rows` and `note` of the table of classes or labels. For exclusive classes,
            `pairs` contains the most frequent confusions, and `matrix` and `names` describe the
            confusion matrix.
        charts: tuples of title, chart and caption.
        calibration: the keys `error`, `note` and `chart`, and `rows` with the table of bins.
    """

    title: str
    estimate: Estimate
    measures: dict[str, str]
    worst: dict[str, Any]
    note: str = ""
    classes: dict[str, Any] | None = None
    charts: Sequence[tuple[str, Markup, str]] = ()
    calibration: dict[str, Any] | None = None


def describe(results: Results) -> Predictions | None:
    if results.validation is None:
        return None
    if results.target == REGRESSION:
        return _regression(results, results.validation)
    return (_classes if results.target == CLASSES else _multilabel)(results, results.validation)


def number(value: float, digits: int = 4) -> str:
    """Format a metric's value.

    >>> number(0.98347), number(float("nan")), number(0.00004), number(1234567.0)
    ('0.9835', '–', '4e-05', '1.235e+06')
    """
    if np.isnan(value):
        return "–"
    return f"{value:.{digits}f}" if value == 0 or 1e-3 <= abs(value) < 10 else f"{value:.{digits}g}"


def _classes(results: Results, rows: pd.DataFrame) -> Predictions:
    labels, predictions = rows["label"].to_numpy(), rows["prediction"].to_numpy()
    right, confidence = labels == predictions, rows["confidence"].to_numpy()
    names, probabilities = results.classes, results.probabilities
    found = statistics.by_class(labels, predictions, len(names))
    measures = {
        "wrong": f"{int((~right).sum()):,} of {len(rows):,}",
        "mean recall": number(found["recall"].mean()),
        "mean F1": number(found["f1"].mean()),
    }
    note = "The rows in validation.csv with the smallest probability for their label."
    if probabilities is None:
        losses = statistics.cross_entropy(np.where(right, confidence, 1 - confidence))
        note += f" The losses are lower bounds, because {PROBABILITIES} is missing."
    elif results.shares is not None:
        note = "The rows in validation.csv with the largest cross-entropy; the label is the most "
        note += "probable one."
        losses = (results.shares * statistics.cross_entropy(probabilities)).sum(axis=1)
        measures["log loss"] = number(float(losses.mean()))
    else:
        losses = statistics.cross_entropy(probabilities[np.arange(len(labels)), labels])
        measures["log loss"] = number(float(losses.mean()))
    confusions = statistics.confusions(labels, predictions)
    pairs = [
        (quoted(names[label], 40), quoted(names[prediction], 40), f"{times:,}")
        for label, prediction, times in confusions.head(PAIRS).itertuples(index=False)
    ]
    classes = _table(found, names, confusions) | {"pairs": pairs, "names": names, "matrix": []}
    if len(names) <= MATRIX:
        counts = confusion_matrix(labels, predictions, labels=range(len(names)))
        classes["matrix"] = _matrix(counts)
    shown = {
        "true": [names[label] for label in labels],
        "predicted": [names[prediction] for prediction in predictions],
        "confidence": [*map(number, confidence)],
    }
    return Predictions(
        "Classes",
        statistics.accuracy(right),
        measures,
        _worst(results, shown, "loss", losses, ~right, note),
        classes=classes,
        calibration=_calibration(confidence, right, "the probability of the predicted class"),
    )


def _multilabel(results: Results, rows: pd.DataFrame) -> Predictions:
    names = results.classes
    truth = rows[[f"label_{name}" for name in names]].to_numpy(float) == 1
    probabilities = rows[[f"prediction_{name}" for name in names]].to_numpy(float)
    chosen = probabilities > HALF
    right = np.where(truth, probabilities, 1 - probabilities)
    losses = statistics.cross_entropy(right).sum(axis=1)

    def listed(row: np.ndarray) -> Markup:
        some = [quoted(names[place], 30) for place in np.flatnonzero(row)[:6]]
        rest = f" and {row.sum() - 6} more" if row.sum() > 6 else ""
        return Markup(", ").join(some) + rest if some else Markup("none")

    return Predictions(
        "Labels",
        statistics.multilabel(truth, chosen),
        {
            "rows with all labels correct": number(float((truth == chosen).all(axis=1).mean())),
            "log loss per label": number(float(losses.mean()) / len(names)),
            "labels per row": number(float(truth.sum(axis=1).mean()), 3),
        },
        _worst(
            results,
            {"labels": [*map(listed, truth)], "predicted": [*map(listed, chosen)]},
            "loss",
            losses,
            np.ones(len(rows), bool),
            "The rows with the largest sum of cross-entropies over the labels.",
        ),
        note=f"Labels with a probability above {HALF} are predicted.",
        classes=_table(statistics.by_class(truth, chosen, len(names)), names),
        calibration=_calibration(
            np.maximum(probabilities, 1 - probabilities).ravel(),
            (truth == chosen).ravel(),
            "the predicted probability that a row has, or does not have, a label",
        ),
    )


def _regression(results: Results, rows: pd.DataFrame) -> Predictions:
    labels, predictions = rows["label"].to_numpy(), rows["prediction"].to_numpy()
    estimate, measures = statistics.regression(labels, predictions)
    errors = predictions - labels
    shown = len(charts.sample(len(rows)))
    which = f"{shown:,} of {len(rows):,} rows" if shown < len(rows) else f"{len(rows):,} rows"
    below = "predicted minus true"
    texts = {
        "true value": [f"{value:.6g}" for value in labels],
        "predicted value": [f"{value:.6g}" for value in predictions],
    }
    note, all_wrong = "The rows with the largest errors.", np.ones(len(rows), bool)
    scatter = charts.scatter(labels, predictions)
    return Predictions(
        "Predictions",
        estimate,
        {name: number(value) for name, value in measures.items()},
        _worst(results, texts, "absolute error", np.abs(errors), all_wrong, note),
        charts=[
            ("Predicted and true values", scatter, f"{which}; both values are equal on the line"),
            ("Residuals", charts.histogram(errors, below, zero=True), f"{below}, for all rows"),
        ],
    )


def _matrix(counts: np.ndarray) -> list[list[tuple[str, str]]]:
    """Return each cell's CSS class and text. Larger fractions of a row are darker."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # Use a square root off the diagonal, so that even 1 % of wrong predictions is visible.
    depths = np.where(np.eye(len(counts), dtype=bool), shares, shares**0.5)
    levels = np.minimum((depths * 4).astype(int) + 1, 4)
    return [
        [
            (f"{'r' if row == column else 'w'}{levels[row, column]}", f"{count:,}")
            if count
            else ("", "")
            for column, count in enumerate(line)
        ]
        for row, line in enumerate(counts.tolist())
    ]


def _table(
    found: pd.DataFrame, names: Sequence[str], confusions: pd.DataFrame | None = None
) -> dict[str, Any]:
    head = ["label" if confusions is None else "class", "rows", "precision", "recall", "F1", ""]
    most = {}
    if confusions is not None:
        head.append("most confused with")
        first = confusions.drop_duplicates("label")
        most = {label: (other, times) for label, other, times in first.itertuples(index=False)}
    note = ""
    if len(found) > ROWS:
        note = f"The {ROWS} of {len(found):,} classes with the lowest F1."
        found = found.sort_values("f1", kind="stable").head(ROWS)
    rows: list[list[object]] = []
    row: Any
    for row in found.itertuples():
        measures = number(row.precision), number(row.recall), number(row.f1)
        line = [quoted(names[row.Index]), f"{row.rows:,}", *measures, np.nan_to_num(row.f1)]
        if row.Index in most:
            other, times = most[row.Index]
            # Avoid "5 × 3", because the class could be mistaken for a number.
            more = Markup(" ({:,} {})").format(times, "row" if times == 1 else "rows")
            line.append(quoted(names[other], 40) + more)
        elif confusions is not None:
            line.append("–")
        rows.append(line)
    return {"head": head, "rows": rows, "note": note}


def _calibration(confidence: np.ndarray, right: np.ndarray, what: str) -> dict[str, Any]:
    found = statistics.calibration(confidence, right)
    rows = [
        (f"{low:.2f} to {high:.2f}", f"{int(count):,}", number(mean), number(share))
        for low, high, count, mean, share in found.bins.to_numpy(float).tolist()
    ]
    note = f"over {statistics.BINS} bins (Guo et al., 2017). The confidence is {what}"
    chart = charts.reliability(found)
    return {"error": number(found.error), "note": note, "chart": chart, "rows": rows}


def _worst(
    results: Results,
    texts: dict[str, list[Any]],
    cost: str,
    losses: np.ndarray,
    wrong: np.ndarray,
    note: str,
) -> dict[str, Any]:
    """Return the rows with the largest losses, and their images if training saved them.

    Args:
        texts: maps column names to the true value, the prediction and, if available, the confidence
            of every row.
        cost: name of the loss.
        losses: float64 (n,).
        wrong: which predictions are wrong, bool (n,).
    """
    assert results.validation is not None  # noqa: S101 - `describe` requires it
    kept, ids = results.examples, results.validation["id"]
    chosen = (worst(losses, MOST_EXAMPLES) if kept is None else kept.indices).tolist()
    if kept is None:
        note += f" Images are not available, because {EXAMPLES} is missing."
    lines, cards = [], []
    for place, row in enumerate(chosen):
        given = [quoted(column[row]) for column in texts.values()]
        loss = number(float(losses[row]), 3)
        lines.append([quoted(ids.iloc[row], 40), *given, loss])
        if kept is not None and kept.pixels is not None:
            card = dict(zip(("true", "predicted", "confidence"), given, strict=False))
            shown = picture(kept.pixels[place], f"validation row {row}")
            more = {"picture": shown, "wrong": wrong[row], "loss": f"{cost} {loss}"}
            cards.append({"confidence": None, **card, **more, "id": quoted(ids.iloc[row], 30)})
    head = ("id", *texts, cost)
    words = ("id", "true", "predicted", "labels")
    numbers = [place for place, name in enumerate(head) if name not in words]
    return {"note": note, "head": head, "rows": lines, "numbers": numbers, "cards": cards}
