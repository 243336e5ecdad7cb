"""Divide a run into phases, which differ in their image size and in the weights that are trained.

Each phase has its own program and consists of whole epochs, so a call never spans two phases.
Images are resized after augmentation, so batches and random numbers do not depend on the phase, and
a run can resume in any phase. A convolutional network uses the same weights for all image sizes.

Growing image sizes (`Config.progressive`) speed up training, as shown by Howard et al. 2018
(fast.ai's DAWNBench entry) and Tan & Le 2021, arXiv:2104.00298.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.models import architectures, published, weight_names
from pipeline.train.learning_rate import Applied

# Image sides are rounded to multiples of 32 pixels (8 pixels if they are below 64), or to multiples
# of the patch size if a network uses patches.
LARGE, UNIT, SMALL_UNIT = 64, 32, 8


class Phase(NamedTuple):
    """The properties of a phase.

    Attributes:
        frozen: whether only new layers are trained (`Config.frozen_epochs`).
        size: index of the image size in `sizes`.
    """

    frozen: bool
    size: int


def of(applied: Applied, step: int) -> Phase:
    """Return the phase of a step (0-based)."""
    return Phase(step < applied.frozen_steps, sum(step >= end for end in applied.growing_steps))


def sizes(config: Config) -> list[tuple[int, int]]:
    """Return the (height, width) of images in each part of the run, ending with the full size."""
    whole = config.data.shape[:2]
    patches = [preset.patch for preset in published.networks(config).values()]
    units = np.lcm.reduce([(1, 1), *patches])

    def rounded(pixels: float, patch: int) -> int:
        unit = patch if patch > 1 else UNIT if pixels >= LARGE else SMALL_UNIT
        return max(round(pixels / unit), 1) * unit

    found = [
        tuple(rounded(share * side, int(unit)) for side, unit in zip(whole, units, strict=True))
        for share in config.progressive
    ]
    found.append(whole)
    if not all(before < after and before[1] <= after[1] for before, after in pairwise(found)):
        problem = f"rounded to the network's patches, the sizes are {', '.join(map(shown, found))}"
        raise _refusal(config, f"{problem}; expected increasing sizes", "Choose other values")
    return found  # type: ignore[return-value]


def described(config: Config) -> list[dict[str, int]]:
    """Return the first and last epoch (1-based) of each image size, or [] if images do not grow."""
    if not config.progressive:
        return []
    ends = 0, *config.growing_epochs, config.epochs
    return [
        {"from_epoch": before + 1, "to_epoch": last, "height": height, "width": width}
        for (before, last), (height, width) in zip(pairwise(ends), sizes(config), strict=True)
    ]


def shown(size: Sequence[int]) -> str:
    return f"{size[0]}x{size[1]} pixels"


def models(config: Config, model: Any, batchnorm_momentum: float | None = None) -> list[Any]:
    """Return one model per image size. The model for the full size is `model` itself. The others
    are copies that share the weights of `model`.
    """
    if not config.progressive:
        return [model]
    smaller = (_smaller(config, model, batchnorm_momentum, size) for size in sizes(config)[:-1])
    return [*smaller, model]


def _smaller(config: Config, model: Any, momentum: float | None, size: tuple[int, int]) -> Any:
    (name, form), *_ = config.data.forms.items()
    own = {"custom_inputs": {name: (form[0], *size, form[-1])}}
    sides = {"height": size[0], "width": size[1]}
    data = replace(config.data, **(own if config.data.custom_inputs else sides))
    small = replace(config, progressive=(), data=data)
    try:
        with architectures.without_numbers():
            made = architectures.build(small, momentum)
    except ConfigError as error:
        problem = f"with images of {shown(size)}, {str(error).splitlines()[0].rstrip('.')}"
        edit = "Support this image size in the model function, choose larger values"
        raise _refusal(config, problem, edit) from error
    for ours, theirs in zip_longest(_shapes(made), _shapes(model), fillvalue="nothing"):
        if ours != theirs:
            problem = (
                f"model={config.model!r} has {ours} for images of {shown(size)} and {theirs} for"
                f" {shown(config.data.shape)}; expected the same weights and outputs at all sizes"
            )
            raise _refusal(config, problem, "Pool over the whole image before the last layer")
    return made


def _shapes(model: Any) -> list[str]:
    keys = weight_names.keys(model)
    named = [(weight_names.name(keys[id(one)]), one) for one in model.weights]
    named += [("output", one) for one in model.outputs]
    return [f"{name} {tuple(one.shape)}" for name, one in named]


def _refusal(config: Config, problem: str, edit: str) -> ConfigError:
    return ConfigError(
        f"Invalid progressive={config.progressive}: {problem}.\n{edit}, or remove progressive."
    )


def resized(inputs: Any, shape: Sequence[int | None]) -> Any:
    """Resize images, uint8 (n, height, width, channels), to a model's input shape."""
    if inputs.shape[1:] == tuple(shape[1:]):
        return inputs
    levels = jax.image.resize(
        inputs.astype(jnp.float32), (len(inputs), *shape[1:]), "linear", antialias=True
    )
    # Values halfway between two integers are common, and their last bits depend on the order of
    # additions. Always round them up.
    return jnp.floor(levels + 0.501).astype(inputs.dtype)
