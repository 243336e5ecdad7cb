"""Create a blueprint of a config's model, as built by the installed library versions.

A blueprint contains the model's outputs for synthetic rows and weights. A synthetic weight depends
only on its index and shape, and artifacts also store weights by index. If two library versions have
identical blueprints, they therefore compute the same outputs from the same artifact. `python -m
workbench images` compares the blueprints of Kaggle's two images.
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
    """Return the blueprint of a config's model with the current backend, ready for `json.dumps`.

    It contains the library versions, the networks in the format of an artifact, and outputs of
    shape (2, …). It also lists the place, path, shape and dtype of each weight, in the model's
    order. If `networks` is None, the networks are read from the presets.
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
    """Return synthetic float32 values for a weight, which depend only on its index and shape.

    Names are ignored because they differ between versions. Vectors have values around 1, since a
    variance must be positive and a small scale would mask the layers behind it. Other weights are
    scaled to preserve the magnitude of their inputs.
    """
    random = np.random.default_rng([*place.encode()])
    if len(shape) < 2:
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    depthwise = len(shape) > 2 and shape[-1] == 1  # channels are independent
    inputs = np.prod(shape[: -2 if depthwise else -1])
    return random.standard_normal(shape, np.float32) / np.float32(np.sqrt(inputs))
