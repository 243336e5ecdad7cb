"""Held-out results: what a training writes and shows of its held-out rows at its end.

These are validation.csv and validation.npz, the metrics of the manifest, the rows that the model is
most wrong about (examples.npz), few rows that carry most of a regression's error, and how the run
compares with the baseline that `invoke inspect` measured (`Config.floor`).
"""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from formats import atomic_file
from formats.errors import writing
from pipeline.config import Config, custom_code
from pipeline.data import dataset, folds, table_features
from pipeline.data import labels as targets
from pipeline.data.labels import Target
from pipeline.data.table_features import Encoding
from pipeline.errors import DataError, ReportError, reading
from pipeline.evaluate import competition_metric, metrics
from pipeline.evaluate.metrics import Metric

LOSS_ROWS = 1024  # whose custom losses are computed at once

EXAMPLES = "examples.npz"
MOST_EXAMPLES = 24
SIDE = 256  # pixels; a larger picture is reduced: people look at it, nothing computes with it

MOST_FEW = 5  # rows that are named, and at most one in a hundred
FEW_SHARE = 0.5  # of the squared error, which they have to carry
ODD = 5.0  # standard deviations from the mean, from which on a value is named


def write(
    output: Path,
    examples: dataset.Examples,
    pairs: Sequence[folds.Pair],
    held_out: np.ndarray,
    predictions: np.ndarray,
) -> None:
    """Write validation.csv, and validation.npz in the same order.

    Args:
        output: the run's folder.
        pairs: (training rows, held-out rows) of each fold.
        held_out: all held-out rows, in the order of the files.
        predictions: float32 (n, …), a prediction for each example.
    """
    target = examples.target
    truth, predictions = target.truth(examples.labels[held_out]), predictions[held_out]
    table = pd.DataFrame({"id": [examples.ids[index] for index in held_out]})
    if target.kind == "own":
        table["mean_prediction"] = target.best(predictions)
    elif target.kind in ("multilabel", "regression") and len(examples.classes) > 1:
        for place, name in enumerate(target.names):
            table[f"label_{name}"] = truth[:, place]
            table[f"prediction_{name}"] = predictions[:, place]
    else:
        table["label"] = targets.labels_of(target, examples.labels, held_out)
        table["prediction"] = target.best(predictions)
    if target.single:
        table["confidence"] = predictions.max(axis=1).round(6)
    if len(pairs) > 1:
        fold = np.zeros(len(examples), int)
        for number, (_, rows) in enumerate(pairs, start=1):
            fold[rows] = number
        table["fold"] = fold[held_out]
    with writing(output / "validation.csv"):
        table.to_csv(output / "validation.csv", index=False)
    name = "values" if target.kind in ("regression", "own") else "probabilities"
    with writing(output / "validation.npz"):
        arrays: dict[str, Any] = {name: predictions, "truth": truth}
        np.savez(output / "validation.npz", **arrays)


def losses(
    config: Config, target: Target, labels: np.ndarray, predictions: np.ndarray
) -> np.ndarray:
    """Return how wrong each row is, float (n,): the loss of its target, or the config's own."""
    if target.kind != "own":
        return target.losses(labels, predictions)
    loss: Any = custom_code.function(config, "loss")
    parts = [slice(start, start + LOSS_ROWS) for start in range(0, len(labels), LOSS_ROWS)]
    return np.concatenate([np.asarray(loss(labels[part], predictions[part])) for part in parts])


def metrics_of(
    examples: dataset.Examples,
    pairs: Sequence[folds.Pair],
    trained: Sequence[tuple[int, dict[str, float]]],
    predictions: np.ndarray,
    metric: Metric,
    show: Callable[[str], None],
) -> dict[str, Any]:
    """Return the manifest's "metrics" and, if there are folds, "folds": those of each.

    A metric may have no value on the held-out set (AUC of one class); training is not lost for
    that.

    Args:
        pairs, predictions: as `write` takes them.
        trained: of each fold, its steps and the metrics that its loop measured.
        show: takes a warning for each metric without a value.
    """

    def scored(rows: np.ndarray) -> dict[str, float]:
        labels, scores = examples.labels[rows], dict[str, float]()
        if examples.target.single:
            scores["validation_accuracy"] = float(
                (predictions[rows].argmax(axis=1) == labels).mean()
            )
        try:
            scores[f"validation_{metric.name}"] = metric(
                examples.target.truth(labels), predictions[rows]
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
    overall = scored(np.arange(len(examples)))  # over all examples, as in validation.csv
    names = dict.fromkeys(name for scores in each for name in scores)
    values = {name: [scores[name] for scores in each if name in scores] for name in names}
    values = {name: value for name, value in values.items() if len(value) > 1}
    overall |= {f"{name}_mean": float(np.mean(value)) for name, value in values.items()}
    overall |= {f"{name}_sd": float(np.std(value, ddof=1)) for name, value in values.items()}
    per_fold = [
        {
            "training_rows": len(rows),
            "validation_rows": len(held_out),
            "steps": steps,
            "metrics": scores,
        }
        for (rows, held_out), (steps, _), scores in zip(pairs, trained, each, strict=True)
    ]
    return {"metrics": overall, "folds": per_fold}


# The rows that a model is most wrong about


@dataclass(frozen=True)
class WorstRows:
    """What `keep_examples` wrote.

    Attributes:
        indices: int64 (m,), rows of validation.csv, from 0; that of the largest loss first.
        pixels: uint8 (m, height, width, channels), with 1 or 3 channels; None where the inputs are
            no images.
    """

    indices: np.ndarray
    pixels: np.ndarray | None


def worst(losses: np.ndarray, most: int = MOST_EXAMPLES) -> np.ndarray:
    """Return the places of the largest losses, the largest first, of equals the first first. A NaN
    counts as infinite.

    >>> worst(np.array([0.1, 3.0, 0.2, 3.0]), most=3)
    array([1, 3, 2])
    """
    losses = np.asarray(losses, np.float64)
    return np.argsort(-np.where(np.isnan(losses), np.inf, losses), kind="stable")[:most]


def keep_examples(
    output: Path,
    rows: np.ndarray,
    losses: np.ndarray,
    inputs: np.ndarray | None,
    most: int = MOST_EXAMPLES,
) -> Path:
    """Write examples.npz with the `most` rows of the largest losses, in one rename, and return its
    path.

    Args:
        output: the run's folder.
        rows: int (n,): rows of validation.csv, counted from 0, in any order.
        losses: float (n,), of these rows.
        inputs: of these rows: uint8 images (n, height, width, channels) with 1 or 3 channels; None
            for tables.

    Raises:
        DiskError: if the file cannot be written; an older one is still there.
    """
    chosen = worst(losses, most)
    arrays = {"indices": rows[chosen].astype(np.int64)}
    if inputs is not None:
        arrays["pixels"] = _small(inputs[chosen])
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    return atomic_file.write(output / EXAMPLES, packed.getvalue())


def load_examples(path: Path, *, rows: int) -> WorstRows:
    """Return what `keep_examples` wrote for a validation.csv of `rows` rows.

    Raises:
        ReportError: if the file cannot be read, or holds anything else.
    """
    advice = "Remove the file, which a report does without, or pull the run again."
    with reading(path, ReportError, advice):
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            indices, pixels = arrays["indices"], arrays.get("pixels")
            good = indices.ndim == 1 and indices.dtype.kind in "iu"
            good = good and bool(((indices >= 0) & (indices < rows)).all())
            if pixels is not None:
                height, width, channels = pixels.shape[1:]
                good = good and pixels.dtype == np.uint8 and len(pixels) == len(indices)
                good = good and min(height, width) > 0 and channels in (1, 3)
            if not good:
                shown = [f"{name} {each.dtype} {each.shape}" for name, each in arrays.items()]
                raise ValueError(f"{', '.join(shown)} for {rows} rows")
        except OSError:
            raise
        except Exception as error:  # zipfile and numpy raise a dozen kinds for a corrupt file
            raise ReportError(
                f"{path} is not what keep_examples writes:"
                f" {type(error).__name__}: {str(error)[:300]}.\n"
                f"Expected indices (m,) of rows of validation.csv, and uint8 pixels. {advice}"
            ) from error
    return WorstRows(indices.astype(np.int64), pixels)


def _small(pixels: np.ndarray) -> np.ndarray:
    """Return the images with no side longer than `SIDE`."""
    height, width, channels = pixels.shape[1:]
    share = SIDE / max(height, width)
    if share >= 1 or not len(pixels):
        return pixels
    size = (max(round(width * share), 1), max(round(height * share), 1))
    images = [Image.fromarray(image.squeeze(-1) if channels == 1 else image) for image in pixels]
    reduced = [np.asarray(image.resize(size, Image.Resampling.BOX)) for image in images]
    return np.stack(reduced).reshape(len(pixels), size[1], size[0], channels)


# Few rows that carry most of the error


def few_rows(
    config: Config,
    examples: dataset.Examples,
    folder: Path,
    held_out: np.ndarray,
    predictions: np.ndarray,
    metric: Metric,
) -> dict[str, Any] | None:
    """Return the manifest's "few_rows": which rows carry most of a regression's error.

    A typo in a label, or in an input, can weigh more than all other rows together. A longer
    training does not help then.

    Args:
        folder: the competition, whose table is read again if there are such rows.
        held_out: the held-out rows.
        predictions: float32 (n, k), a prediction for each example.
        metric: the competition's.

    Returns:
        ids; share, of the squared error; text, for people; None if no few rows carry it, or the
        target is no regression.
    """
    if config.target != "regression" or len(held_out) < 2 * MOST_FEW:
        return None
    target, labels = examples.target, examples.labels[held_out]
    errors = ((target.learned(predictions[held_out]) - labels) ** 2).sum(axis=1)
    order = np.argsort(-errors, kind="stable")[: max(min(MOST_FEW, len(held_out) // 100), 1)]
    shares = np.cumsum(errors[order]) / (errors.sum() or math.inf)
    enough = np.flatnonzero(shares > FEW_SHARE)
    if not len(enough):
        return None
    few, share = order[: enough[0] + 1], float(shares[enough[0]])
    ids = [examples.ids[row] for row in held_out[few]]
    odd = _odd_values(config, examples, folder, held_out[few])
    rows = [f"{name} ({why})" if why else name for name, why in zip(ids, odd, strict=True)]
    count, them = ("1 row carries", "it") if len(few) == 1 else (f"{len(few)} rows carry", "them")
    text = f"{count} {share:.0%} of the squared error on {len(held_out):,} held-out rows: "
    text += ", ".join(rows)
    rest = np.delete(held_out, few)
    try:
        without = metric(target.truth(examples.labels[rest]), predictions[rest])
        text += f". {metric.name} without {them}: {without:.4g}"
    except DataError:
        pass  # it has no value for the others, which says nothing of these rows
    text += f". Look at {them} in the table: a typo may be there."
    return {"ids": ids, "share": share, "text": text}


def _odd_values(
    config: Config, examples: dataset.Examples, folder: Path, rows: np.ndarray
) -> list[str]:
    """Return what is far from the mean in each of the rows, in words; "" where nothing is."""
    data, encoding = config.data, examples.encoding
    columns = dict(zip(examples.target.names, examples.labels[rows].T, strict=True))
    if isinstance(encoding, Encoding) and data.train_csv is not None:
        path, key = folder / data.train_csv, data.id_column
        numbers = tuple(encoding.numbers)
        table = table_features.read_table(path, numbers, dataset.ADVICE, optional=(key,))
        ids = table[key] if key in table.columns else map(str, range(len(table)))
        places = {name: place for place, name in enumerate(ids)}
        table = table.iloc[[places[examples.ids[row]] for row in rows]]
        columns |= table_features.deviations(table, encoding, path)
    names, values = list(columns), np.nan_to_num(np.stack(list(columns.values()), axis=1))
    texts = []
    for row in values:
        far = [place for place in np.argsort(-np.abs(row)) if abs(row[place]) >= ODD][:3]
        texts.append(", ".join(f"{names[at]!r} is {abs(row[at]):,.0f} s.d. off" for at in far))
    return texts


# The baseline


def differing(config: Config) -> str:
    """Return that the config's baseline is in another metric, and how to renew it; "" if it is not.

    Two metrics' numbers cannot be compared.
    """
    metric = competition_metric.of(config).name
    if config.floor is None or config.floor.metric == metric:
        return ""
    return (
        f"The floor is in {config.floor.metric} and the config's metric is {metric}, so they are"
        " not compared. Renew the floor:\n"
        f"invoke inspect --input DIR --metric {metric} --write {config.name}"
    )


def compare(
    config: Config,
    examples: dataset.Examples,
    held_out: np.ndarray,
    predictions: np.ndarray,
    show: Callable[[str], None],
    *,
    few_rows: bool = False,
) -> dict[str, Any] | None:
    """Return the manifest's "floor", and show in one line how the run compares with its baseline.

    Args:
        config: with the baseline that `invoke inspect` measured, or without.
        held_out: the held-out rows.
        predictions: float32 (n, k), a prediction for each example.
        show: takes the line.
        few_rows: whether few rows carry the error, where a longer training does not help.

    Returns:
        The baseline's own fields; `network` and `network_error`: score and standard error of the
        run by the same metric; `below`: whether the run is the worse one. None without a baseline,
        or with one in another metric, or where the metric has no value.
    """
    floor = config.floor
    if floor is None:
        return None
    if other := differing(config):
        show(other)
        return None
    metric = competition_metric.of(config)
    truth = examples.target.truth(examples.labels[held_out])
    try:
        score = metric(truth, predictions[held_out])
        error = metrics.standard_error(metric, truth, predictions[held_out], config.seed)
    except DataError as problem:
        why = str(problem).splitlines()[0]
        show(f"Warning: the run cannot be compared with its floor ({floor}): {why}")
        return None
    ahead = (score - floor.score) * metric.sign
    run = f"{score:.4g} ± {error:.2g} on {len(held_out):,} held-out rows"
    baseline = f"{floor.model} has {floor.score:.4g} ± {floor.error:.2g}"
    if ahead < 0:
        advice = "Look at the rows that carry the error first."
        if not few_rows:
            advice = (
                "Train longer, or take another model: `invoke inspect --budget` proposes one for"
                " the time that you have."
            )
        show(f"Warning: below the floor. This run has {metric.name} {run}; {baseline}. {advice}")
    else:
        errors = ahead / (math.hypot(error, floor.error) or math.inf)
        sure = "" if errors >= 2 else ", which may be chance"
        start = f"Above the floor by {errors:.1f} standard errors{sure}"
        show(f"{start if ahead else 'Equal to the floor'}: {metric.name} {run}; {baseline}.")
    return {**asdict(floor), "network": score, "network_error": error, "below": ahead < 0}
