"""Perturbed start: each initial weight moves to a neighbouring number, to try a proof's bounds.

A bound that holds only for one machine's rounding fails then. `RELAY_ONE_ULP=1` asks for it.
"""

import os
from typing import Any

import numpy as np

ASKED = "RELAY_ONE_ULP"


def neighbours(numbers: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return float32 numbers, each moved by one unit in the last place, up or down.

    >>> neighbours(np.ones(2, np.float32), np.random.default_rng(2)) - 1
    array([ 1.1920929e-07, -5.9604645e-08], dtype=float32)
    """
    ends = draw.choice(np.array([-np.inf, np.inf], np.float32), numbers.shape)
    moved: np.ndarray = np.nextafter(numbers, ends)
    return moved


def install() -> None:
    """Let every model that this process builds start one unit in the last place away."""
    if not os.environ.get(ASKED):
        return
    from pipeline.models import architectures

    build = architectures.build

    def nudged(*given: Any, **named: Any) -> Any:
        built = build(*given, **named)
        draw = np.random.default_rng(int(os.environ[ASKED]))
        for variable in built.weights:
            numbers = np.asarray(variable)
            if numbers.dtype == np.float32:
                variable.assign(neighbours(numbers, draw))
        return built

    architectures.build = nudged
