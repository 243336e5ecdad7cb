"""Block prediction: the rows of a test set, block by block, while the next blocks are decoded, and
as many as there is time for.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.artifact import Artifact
from pipeline.data.test_set import TestSet
from pipeline.infer import forward_pass, test_time_augmentation
from pipeline.infer.forward_pass import Batch, Forward, Submitted
from pipeline.infer.time_budget import NONE, Limit, Pace

AHEAD = 1  # blocks that the device has while another one is submitted

# Takes what cannot be read, by its id, and how many rows are done; may raise.
Report = Callable[[Mapping[str, str], int], None]
Show = Callable[[str], None]


def mean(artifact: Artifact, outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of the predictions that the folds' outputs stand for: float32 (n, …)."""
    target = artifact.target
    return target.mean([target.predictions(one) for one in outputs])


NOT_FINITE = "its prediction is not a finite number"


@dataclass(frozen=True)
class _Block:
    """A block that a device computes: its first row, what was submitted of each view, why which row
    cannot be read, (views, folds), and seconds of compiling.
    """

    start: int
    views: tuple[Submitted, ...]
    broken: Mapping[int, str]
    used: tuple[int, int]
    compiling: float


def fill(
    artifact: Artifact,
    test: TestSet,
    forward: Forward,
    values: np.ndarray,
    *,
    first: int = 0,
    limit: Limit = NONE,
    batch: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    report: Report,
    show: Show = print,
) -> int:
    """Write the predictions of the rows from `first` on into `values`, and return how many there
    was time for.

    Args:
        values: float32 (m, …). A row that cannot be read, or whose prediction is not finite, gets
            the artifact's prior.
        limit: when predicting has to be over, by `clock`.
        batch: rows at once; None: found by doubling.
        report: is called after each block.
    """
    views = test_time_augmentation.views(artifact.config.data, artifact.config.views)
    size = max(forward_pass.block(artifact.golden_inputs, len(values)), batch or 1)
    forward.begin(Batch(batch, size), clock, show)
    pace = Pace(len(views), forward.folds, len(values), limit, clock)
    waiting: deque[_Block] = deque()
    done = 0

    def collect() -> int:
        block = waiting.popleft()
        of_views = [mean(artifact, forward.collect(submitted)) for submitted in block.views]
        got = artifact.target.mean(of_views)
        finite = np.isfinite(got).all(axis=tuple(range(1, got.ndim)))
        strange = (np.flatnonzero(~finite) + block.start).tolist()
        reasons = dict.fromkeys(strange, NOT_FINITE)
        reasons |= block.broken
        for row in reasons:
            got[row - block.start] = artifact.prior
        begin = block.start - first
        end_row = begin + len(got)
        values[begin:end_row] = got
        report({test.ids[row]: reason for row, reason in reasons.items()}, end_row)
        if pace.ended(len(got), block.used, block.compiling):
            now = f"{pace.used[0]} of {len(views)} views, {pace.used[1]} of {forward.folds} folds"
            show(f"Time allows {now} from row {end_row + first:,} on")
        return end_row

    for start, inputs, broken in test.blocks(size, first, first + len(values)):
        while waiting and pace.over(len(waiting)):
            done = collect()
        # A batch that still grows makes later blocks faster.
        if pace.over(0) or (pace.hopeless and not forward.batch.growing):
            break
        before, (number, folds) = forward.compiling, pace.used
        seen = tuple(forward.submit(view.apply(inputs), folds) for view in views[:number])
        waiting.append(_Block(start, seen, broken, pace.used, forward.compiling - before))
        forward.choose_batch(pace.remaining)
        # One block at a time until its time is known, and where nothing can be submitted ahead.
        while len(waiting) > (AHEAD if done and not forward.blocking else 0):
            done = collect()
    while waiting:
        done = collect()
    return done
