"""A blueprint: the model of a config, as the installed versions of the libraries build it.

It lists the place, name, shape and type of each weight, and the outputs for made-up rows and
weights. Weights are drawn by their place, by which the artifact hands them over. So two versions
with equal blueprints compute the same from one artifact. `python -m workbench images` compares the
blueprints of Kaggle's two images.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline import artifact
from pipeline.config import Config
from pipeline.infer import check
from pipeline.infer.forward_pass import Forward
from pipeline.models import architectures, published, weight_names
from pipeline.runtime import provenance
from pipeline.train import custom_check

ROWS = 2


def draw(config: Config, networks: published.Networks | None = None) -> dict[str, Any]:
    """Return the blueprint of a config's model under this process' backend, for `json.dumps`.

    Args:
        networks: as an artifact carries them; None: those of the presets.

    Returns:
        versions; networks, as the artifact would carry them; weights, each with place, path, shape
        and dtype, in the model's order; outputs (2, …).

    Raises:
        ConfigError: if these versions cannot build the model.
    """
    given = published.networks(config) if networks is None else networks
    architectures.seed(config.seed)
    with check.building(check.FULL):
        model = architectures.build(config, networks=given)
    keys, weights, arrays = weight_names.keys(model), [], {}
    for one in model.weights:
        key = keys[id(one)]
        place, _, path = key.partition(" ")
        weights.append({"place": place, "path": path, "shape": [*one.shape], "dtype": one.dtype})
        drawn = "float" in one.dtype
        arrays[key] = made_up(place, one.shape) if drawn else np.asarray(one.numpy())
    artifact.assign(model, arrays)
    outputs, *_ = Forward([model], ROWS).outputs(custom_check.inputs(config)[:ROWS])
    return {
        "versions": provenance.versions(),
        "networks": {source: preset.to_json() for source, preset in given.items()},
        "weights": weights,
        "outputs": outputs.tolist(),
    }


def made_up(place: str, shape: Sequence[int]) -> np.ndarray:
    """Return numbers for a weight, float32, which depend on its place and shape alone.

    Names do not count, since versions differ in them. Vectors are around 1: a variance must be
    positive, and a scale must not hide the layers behind it. Other weights keep the size of the
    numbers that pass through them.

    Args:
        place: of the weight (`weight_names`).
    """
    random = np.random.default_rng([*place.encode()])
    if len(shape) < 2:
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    depthwise = len(shape) > 2 and shape[-1] == 1  # each channel by itself
    inputs = np.prod(shape[: -2 if depthwise else -1])
    return random.standard_normal(shape, np.float32) / np.float32(np.sqrt(inputs))
