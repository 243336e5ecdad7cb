"""Check that both of Kaggle's images build the same model, although their libraries may differ.

Without this check, only infer-gpu would find a mismatch, after the TPU hours have been used up. The
model is built in an environment for each image (`workbench.image_environments`), and the two
blueprints are compared (`pipeline.blueprint`). If the environments are not available, the networks
are looked up in the table in `pipeline.models.families`.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import Config, custom_code
from pipeline.errors import ConfigError, PipelineError
from pipeline.models.families import FAMILIES, ONE_IMAGE_HAS
from workbench.image_environments import GPU, ROOT, TPU, Image, NotMade, Show, make

# Custom code that contains one of these names uses a library whose versions differ.
LIBRARY = re.compile(r"\b(keras_hub|keras_nlp|applications)\b")
WITH_BOTH = "Use a network that both images include, such as ViT, DINOv3, SigLIP or EfficientNetV2"
PAGE = "docs/published-networks.md"
BY_HAND = "python -m workbench images --config"


class Unknown(PipelineError):
    """The model cannot be built for a reason that has nothing to do with the image."""


def concerns(config: Config) -> bool:
    """Return whether the two images might build different models for a config.

    Models that contain only Keras layers and the keras.applications networks in `BACKBONES` are the
    same in both images (docs/facts.md).
    """
    return bool(config.presets or LIBRARY.search(_own_code(config)))


def _own_code(config: Config) -> str:
    if not custom_code.function(config, "model"):
        return ""
    files = custom_code.files(custom_code.file(config))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def by_table(config: Config) -> str:
    """Look up a config's networks in the table.

    Raises:
        ConfigError: if a network is missing from one image, or a preset is not found.
    """
    from pipeline.models import presets  # imports Keras

    code = _own_code(config)
    kinds = {presets.kind(source) or source for source in config.presets}
    kinds |= {kind for kind in (*FAMILIES, *ONE_IMAGE_HAS) if re.search(rf"\b{kind}\b", code)}
    if only := sorted(kinds & ONE_IMAGE_HAS.keys()):
        has, lacks = (TPU, GPU) if ONE_IMAGE_HAS[only[0]] == "tpu" else (GPU, TPU)
        versions = (f"{one.versions['keras-hub']} of the {one.name}" for one in (has, lacks))
        raise ConfigError(
            f"{config.name}: {only[0]} is in KerasHub {' but not in '.join(versions)}, so infer-gpu"
            f" could not load the model from train-tpu.\n{WITH_BOTH} ({PAGE})."
        )
    if unlisted := kinds - FAMILIES.keys() or (not kinds and {"its network"}):
        return (
            f"Warning: it is unknown whether both of Kaggle's images build"
            f" {', '.join(sorted(unlisted))} identically. To check: {BY_HAND} {config.name}"
        )
    return (
        f"both include {', '.join(sorted(kinds))}, according to pipeline/models/families.py;"
        " no model was built"
    )


def check(config: Config, name: str, show: Show) -> tuple[str, bool]:
    """Build the model with the library versions of each image, and compare the two models.

    Returns:
        A message, and True if both models could be built. If they could not be built, the message
        explains why, and includes the result of `by_table`.

    Raises:
        ConfigError: if the images build different models, or if one image cannot build the model.
    """
    known = by_table(config)
    try:
        make(show)
        with tempfile.TemporaryDirectory(prefix="blueprints-") as scratch:
            trained = _blueprint(TPU, name, Path(scratch), show)
            inferred = _blueprint(GPU, name, Path(scratch), show)
        told = compared(config.name, trained, inferred)
        return told, not told.startswith("Warning")
    except (NotMade, Unknown) as error:
        return f"{known}\nWarning: {error}", False


def _blueprint(image: Image, name: str, scratch: Path, show: Show) -> dict[str, Any]:
    """Return the blueprint of a config's model, built with the library versions of an image.

    For the GPU image, the networks are read from the TPU image's blueprint, just as inference reads
    them from the artifact.
    """
    show(f"Building {Path(name).stem} with the versions of the {image.in_words}")
    given, path = scratch / f"{TPU.backend}.json", scratch / f"{image.backend}.json"
    words = ["blueprint", "--config", name, "--output", str(path), "--json"]
    words += ["--networks", str(given)] if given.is_file() else []
    variables = {"KERAS_BACKEND": image.backend, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(  # noqa: S603 - no user input
        [str(image.python), "-m", "pipeline", *words],
        cwd=ROOT,
        env={**os.environ, **variables, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    if not done.returncode:
        return dict(json.loads(path.read_bytes()))
    try:
        told = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, LookupError):
        said = " ".join(done.stderr.splitlines()[-3:])[-500:]
        told = {"error": f"exit code {done.returncode} {said}"}
    why = told["error"].split("\n")[0]
    if told.get("exit_code") != ConfigError.exit_code or "No module named" in why:
        raise Unknown(f"{name} could not be built in the environment of the {image.name}: {why}")
    edit = f"{WITH_BOTH} ({PAGE}), or change the model's function."
    if image is TPU:  # the model is invalid, regardless of the image
        edit = told["error"].partition("\n")[2]
    raise ConfigError(
        f"{Path(name).stem}: the {image.in_words} cannot build the model: {why}\n{edit}"
    )


def compared(config: str, trained: Mapping[str, Any], inferred: Mapping[str, Any]) -> str:
    """Compare the blueprints of both images, and return a message about the result.

    Weights can have different names, because an artifact's weights are matched by position.
    """
    from pipeline.infer.check import FULL, TOLERANCE

    ours, theirs = ({one["place"]: one for one in each["weights"]} for each in (trained, inferred))
    for place in {**ours, **theirs}:
        pair = ours.get(place), theirs.get(place)
        if _form(pair[0]) != _form(pair[1]):
            raise ConfigError(
                f"{config}: the images build different models, so infer-gpu could not load the"
                f" weights. The first difference is a weight that is {_in_words(pair[0])} on the"
                f" {TPU.name}, but {_in_words(pair[1])} on the {GPU.name}.\n{WITH_BOTH} ({PAGE})."
            )
    renamed = {place for place in ours if ours[place]["path"] != theirs[place]["path"]}
    outputs, others = (np.array(each["outputs"], float) for each in (trained, inferred))
    finite = bool(np.isfinite(outputs).all() and np.isfinite(others).all())
    apart = float(np.abs(outputs - others).max() / np.abs(outputs).max()) if finite else 0.0
    if apart > TOLERANCE[FULL]:
        before, after = (
            {each[place]["path"].rpartition("/")[0] for place in renamed} for each in (ours, theirs)
        )
        moved = before & after
        which = f": {', '.join(sorted(moved))}" if moved else ", or a layer computes differently"
        raise ConfigError(
            f"{config}: with the same weights, the model's outputs in the two images differ by"
            f" {apart:.2g}, relative to the largest output. The difference must be at most"
            f" {TOLERANCE[FULL]:g}. Layers of the same shape are in a different order{which}.\n"
            f"{WITH_BOTH} ({PAGE})."
        )
    named = f"; {len(renamed)} have different names, which is harmless" if renamed else ""
    if not finite:
        return (
            f"Warning: both have the same {len(ours)} weights in the same order{named}; their"
            " outputs with made-up weights are not finite and cannot be compared, so layers of"
            " the same shape could be in a different order"
        )
    return f"both build the same model ({len(ours)} weights, outputs differ by {apart:.0e}){named}"


def _form(weight: Mapping[str, Any] | None) -> Any:
    return weight and (weight["shape"], weight["dtype"])


def _in_words(weight: Mapping[str, Any] | None) -> str:
    return f"{weight['path']} {tuple(weight['shape'])}" if weight else "missing"
