"""Initialize a run with the weights of another run's artifact (`Config.init_from`).

A second stage of training, such as training on larger images, starts in this way. Weights are
matched by name and shape. Only the head can have a different shape, and only if the number of
outputs is different.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import artifact
from pipeline.artifact import Artifact
from pipeline.config import Config
from pipeline.data.dataset import Examples
from pipeline.errors import CheckpointError, ConfigError
from pipeline.models import weight_names
from pipeline.runtime import mounts
from pipeline.train.progress_log import Show

DATASET = re.compile(r"([\w-]+/[\w-]+)(/\d+)?")  # owner/slug, optionally with a version


def find(config: Config, places: Sequence[Path], *, fresh: bool) -> Artifact | None:
    """Return the verified artifact of the first stage. Return None if the config does not have a
    first stage, or every fold already has checkpoints.

    Args:
        places: output folder of each fold.
        fresh: whether to ignore existing checkpoints.

    Raises:
        ConfigError: if `Config.init_from` is neither a folder nor a mounted dataset.
        ArtifactError: if the artifact is incomplete or was modified.
    """
    begun = all(any(place.glob("checkpoints/step-*")) for place in places)
    if not config.init_from or (begun and not fresh):
        return None
    return artifact.load(folder(config.init_from, "init_from"))


def folder(source: str, field: str) -> Path:
    """Return the folder that contains the manifest, given a path or a dataset's name.

    Args:
        field: name of the config's field, for the error.
    """
    inputs, names = mounts.root() / "input", (artifact.MANIFEST, f"artifact/{artifact.MANIFEST}")
    places: list[Path | None] = [Path(source) / name for name in names]
    if dataset := DATASET.fullmatch(source):
        places += [mounts.file(inputs, f"{dataset[1]}/{name}") for name in names]
    for place in places:
        if place and os.path.isfile(place):  # noqa: PTH113 - Path.is_file raises for a long name
            return place.parent
    raise ConfigError(
        f"Invalid {field}={source!r}: it is neither a folder with {artifact.MANIFEST} nor a"
        f" mounted dataset. {mounts.listing(inputs)}.\n"
        "Expected the artifact of a training run: OUT/artifact, or a dataset's owner/slug."
    )


def compare(
    first: Artifact, config: Config, held_out: Sequence[str], examples: Examples, show: Show
) -> bool:
    """Raise an error if the first stage has different folds, and show other differences. Return
    whether that stage, or an earlier one, may have been trained on rows that this run holds out.

    Args:
        held_out: digest of each fold of this run, from `pipeline.data.folds.held_out`.
        examples: this run's examples.
        show: receives a line for each difference.

    Raises:
        ConfigError: if the folds are different.
    """
    earlier, manifest, name = first.config, first.manifest, f"init_from={config.init_from!r}"
    same = manifest.get("held_out") == list(held_out)
    if earlier.folds and not (earlier.folds == config.folds and same):
        raise ConfigError(
            f"Invalid {name}: its run used {earlier.folds} folds, which differ from the folds of"
            " this run, so models would be validated on rows that they were trained on.\n"
            f"Expected the same folds: set folds={earlier.folds} and seed={earlier.seed} and use"
            " the same data, or start from a run without folds."
        )
    seen = earlier.competition == config.competition and (first.fitted_to_all or not same)
    seen |= first.may_have_seen_held_out
    if seen:
        show(
            f"Warning: {name} may have been trained on rows that this run holds out, so the local"
            " score may be too good. Use the same seed, folds and validation_fraction to hold out"
            " the same rows."
        )
    if earlier.outputs == config.outputs and first.target.names != examples.target.names:
        show(f"Warning: {name} has different classes; using its head anyway")
    if first.encoding not in (None, examples.encoding):
        show(f"Warning: {name} uses a different encoding of the table's columns")
    return seen


def refuse_another(first: Artifact | None, before: Mapping[str, Any] | None) -> None:
    """Raise `CheckpointError` if an earlier fold of this run started from different weights.

    Args:
        before: origin of the earlier fold's weights, from `begin`.
    """
    if first and before and first.manifest["weights_sha256"] != before["weights_sha256"]:
        raise CheckpointError(
            f"init_from={before['source']!r} contains run {first.manifest['run_id']}; expected run"
            f" {before['run_id']}, from which the earlier folds of this run started.\n"
            "Restore it, or start over with --fresh."
        )


def begin(model: Any, first: Artifact, config: Config, number: int, show: Show) -> dict[str, Any]:
    """Set a model's weights to those of the first stage and return their origin.

    Args:
        model: a built Keras model.
        number: number of this run's fold, from 1.
        show: receives lines about the loaded layers.

    Returns:
        source, run_id, weights_sha256 and fold, for checkpoints and the manifest.

    Raises:
        ConfigError: if a layer has a different shape, or no layer matches.
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
        f"{name} has {theirs[name].shape} there and {ours[name].shape} in this model"
        for name in sorted(shared - taken)
        if _layer(name) != head
    ]
    if wrong or not taken:
        raise ConfigError(
            f"Invalid init_from={config.init_from!r}: {len(taken)} of the arrays in its model"
            f" {earlier.model} match this model. Mismatched shapes:"
            f" {'; '.join(wrong[:3]) or 'none'}.\n"
            "Expected layers with the same names and shapes. Only the head can be different, if"
            f" num_classes is different. Set model={earlier.model!r},"
            f" model_options={dict(earlier.model_options)!r} and the image size as in that run, or"
            " choose another init_from. In custom models, name shared layers, since Keras numbers"
            " unnamed ones."
        )
    for name in taken:
        ours[name].assign(theirs[name])
    origin = {name: first.manifest[name] for name in ("run_id", "weights_sha256")}
    show(
        f"Starting from run {origin['run_id']} ({earlier.name}{f', fold {fold}' if fold else ''}),"
        f" weights {origin['weights_sha256'][:12]}: loaded {len(taken)} of {len(ours)} arrays"
    )
    for what, names in (("Randomly initialized layers", ours), ("Layers not loaded", theirs)):
        if layers := list(dict.fromkeys(_layer(name) for name in names if name not in taken)):
            show(f"{what}: {', '.join(layers[:10])}{' …' * (len(layers) > 10)}")
    return {"source": config.init_from, **origin, "fold": fold}


def _layer(weight: str) -> str:
    return weight.rpartition("/")[0]
