"""Phases: what of a training step its number decides, which weights train and how large images are.

Each phase is a program of its own, compiled when it first runs, and has whole epochs, so that no
call of several steps (all of one epoch) is of two phases. Images stay whole until a step has
changed them at random; then it resizes them. So batches and all random numbers are the same in each
phase, and a run resumes in any of them.

Images that grow (`Config.progressive`) train faster: Howard et al. 2018 (fast.ai's entry for
DAWNBench); Tan & Le 2021, arXiv:2104.00298. The weights of a convolutional network do not depend on
the size of its images, so one state serves all sizes.
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

# Pixels a side of which sizes are multiples, where no network says that: large sides and others.
LARGE, UNIT, SMALL_UNIT = 64, 32, 8


class Phase(NamedTuple):
    """What differs between the steps of a run.

    Attributes:
        frozen: whether only what is new trains (`Config.frozen_epochs`).
        size: of the images, its place in `sizes`.
    """

    frozen: bool
    size: int


def of(applied: Applied, step: int) -> Phase:
    """Return the phase of a step, from 0."""
    return Phase(step < applied.frozen_steps, sum(step >= end for end in applied.growing_steps))


def sizes(config: Config) -> list[tuple[int, int]]:
    """Return height and width of the images in each part of the epochs; the last are the whole.

    Sides are rounded to a multiple of the patches of published networks, or of 32 pixels, below 64
    pixels of 8.

    Raises:
        ConfigError: if the sizes do not rise.
    """
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
        listed = ", ".join(map(shown, found))
        problem = f"rounded to what a network takes, the images have {listed}; expected sizes that"
        raise _refusal(config, f"{problem} rise", "Take other shares")
    return found  # type: ignore[return-value]


def described(config: Config) -> list[dict[str, int]]:
    """Return the first and last epoch of each size, from 1, with height and width; nothing where
    images do not grow.
    """
    if not config.progressive:
        return []
    ends = 0, *config.growing_epochs, config.epochs
    return [
        {"from_epoch": before + 1, "to_epoch": last, "height": height, "width": width}
        for (before, last), (height, width) in zip(pairwise(ends), sizes(config), strict=True)
    ]


def shown(size: Sequence[int]) -> str:
    """Return height and width in words."""
    return f"{size[0]}x{size[1]} pixels"


def models(config: Config, model: Any, batchnorm_momentum: float | None = None) -> list[Any]:
    """Return the model for each size: for smaller ones built again, without numbers, for the whole
    the one that is given. All take the weights of that one.

    Args:
        model: of the config, built by `architectures.build` with the other argument.

    Raises:
        ConfigError: if the model cannot be built at a size, or has other weights or outputs there.
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
        edit = "Let the model's function take images of this size, take larger shares"
        raise _refusal(config, problem, edit) from error
    pairs = zip_longest(_parts(made), _parts(model), fillvalue=("", "nothing"))
    wrong = next(((ours[1], theirs[1]) for ours, theirs in pairs if ours != theirs), None)
    if wrong:
        problem = (
            f"model={config.model!r} has {wrong[0]} for images of {shown(size)} and {wrong[1]} for"
            f" {shown(config.data.shape)}; expected the same weights and outputs at all sizes"
        )
        raise _refusal(config, problem, "Pool over the whole image before the last layer")
    return made


def _parts(model: Any) -> list[tuple[str, str]]:
    """Return place and shape of each weight, generator of random numbers and output of a model, for
    a person without the place.
    """
    keys = weight_names.keys(model)
    variables = *model.trainable_variables, *model.non_trainable_variables
    named = [(keys.get(id(one), "- seed"), one) for one in variables]
    named += [("- output", one) for one in model.outputs]
    return [(key, f"{weight_names.name(key)} {tuple(one.shape)}") for key, one in named]


def _refusal(config: Config, problem: str, edit: str) -> ConfigError:
    return ConfigError(
        f"progressive={config.progressive} cannot work: {problem}.\n"
        f"{edit}, or leave progressive out."
    )


def resized(inputs: Any, shape: Sequence[int | None]) -> Any:
    """Return images, uint8 (n, height, width, channels), as a model of that input shape takes them;
    what has that shape stays.
    """
    if inputs.shape[1:] == tuple(shape[1:]):
        return inputs
    levels = jax.image.resize(
        inputs.astype(jnp.float32), (len(inputs), *shape[1:]), "linear", antialias=True
    )
    # Halves are frequent, and their last bits depend on the order of additions. All go up.
    return jnp.floor(levels + 0.501).astype(inputs.dtype)
