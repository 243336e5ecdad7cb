"""Warm start: a run that starts from the weights of another run's artifact (`Config.init_from`).

For progressive resizing, and for a second stage of training. Weights are taken by name, where name
and shape are equal. Only the head may have another shape, and only for another number of outputs.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline import artifact
from pipeline.artifact import Artifact
from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.models import weight_names
from pipeline.runtime import mounts
from pipeline.train.progress_log import Show

DATASET = re.compile(r"([\w-]+/[\w-]+)(/\d+)?")  # owner/slug, perhaps with a version


@dataclass(frozen=True)
class FirstStage:
    """The run whose weights another one starts from.

    Attributes:
        artifact: of that run, verified.
        source: as the config names it.
        may_have_seen_held_out: whether it, or a run that it started from, may have been trained on
            rows that this run holds out.
    """

    artifact: Artifact
    source: str
    may_have_seen_held_out: bool = False


def find(config: Config, places: Sequence[Path], *, fresh: bool) -> FirstStage | None:
    """Return the first stage of a run; None without one, or if each fold has checkpoints already.

    Args:
        places: of each fold's checkpoints.
        fresh: older checkpoints do not count.

    Raises:
        ConfigError: if there is no such folder and no such dataset.
        ArtifactError: if it is no whole artifact.
    """
    begun = all(any(place.glob("checkpoints/step-*")) for place in places)
    if not config.init_from or (begun and not fresh):
        return None
    return FirstStage(artifact.load(_folder(config.init_from)), config.init_from)


def _folder(source: str) -> Path:
    """Return the folder with the manifest: of a path, or of a dataset that is mounted."""
    inputs, names = mounts.root() / "input", (artifact.MANIFEST, f"artifact/{artifact.MANIFEST}")
    places: list[Path | None] = [Path(source) / name for name in names]
    if dataset := DATASET.fullmatch(source):
        places += [mounts.file(inputs, f"{dataset[1]}/{name}") for name in names]
    for place in places:
        if place and os.path.isfile(place):  # noqa: PTH113 - Path.is_file raises for a long name
            return place.parent
    raise ConfigError(
        f"init_from={source[:200]!r} cannot work: there is no such folder with {artifact.MANIFEST},"
        f" and no such dataset is mounted. {mounts.listing(inputs)}.\n"
        "Expected the artifact of a training, as OUT/artifact or owner/slug. Correct init_from in"
        " the config."
    )


def compare(
    first: FirstStage,
    config: Config,
    held_out: Sequence[str],
    target_and_encoding: tuple[Any, Any],
    show: Show,
) -> FirstStage:
    """Refuse a first stage with different folds, show what else differs, and return it with whether
    it may have seen rows that are held out here.

    Args:
        held_out: of each fold of this run, as `pipeline.data.folds.held_out` returns it.
        target_and_encoding: of this run's examples.
        show: takes a line for each difference.

    Raises:
        ConfigError: if its folds are not those of this run.
    """
    earlier, manifest = first.artifact.config, first.artifact.manifest
    name = f"init_from={first.source!r}"
    same = manifest.get("held_out") == list(held_out)
    if earlier.folds and not (earlier.folds == config.folds and same):
        folds = f"{config.folds} that hold out other rows" if config.folds else "none"
        raise ConfigError(
            f"{name} cannot work: its run has {earlier.folds} folds, and this one {folds}; a model"
            " would be validated on rows that it was trained on.\n"
            f"Expected the same folds: set folds={earlier.folds} and seed={earlier.seed} and keep"
            " the data, or start from a run without folds."
        )
    seen = earlier.competition == config.competition and not same
    # By the weights that it started from.
    seen |= bool((manifest.get("init_from") or {}).get("may_have_seen_held_out"))
    if seen:
        show(
            f"Warning: {name} may have been trained on rows that are held out here; the validation"
            " is then better than what is hidden. Equal seed, folds and validation_fraction hold"
            " out the same rows."
        )
    target, encoding = target_and_encoding
    if earlier.outputs == config.outputs and first.artifact.target.names != target.names:
        show(f"Warning: {name} has other classes; its head is taken all the same")
    if first.artifact.encoding not in (None, encoding):
        show(f"Warning: {name} encodes the columns of the table by other numbers")
    return replace(first, may_have_seen_held_out=seen)


def refuse_another(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> None:
    """Refuse a fold that begins with another run than the fold before it did in an earlier session:
    a dataset may have got a new version meanwhile.

    Args:
        before, now: as `begin` returns them; None where a fold begins with nothing of the kind.

    Raises:
        ConfigError: if they are of two runs.
    """
    if before and now and before["run_id"] != now["run_id"]:
        raise ConfigError(
            f"init_from={now['source']!r} is the run {now['run_id']} now; the fold before this one"
            f" began with the run {before['run_id']}. Expected one for all folds.\n"
            "Mount the earlier version again, or begin again with --fresh."
        )


def begin(
    model: Any, first: FirstStage, config: Config, fold: int | None, show: Show
) -> dict[str, Any]:
    """Set a model's weights to those of the first stage, and return where they came from.

    Args:
        model: of Keras, built.
        fold: of this run, from 1 on; None without folds.
        show: takes what was taken, and which layers were not.

    Returns:
        For checkpoints and the manifest: source, run_id, weights_sha256, fold and
        may_have_seen_held_out.

    Raises:
        ConfigError: if a layer has another shape, or none is in both.
    """
    earlier = first.artifact.config
    fold = fold if earlier.folds else None
    arrays = first.artifact.folds[(fold or 1) - 1]
    theirs = {weight_names.name(key): array for key, array in arrays.items()}
    keys = weight_names.keys(model)
    ours = {weight_names.name(keys[id(weight)]): weight for weight in model.weights}
    shapes = {name: tuple(weight.shape) for name, weight in ours.items()}
    shared = ours.keys() & theirs.keys()
    taken = {name for name in shared if shapes[name] == theirs[name].shape}
    head = _layer(list(ours)[-1]) if earlier.outputs != config.outputs else None
    wrong = [
        f"{name} has {theirs[name].shape} there and {shapes[name]} here"
        for name in sorted(shared - taken)
        if _layer(name) != head
    ]
    if wrong or not taken:
        problem = f"no layer of {earlier.model}, its model, is in {config.model}"
        if wrong:
            problem = f"{len(wrong)} arrays have other shapes: {'; '.join(wrong[:3])}"
        raise ConfigError(
            f"init_from={first.source!r} cannot work: {problem}.\n"
            "Expected layers with the same names and shapes; the head alone may differ, if"
            f" num_classes does. Set model={earlier.model!r},"
            f" model_options={dict(earlier.model_options)!r},"
            f" data.channels={earlier.data.channels} (and of a network that flattens its images,"
            f" data.height={earlier.data.height}, data.width={earlier.data.width}) as in that run,"
            " or choose another init_from. Name the layers that both models share, where they are"
            " your own: Keras numbers the others."
        )
    for name in taken:
        ours[name].assign(theirs[name])
    origin = {name: first.artifact.manifest[name] for name in ("run_id", "weights_sha256")}
    show(
        f"Starting from run {origin['run_id']} ({earlier.name}{f', fold {fold}' if fold else ''}),"
        f" weights {origin['weights_sha256'][:12]}: {len(taken)} of {len(ours)} arrays taken"
    )
    for what, names in (("Layers that start at random", ours), ("Layers not taken", theirs)):
        if layers := list(dict.fromkeys(_layer(name) for name in names if name not in taken)):
            more = f" and {len(layers) - 10} more" if len(layers) > 10 else ""
            show(f"{what}: {', '.join(layers[:10])}{more}")
    seen = first.may_have_seen_held_out
    return {"source": first.source, **origin, "fold": fold, "may_have_seen_held_out": seen}


def _layer(weight: str) -> str:
    return weight.rpartition("/")[0]
