"""Answers: the parts of a report on what a model answered: by class, how far to believe it, and
where it was most wrong.

Reads  `Results` with a validation.csv
Gives  the headline's number, and sections of a page
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pipeline.pages import charts, statistics
from pipeline.pages.html import Html, Section, bar, facts, joined, picture, quoted, table, tag
from pipeline.pages.statistics import Estimate
from pipeline.report.run_results import CLASSES, PROBABILITIES, REGRESSION, Results
from pipeline.training.hard_examples import FILE, MOST, worst

MATRIX = 30  # classes, of which a confusion matrix can still be read
BESIDE = 12  # classes, of which it leaves half of the page free
ROWS, PAIRS = 100, 10  # of a table of classes, and of pairs of them
NUMBERS = {"true value", "predicted value", "absolute error", "confidence", "loss"}
HALF = 0.5  # a label whose probability is more is chosen


@dataclass(frozen=True)
class Answers:
    """What a model answered. `estimate`: the headline's number."""

    estimate: Estimate
    sections: Sequence[Section]


def of(results: Results) -> Answers | None:
    """Return what is to be said of a run's validation rows; None where there are none."""
    if results.validation is None:
        return None
    if results.target == REGRESSION:
        return _regression(results, results.validation)
    return (_classes if results.target == CLASSES else _multilabel)(results, results.validation)


def number(value: float, digits: int = 4) -> str:
    """Return a share, or a measure, as it stands on the page.

    >>> number(0.98347), number(float("nan")), number(0.00004), number(1234567.0)
    ('0.9835', '–', '4e-05', '1.235e+06')
    """
    if np.isnan(value):
        return "–"
    return f"{value:.{digits}f}" if value == 0 or 1e-3 <= abs(value) < 10 else f"{value:.{digits}g}"


def _classes(results: Results, rows: pd.DataFrame) -> Answers:
    labels, predictions, names = (
        rows["label"].to_numpy(),
        rows["prediction"].to_numpy(),
        results.classes,
    )
    right, confidence = labels == predictions, rows["confidence"].to_numpy()
    found, measured = (
        statistics.by_class(labels, predictions, len(names)),
        statistics.calibration(confidence, right),
    )
    losses = (
        statistics.least_losses(right, confidence)
        if results.probabilities is None
        else statistics.losses(labels, results.probabilities)
    )
    more = {
        "wrong": f"{int((~right).sum()):,} of {len(rows):,}",
        "mean recall": number(found["recall"].mean()),
    }
    more["mean F1"] = number(found["f1"].mean())
    if results.probabilities is not None:
        more["log loss"] = number(float(losses.mean()))
    parts = [facts(more.items(), "tiles"), *_confusion(labels, predictions, names)]
    parts += [tag("h3", "Each class"), *_each(found, names)]

    def told_row(row: int) -> tuple[list[Html], list[Html]]:
        true, given = quoted(names[labels[row]]), quoted(names[predictions[row]])
        sure = Html(number(confidence[row]))
        mark = tag(
            "strong", true, " ", tag("span", "→ ", given, class_=None if right[row] else "wrong")
        )
        return [true, given, sure], [mark, Html(f"confidence {sure}")]

    exact = (
        ""
        if results.probabilities is not None
        else f" At least: without {PROBABILITIES} it is not known how much."
    )
    said = "The rows of validation.csv whose label got the least probability." + exact
    return Answers(
        statistics.accuracy(right),
        [
            Section("classes", "Classes", joined(parts)),
            _calibration(measured, "the confidence is the probability of the predicted class"),
            _worst(
                results, rows, losses, ("true", "predicted", "confidence", "loss"), told_row, said
            ),
        ],
    )


def _multilabel(results: Results, rows: pd.DataFrame) -> Answers:
    names = results.classes
    truth = rows[[f"label_{name}" for name in names]].to_numpy(float) == 1
    given = rows[[f"prediction_{name}" for name in names]].to_numpy(float)
    chosen = given > HALF
    found = statistics.by_label(truth, chosen)
    estimate, losses = statistics.multilabel(truth, chosen), statistics.binary_losses(truth, given)
    sure, right = np.maximum(given, 1 - given).ravel(), (truth == chosen).ravel()
    more = {
        "rows with every label right": number(float((truth == chosen).all(axis=1).mean())),
        "log loss of a label": number(float(losses.mean()) / len(names)),
        "labels of a row": number(float(truth.sum(axis=1).mean()), 3),
    }
    told = tag("p", f"A label is chosen where its probability is more than {HALF}.", class_="note")
    body = joined(
        [facts(more.items(), "tiles"), tag("h3", "Each label"), *_each(found, names), told]
    )

    def listed(row: np.ndarray) -> Html:
        those = [quoted(names[place], 30) for place in np.flatnonzero(row)[:6]]
        more = "" if row.sum() <= 6 else f" and {row.sum() - 6} more"
        return (
            joined([those[0], *[(", ", name) for name in those[1:]], more])
            if those
            else Html("none")
        )

    def told_row(row: int) -> tuple[list[Html], list[Html]]:
        true, taken = listed(truth[row]), listed(chosen[row])
        return [true, taken], [tag("strong", true, " ", tag("span", "→ ", taken, class_="wrong"))]

    return Answers(
        estimate,
        [
            Section("classes", "Labels", body),
            _calibration(
                statistics.calibration(sure, right),
                "the confidence is that in having a label, or in not having it",
            ),
            _worst(
                results,
                rows,
                losses,
                ("labels", "chosen", "loss"),
                told_row,
                "The rows with the largest cross-entropy, over all labels.",
            ),
        ],
    )


def _regression(results: Results, rows: pd.DataFrame) -> Answers:
    labels, predictions = rows["label"].to_numpy(), rows["prediction"].to_numpy()
    estimate, more = statistics.regression(labels, predictions)
    errors = predictions - labels
    shown = len(charts.sample(len(rows)))
    which = f"{shown:,} of {len(rows):,} rows" if shown < len(rows) else f"{len(rows):,} rows"
    pair = tag(
        "div",
        _figure(
            "Predicted against true",
            charts.against(labels, predictions),
            f"{which}; on the line they are equal",
        ),
        _figure("Residuals", charts.residuals(errors), "predicted less true, of all rows"),
        class_="pair",
    )

    def told_row(row: int) -> tuple[list[Html], list[Html]]:
        true, given = (Html(f"{value:.6g}") for value in (labels[row], predictions[row]))
        return [true, given], [tag("strong", true, tag("span", " → ", given, class_="wrong"))]

    tiles = facts([(name, number(value)) for name, value in more.items()], "tiles")
    return Answers(
        estimate,
        [
            Section("classes", "Predictions", joined([tiles, pair])),
            _worst(
                results,
                rows,
                np.abs(errors),
                ("true value", "predicted value", "absolute error"),
                told_row,
                "The rows with the largest errors.",
            ),
        ],
    )


def _confusion(labels: np.ndarray, predictions: np.ndarray, names: Sequence[str]) -> list[Html]:
    """Return a matrix of a few classes, and which were taken for which most often: beside it where
    there is space.
    """
    pairs = statistics.confusions(labels, predictions).head(PAIRS)
    told = [
        (quoted(names[a], 40), quoted(names[b], 40), f"{times:,}")
        for a, b, times in pairs.itertuples(index=False)
    ]
    often = (
        table(("true", "predicted", "times"), told, numbers=[2])
        if told
        else tag("p", "None was.", class_="note")
    )
    parts = [tag("figure", tag("h3", "Taken for another most often"), often)]
    if len(names) <= MATRIX:
        counts = statistics.matrix(labels, predictions, len(names))
        parts.insert(0, tag("figure", tag("h3", "Confusion"), _matrix(counts, names)))
    if len(names) <= BESIDE:
        return [tag("div", parts, class_="pair")]
    return parts


def _matrix(counts: np.ndarray, names: Sequence[str]) -> Html:
    """Return a table of counts; blue on the diagonal and orange beside it, the darker the larger
    the share of its row.
    """
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def cell(row: int, column: int) -> Html:
        if not counts[row, column]:
            return tag("td", "")
        # One wrong row in a hundred has to be seen; one right row in a hundred more does not.
        depth = shares[row, column] if row == column else shares[row, column] ** 0.5
        return tag(
            "td",
            f"{counts[row, column]:,}",
            class_=("r" if row == column else "w") + str(min(int(depth * 4) + 1, 4)),
        )

    head = tag(
        "tr",
        tag("td", Html("predicted →<br>true ↓")),
        [tag("th", quoted(name, 24), scope="col") for name in names],
    )
    body = [
        tag(
            "tr",
            tag("th", quoted(name, 24), scope="row"),
            [cell(row, column) for column in range(len(names))],
        )
        for row, name in enumerate(names)
    ]
    kind = "matrix long" if max(map(len, names)) > 3 else "matrix"
    return tag(
        "div", tag("table", tag("thead", head), tag("tbody", body), class_=kind), class_="wide"
    )


def _each(found: pd.DataFrame, names: Sequence[str]) -> list[Html]:
    """Return the table of all classes, or of those with the lowest F1, and which these are."""
    cut = len(found) > ROWS
    shown = found.sort_values("f1", kind="stable").head(ROWS) if cut else found
    confused = "confused_with" in found
    head = ["class" if confused else "label", "rows", "precision", "recall", "F1", ""]
    rows = []
    for place in shown.index.tolist():
        shares = [float(found[name][place]) for name in ("precision", "recall", "f1")]
        line: list[str] = [quoted(names[place]), f"{found['rows'][place]:,}", *map(number, shares)]
        line.append(bar(0 if np.isnan(shares[-1]) else shares[-1]))
        if confused:
            other, times = found["confused_with"][place], found["times"][place]
            held = f" ({times:,} {'row' if times == 1 else 'rows'})"  # "5 × 3" would not tell the class from the number
            line.append(joined([quoted(names[other], 40), held]) if times else "–")
        rows.append(line)
    head += ["most confused with"] if confused else []
    note = f"The {ROWS} of {len(found):,} classes with the lowest F1." if cut else ""
    return [
        table(head, rows, numbers=[1, 2, 3, 4], kind="classes"),
        *([tag("p", note, class_="note")] if cut else []),
    ]


def _calibration(found: statistics.Calibration, what: str) -> Section:
    rows = [
        (f"{low:.2f} to {high:.2f}", f"{int(held):,}", number(confidence), number(right))
        for low, high, held, confidence, right in found.bins.to_numpy(float).tolist()
    ]
    words = (
        f"Expected calibration error {number(found.error)}: how far the share of right answers lies from the confidence, on average"
        f" over {statistics.BINS} bins (Guo et al., 2017); {what}. On the line a model means what it says; below, it is too sure."
    )
    pair = tag(
        "div",
        tag(
            "figure",
            charts.reliability(found),
            tag("figcaption", "with 95 % intervals (Wilson); below, the rows in each bin"),
        ),
        table(("confidence", "rows", "mean", "right"), rows, numbers=[1, 2, 3]),
        class_="pair",
    )
    return Section("calibration", "Calibration", joined([tag("p", words, class_="note"), pair]))


def _worst(
    results: Results,
    rows: pd.DataFrame,
    losses: np.ndarray,
    head: Sequence[str],
    told: Callable[[int], tuple[list[Html], list[Html]]],
    words: str,
) -> Section:
    """Return the rows that cost the most: with their pictures where training kept them, else as a
    table.

    `head`: names the cells that `told` gives of a row for the table, and then `losses`. It gives
    the lines of a caption, too.
    """
    kept = results.examples
    chosen = worst(losses, MOST) if kept is None else kept.indices
    costs = losses[chosen].tolist()
    if kept is not None and kept.pixels is not None:
        cards = [
            tag(
                "figure",
                picture(pixels, f"validation row {row}"),
                tag(
                    "figcaption",
                    told(row)[1],
                    tag("br"),
                    f"{head[-1]} {number(cost, 3)}",
                    tag("br"),
                    quoted(rows["id"].iloc[row], 30),
                ),
            )
            for row, cost, pixels in zip(chosen.tolist(), costs, kept.pixels, strict=True)
        ]
        body = tag("div", cards, class_="pictures")
    else:
        words += f" Without {FILE} there are no pictures of them." if kept is None else ""
        lines = [
            [quoted(rows["id"].iloc[row], 40), *told(row)[0], number(cost, 3)]
            for row, cost in zip(chosen.tolist(), costs, strict=True)
        ]
        numbers = [place for place, name in enumerate(("id", *head)) if name in NUMBERS]
        body = table(("id", *head), lines, numbers=numbers)
    return Section("worst", "Worst examples", joined([tag("p", words, class_="note"), body]))


def _figure(title: str, chart: Html, words: str) -> Html:
    return tag("figure", tag("h3", title), chart, tag("figcaption", words))
