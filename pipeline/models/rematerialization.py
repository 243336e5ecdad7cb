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
    """Return the layers whose outputs are kept: each is all that later layers need of earlier ones.

    Stretches of s numbers keep total / s outputs of the usual size m. The sum of both, s + total x
    m / s, is least for s = sqrt(total x m).
    """
    try:
        inputs = [jax.tree.leaves(layer.input) for layer in model.layers]
        outputs = [jax.tree.leaves(layer.output) for layer in model.layers]
    except AttributeError:  # Keras knows one input of a layer only if it is called once
        return []
    maker = {id(tensor): place for place, tensors in enumerate(outputs) for tensor in tensors}
    last_use = list(range(len(outputs)))
    for place, tensors in enumerate(inputs):
        for tensor in tensors:
            source = maker.get(id(tensor), place)
            last_use[source] = max(last_use[source], place)
    sizes = [sum(math.prod(tensor.shape[1:]) for tensor in tensors) for tensors in outputs]
    narrow = [n for n in range(1, len(sizes) - 1) if max(last_use[:n]) <= n]
    if not narrow:
        return []
    stretch = math.sqrt(sum(sizes) * sum(sizes[n] for n in narrow) / len(narrow))
    kept, since = [], 0
    for place, size in enumerate(sizes):
        since += size
        if place in narrow and since >= stretch:
            kept.append(model.layers[place])
            since = 0
    return kept


def policy() -> Any:
    """Return JAX's rule that keeps what `named` has named, and nothing else."""
    return jax.checkpoint_policies.save_only_these_names(NAME)


def named(output: Any) -> Any:
    """Return an output, named so that `policy` keeps it."""
    return jax.tree.map(lambda one: checkpoint_name(one, NAME), output)  # type: ignore[no-untyped-call]
