"""Whether both of Kaggle's images build the same model: their library versions may differ, and
infer-gpu would only find out once the TPU hours are spent.

The model is built in an environment per image (`workbench.image_environments`), and the two
blueprints are compared (`pipeline.blueprint`). Without environments the table in
`pipeline.models.families` answers for the networks it has.
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

# Custom code with one of these names uses a library whose versions differ.
LIBRARY = re.compile(r"\b(keras_hub|keras_nlp|applications)\b")
WITH_BOTH = "Use a network that both images have, such as ViT, DINOv3, SigLIP or EfficientNetV2"
PAGE = "docs/published-networks.md"
BY_HAND = "python -m workbench images --config"


class Unknown(PipelineError):
    """A model could not be built, for a reason that says nothing about the image."""


def concerns(config: Config) -> bool:
    """Return whether the images could build a config's model differently. Keras' own layers are the
    same in both, and so are the networks of keras.applications in `BACKBONES` (docs/facts.md).
    """
    return bool(config.presets or LIBRARY.search(_own_code(config)))


def _own_code(config: Config) -> str:
    if not custom_code.function(config, "model"):
        return ""
    files = custom_code.files(custom_code.file(config))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def by_table(config: Config) -> str:
    """Return a line about a config's networks, by the table.

    Raises:
        ConfigError: if only one image has one of them, or a preset is not here.
    """
    from pipeline.models import presets  # which imports Keras

    code = _own_code(config)
    kinds = {presets.kind(source) or source for source in config.presets}
    kinds |= {kind for kind in (*FAMILIES, *ONE_IMAGE_HAS) if re.search(rf"\b{kind}\b", code)}
    if only := sorted(kinds & ONE_IMAGE_HAS.keys()):
        has, lacks = (TPU, GPU) if ONE_IMAGE_HAS[only[0]] == "tpu" else (GPU, TPU)
        versions = (f"{one.versions['keras-hub']} of the {one.name}" for one in (has, lacks))
        raise ConfigError(
            f"{config.name}: {only[0]} is in KerasHub {' but not in '.join(versions)}, so infer-gpu"
            f" could not run what train-tpu trains.\n{WITH_BOTH} ({PAGE})."
        )
    if unlisted := kinds - FAMILIES.keys() or (not kinds and {"its network"}):
        return (
            f"Warning: it is unknown whether both of Kaggle's images build the same"
            f" {', '.join(sorted(unlisted))}. To check: {BY_HAND} {config.name}"
        )
    return (
        f"both have {', '.join(sorted(kinds))}, by the table in pipeline/models/families.py;"
        " nothing was built"
    )


def check(config: Config, name: str, show: Show) -> tuple[str, bool]:
    """Return a line on how both images build the model, and whether they built it: if not, the line
    has the table's answer and the reason.

    Args:
        name: of the config, or its path.
        show: takes a line for each step.

    Raises:
        ConfigError: if the images build different models, or one cannot build it.
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
    """Return the blueprint of a config's model with an image's versions. The GPU image gets the
    networks of the TPU image's blueprint, as it would from the artifact.
    """
    show(f"Building {Path(name).stem} with the versions of the {image.in_words}")
    given, path = scratch / f"{TPU.backend}.json", scratch / f"{image.backend}.json"
    words = ["blueprint", "--config", name, "--output", str(path), "--json"]
    words += ["--networks", str(given)] if given.is_file() else []
    variables = {"KERAS_BACKEND": image.backend, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(  # noqa: S603 - our own words
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
    if image is TPU:  # the model itself is wrong
        edit = told["error"].partition("\n")[2]
    raise ConfigError(
        f"{Path(name).stem}: the {image.in_words} cannot build the model: {why}\n{edit}"
    )


def compared(config: str, trained: Mapping[str, Any], inferred: Mapping[str, Any]) -> str:
    """Return a line on how the blueprints of the TPU image and the GPU image compare. Names may
    differ, because an artifact's weights are assigned by place.

    Raises:
        ConfigError: if places, shapes or outputs differ.
    """
    from pipeline.infer.check import FULL, TOLERANCE

    ours, theirs = ({one["place"]: one for one in each["weights"]} for each in (trained, inferred))
    for place in {**ours, **theirs}:
        pair = ours.get(place), theirs.get(place)
        if _form(pair[0]) != _form(pair[1]):
            raise ConfigError(
                f"{config}: the images build different models. The first weight that differs is"
                f" {_in_words(pair[0])} on the {TPU.name} and {_in_words(pair[1])} on the"
                f" {GPU.name}, so train-tpu's weights would not fit.\n{WITH_BOTH} ({PAGE})."
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
        which = f": {', '.join(sorted(moved))}" if moved else ", or one computes differently"
        raise ConfigError(
            f"{config}: with the same weights the images' outputs differ by {apart:.2g} of the"
            f" largest; expected at most {TOLERANCE[FULL]:g}. Layers of equal shape have changed"
            f" places{which}.\n{WITH_BOTH} ({PAGE})."
        )
    named = f"; {len(renamed)} have different names, which is harmless" if renamed else ""
    if not finite:
        return (
            f"Warning: both have the same {len(ours)} weights in the same places{named}; their"
            " outputs with made-up weights are not finite and cannot be compared, so layers of"
            " equal shape could have changed places"
        )
    return f"both build the same model: {len(ours)} weights, outputs {apart:.0e} apart{named}"


def _form(weight: Mapping[str, Any] | None) -> Any:
    return weight and (weight["shape"], weight["dtype"])


def _in_words(weight: Mapping[str, Any] | None) -> str:
    return f"{weight['path']} {tuple(weight['shape'])}" if weight else "missing"
