"""How far float32 rounding may move a number: bounds that hold on every CPU."""

import math
from collections.abc import Callable, Sequence

import numpy as np

EPS = float(np.finfo(np.float32).eps)


def terms(weights: Sequence[np.ndarray]) -> int:
    """Return how many products the longest sum of a model's layers has."""
    return max(math.prod(weight.shape[:-1]) for weight in weights)


def nudged(weights: Sequence[np.ndarray], by: float, seed: int = 0) -> list[np.ndarray]:
    """Return weights of which each is larger or smaller by this share; whole numbers stay."""
    random = np.random.default_rng(seed)
    return [
        (weight * (1 + by * random.choice((-1, 1), weight.shape))).astype(weight.dtype)
        if np.issubdtype(weight.dtype, np.floating)
        else weight
        for weight in weights
    ]


def of_outputs(
    outputs: Callable[[Sequence[np.ndarray]], np.ndarray], weights: Sequence[np.ndarray]
) -> float:
    """Return how far two CPUs, batches or backends may differ in a model's outputs.

    A float32 sum of n products, in any order, is the exact sum for weights that are wrong by at
    most n roundings (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). So the
    effect is measured: each weight is moved by the roundings, of EPS / 2, of the longest sum. Two
    results differ by twice that, and by the rounding of what follows the sums, as a softmax.
    """
    exact, by = outputs(weights), terms(weights) * EPS / 2
    moves = [np.abs(outputs(nudged(weights, by, seed)) - exact).max() for seed in range(4)]
    return 2 * float(max(moves)) + 8 * EPS * float(np.abs(exact).max())
