"""Fit a line to local and given scores (hidden or public), and find runs far from the line.

Both scores use the same metric, so an improvement on this machine should appear as an equal
improvement on Kaggle. The slope is therefore 1, unless the runs clearly show a different positive
slope.

A run is off the line if its distance from the line is more than `FAR` standard errors. The standard
error combines the errors of both scores and the uncertainty of the line. If the other runs are
farther from the line than the errors of their scores explain, the errors are scaled up. With the
errors alone, runs would be flagged because of seed noise. With the distances alone, a run could be
flagged just because a few other runs happen to agree. The fit starts from the median difference
between the scores, and iteratively excludes runs that are far from the line.

Of the tables with 8 to 30 random runs and no leaks, 1 % to 6 % contain a flagged run. If the errors
are unknown, as they are for public scores, up to 10 % of these tables contain one.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit  # type: ignore[import-untyped]

from workbench.experiments.experiment import Row

FEWEST, ENOUGH = 3, 5  # minimum number of runs to fit a line, and to flag runs
ENOUGH_WITHOUT_ERRORS = 6
FAR, TAIL = 3.0, 0.99865  # standard errors, and the fraction of a normal distribution below them
NORMAL = 1.4826  # ratio of standard deviation to median absolute deviation (normal distribution)
ROUNDS = 10
TINY = 1e-9  # tolerance for rounding


@dataclass(frozen=True)
class ScoreLine:
    """A line fitted to local and given scores.

    Attributes:
        name: name of the given scores, hidden or public.
        rows: the n runs with both scores.
        numbers: the local scores, the given scores, and the standard errors of both (NaN if
            unknown), float (4, n).
        correlation: correlation of the scores over all runs.
        errors: standard error of each run's distance from the line, float (n,).
        off: which runs are off the line, bool (n,).
        opposed: whether given scores decrease as local scores increase, by more than expected by
            chance.
    """

    name: str
    rows: Sequence[Row]
    numbers: np.ndarray
    correlation: float
    slope: float
    intercept: float
    errors: np.ndarray
    off: np.ndarray
    opposed: bool

    def __str__(self) -> str:
        slope = "" if self.slope == 1 else f"{self.slope:.2f} × "
        sign, without = "-+"[self.intercept >= 0], ""
        rest = self.numbers[:2, ~self.off]
        if self.off.any() and np.ptp(rest, axis=1).all():
            others = np.corrcoef(rest)[0, 1]
            without = f" ({others:.2f} without runs off the line)"
        return (
            f"{self.name} = {slope}local {sign} {abs(self.intercept):.2g}, from"
            f" {len(self.rows)} runs; correlation {self.correlation:.2f}{without}"
        )

    def values(self) -> dict[str, Any]:
        every = [row["number"] for row in self.rows]
        names = ("correlation", "slope", "intercept")
        off = [number for number, off in zip(every, self.off, strict=True) if off]
        return {"runs": every, "off": off, **{name: getattr(self, name) for name in names}}

    @property
    def drawn(self) -> tuple[np.ndarray, list[str], tuple[float, float], str]:
        off = set(self.values()["off"])
        marks = [str(row["number"]) * (row["number"] in off) for row in self.rows]
        return np.nan_to_num(self.numbers), marks, (self.slope, self.intercept), self.name

    def warnings(self) -> Iterator[str]:
        if self.opposed:
            yield (
                f"local scores do not predict {self.name} scores, which decrease as local scores"
                f" increase ({len(self.rows)} runs)."
            )
        for place in np.flatnonzero(self.off).tolist():
            row, (local, given, *_) = self.rows[place], self.numbers[:, place].tolist()
            expected = self.slope * local + self.intercept
            far = abs(given - expected) / self.errors[place]
            promised = (given < expected) == row["manifest"]["greater_is_better"]
            leak = " Its local score is too good, so check for a data leak." * promised
            yield (
                f"run {row['number']} ({row['config']}) is off the line: {self.name} {given:.4g},"
                f" expected {expected:.4g} ({far:.1f} standard errors).{leak}"
            )


def fit(rows: Sequence[Row], name: str) -> ScoreLine | None:
    """Fit a line to the runs that have a local score and the named score.

    Runs whose metric differs from the newest run's are omitted. Return None if there are fewer than
    `FEWEST` runs, or if all scores are equal.
    """
    metric, keys = rows[-1]["metric"], ("local", name, "local_error", f"{name}_error")
    rows = [
        row for row in rows if row["metric"] == metric and None not in (row["local"], row[name])
    ]
    numbers = np.array([[row.get(key) for row in rows] for key in keys], float)  # None becomes NaN
    x, y = numbers[:2]
    if len(rows) < FEWEST or not np.ptp(x) or not np.ptp(y):
        return None
    known = np.isfinite(numbers[2:]).all(axis=0)
    once, share = _once(numbers, every=bool(known.all()))
    tiny = TINY * np.ptp(y)
    slope, distances = 1.0, np.abs(y - x - np.median((y - x)[once]))
    own = _explained(numbers, slope)
    apart = (distances / own)[once if known.all() else once[distances[once] > tiny]]
    ratio = NORMAL * float(np.median(apart)) if len(apart) else 0.0
    own = own * np.maximum(ratio, known)
    for _ in range(ROUNDS):
        near = distances <= FAR * own + tiny
        near = near if round((near * share).sum()) >= FEWEST else np.ones(len(x), bool)
        own = _explained(numbers, slope)
        counted, least = near * share, float(known.all())
        weights, left = counted / own**2, max(round(counted.sum()) - 2, 1)
        middle, scale = np.average(x, weights=weights), max(ratio, least)
        slope, unsure = _slope(numbers, x - middle, weights, scale)
        intercept = np.average(y, weights=weights) - slope * middle
        distances = np.abs(y - slope * x - intercept)
        own = _explained(numbers, slope)
        ratio = math.sqrt((counted * (distances / own) ** 2).sum() / left)
        # For unknown errors, use Student's t, because they are estimated from few distances.
        own = own * np.maximum(ratio * np.where(known, 1, stdtrit(left, TAIL) / FAR), known)
    line = scale**2 / weights.sum() + (unsure * (x - middle)) ** 2
    errors = np.sqrt(own**2 + line) + tiny
    enough = ENOUGH if known.all() else ENOUGH_WITHOUT_ERRORS
    off = (distances > FAR * errors) & (len(once) >= enough)
    correlation = float(np.corrcoef(x, y)[0, 1])
    opposed = _opposed(numbers[:2, ~off], _explained(numbers, 1.0)[~off] ** -2, least)
    found = slope, float(intercept), errors, off, opposed
    return ScoreLine(name, rows, numbers, correlation, *found)


def _once(numbers: np.ndarray, *, every: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the runs to use, and the weight of each run, float (n,).

    Unless `every` is set, identical runs count as a single run, because their distances from the
    line are not independent.
    """
    if every:
        return np.arange(numbers.shape[1]), np.ones(numbers.shape[1])
    _, first, same, counts = np.unique(
        np.nan_to_num(numbers), axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    return first, 1 / counts[same.reshape(-1)]


def _explained(numbers: np.ndarray, slope: float) -> np.ndarray:
    """Return the distance from the line that the errors of each run's scores explain, float (n,).

    Unknown values are replaced by the median. Values below half the median are raised to half the
    median, because resampling estimates an error of 0 for a perfect score.
    """
    found = np.hypot(numbers[3], slope * numbers[2])
    usual = (float(np.nanmedian(found)) if np.isfinite(found).any() else 0.0) or 1.0
    return np.asarray(np.maximum(np.nan_to_num(found, nan=usual), usual / 2))


def _slope(
    numbers: np.ndarray, apart: np.ndarray, weights: np.ndarray, scale: float
) -> tuple[float, float]:
    """Return the slope of the line and its standard error.

    The slope is 1 and its error is 0, unless the least-squares slope is positive and differs from 1
    by more than `FAR` standard errors. The least-squares slope is corrected for regression
    dilution, because errors of the local scores make the line flatter. Negative slopes are caused
    by leaks or by unrelated scores.
    """
    spread = (weights * apart**2).sum()
    true = spread - (weights * np.nan_to_num(numbers[2]) ** 2).sum()
    if true <= 0:
        return 1.0, 0.0
    slope = float((weights * apart * numbers[1]).sum() / true)
    error = float(scale * math.sqrt(spread) / true)
    taken = slope > 0 and abs(slope - 1) > FAR * error + TINY
    return (slope, error) if taken else (1.0, 0.0)


def _opposed(scores: np.ndarray, weights: np.ndarray, least: float) -> bool:
    """Compute `ScoreLine.opposed`.

    Args:
        scores: local and given scores, float (2, n).
        weights: inverse squared error of each run, float (n,).
        least: lower bound for the residual standard deviation, in units of these errors.
    """
    if scores.shape[1] < FEWEST or not np.ptp(scores[0]):
        return False
    x, y = scores - np.average(scores, axis=1, weights=weights)[:, None]
    spread, left = (weights * x**2).sum(), len(x) - 2
    slope = (weights * x * y).sum() / spread
    error = max(math.sqrt((weights * (y - slope * x) ** 2).sum() / left), least)
    return bool(slope < -float(stdtrit(left, TAIL)) * error / math.sqrt(spread) - TINY)
