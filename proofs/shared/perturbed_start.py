"""Perturbed start: each initial weight moves to a neighbouring number, to try a proof's bounds.

A bound that holds only for one machine's rounding fails then. `RELAY_ONE_ULP=1` asks for it.
"""

import os
from typing import Any

import numpy as np

ASKED = "RELAY_ONE_ULP"


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
                ends = draw.choice(np.array([-np.inf, np.inf], np.float32), numbers.shape)
                variable.assign(np.nextafter(numbers, ends))
        return built

    architectures.build = nudged
