"""Batches of one shape for evaluation and inference, which drop nothing."""

from collections.abc import Iterator

import numpy as np


def padded(inputs: np.ndarray, batch: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield (batch rows of the inputs, how many of them are real); zeros fill the last batch."""
    for start in range(0, len(inputs), batch):
        part = inputs[start : start + batch]
        if len(part) < batch:
            filled = np.zeros((batch, *inputs.shape[1:]), inputs.dtype)
            filled[: len(part)] = part
            yield filled, len(part)
        else:
            yield part, batch
