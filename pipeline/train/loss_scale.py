"""The loss scale of a training in float16: gradients are taken of a multiple of the loss, since
many would be too small for float16.

The multiple doubles after many steps with finite gradients. Gradients that are not finite halve it,
and the step changes no weight (Micikevicius et al. 2018, arXiv:1710.03740; numbers as in Keras'
LossScaleOptimizer). It is a part of the state, so a run resumes with it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipeline.config import Config
from pipeline.infer import check
from pipeline.models import architectures, published

FIRST, MOST, STEPS = 2.0**15, 2.0**24, 2000  # the multiples, and finite steps until it doubles


class LossScale(NamedTuple):
    """The factor of the loss.

    Attributes:
        value: float32.
        steps: int32, the number of steps with finite gradients since it changed.
    """

    value: Any
    steps: Any

    def after(self, finite: Any) -> "LossScale":
        """Return the scale after a step; `finite`: whether all its gradients were."""
        doubles = self.steps + 1 >= STEPS
        grown = jnp.where(doubles, jnp.minimum(2 * self.value, MOST), self.value)
        steps = jnp.where(finite & ~doubles, self.steps + 1, 0)
        halved = jnp.maximum(self.value / 2, 1.0)
        return LossScale(jnp.where(finite, grown, halved), steps.astype(jnp.int32))

    def skips(self, finite: Any) -> Any:
        """Return whether a step changes nothing. At a scale of 1 it does: then not float16 is too
        small, but the run has diverged.
        """
        return ~finite & (self.value > 1.0)


def all_finite(arrays: Any) -> Any:
    """Return whether all numbers in all arrays are finite."""
    return jnp.stack([jnp.isfinite(each).all() for each in jax.tree.leaves(arrays)]).all()


def apart(config: Config, networks: published.Networks, inputs: np.ndarray) -> float:
    """Return how far a run's first outputs in float16 are from those in float32, as a part of the
    largest output, or of 1; NaN or infinite if one overflows.

    Args:
        networks: as `published.networks` returns them.
        inputs: a few inputs of the run.
    """
    models = []
    for precision in (check.FULL, check.HALF):
        with check.building(precision):
            architectures.seed(config.seed)
            models.append(architectures.build(config, networks=networks))
    full, half = models
    published.load(full, config, networks, lambda line: None)
    half.set_weights(full.get_weights())
    exact, rounded = (architectures.outputs(model, inputs, len(inputs)) for model in models)
    return float(np.abs(exact - rounded).max() / max(np.abs(exact).max(), 1.0))
