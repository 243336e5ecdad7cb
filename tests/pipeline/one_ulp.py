"""One ulp: how far two equivalent trainings may be apart, on any CPU.

Programs that add in a different order round differently, with an effect that depends on the result.
So it is measured in the same run: each initial weight moves to a neighbouring number.
"""

from collections.abc import Mapping

import numpy as np

# How often the measured effect another order of additions may move a result by. A neighbouring
# number is one rounding; a result has as many as its additions have, of either sign.
TIMES = 32
SEEDS = range(3)  # the largest effect of so many is taken: one may be small by chance


def neighbours(numbers: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return floating-point numbers, each moved by one unit in the last place, up or down."""
    return np.nextafter(
        numbers, random.choice((-np.inf, np.inf), numbers.shape).astype(numbers.dtype)
    )


def nudged(arrays: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Return the arrays with each number moved to one of its two neighbours, at random."""
    random = np.random.default_rng(seed)
    return {name: neighbours(array, random) for name, array in arrays.items()}


def apart(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> float:
    """Return the largest relative difference between arrays of the same names: of each, the norm of
    the difference over the norm.
    """
    return max(
        float(
            np.linalg.norm(ours[name].astype(float) - theirs[name])
            / max(np.linalg.norm(theirs[name].astype(float)), 1e-9)
        )
        for name in theirs
        if np.issubdtype(theirs[name].dtype, np.floating)
    )
