"""How much a config's network computes: parameters, and operations of an image in two conventions.

Nominal counts a convolution's every tap, as papers do. In-bounds leaves out the taps that lie
beyond the edge of an image, as XLA counts: 23 % fewer for 7x7 taps on 32, 16 and 8 pixels.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.config import Config

FORWARD, BACKWARD = 1, 2  # in predictions: about as much is computed


@dataclass(frozen=True)
class Counts:
    """Of one image in training; operations are multiplications and additions.

    Attributes:
        parameters: weights, moving statistics included.
        trainable: those that are trained.
        nominal: operations, with every tap.
        in_bounds: operations, without the taps beyond the edge.
    """

    parameters: int
    trainable: int
    nominal: float
    in_bounds: float

    @property
    def state(self) -> int:
        """Bytes of what a training keeps: weights, and two numbers of the optimizer for each."""
        return 4 * (self.parameters + 2 * self.trainable)


def passes(config: Config) -> int:
    """Return about how many predictions a training step computes as much as. What computes the
    model more often, or less, says so here alone.
    """
    frozen = config.model_options.get("backbone_rate") == 0  # its head is small
    once = FORWARD if frozen else FORWARD + BACKWARD
    return 2 * once if config.train_step else once  # as one of two gradients (SAM), a guess


def of(config: Config) -> Counts:
    """Return the counts of a config's network.

    Raises:
        ConfigError: if the model does not take images of this size.
    """
    import jax
    import numpy as np

    from pipeline.models import architectures

    model = architectures.build(config)
    trainable, other = model.trainable_variables, model.non_trainable_variables
    struct: Any = jax.ShapeDtypeStruct
    shapes = [[struct(one.shape, one.dtype) for one in part] for part in (trainable, other)]
    image = jax.tree.map(
        lambda one: struct((1, *one.shape[1:]), np.dtype(one.dtype)), model.input
    )  # of several inputs, too

    def forward(trainable: Any, other: Any, image: Any) -> Any:
        outputs, _ = model.stateless_call(trainable, other, image, training=False)
        return architectures.parted(outputs)[0]

    jaxpr = jax.make_jaxpr(forward)(*shapes, image)
    cost = jax.jit(forward).lower(*shapes, image).cost_analysis() or {}
    counted = architectures.count(model)
    return Counts(
        int(counted["total"]),
        int(counted["trainable"]),
        passes(config) * sum(_operations(jaxpr.jaxpr)),
        passes(config) * float(cost.get("flops", math.nan)),
    )


def _operations(jaxpr: Any) -> Iterator[float]:
    """Yield the operations of each product and convolution, of inner functions, too."""
    for equation in jaxpr.eqns:
        name, shapes = equation.primitive.name, [one.aval.shape for one in equation.invars]
        if name == "dot_general":
            ((_, contracted), _) = equation.params["dimension_numbers"]
            inner = math.prod(shapes[1][axis] for axis in contracted)
            yield 2.0 * math.prod(equation.outvars[0].aval.shape) * inner
        elif name == "conv_general_dilated":
            out = equation.params["dimension_numbers"].rhs_spec[0]
            taps = math.prod(shapes[1]) / shapes[1][out]
            yield 2.0 * math.prod(equation.outvars[0].aval.shape) * taps
        for value in equation.params.values():
            inner_jaxpr = getattr(value, "jaxpr", value)
            if hasattr(inner_jaxpr, "eqns"):
                yield from _operations(inner_jaxpr)
