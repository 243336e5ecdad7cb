"""Select each epoch's rows for configs that do not use each row exactly once.

`Config.sampler` determines the rows. They depend only on (seed, epoch), so a resumed run uses the
same ones. All epochs have the same number of rows, so some rows are repeated and others omitted.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.augment.streams import Stream
from pipeline.config import Config, custom_code
from pipeline.data.labels import codes

Sampler = Callable[[int], np.ndarray]


def of(config: Config, labels: np.ndarray) -> Sampler | None:
    """Return a function that maps an epoch to the indices of its training rows, int64 (n,).

    Epochs are counted from 0. Return None if each row is used once.
    """
    if not config.sampler:
        return None
    custom: Any = custom_code.function(config, "sampler")

    def rows(epoch: int) -> np.ndarray:
        random = np.random.default_rng((config.seed, Stream.SAMPLER, epoch))
        if custom is None:
            return balanced(codes(labels), random)
        with custom_code.telling(config, "sampler"):
            return _rows(np.asarray(custom(labels, epoch, random)), len(labels), random)

    return rows


def balanced(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return an epoch's rows, in which all labels, and all rows of a label, occur equally often.

    Their counts differ by at most one.

    >>> rows = balanced(np.array([0, 0, 0, 0, 0, 1]), np.random.default_rng(0))
    >>> sorted(rows.tolist())[-3:], len(set(rows.tolist()))
    ([5, 5, 5], 4)
    """
    every = random.permutation(np.unique(labels))
    parts = np.array_split(np.arange(len(labels)), len(every))  # the first parts can be longer
    chosen = []
    for label, part in zip(every, parts, strict=True):
        of_label = np.flatnonzero(labels == label)
        turns = -(-len(part) // len(of_label))
        again = [random.permutation(of_label) for _ in range(turns)]
        chosen.append(np.concatenate(again)[: len(part)])
    return random.permutation(np.concatenate(chosen))


def _rows(given: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    least, most = given.min(initial=0), given.max(initial=0)
    if given.shape == (count,) and least >= 0:
        if given.dtype.kind in "iu" and most < count:
            return given.astype(np.int64)
        if given.dtype.kind == "f" and 0 < given.sum() < np.inf:
            return random.choice(count, count, p=given / given.sum())
    raise ValueError(
        f"it returned {given.dtype} {given.shape}, with values from {least} to {most}, for {count}"
        f" rows; expected ({count},): weights of 0 or more as floats, or rows from 0 to {count - 1}"
        " as integers"
    )
