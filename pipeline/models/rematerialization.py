"""Rematerialization: which outputs of a model a step keeps for its gradient, and computes again
from these what lies between them.

It takes a third more computing, and memory for the kept outputs and the largest stretch between two
(Chen et al. 2016, arXiv:1604.06174).
"""

import math
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

NAME = "kept"


def kept_layers(model: Any) -> list[Any]:
    """Return the layers whose outputs are kept: each is all that later layers need of earlier ones,
    and together they take the least memory.
    """
    try:
        inputs = [jax.tree.leaves(layer.input) for layer in model.layers]
        outputs = [jax.tree.leaves(layer.output) for layer in model.layers]
    except AttributeError:  # Keras knows one input of a layer only if it is called once
        return []
    made = {id(tensor): place for place, some in enumerate(outputs) for tensor in some}
    needed = dict.fromkeys(range(len(outputs)), 0)
    for place, some in enumerate(inputs):
        for tensor in some:
            source = made.get(id(tensor), place)
            needed[source] = max(needed[source], place)
    sizes = [sum(math.prod(tensor.shape[1:]) for tensor in some) for some in outputs]
    narrow, furthest = [], 0
    for place in range(len(outputs) - 1):
        if place >= furthest:
            narrow.append(place)
        furthest = max(furthest, needed[place])
    return [model.layers[place] for place in _cheapest(narrow, sizes)]


def _cheapest(narrow: list[int], sizes: list[int]) -> list[int]:
    """Return those of the narrow places whose kept outputs and largest stretch are least together.

    >>> _cheapest([1, 3, 5, 7], [8, 1] * 5)
    [1, 3, 5, 7]
    """
    best: tuple[float, list[int]] = (sum(sizes), [])
    for limit in sorted({sum(sizes[: place + 1]) for place in narrow}):
        chosen, stretches, since = [], [0], 0
        for place, size in enumerate(sizes):
            since += size
            if place in narrow and since >= limit:
                chosen.append(place)
                stretches.append(since)
                since = 0
        kept = sum(sizes[place] for place in chosen)
        best = min(best, (kept + max(*stretches, since), chosen))
    return best[1]


def policy() -> Any:
    """Return JAX's rule that keeps what `named` has named, and nothing else."""
    return jax.checkpoint_policies.save_only_these_names(NAME)


def named(output: Any) -> Any:
    """Return an output, named so that `policy` keeps it."""
    return jax.tree.map(lambda one: checkpoint_name(one, NAME), output)  # type: ignore[no-untyped-call]
