"""Rows: predictions for the rows of a test set, block by block, while the next ones are decoded,
and as many as there is time for.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.artifact import Artifact
from pipeline.data.test_set import TestSet
from pipeline.inference import forward_pass as forwards
from pipeline.inference import test_time_augmentation
from pipeline.inference.forward_pass import Asked, Batch, Forward
from pipeline.inference.time_budget import Pace

AHEAD = 1  # blocks that are with the device while another is handed over


def mean(artifact: Artifact, outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of the predictions that the outputs of the folds stand for: float32 (n, k)."""
    total = np.zeros((len(outputs[0]), len(artifact.classes)), np.float32)
    for one in outputs:
        total += artifact.target.predictions(one)
    return total / np.float32(len(outputs))


@dataclass(frozen=True)
class _Block:
    """A block that a device computes: its first row, what was asked for of each view, what each row
    lacks, and (views, folds).
    """

    start: int
    asked: tuple[Asked, ...]
    wrong: Mapping[int, str]
    used: tuple[int, int]
    compiling: float


def fill(
    artifact: Artifact,
    test: TestSet,
    forward: Forward,
    values: np.ndarray,
    *,
    first: int = 0,
    end: float | None = None,
    batch: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    tell: Callable[[Mapping[str, str], int], None],
    show: Callable[[str], None] = print,
) -> int:
    """Put the predictions of the rows from `first` on into `values`, as many as it has, and return
    how many there was time for.

    Args:
        values: float32 (m, k), written to; a row that cannot be read, or that has no finite
            prediction, gets the artifact's prior.
        end: by `clock`, when predicting has to be over; None: it takes as long as it takes. batch:
            rows at once; None: found by doubling.
        tell: takes after each block what cannot be read, by its id, and how many rows are done; may
            raise.
    """
    looks = test_time_augmentation.of(artifact.config.data, artifact.config.views)
    size = max(forwards.block(artifact.golden_inputs, len(values)), batch or 1)
    forward.begin(Batch(batch, size), clock, show)
    pace = Pace(len(looks), forward.folds, len(values), end, clock)
    waiting: deque[_Block] = deque()
    done = 0

    def take() -> int:
        block = waiting.popleft()
        got = np.zeros((len(block.asked[0].inputs), values.shape[1]), np.float32)
        for asked in block.asked:
            got += mean(artifact, forward.take(asked))
        got /= np.float32(len(block.asked))
        strange = np.flatnonzero(~np.isfinite(got).all(axis=1)) + block.start
        broken = {test.ids[row]: "its prediction is not a finite number" for row in strange}
        broken |= {test.ids[row]: reason for row, reason in block.wrong.items()}
        for row in (*strange, *block.wrong):
            got[row - block.start] = artifact.prior
        begin = block.start - first
        values[begin : begin + len(got)] = got
        tell(broken, begin + len(got))
        if pace.ended(len(got), block.used, block.compiling):
            now = f"{pace.used[0]} of {len(looks)} views, {pace.used[1]} of {forward.folds} folds"
            show(f"Time allows {now} from row {begin + first + len(got):,} on")
        return begin + len(got)

    for start, inputs, wrong in test.blocks(size, first, first + len(values)):
        while waiting and pace.over(len(waiting)):
            done = take()
        if pace.over(0):
            break
        before = forward.compiling
        seen = tuple(forward.ask(view.of(inputs), pace.used[1]) for view in looks[: pace.used[0]])
        waiting.append(_Block(start, seen, wrong, pace.used, forward.compiling - before))
        forward.settle(pace.left)
        # Until something is known of the time it takes, and where nothing can be handed over ahead,
        # one block at a time.
        while len(waiting) > (AHEAD if done and not forward.waits else 0):
            done = take()
    while waiting:
        done = take()
    return done
