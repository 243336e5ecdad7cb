"""How long a model takes for one image on a CPU: an estimate.

It is no measurement: to compile a large network takes as long as a short rehearsal.
"""

import math
from dataclasses import dataclass
from typing import Any

from pipeline.config import Config, custom_code
from workbench.plan.operation_counts import passes

# Per second on two cores, below what was measured with XLA on a CPU (docs/dev/findings.md).
OPERATIONS = 1.2e11
DEPTHWISE = 1.2e9  # XLA has no fast convolution of each channel by itself
OUTPUTS = 8e8  # numbers that layers return: normalization and activation are bound by memory
# Of a step on eight virtual devices, whatever its batch: seconds a layer and a weight.
LAYER, WEIGHT = 2e-3, 1e-7
COMPILED = 10.0  # layers a second that XLA compiles for training, on eight virtual devices


@dataclass(frozen=True)
class Cost:
    """Estimates for two cores.

    Attributes:
        predicting: seconds for one image.
        training: seconds for one image of a step.
        step: seconds of a step beside its images.
        compiling: seconds of XLA, for all programs of a rehearsal.
    """

    predicting: float
    training: float
    step: float
    compiling: float


def of(config: Config) -> Cost:
    """Return about how long the config's model takes.

    Raises:
        ConfigError: if the model does not take images of this size.
    """
    import jax
    import keras

    from pipeline.models import architectures

    built = []
    if custom_code.functions(config):  # an own model may compute with what it makes
        built.append(architectures.build(config))
    else:  # only shapes: to draw the weights of a large network takes seconds
        jax.eval_shape(lambda: built.append(architectures.build(config)))
    (model,) = built
    dense = apart = returned = 0.0
    for layer in model.layers:
        first, *_ = keras.tree.flatten(layer.output)  # a nested model may give several
        shape = first.shape[1:]
        returned += math.prod(shape)
        for weight in layer.weights:
            if len(weight.shape) > 1:
                operations = 2.0 * math.prod(weight.shape) * math.prod(shape[:-1])
                alone = "depthwise" in type(layer).__name__.lower() or _grouped(layer)
                dense, apart = dense + operations * (not alone), apart + operations * alone
    seconds = dense / OPERATIONS + apart / DEPTHWISE + returned / OUTPUTS
    layers = len(model.layers)
    step = layers * LAYER + model.count_params() * WEIGHT
    return Cost(seconds, passes(config) * seconds, step, layers / COMPILED)


def _grouped(layer: Any) -> bool:
    return getattr(layer, "groups", 1) > 1
