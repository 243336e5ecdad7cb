"""Hill climb: weights of an ensemble, by adding member after member to a mean.

Source: Caruana et al. 2004, Ensemble selection from libraries of models: greedy selection with
replacement, which begins with the best member.
"""

from collections.abc import Callable, Sequence

import numpy as np

ROUNDS = 50  # the smallest weight is one of so many

# Of predictions and their weights, as `pipeline.data.labels.Target.mean`.
Mean = Callable[[Sequence[np.ndarray], Sequence[float]], np.ndarray]


def climb(
    predictions: Sequence[np.ndarray],
    score: Callable[[np.ndarray], float],
    seed: int,
    mean: Mean,
) -> list[float]:
    """Return a weight for each member, which add up to 1 and score no less than the best member.

    Each round adds the member with which the mean scores best; of equal ones that which is best
    alone, so that a member which adds nothing gets nothing; of those the seed chooses. It goes on
    where that is worse. Of all rounds the one that scores best counts, of equal ones the last: it
    averages more.

    Args:
        predictions: of each member, float (n, …), of the same rows.
        score: takes such predictions; greater is better.
        seed: of the choice between equals.
        mean: of predictions with weights.

    >>> sides = np.array([0.0, 0.0, 1.0]), np.array([2.0, 2.0, 1.0]), np.array([9.0, 9.0, 9.0])
    >>> def mean(given, weights):
    ...     return np.average(given, axis=0, weights=weights)
    >>> climb(sides, lambda values: -float(np.abs(values - 1).sum()), seed=0, mean=mean)
    [0.5, 0.5, 0.0]
    """
    random = np.random.default_rng(seed)
    alone = np.array([score(mean([each], [1])) for each in predictions])
    first = int(np.argmax(alone))
    counts = np.zeros(len(predictions), int)
    counts[first] = 1
    kept, best = counts.copy(), alone[first]
    for _ in range(2, ROUNDS + 1):
        # As the members are averaged later, so that the score is the one of the result.
        values = np.array(
            [
                score(weighted(predictions, counts + one, mean))
                for one in np.eye(len(counts), dtype=int)
            ]
        )
        equal = np.flatnonzero(values == values.max())
        chosen = int(random.choice(equal[alone[equal] == alone[equal].max()]))
        counts[chosen] += 1
        if values[chosen] >= best:
            kept, best = counts.copy(), values[chosen]
    weights = [float(each) for each in kept / kept.sum()]
    if score(weighted(predictions, weights, mean)) < alone[first]:  # by a rounding
        weights = [float(place == first) for place in range(len(predictions))]
    return weights


def weighted(
    predictions: Sequence[np.ndarray], weights: Sequence[float] | np.ndarray, mean: Mean
) -> np.ndarray:
    """Return the weighted mean of the members that have a weight, float32 (n, …)."""
    chosen = [pair for pair in zip(predictions, weights, strict=True) if pair[1]]
    return mean([each for each, _ in chosen], [float(weight) for _, weight in chosen])
