"""Warm start: a run that begins with the weights of another run's artifact (`Config.init_from`).

For progressive resizing, and for a second stage of training. Weights are taken by name, where name
and shape are equal. Only the head may have another shape, and only for another number of outputs.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from formats.errors import writing
from pipeline import artifact
from pipeline.artifact import Artifact
from pipeline.config import Config, own_code
from pipeline.errors import ConfigError
from pipeline.models import weight_names
from pipeline.runtime import mounts

KEPT = "fold-1/init"  # in the output, so that a later fold does not need the folder
DATASET = re.compile(r"([\w-]+/[\w-]+)(/\d+)?")  # owner/slug, perhaps with a version


@dataclass(frozen=True)
class FirstStage:
    """The run whose weights another one begins with.

    Attributes:
        artifact: of that run, verified.
        source: as the config names it.
        may_have_seen_held_out: whether it, or a run that it began with, may have been trained on
            rows that this run holds out.
    """

    artifact: Artifact
    source: str
    may_have_seen_held_out: bool = False


def find(config: Config, output: Path, *, fresh: bool) -> FirstStage | None:
    """Return the first stage of a run; None without one, or if checkpoints hold all there is.

    With folds, `output` keeps a copy: a fold that begins later finds it there.

    Args:
        output: of the run.
        fresh: older checkpoints do not count.

    Raises:
        ConfigError: if there is no such folder and no such dataset.
        ArtifactError: if it is no whole artifact.
    """
    if not config.init_from:
        return None
    saved = ("checkpoints/step-*", "fold-*/checkpoints/step-*")
    begun = not fresh and any(any(output.glob(pattern)) for pattern in saved)
    if begun and not config.folds:
        return None
    kept = output / KEPT
    if begun and kept.is_dir():
        return FirstStage(artifact.load(kept), config.init_from)
    folder = _folder(config.init_from)
    found = artifact.load(folder)
    if config.folds:
        with writing(kept):
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            # The manifest last: without it the copy is none.
            for name in (*found.manifest["files"], artifact.MANIFEST):
                shutil.copyfile(folder / name, kept / name)
    return FirstStage(found, config.init_from)


def _folder(source: str) -> Path:
    """Return the folder with the manifest: of a path, or of a dataset that is mounted."""
    named, inputs = Path(source), mounts.root() / "input"
    places = [named / artifact.MANIFEST, named / "artifact" / artifact.MANIFEST]
    if dataset := DATASET.fullmatch(source):
        inside = (f"{below}{artifact.MANIFEST}" for below in ("", "artifact/"))
        found = (mounts.file(inputs, f"{dataset[1]}/{name}") for name in inside)
        places += [place for place in found if place]
    for place in places:
        if os.path.isfile(place):  # noqa: PTH113 - Path.is_file raises for a long name
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
    show: Callable[[str], None],
) -> FirstStage:
    """Refuse a first stage of other folds, say what else differs, and return it with whether it may
    have seen rows that are held out here.

    Args:
        held_out: of each fold of this run, as `pipeline.data.folds.held_out` returns it.
        target_and_encoding: of this run's examples.
        show: takes a line for each difference.

    Raises:
        ConfigError: if its folds are not those of this run.
    """
    theirs = first.artifact
    held, what = theirs.manifest.get("held_out"), f"init_from={first.source!r}"
    same = held == list(held_out)
    if theirs.config.folds and not (theirs.config.folds == config.folds and same):
        raise ConfigError(
            f"{what} cannot work: its run has {theirs.config.folds} folds, and this one"
            f" {f'{config.folds} that hold out other rows' if config.folds else 'none'}; a model"
            " would be validated on rows that it was trained on.\n"
            f"Expected the same folds: set folds={theirs.config.folds} and"
            f" seed={theirs.config.seed} and keep the data, or start from a run without folds."
        )
    before = theirs.manifest.get("init_from") or {}
    seen = theirs.config.competition == config.competition and not same
    seen |= bool(before.get("may_have_seen_held_out"))  # by the weights that it began with
    if seen:
        show(
            f"Warning: {what} may have been trained on rows that are held out here; the validation"
            " is then better than what is hidden. Equal seed, folds and validation_fraction hold"
            " out the same rows."
        )
    target, encoding = target_and_encoding
    if theirs.config.outputs == config.outputs and theirs.target.names != target.names:
        show(f"Warning: {what} has other classes; its head is taken all the same")
    if theirs.encoding is not None and theirs.encoding != encoding:
        show(f"Warning: {what} encodes the columns of the table by other numbers")
    return replace(first, may_have_seen_held_out=seen)


def begin(
    model: Any,
    first: FirstStage,
    config: Config,
    fold: int | None,
    show: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Set a model's weights to those of the first stage, and return where they came from.

    Args:
        model: of Keras, built.
        fold: of this run, from 1 on; None without folds.
        show: takes what was taken, and which layers were not.

    Returns:
        For checkpoints and the manifest: source, run_id, weights_sha256, fold, how many arrays were
        taken, the names of the layers that are new, and of those that are not here, and
        may_have_seen_held_out.

    Raises:
        ConfigError: if a layer has another shape, or none is in both.
    """
    theirs = first.artifact
    own_fold = fold if theirs.config.folds else None
    given = {
        weight_names.name(key): array for key, array in theirs.folds[(own_fold or 1) - 1].items()
    }
    keys = weight_names.keys(model)
    ours = {weight_names.name(keys[id(weight)]): weight for weight in model.weights}
    head = _layer(list(ours)[-1]) if theirs.config.outputs != config.outputs else None
    differing = [
        name for name in ours.keys() & given.keys() if tuple(ours[name].shape) != given[name].shape
    ]
    other = {name: ours[name] for name in sorted(differing) if _layer(name) != head}
    _refuse(first, config, other, given)
    taken = ours.keys() & given.keys() - set(differing)
    if not taken:
        raise ConfigError(
            f"init_from={first.source!r} cannot work: no layer of {theirs.config.model}, its model,"
            f" is in {config.model}.\n"
            "Expected a model with layers of the same names. Set model and model_options as in"
            f" {theirs.config.name}, or correct init_from."
        )
    for name in taken:
        ours[name].assign(given[name])
    new, left = (_layers(some, taken) for some in (ours, given))
    run_id, digest = theirs.manifest["run_id"], theirs.manifest["weights_sha256"]
    which = f", fold {own_fold}" if own_fold else ""
    show(
        f"Starting from run {run_id} ({theirs.config.name}{which}), weights {digest[:12]}:"
        f" {len(taken)} of {len(ours)} arrays taken"
    )
    if (published := config.model_options.get("pretrained", "none")) != "none":
        show(f"These weights take the place of model_options['pretrained']={published!r}")
    if differing:
        show(
            f"The head {head} starts at random: it has {config.outputs} outputs here, and"
            f" {theirs.config.outputs} there"
        )
    for what, names in (("New layers, which start at random", new), ("Layers not taken", left)):
        if rest := [name for name in names if name != head or not differing]:
            shown = ", ".join(rest[:10])
            show(f"{what}: {shown}{f' and {len(rest) - 10} more' if len(rest) > 10 else ''}")
    return {
        "source": first.source,
        "run_id": run_id,
        "weights_sha256": digest,
        "fold": own_fold,
        "taken": len(taken),
        "new": new,
        "left": left,
        "may_have_seen_held_out": first.may_have_seen_held_out,
    }


def _refuse(
    first: FirstStage, config: Config, ours: Mapping[str, Any], given: Mapping[str, np.ndarray]
) -> None:
    """Raise `ConfigError` if there are layers of other shapes."""
    if not ours:
        return
    listed = "; ".join(
        f"{name} has {given[name].shape} there and {tuple(weight.shape)} here"
        for name, weight in list(ours.items())[:3]
    )
    named = ""
    if own_code.function(config, "model"):
        named = " Name the layers that both models share: Keras numbers the others."
    theirs = first.artifact.config
    raise ConfigError(
        f"init_from={first.source!r} cannot work: {len(ours)} arrays have other shapes: {listed}.\n"
        "Expected equal shapes in all layers; the head alone may differ, if num_classes does. Set"
        f" model={theirs.model!r}, model_options={dict(theirs.model_options)!r},"
        f" data.channels={theirs.data.channels} (and of a network that flattens its images,"
        f" data.height={theirs.data.height}, data.width={theirs.data.width}) as in that run, or"
        f" choose another init_from.{named}"
    )


def _layer(weight: str) -> str:
    return weight.rpartition("/")[0]


def _layers(weights: Mapping[str, Any], taken: set[str]) -> list[str]:
    """Return the layers of weights that were not taken, in their order."""
    return list(dict.fromkeys(_layer(name) for name in weights if name not in taken))
