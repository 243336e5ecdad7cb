"""One ulp: how far two trainings of one result may be apart, on any CPU.

Programs that add in another order round otherwise, and how much that moves a result depends on the
result. So it is measured in the same run: each weight at the start moves to a neighbouring number.
"""

from collections.abc import Mapping

import numpy as np

from proofs.shared import perturbed_start

# How often the measured effect another order of additions may move a result by. A neighbouring
# number is one rounding; a result has as many as its additions have, of either sign.
TIMES = 32
SEEDS = range(3)  # the largest effect of so many is taken: one may be small by chance


def nudged(arrays: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Return the arrays with each number moved to one of its two neighbours, at random."""
    random = np.random.default_rng(seed)
    return {name: perturbed_start.neighbours(array, random) for name, array in arrays.items()}
