"""Score the held-out rows after every epoch, and write files about them after training.

The files are validation.csv, validation.npz, the manifest's metrics, the rows with the largest
errors (examples.npz), and the comparison with the baseline.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from formats import atomic_file, npz
from pipeline.config import Baseline, Config
from pipeline.data import dataset, folds
from pipeline.data import labels as targets
from pipeline.data.labels import Target
from pipeline.errors import PipelineError
from pipeline.evaluate import losses, metrics, postprocess, thresholds
from pipeline.evaluate.metrics import Metric

LOSS_ROWS = 1024  # rows per call of a custom loss

EXAMPLES = "examples.npz"
MOST_EXAMPLES = 24
SIDE = 256  # larger images are downscaled to this size in pixels, because they are only displayed


@dataclass(frozen=True)
class EpochScore:
    """Scores a model with the competition's metric after each epoch, for `Config.keep="best"` and
    `Config.patience`.
    """

    metric: Metric
    target: Target
    labels: np.ndarray
    show: Callable[[str], None]

    def of(self, outputs: np.ndarray) -> dict[str, float]:
        """Score the outputs for these rows, float32 (n, outputs), in the same way as `scored`."""
        truth, predictions = self.target.truth(self.labels), self.target.predictions(outputs)
        return scored(self.metric, truth, predictions, self.show)

    def order(self, metrics: Mapping[str, float]) -> tuple[bool, float, float]:
        """Return a sort key that is larger for better epochs.

        It compares the metric and then the validation loss. An epoch without a metric value has a
        lower key than all other epochs.
        """
        value, loss = metrics.get(self.name), -metrics["validation_loss"]
        return (False, 0.0, loss) if value is None else (True, self.metric.sign * value, loss)

    @property
    def name(self) -> str:
        """The name of the score's column in history.csv."""
        return f"validation_{self.metric.name}"


def scored(
    metric: Metric, truth: np.ndarray, predictions: np.ndarray, show: Callable[[str], None]
) -> dict[str, float]:
    """Return {"validation_<metric>": value}.

    If there is no value, show a warning and return {}, so that the training run is not lost.
    """
    try:
        return {f"validation_{metric.name}": metric(truth, predictions)}
    except PipelineError as error:
        show(f"Warning: {str(error).splitlines()[0]}")
        return {}


@dataclass(frozen=True)
class HeldOutRows:
    """The held-out rows of a run and their predictions.

    Attributes:
        pairs: (training rows, held-out rows) for each fold, or a single pair without folds.
        predictions: float32 (n, …), each example's prediction by a model that was not trained on
            it, or 0 if the example was never held out.
        found: thresholds from `decided`.
    """

    config: Config
    examples: dataset.Examples
    pairs: Sequence[folds.Pair]
    predictions: np.ndarray
    found: thresholds.Found | None = None

    @cached_property
    def rows(self) -> np.ndarray:
        """All held-out rows, int64 (m,), in the same order as in the files."""
        return np.sort(np.concatenate([rows for _, rows in self.pairs]))

    @cached_property
    def metric(self) -> Metric:
        return metrics.of(self.config)

    @property
    def folds(self) -> np.ndarray:
        """The fold of each held-out row, int (m,), from 1."""
        fold = np.zeros(len(self.examples), int)
        for number, (_, part) in enumerate(self.pairs, start=1):
            fold[part] = number
        return np.asarray(fold[self.rows])

    def truth(self, rows: np.ndarray) -> np.ndarray:
        return self.examples.target.truth(self.examples.labels[rows])


def decided(held_out: HeldOutRows, folder: Path, show: Callable[[str], None]) -> HeldOutRows:
    """Apply the config's `postprocess` and thresholds to the predictions for the held-out rows.

    The thresholds for a row were found on other rows.
    """
    config, examples, rows = held_out.config, held_out.examples, held_out.rows
    labels, groups, found = examples.labels[rows], examples.groups, None
    predictions, ids = held_out.predictions.copy(), [examples.ids[row] for row in rows]
    predictions[rows] = postprocess.of([config], folder)(ids, predictions[rows])
    if config.thresholds:
        parts, kind = held_out.folds, examples.target.kind
        if not config.folds:
            groups = rows if groups is None else groups[rows]
            parts = thresholds.random_parts(examples.target.strata(labels), groups, config.seed)
        try:
            found, predictions[rows] = thresholds.fit(
                held_out.metric, kind, labels, predictions[rows], parts
            )
            show(thresholds.line(found, held_out.metric.name))
        except PipelineError as error:
            show(f"Warning: no thresholds: {str(error).splitlines()[0]}")
    return replace(held_out, predictions=predictions, found=found)


def write(held_out: HeldOutRows, decided: HeldOutRows, output: Path) -> None:
    """Write validation.csv, validation.npz (in the same order) and examples.npz to a run's folder.

    Args:
        held_out: rows with probabilities or numbers.
        decided: the same rows with their final predictions.

    Raises:
        DiskError: if a file cannot be written.
    """
    examples, target, rows = held_out.examples, held_out.examples.target, held_out.rows
    truth, predictions = held_out.truth(rows), held_out.predictions[rows]
    final = decided.predictions[rows]
    table = pd.DataFrame({"id": [examples.ids[row] for row in rows]})
    if target.kind == "custom":
        table["mean_prediction"] = target.best(final)
    elif target.kind in ("multilabel", "regression") and len(examples.classes) > 1:
        shown = final if target.kind == "regression" else predictions
        for place, name in enumerate(target.names):
            table[f"label_{name}"] = truth[:, place]
            table[f"prediction_{name}"] = shown[:, place]
    else:
        table["label"] = targets.labels_of(target, examples.labels, rows)
        table["prediction"] = target.best(final)
    if target.single:
        table["confidence"] = predictions[range(len(rows)), final.argmax(axis=1)].round(6)
    if len(held_out.pairs) > 1:
        table["fold"] = held_out.folds
    name = "values" if target.kind in ("regression", "custom") else "probabilities"
    atomic_file.write(output / "validation.csv", table.to_csv(index=False).encode())
    atomic_file.write(output / "validation.npz", npz.to_bytes({name: predictions, "truth": truth}))
    hardest = worst(_losses(held_out))
    pictures = examples.inputs[rows[hardest]] if held_out.config.data.images else None
    if len(hardest):
        keep_examples(output, hardest, pictures)


def metrics_of(
    held_out: HeldOutRows,
    trained: Sequence[tuple[int, dict[str, float]]],
    show: Callable[[str], None],
) -> dict[str, Any]:
    """Return the manifest's "metrics" and, if there are folds, "folds" with the metrics of each.

    Args:
        trained: number of steps for each fold, and the metrics measured in training.
    """
    examples = held_out.examples

    def scores_of(rows: np.ndarray) -> dict[str, float]:
        predictions, scores = held_out.predictions[rows], {}
        if examples.target.single:
            right = predictions.argmax(axis=1) == examples.codes[rows]
            scores["validation_accuracy"] = float(right.mean())
        return scores | scored(held_out.metric, held_out.truth(rows), predictions, show)

    per_fold = [
        {
            "training_rows": len(rows),
            "validation_rows": len(part),
            "steps": steps,
            "metrics": measured | scores_of(part),
        }
        for (rows, part), (steps, measured) in zip(held_out.pairs, trained, strict=True)
    ]
    if len(per_fold) == 1:
        return {"metrics": per_fold[0]["metrics"]}
    overall = scores_of(held_out.rows)
    for key, column in pd.DataFrame([fold["metrics"] for fold in per_fold]).items():
        values = column.dropna().to_numpy()
        if len(values) > 1:
            overall[f"{key}_mean"] = float(np.mean(values))
            overall[f"{key}_sd"] = float(np.std(values, ddof=1))
    return {"metrics": overall, "folds": per_fold}


# Rows with the largest errors


def worst(wrong: np.ndarray, most: int = MOST_EXAMPLES) -> np.ndarray:
    """Return the indices of the largest losses, starting with the largest. Ties keep their order.
    NaN is treated as infinite.

    >>> worst(np.array([0.1, 3.0, 0.2, 3.0]), most=3)
    array([1, 3, 2])
    """
    return np.argsort(-np.nan_to_num(wrong, nan=np.inf), kind="stable")[:most]


def keep_examples(output: Path, rows: np.ndarray, pictures: np.ndarray | None) -> None:
    """Write examples.npz.

    Args:
        rows: int (m,), rows of validation.csv counted from 0, starting with the largest loss.
        pictures: their images, uint8 (m, height, width, 1 or 3), or None for tables.
    """
    arrays = {"indices": rows.astype(np.int64)}
    if pictures is not None:
        arrays["pixels"] = np.stack([_small(picture) for picture in pictures])
    atomic_file.write(output / EXAMPLES, npz.to_bytes(arrays))


def _losses(held_out: HeldOutRows) -> np.ndarray:
    """Return the error of each row, float (m,).

    The array is empty if a custom loss requires more than labels and outputs.
    """
    labels = held_out.examples.labels[held_out.rows]
    predictions = held_out.predictions[held_out.rows]
    if held_out.examples.target.kind != "custom":
        return held_out.examples.target.losses(labels, predictions)
    if losses.EXTRA in losses.asked(held_out.config):  # extra outputs are not kept
        return np.zeros(0)
    of_rows = losses.of(held_out.config)
    parts = [slice(start, start + LOSS_ROWS) for start in range(0, len(labels), LOSS_ROWS)]
    each = [of_rows(labels[part], predictions[part]).values() for part in parts]
    return np.concatenate([sum(map(np.asarray, values)) for values in each])


def _small(pixels: np.ndarray) -> np.ndarray:
    channels = pixels.shape[2]
    image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    image.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(image).reshape(image.height, image.width, channels)


# Comparison with the baseline


def differing(config: Config) -> str:
    """Return a message if the baseline uses a different metric, or "" if it does not."""
    metric = metrics.of(config).name
    if config.baseline is None or config.baseline.metric == metric:
        return ""
    return (
        f"The baseline uses {config.baseline.metric}, but the config's metric is {metric}, so they"
        " cannot be compared. Update the baseline:\n"
        f"invoke inspect --input DIR --metric {metric} --write {config.name}"
    )


def standard_error(held_out: HeldOutRows) -> float | None:
    """Return the standard error of the run's score, or None if the metric has no value."""
    rows = held_out.rows
    truth, predictions = held_out.truth(rows), held_out.predictions[rows]
    try:
        return metrics.standard_error(
            held_out.metric, truth, predictions, held_out.config.seed, metrics.LEAST_RESAMPLES
        )
    except PipelineError:
        return None  # `metrics_of` has shown a warning


def compare(
    held_out: HeldOutRows, error: float | None, show: Callable[[str], None]
) -> dict[str, Any] | None:
    """Compare the run with the baseline, and return the manifest's "baseline".

    Return None if the config has no baseline, the baseline uses another metric, or the metric has
    no value.
    """
    config, rows, metric = held_out.config, held_out.rows, held_out.metric
    baseline, other = config.baseline, differing(config)
    if other:
        show(other)
    if baseline is None or other or error is None:
        return None
    score = metric(held_out.truth(rows), held_out.predictions[rows])
    words = beside(baseline, metric, score, error)
    below = (score - baseline.score) * metric.sign < 0
    line = (
        f"{f'Warning: {words}' if below else words.capitalize()}:"
        f" {metric.name} {score:.4g} ± {error:.2g} on {len(rows):,}"
        f" held-out rows; {baseline.model} has {baseline.score:.4g} ± {baseline.error:.2g}."
    )
    if below:
        line += " Inspect the worst rows (`invoke report`). Then train for longer, or use the model"
        line += " proposed by `invoke inspect --budget`."
    show(line)
    return {**asdict(baseline), "network": score, "network_error": error, "below": below}


def beside(baseline: Baseline, metric: Metric, score: float, error: float) -> str:
    """Describe how a score compares to a baseline in the same metric.

    >>> known = Baseline(model="a forest", metric="rmse", score=5.0, error=0.3, rows=100)
    >>> beside(known, metrics.find("rmse", "regression"), 5.5, 0.4)
    'below the baseline by 1.0 standard errors, within the error (less than 2)'
    """
    ahead = (score - baseline.score) * metric.sign
    errors = abs(ahead) / (math.hypot(error, baseline.error) or math.inf)
    shown = math.floor(10 * errors) / 10 if errors < math.inf else errors  # 1.96 is less than 2
    by = f" by {shown:.1f} standard errors" if errors else ""
    by += ", within the error (less than 2)" if 0 < errors < 2 else ""
    return f"{'below' if ahead < 0 else 'above' if ahead else 'equal to'} the baseline{by}"
