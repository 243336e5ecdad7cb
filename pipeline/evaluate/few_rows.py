"""Few rows: those that carry most of a regression's error, and what is odd about them.

A typo in a label, or in an input, can weigh more than all other rows together. No longer training
mends that.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import Config
from pipeline.data import dataset, table_features
from pipeline.data.dataset import Examples
from pipeline.data.table_features import Encoding
from pipeline.errors import DataError
from pipeline.evaluate.metrics import Metric

MOST = 5  # rows that are named, and at most one in a hundred
SHARE = 0.5  # of the squared error, which they have to carry
ODD = 5.0  # standard deviations from the mean, from which on a value is named


def find(
    config: Config,
    examples: Examples,
    folder: Path,
    held: np.ndarray,
    found: np.ndarray,
    metric: Metric,
) -> dict[str, Any] | None:
    """Return the manifest's "few_rows": which rows carry most of the error.

    Args:
        folder: the competition, whose table is read again if there are such rows.
        held: the held-out rows.
        found: float32 (n, k), a prediction for each example.
        metric: the competition's.

    Returns:
        ids; share, of the squared error; text, for people; None if no few rows carry it, or the
        target is no regression.
    """
    if config.target != "regression":
        return None
    target, labels = examples.target, examples.labels[held]
    errors = ((target.learned(found[held]) - labels) ** 2).sum(axis=1)
    order = np.argsort(-errors, kind="stable")[: max(min(MOST, len(held) // 100), 1)]
    shares = np.cumsum(errors[order]) / (errors.sum() or math.inf)
    enough = np.flatnonzero(shares > SHARE)
    if not len(enough) or len(held) < 2 * MOST:
        return None
    worst = order[: enough[0] + 1]
    share = float(shares[enough[0]])
    odd = _odd(config, examples, folder, held[worst])
    rows = [
        f"{examples.ids[row]}{f' ({why})' if why else ''}"
        for row, why in zip(held[worst].tolist(), odd, strict=True)
    ]
    count = "1 row carries" if len(rows) == 1 else f"{len(rows)} rows carry"
    text = f"{count} {share:.0%} of the squared error on {len(held):,} held-out rows: "
    text += ", ".join(rows)
    rest = np.delete(held, worst)
    try:
        without = metric(target.truth(examples.labels[rest]), found[rest])
        text += f". {metric.name} without {'it' if len(rows) == 1 else 'them'}: {without:.4g}"
    except DataError:
        pass  # it has no value for the others, which says nothing of these rows
    text += f". Look at {'it' if len(rows) == 1 else 'them'} in the table: a typo may be there."
    return {"ids": [examples.ids[row] for row in held[worst]], "share": share, "text": text}


def _odd(config: Config, examples: Examples, folder: Path, rows: np.ndarray) -> list[str]:
    """Return what is far from the mean in each of the rows, in words; "" where nothing is."""
    names, columns = list(examples.target.names), [*examples.labels[rows].T]
    data, encoding = config.data, examples.encoding
    if isinstance(encoding, Encoding) and data.train_csv is not None:
        path = folder / data.train_csv
        given, alone = tuple(encoding.numbers), (data.id_column,)
        table = table_features.read_table(path, given, dataset.ADVICE, optional=alone)
        ids = table[alone[0]] if alone[0] in table.columns else map(str, range(len(table)))
        at = {name: place for place, name in enumerate(ids)}
        table = table.iloc[[at[examples.ids[row]] for row in rows]]
        far = table_features.deviations(table, encoding, path)
        names, columns = [*names, *far], [*columns, *far.values()]
    values = np.nan_to_num(np.stack(columns, axis=1))
    found = []
    for row in values:
        places = [place for place in np.argsort(-np.abs(row)) if abs(row[place]) >= ODD][:3]
        told = [f"{names[place]!r} is {abs(row[place]):,.0f} s.d. off" for place in places]
        found.append(", ".join(told))
    return found
