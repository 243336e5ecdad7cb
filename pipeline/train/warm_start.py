"""Warm start: a run that starts from the weights of another run's artifact (`Config.init_from`).

For a second stage of training, as in progressive resizing. Weights are matched by name and shape.
The head alone may have another shape, if the number of outputs differs.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline import artifact
from pipeline.artifact import Artifact
from pipeline.config import Config
from pipeline.data.dataset import Examples
from pipeline.errors import ConfigError
from pipeline.models import weight_names
from pipeline.runtime import mounts
from pipeline.train.progress_log import Show

DATASET = re.compile(r"([\w-]+/[\w-]+)(/\d+)?")  # owner/slug, perhaps with a version


def find(config: Config, places: Sequence[Path], *, fresh: bool) -> Artifact | None:
    """Return the verified artifact of the first stage; None without one, or if each fold already
    has checkpoints.

    Args:
        places: the folder of each fold.
        fresh: ignore older checkpoints.

    Raises:
        ConfigError: if it is neither a folder nor a mounted dataset.
        ArtifactError: if the artifact is incomplete or changed.
    """
    begun = all(any(place.glob("checkpoints/step-*")) for place in places)
    if not config.init_from or (begun and not fresh):
        return None
    return artifact.load(_folder(config.init_from))


def _folder(source: str) -> Path:
    """Return the folder with the manifest, of a path or of a mounted dataset."""
    inputs, names = mounts.root() / "input", (artifact.MANIFEST, f"artifact/{artifact.MANIFEST}")
    places: list[Path | None] = [Path(source) / name for name in names]
    if dataset := DATASET.fullmatch(source):
        places += [mounts.file(inputs, f"{dataset[1]}/{name}") for name in names]
    for place in places:
        if place and os.path.isfile(place):  # noqa: PTH113 - Path.is_file raises for a long name
            return place.parent
    raise ConfigError(
        f"init_from={source!r} cannot work: there is no such folder with {artifact.MANIFEST}, and"
        f" no such dataset is mounted. {mounts.listing(inputs)}.\n"
        "Expected the artifact of a training: OUT/artifact, or owner/slug of a dataset."
    )


def compare(
    first: Artifact, config: Config, held_out: Sequence[str], examples: Examples, show: Show
) -> bool:
    """Refuse a first stage with different folds, show other differences, and return whether that
    stage, or one before it, may have been trained on rows that are held out here.

    Args:
        held_out: of each fold of this run, as `pipeline.data.folds.held_out` returns it.
        examples: of this run.
        show: takes a line for each difference.

    Raises:
        ConfigError: if the folds are not those of this run.
    """
    earlier, manifest, name = first.config, first.manifest, f"init_from={config.init_from!r}"
    same = manifest.get("held_out") == list(held_out)
    if earlier.folds and not (earlier.folds == config.folds and same):
        raise ConfigError(
            f"{name} cannot work: its run has {earlier.folds} folds, and this one has different"
            " folds or none; a model would be validated on rows that it was trained on.\n"
            f"Expected the same folds: set folds={earlier.folds} and seed={earlier.seed} and keep"
            " the data, or start from a run without folds."
        )
    # With folds, a linear model is fitted to all rows.
    whole = bool(earlier.folds and len(first.folds) == 1)
    seen = earlier.competition == config.competition and (whole or not same)
    seen |= bool((manifest.get("init_from") or {}).get("may_have_seen_held_out"))
    if seen:
        show(
            f"Warning: {name} may have been trained on rows that are held out here, so the local"
            " score may be too good. Equal seed, folds and validation_fraction hold out the same"
            " rows."
        )
    if earlier.outputs == config.outputs and first.target.names != examples.target.names:
        show(f"Warning: {name} has different classes; its head is used nevertheless")
    if first.encoding not in (None, examples.encoding):
        show(f"Warning: {name} encodes the columns of the table differently")
    return seen


def begin(model: Any, first: Artifact, config: Config, number: int, show: Show) -> dict[str, Any]:
    """Set a model's weights to those of the first stage, and return their origin.

    Args:
        model: a built Keras model.
        number: of the fold of this run, from 1 on.
        show: takes lines about the layers that match and those that do not.

    Returns:
        source, run_id, weights_sha256 and fold, for checkpoints and the manifest.

    Raises:
        ConfigError: if a layer has another shape, or no layer matches.
    """
    earlier = first.config
    fold = number if earlier.folds else None
    arrays = first.folds[min(fold or 1, len(first.folds)) - 1]
    theirs = {weight_names.name(key): array for key, array in arrays.items()}
    keys = weight_names.keys(model)
    ours = {weight_names.name(keys[id(weight)]): weight for weight in model.weights}
    shared = ours.keys() & theirs.keys()
    taken = {name for name in shared if ours[name].shape == theirs[name].shape}
    head = _layer(list(ours)[-1]) if earlier.outputs != config.outputs else None
    wrong = [
        f"{name} has {theirs[name].shape} there and {ours[name].shape} here"
        for name in sorted(shared - taken)
        if _layer(name) != head
    ]
    if wrong or not taken:
        raise ConfigError(
            f"init_from={config.init_from!r} cannot work: {len(taken)} arrays of its model,"
            f" {earlier.model}, fit; different shapes: {'; '.join(wrong[:3]) or 'none'}.\n"
            "Expected layers with the same names and shapes; the head alone may differ, if"
            f" num_classes does. Set model={earlier.model!r},"
            f" model_options={dict(earlier.model_options)!r} and the image size as in that run, or"
            " choose another init_from. Name the layers that custom models share: Keras numbers"
            " unnamed ones."
        )
    for name in taken:
        ours[name].assign(theirs[name])
    origin = {name: first.manifest[name] for name in ("run_id", "weights_sha256")}
    show(
        f"Starting from run {origin['run_id']} ({earlier.name}{f', fold {fold}' if fold else ''}),"
        f" weights {origin['weights_sha256'][:12]}: {len(taken)} of {len(ours)} arrays taken"
    )
    for what, names in (("Layers that start at random", ours), ("Layers not taken", theirs)):
        if layers := list(dict.fromkeys(_layer(name) for name in names if name not in taken)):
            show(f"{what}: {', '.join(layers[:10])}{' …' * (len(layers) > 10)}")
    return {"source": config.init_from, **origin, "fold": fold}


def _layer(weight: str) -> str:
    return weight.rpartition("/")[0]
