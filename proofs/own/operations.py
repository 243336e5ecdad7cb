"""What one step of a config computes, as it stands and as a rehearsal changes it:
`python -m proofs.own.operations CONFIG` prints both.

The text is that of the lowered program, with shapes and numbers masked; eight devices lower it, and
nothing is compiled, so the weights do not matter.
"""

import functools
import hashlib
import json
import re
import sys
from typing import Any

import jax
import keras
import numpy as np

from pipeline import config as configs
from pipeline.config import Config
from pipeline.config.rehearsal import with_changes
from pipeline.models import architectures
from pipeline.rehearsal import short_run
from pipeline.runtime import replicas
from pipeline.training import learning_rate
from pipeline.training.train_step import Step

ROWS, TESTS, BUDGET = 20_000, 2_000, 120.0
MASKED = re.compile(r"tensor<[^>]*>|dense<[^>]*>|array<[^>]*>|-?\d+(\.\d+)?([eE][-+]?\d+)?|#loc.*")


def masked(text: str) -> str:
    """Return a program without its shapes and numbers.

    >>> masked("%12 = stablehlo.add %3, %4 : tensor<8x2xf32>")
    '%# = stablehlo.add %#, %# : #'
    """
    return MASKED.sub("#", text)


def inlined(program: str) -> str:
    """Return the masked text of a program's main function, with what it calls in its place.

    JAX makes one function of two that have equal shapes by chance.

    >>> two = "func.func public @main() { %0 = call @f(%1) } func.func private @f() { %2 = add %3 }"
    >>> inlined(two)
    '() { %# = call () { %# = add %# }(%#) }'
    """
    names_and_bodies = re.split(r"func\.func \w+ @([\w.]+)", program)[1:]
    bodies = dict(zip(names_and_bodies[::2], names_and_bodies[1::2], strict=True))

    @functools.cache
    def text(name: str) -> str:
        parts = re.split(r"@([\w.]+)", bodies[name])
        parts[::2] = map(masked, parts[::2])
        parts[1::2] = (text(part) if part in bodies else part for part in parts[1::2])
        return "".join(parts).strip()

    return text("main")


def step(config: Config) -> dict[str, Any]:
    """Return the sha256 of the masked program of a step, and how many operations it has."""
    applied = learning_rate.apply(config, ROWS)
    architectures.seed(config.seed)
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    try:
        model = architectures.build(config, applied.batchnorm_momentum)
        made = Step(config, applied, model, replicas.mesh())
        several, shape = config.steps_per_call, config.data.shape
        placed = replicas.put(
            made.mesh,
            np.zeros((several, config.batch, *shape), np.uint8),
            np.zeros((several, config.batch), np.int32),
            np.stack([made.augmentation.draws(0)] * several),
            axis=1,
        )
        text = inlined(made.lowered(made.initial().tree, (), placed).as_text())
    finally:
        keras.distribution.set_distribution(None)
    return {
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "operations": text.count(" = "),
        "devices": jax.device_count(),
        "groups": config.batch // made.replicas / applied.batchnorm_batch,
    }


def whole_and_short(name: str) -> dict[str, Any]:
    """Return what `step` does of a config and of its rehearsal, with the rehearsal's changes."""
    config = configs.load(name)
    changes = short_run.plan(config, ROWS, TESTS, BUDGET).changes
    whole, short = (step(each) for each in (config, with_changes(config, changes)))
    return {"whole": whole, "short": short, "changes": dict(changes)}


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(json.dumps(whole_and_short(each)))
