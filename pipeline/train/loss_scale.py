"""Scale the loss in float16 training. Many gradients would otherwise be too small for float16.

The scale doubles after a number of steps with finite gradients. If gradients are not finite, the
scale is halved and the step does not change any weights (Micikevicius et al. 2018,
arXiv:1710.03740). The constants are the same as in Keras' LossScaleOptimizer.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipeline.config import Config
from pipeline.infer import check
from pipeline.models import architectures, published

FIRST, MOST = 2.0**15, 2.0**24  # initial and maximum scale
STEPS = 2000  # number of finite steps before doubling


class LossScale(NamedTuple):
    """The factor by which the loss is multiplied, as part of the training state.

    `value` is float32. `steps` is int32, and counts the steps with finite gradients since the last
    change.
    """

    value: Any
    steps: Any

    def after(self, finite: Any) -> "LossScale":
        doubles = self.steps + 1 >= STEPS
        grown = jnp.where(doubles, jnp.minimum(2 * self.value, MOST), self.value)
        steps = jnp.where(finite & ~doubles, self.steps + 1, 0)
        halved = jnp.maximum(self.value / 2, 1.0)
        return LossScale(jnp.where(finite, grown, halved), steps.astype(jnp.int32))

    def skips(self, finite: Any) -> Any:
        """Return whether to skip an update. At a scale of 1, updates are never skipped, because
        gradients that are not finite then mean that the run has diverged.
        """
        return ~finite & (self.value > 1.0)


def all_finite(arrays: Any) -> Any:
    return jnp.stack([jnp.isfinite(each).all() for each in jax.tree.leaves(arrays)]).all()


def apart(config: Config, networks: published.Networks, inputs: np.ndarray) -> float:
    """Return the difference between a run's initial outputs in float16 and float32.

    It is relative to the largest output or 1, whichever is larger. If an output overflows, the
    result is NaN or infinity.
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
