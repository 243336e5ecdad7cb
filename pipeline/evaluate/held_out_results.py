"""Held-out results: out-of-fold predictions, as files and as metrics."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from formats.errors import writing
from pipeline.config import Config, own_code
from pipeline.data import dataset, folds
from pipeline.data import labels as targets
from pipeline.data.labels import Target
from pipeline.errors import DataError
from pipeline.evaluate.metrics import Metric

ROWS = 1024  # whose losses are computed at once


def write(
    output: Path,
    examples: dataset.Examples,
    pairs: Sequence[folds.Pair],
    held: np.ndarray,
    found: np.ndarray,
) -> None:
    """Write validation.csv, and validation.npz in the same order.

    Args:
        output: the run's folder.
        pairs: (training rows, held-out rows) of each fold.
        held: all held-out rows, in the order of the files.
        found: float32 (n, …), a prediction for each example.
    """
    target = examples.target
    table = pd.DataFrame({"id": [examples.ids[index] for index in held]})
    if target.kind == "own":
        table["mean_prediction"] = target.best(found[held])
    elif target.kind in ("multilabel", "regression") and len(examples.classes) > 1:
        for place, name in enumerate(target.names):
            table[f"label_{name}"] = target.truth(examples.labels[held])[:, place]
            table[f"prediction_{name}"] = found[held, place]
    else:
        table["label"] = targets.labels_of(target, examples.labels, held)
        table["prediction"] = target.best(found[held])
    if target.kind in ("classes", "ordinal"):
        table["confidence"] = found[held].max(axis=1).round(6)
    if len(pairs) > 1:
        fold = np.zeros(len(examples), int)
        for number, (_, rows) in enumerate(pairs, start=1):
            fold[rows] = number
        table["fold"] = fold[held]
    with writing(output / "validation.csv"):
        table.to_csv(output / "validation.csv", index=False)
    name = "values" if target.kind in ("regression", "own") else "probabilities"
    with writing(output / "validation.npz"):
        truth = target.truth(examples.labels[held])
        np.savez(output / "validation.npz", **{name: found[held], "truth": truth})


def losses(config: Config, target: Target, labels: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return how wrong each row is, float (n,): the loss of its target, or the config's own."""
    if target.kind != "own":
        return target.losses(labels, found)
    loss: Any = own_code.function(config, "loss")
    each = [
        np.asarray(loss(labels[start : start + ROWS], found[start : start + ROWS]))
        for start in range(0, len(labels), ROWS)
    ]
    return np.concatenate(each)


def metrics_of(
    examples: dataset.Examples,
    pairs: Sequence[folds.Pair],
    trained: Sequence[tuple[int, dict[str, float]]],
    found: np.ndarray,
    metric: Metric,
    show: Callable[[str], None],
) -> dict[str, Any]:
    """Return the manifest's "metrics" and, if there are folds, "folds": those of each.

    A metric may have no value on the held-out set (AUC of one class); training is not lost for
    that.

    Args:
        pairs, found: as `write` takes them.
        trained: of each fold, its steps and the metrics that its loop measured.
        show: takes a warning for each metric without a value.
    """

    def scored(rows: np.ndarray) -> dict[str, float]:
        scores = {}
        if examples.target.kind in ("classes", "ordinal"):
            scores["validation_accuracy"] = float(
                (found[rows].argmax(axis=1) == examples.labels[rows]).mean()
            )
        try:
            scores[f"validation_{metric.name}"] = metric(
                examples.target.truth(examples.labels[rows]), found[rows]
            )
        except DataError as error:
            why = str(error).splitlines()[0]
            show(f"Warning: {metric.name} has no value on {len(rows)} validation rows: {why}")
        return scores

    each = [
        {**measured, **scored(rows)}
        for (_, rows), (_, measured) in zip(pairs, trained, strict=True)
    ]
    if len(pairs) == 1:
        return {"metrics": each[0]}
    names = {name: None for metrics in each for name in metrics}
    values = {name: [metrics[name] for metrics in each if name in metrics] for name in names}
    values = {name: value for name, value in values.items() if len(value) > 1}
    overall = scored(np.arange(len(examples)))  # over all examples, as in validation.csv
    overall |= {f"{name}_mean": float(np.mean(value)) for name, value in values.items()}
    overall |= {f"{name}_sd": float(np.std(value, ddof=1)) for name, value in values.items()}
    per_fold = [
        {
            "training_rows": len(rows),
            "validation_rows": len(held),
            "steps": steps,
            "metrics": metrics,
        }
        for (rows, held), (steps, _), metrics in zip(pairs, trained, each, strict=True)
    ]
    return {"metrics": overall, "folds": per_fold}
