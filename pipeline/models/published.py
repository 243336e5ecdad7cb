"""Published networks: `Config.pretrained`, the model "published", and `backbone` for custom ones.

Networks are built by code from numbers, in training and in inference; weights are read in training
alone, after the build, and equal the published ones to the bit. The artifact carries numbers and
weights, so that inference needs no preset, no internet and no library of downloads.

    from pipeline.models.published import backbone

    def two_layers(images, num_classes, batchnorm_momentum):
        x = backbone(images)[:, 0]  # the class token of Config.pretrained
        return layers.Dense(num_classes, dtype="float32")(layers.Dense(256, "gelu")(x))
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from keras import layers

from pipeline.config import Config, rules
from pipeline.errors import ArtifactError, ConfigError
from pipeline.models import backbones, heads, presets, weight_files
from pipeline.models.backbones import BACKBONES, IMAGENET, RANDOM, Frozen
from pipeline.models.families import Pixels
from pipeline.models.layer_tree import descendants
from pipeline.models.presets import Preset
from pipeline.models.weight_files import FILES, Names
from pipeline.runtime import devices, mounts

NAME = "published"  # of the model
Show = Callable[[str], None]
Networks = Mapping[str, Preset]


class _Build(NamedTuple):
    """What `backbone` and `begin` find while a model is built: the networks by source, names for
    them, and the files of weights.
    """

    networks: Networks
    names: Iterator[str]
    files: Sequence[str]


NOTHING = _Build({}, iter(()), ())
_building: ContextVar[_Build] = ContextVar("building")


def sources(config: Config) -> tuple[str, ...]:
    """Return the presets that a config names; none for a network of keras.applications."""
    if config.model in BACKBONES:
        return ()
    return tuple(name for name in _given(config) if not name.endswith(FILES))


def _given(config: Config) -> tuple[str, ...]:
    return tuple(name for name in rules.as_tuple(config.pretrained) if name)


def networks(config: Config) -> Networks:
    """Return the networks that a config names, by source, for `building` and the artifact.

    Raises:
        ConfigError: if one is neither here nor well known, or the model takes no such source.
    """
    given, names = _given(config), sources(config)
    if config.model in BACKBONES:
        folders = [name for name in given if presets.is_preset(name)]
        if folders or len(given) > 1:
            raise ConfigError(
                f"pretrained={config.pretrained!r} cannot work with model={config.model!r}, a"
                " network of keras.applications; expected 'imagenet', 'none' or a file with its"
                f" weights.\nFor a preset set model={NAME!r}, or a function of yours."
            )
    elif wrong := {IMAGENET, RANDOM} & {*given}:
        raise ConfigError(
            f"pretrained={wrong.pop()!r} cannot work with model={config.model!r}: it is for the"
            f" networks of keras.applications, {', '.join(BACKBONES)}.\nName a preset, or leave"
            " pretrained out."
        )
    return {name: presets.find(name) for name in names}


def carried(manifest: Mapping[str, Any]) -> Networks:
    """Return the networks that an artifact carries.

    Raises:
        ArtifactError: if its manifest has something else there.
    """
    given = manifest.get("networks") or {}
    try:
        return {name: Preset.from_json(values) for name, values in given.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"The manifest says of its networks {str(given)[:100]}; expected their classes and"
            " numbers, as a training writes them.\nPull or download the artifact again."
        ) from error


@contextmanager
def building(config: Config, given: Networks) -> Iterator[None]:
    """Let `backbone` build these networks of a config."""
    names = (f"backbone_{number}" if number > 1 else "backbone" for number in count(1))
    before = _building.set(_Build(given, names, _files(config)))
    try:
        yield
    finally:
        _building.reset(before)


def _files(config: Config) -> list[str]:
    if config.model in BACKBONES:
        return []
    return [name for name in _given(config) if name.endswith(FILES)]


def refuse_unused(model: Any, config: Config) -> None:
    """Refuse a model that leaves out weights which the config names.

    Raises:
        ValueError: names it, and the call that builds it.
    """
    unused = {*sources(config), *_files(config)} - {source for source, _ in begun(model)}
    if unused:
        raise ValueError(
            f"pretrained names {', '.join(map(repr, sorted(unused)))}, which no layer begins with;"
            " call backbone(images) of pipeline.models.published in the model's function, or for a"
            " file begin(network)"
        )


def backbone(
    inputs: Any,
    source: str = "",
    *,
    trainable: bool = True,
    batchnorm_momentum: float | None = None,
    prepared: bool = False,
) -> Any:
    """Return the outputs of the published network that `Config.pretrained` names.

    These are tokens (batch, tokens, features), a map (batch, height, width, features), or one
    vector per example (batch, features), as the network has it.

    Args:
        inputs: images as a model's function gets them, (batch, height, width, 1 or 3), from 0 to 1:
            they are prepared as the preset was trained. Or what a network of another kind takes, as
            {"token_ids": …, "padding_mask": …}.
        source: the one that is meant, where `pretrained` has several.
        trainable: False freezes it.
        batchnorm_momentum: trains the BatchNormalization of a network that has any, by groups;
            None keeps the published statistics.
        prepared: whether the images are what the network takes, and nothing is to be done.

    Raises:
        ConfigError: if the network takes no images of this size.
        ValueError: if `pretrained` has no such source.
    """
    build = _building.get(NOTHING)
    given, source = build.networks, source or next(iter(build.networks), "")
    if source not in given:
        expected = ", ".join(map(repr, given)) or "none: set Config.pretrained"
        raise ValueError(f"backbone(…, {source!r}): pretrained has {expected}")
    preset, name, shape = given[source], next(build.names), None
    if preset.shape is not None and not isinstance(inputs, Mapping):
        inputs = inputs if prepared else _prepared(inputs, preset, f"{name}_prepared")
        shape = tuple(inputs.shape[1:])
    network = presets.network(preset, shape, name)
    network.relay_source = source
    Frozen(not trainable, batchnorm_momentum).set(network)
    return network({next(iter(network.input)): inputs} if _by_name(network, inputs) else inputs)


def begin(
    network: Any, source: str = "", *, names: Names | None = None, torch: bool = False
) -> None:
    """Let a network of your own begin with the file that `Config.pretrained` names.

    Args:
        network: a Keras model, all of whose weights the file has.
        source: the file that is meant, where `pretrained` has several.
        names: the name in a .safetensors file of each weight, by its name here, as
            "block1/conv/kernel"; None: the same.
        torch: whether that file has PyTorch's order of axes.

    Raises:
        ValueError: if `pretrained` has no such file.
    """
    files = _building.get(NOTHING).files
    source = source or next(iter(files), "")
    if source not in files:
        raise ValueError(
            f"begin(network, {source!r}): pretrained has the files {list(files)}; expected one that"
            f" ends in {' or '.join(FILES)}"
        )
    network.relay_source, network.relay_names, network.relay_torch = source, names, torch


def _by_name(network: Any, inputs: Any) -> bool:
    return isinstance(network.input, Mapping) and not isinstance(inputs, Mapping)


def published(
    images: Any,
    num_classes: int,
    batchnorm_momentum: float,
    *,
    batchnorm: str = "auto",
    dropout: float = 0.0,
    backbone_rate: float = 1.0,
    pool: str = "auto",
) -> Any:
    """Return logits of the network of `Config.pretrained`, under a head (`pipeline.models.heads`).

    Args:
        images: tensor (batch, height, width, channels), 0 to 255. Grey becomes three equal colours.
        num_classes: length of the logits.
        batchnorm_momentum: of every BatchNormalization that is not frozen.
        batchnorm: "auto" and "frozen" keep BatchNormalization's published statistics and scales,
            "groups" trains them (docs/decisions/0010).
        dropout: share of the features dropped before the logits, in training.
        backbone_rate: factor of the learning rate for all but the head, 0 to 1. 0 freezes that.
        pool: of tokens or a map, as `heads.logits` takes it.

    Raises:
        ConfigError: if there is not one preset of a network of images, or it is not known which of
            its outputs stands for an image.
        ValueError: if an argument cannot work.
    """
    given = _building.get(NOTHING).networks
    if len(given) != 1:
        several = f"has {len(given)} presets" if given else "names no preset"
        raise ConfigError(
            f"model={NAME!r} cannot be built: pretrained {several}; expected one, a model of Kaggle"
            " or a folder (docs/published-networks.md).\nWrite into the config, for example:\n"
            "pretrained='keras/dinov3/keras/dinov3_vit_small_lvd1689m/1'"
        )
    frozen = Frozen.of(batchnorm, backbone_rate, batchnorm_momentum)
    preset = next(iter(given.values()))
    if preset.shape is None:
        raise ConfigError(
            f"model={NAME!r} cannot be built: {preset.kind} takes no images; expected a network of"
            " images.\nTake another preset, or write a model's function (docs/text.md)."
        )
    momentum = frozen.batchnorm_momentum
    if images.dtype != "uint8":
        images = layers.Rescaling(1 / 255, name="pixels_to_unit")(images)
    x = backbone(images, trainable=not frozen.all, batchnorm_momentum=momentum)
    family = preset.family
    if pool == "auto" and len(x.shape) == 3 and not family.token:
        raise ConfigError(
            f"model={NAME!r} cannot be built: which of the outputs of {preset.kind},"
            f" {tuple(x.shape)}, stands for an image is not known; expected model_options to say"
            " how they are pooled, by 'mean', 'gem' or 'attention'.\nWrite into the config:\n"
            "model_options={'pool': 'mean'}"
        )
    sides = zip(images.shape[1:3], preset.patch, strict=True)
    places = math.prod(side // patch for side, patch in sides)
    # Those before the patches: the class, registers, and what another network was distilled into.
    skip = max((x.shape[1] or places) - places, 0) if family.token and len(x.shape) == 3 else 0
    return heads.logits(x, num_classes, dropout, pool, token=family.token, skip=skip)


def _prepared(images: Any, preset: Preset, name: str) -> Any:
    """Return images as the network takes them, in float32 under every policy.

    A custom function gets bytes divided by 255, under some policies in bfloat16, which has too few
    digits; so the bytes themselves are taken where they can be found.
    """
    pixels, unit = preset.pixels, 255.0
    if pixels is None:
        raise ValueError(
            f"how images are prepared for {preset.kind} is not known: its preset has no"
            " image_converter.json; prepare them, and call backbone(images, prepared=True)"
        )
    layer = images._keras_history.operation
    if images.dtype == "uint8":
        unit = 1.0
    elif isinstance(layer, layers.Rescaling) and layer.name.endswith("_to_unit"):
        images, unit = layer.input, 1.0
    factors = Pixels(tuple(unit * each for each in pixels.scale), pixels.offset)
    return backbones.prepared(images, factors, name)


def require(config: Config) -> None:
    """Read the published weights that a config starts with, and keep them for `load`: what is not
    here fails now, and not after hours.

    Raises:
        ConfigError: if there is no internet, no such preset or file, or one of another network.
    """
    backbones.published(config)
    on_kaggle = (mounts.root() / "input").is_dir() and devices.LOCAL not in os.environ
    if not config.init_from:
        for source in networks(config):
            presets.arrays(source)
            folder = presets.place(source)
            if on_kaggle and folder is not None and (folder / presets.RANDOM).is_file():
                raise ConfigError(
                    f"pretrained={source!r} has random weights, made for rehearsals; expected the"
                    " published ones, before a session is spent on them.\nMount these."
                )
        for source in _files(config):
            _file(source)


def _file(source: str) -> Path:
    """Return where a file of weights is."""
    place = presets.place(source)
    if place is None or not place.is_file():
        raise presets.missing(source)
    return place


def load(model: Any, config: Config, given: Networks, show: Show) -> list[dict[str, Any]]:
    """Set the published weights of a model that was built with these networks.

    Args:
        show: takes a line for each source.

    Returns:
        For the manifest: of each source its name, the sha256 of all its numbers in order, and
        whether they are random; nothing for a run that starts from another one's artifact.

    Raises:
        ConfigError: if they are not here, or of other shapes.
    """
    if config.init_from:
        return []
    if origin := backbones.load_published(model, config):
        return [origin]
    origins = []
    for source, network in begun(model):
        preset, kind, licence, random = given.get(source), network.name, "yours to know", False
        if preset is None:
            names, torch = network.relay_names, network.relay_torch
            arrays = weight_files.arrays(network, _file(source), names, torch=torch)
        else:
            arrays, kind, licence = presets.arrays(source), preset.kind, preset.family.licence
            random = preset.random
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        if preset:
            arrays = presets.resized(preset, arrays, network)
        _refuse_other_shapes(source, network, arrays)
        network.set_weights(arrays)
        numbers = sum(map(np.size, arrays))
        show(f"Starting from {source} ({kind}, {numbers:,} parameters; licence: {licence})")
        if random:
            show(f"Warning: the weights of {source} are random: the preset is for rehearsals")
        origins.append({"source": source, "arrays_sha256": digest.hexdigest(), "random": random})
    return origins


def refuse_another(before: Sequence[Any], now: Sequence[Any]) -> None:
    """Refuse a fold that begins with other published weights than the fold before it did in an
    earlier session: a dataset or a page may have got a new version meanwhile.

    Args:
        before, now: as `load` returns them.

    Raises:
        ConfigError: if they differ.
    """
    if [*before] != [*now]:
        names = ", ".join(one["source"] for one in now)
        raise ConfigError(
            f"pretrained={names!r} has other weights now than when the fold before this one began;"
            " expected one for all folds.\nMount the earlier version, or begin again with --fresh."
        )


def _refuse_other_shapes(source: str, network: Any, arrays: Sequence[np.ndarray]) -> None:
    there, here = [array.shape for array in arrays], [tuple(one.shape) for one in network.weights]
    if there != here:
        wrong = next(pair for pair in zip_longest(there, here) if pair[0] != pair[1])
        raise ConfigError(
            f"pretrained={source!r}: its weights do not fit {network.name} for these inputs:"
            f" {wrong[0]} there and {wrong[1]} here.\nSet data.height and data.width as the preset"
            " has them, or take another preset."
        )


def begun(model: Any) -> list[tuple[str, Any]]:
    """Return the networks within a model that begin with published weights, and their sources."""
    marked = [(getattr(layer, "relay_source", ""), layer) for layer in descendants(model)]
    return [(source, layer) for source, layer in marked if source]
