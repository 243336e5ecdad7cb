"""Published networks: `Config.pretrained`, the model "published", and `backbone` for custom models.

Training and inference build a network from plain numbers. Only training reads published weights,
after the build, and they equal the published ones bit for bit. The artifact carries numbers and
weights, so inference needs no preset, no internet and no kagglehub.

    from pipeline.models.published import backbone

    def two_layers(images, num_classes, batchnorm_momentum):
        x = backbone(images)[:, 0]  # the class token of the network in Config.pretrained
        return layers.Dense(num_classes, dtype="float32")(layers.Dense(256, "gelu")(x))
"""

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
    """What `backbone` and `begin` use while a model is built: networks by source, names for them,
    and files of weights.
    """

    networks: Networks
    names: Iterator[str]
    files: Sequence[str]


NOTHING = _Build({}, iter(()), ())
_building: ContextVar[_Build] = ContextVar("building")


def sources(config: Config) -> tuple[str, ...]:
    """Return the presets that a config names; none for the networks of keras.applications."""
    return tuple(name for name in _given(config) if not name.endswith(FILES))


def _files(config: Config) -> list[str]:
    return [name for name in _given(config) if name.endswith(FILES)]


def _given(config: Config) -> tuple[str, ...]:
    given = () if config.model in BACKBONES else rules.as_tuple(config.pretrained)
    return tuple(name for name in given if name)


def networks(config: Config) -> Networks:
    """Return the networks that a config names, by source, for `building` and the artifact.

    Raises:
        ConfigError: if one is neither here nor well known, or the model does not take such a
            source.
    """
    given = [name for name in rules.as_tuple(config.pretrained) if name]
    if config.model in BACKBONES:
        folders = [name for name in given if presets.is_preset(name)]
        if folders or len(given) > 1:
            raise ConfigError(
                f"pretrained={config.pretrained!r} cannot work with model={config.model!r}, a"
                " network of keras.applications; expected 'imagenet', 'none' or a file with its"
                f" weights.\nFor a preset set model={NAME!r}, or your own model."
            )
    elif wrong := {IMAGENET, RANDOM} & {*given}:
        raise ConfigError(
            f"pretrained={wrong.pop()!r} cannot work with model={config.model!r}: it is for the"
            f" networks of keras.applications, {', '.join(BACKBONES)}.\nName a preset, or remove"
            " pretrained."
        )
    return {name: presets.find(name) for name in sources(config)}


def carried(manifest: Mapping[str, Any]) -> Networks:
    """Return the networks that an artifact carries.

    Raises:
        ArtifactError: if its manifest has anything else there.
    """
    given = manifest.get("networks") or {}
    try:
        return {name: Preset.from_json(values) for name, values in given.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"The manifest has the networks {str(given)[:100]}; expected their classes and"
            " numbers, as a training writes them.\nPull or download the artifact again."
        ) from error


@contextmanager
def building(config: Config, given: Networks) -> Iterator[None]:
    """Let `backbone` build these networks."""
    names = (f"backbone_{number}" if number > 1 else "backbone" for number in count(1))
    before = _building.set(_Build(given, names, _files(config)))
    try:
        yield
    finally:
        _building.reset(before)


def refuse_unused(model: Any, config: Config) -> None:
    """Refuse a model that does not use weights that the config names.

    Raises:
        ValueError: names them, and the call that uses them.
    """
    unused = {*_given(config)} - {source for source, _ in begun(model)}
    if unused:
        raise ValueError(
            f"pretrained names {', '.join(map(repr, sorted(unused)))}, which no layer starts from;"
            " call backbone(images) from pipeline.models.published in the model's function, or for"
            " a file begin(network)"
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

    They are tokens (batch, tokens, features), a map (batch, height, width, features), or one
    vector per example (batch, features), depending on the network.

    Args:
        inputs: images as a model's function gets them, (batch, height, width, 1 or 3), from 0 to 1;
            they are prepared as the preset's training images were. Or the inputs of a network for
            other data, such as {"token_ids": …, "padding_mask": …}.
        source: which network, if `pretrained` has several.
        trainable: False freezes it.
        batchnorm_momentum: trains BatchNormalization, if the network has any, by groups; None keeps
            the published statistics.
        prepared: whether the images are already prepared.

    Raises:
        ConfigError: if the network does not take images of this size.
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
    if isinstance(network.input, Mapping) and not isinstance(inputs, Mapping):
        inputs = {next(iter(network.input)): inputs}
    return network(inputs)


def begin(
    network: Any, source: str = "", *, names: Names | None = None, torch: bool = False
) -> None:
    """Start a custom network from the file that `Config.pretrained` names.

    Args:
        network: a Keras model; the file has all of its weights.
        source: which file, if `pretrained` has several.
        names: returns the name of a weight in a .safetensors file, given its name here, such as
            "block1/conv/kernel"; None: the names are the same.
        torch: whether the file has PyTorch's order of axes.

    Raises:
        ValueError: if `pretrained` has no such file.
    """
    files = _building.get(NOTHING).files
    source = source or next(iter(files), "")
    if source not in files:
        raise ValueError(
            f"begin(network, {source!r}): pretrained has the files {list(files)}; expected a file"
            f" whose name ends in {' or '.join(FILES)}"
        )
    network.relay_source, network.relay_names, network.relay_torch = source, names, torch


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
    """Return logits of the network in `Config.pretrained`, under a head (`pipeline.models.heads`).

    Args:
        images: tensor (batch, height, width, channels), 0 to 255. Grey gets three equal channels.
        num_classes: length of the logits.
        batchnorm_momentum: of every BatchNormalization that is not frozen.
        batchnorm: "auto" and "frozen" keep BatchNormalization's published statistics and scales,
            "groups" trains them (docs/decisions/0010).
        dropout: share of the features dropped before the logits, in training.
        backbone_rate: factor of the learning rate below the head, 0 to 1. 0 freezes the network.
        pool: of tokens or a map, as `heads.logits` takes it.

    Raises:
        ConfigError: if `pretrained` is not one preset of a network for images, or it is unknown
            which of its outputs stands for an image.
        ValueError: if an argument is invalid.
    """
    given = _building.get(NOTHING).networks
    if len(given) != 1:
        several = f"has {len(given)} presets" if given else "names no preset"
        raise ConfigError(
            f"model={NAME!r} cannot be built: pretrained {several}; expected one, a Kaggle model or"
            " a folder (docs/published-networks.md).\nFor example, write into the config:\n"
            "pretrained='keras/dinov3/keras/dinov3_vit_small_lvd1689m/1'"
        )
    frozen = Frozen.of(batchnorm, backbone_rate, batchnorm_momentum)
    preset = next(iter(given.values()))
    if preset.shape is None:
        raise ConfigError(
            f"model={NAME!r} cannot be built: {preset.kind} does not take images; expected a"
            " network that does.\nUse another preset, or write a custom model (docs/text.md)."
        )
    momentum = frozen.batchnorm_momentum
    if images.dtype != "uint8":
        images = layers.Rescaling(1 / 255, name="pixels_to_unit")(images)
    x = backbone(images, trainable=not frozen.all, batchnorm_momentum=momentum)
    family = preset.family
    if pool == "auto" and len(x.shape) == 3 and not family.token:
        raise ConfigError(
            f"model={NAME!r} cannot be built: {preset.kind} has outputs {tuple(x.shape)}, and it is"
            " unknown which of them stands for an image; expected pool in model_options: 'mean',"
            " 'gem' or 'attention'.\nWrite into the config:\n"
            "model_options={'pool': 'mean'}"
        )
    sides = zip(images.shape[1:3], preset.patch, strict=True)
    places = math.prod(side // patch for side, patch in sides)
    # Tokens before the patches: class, registers, distillation.
    skip = max((x.shape[1] or places) - places, 0) if family.token and len(x.shape) == 3 else 0
    return heads.logits(x, num_classes, dropout, pool, token=family.token, skip=skip)


def _prepared(images: Any, preset: Preset, name: str) -> Any:
    """Return images as the network takes them, in float32 under every policy.

    A custom function gets bytes divided by 255, under some policies in bfloat16, which has too few
    digits. So this uses the bytes themselves where it finds them.
    """
    pixels, unit = preset.pixels, 255.0
    if pixels is None:
        raise ValueError(
            f"it is unknown how images are prepared for {preset.kind}: its preset has no"
            " image_converter.json; prepare them and call backbone(images, prepared=True)"
        )
    layer = images._keras_history.operation
    if images.dtype == "uint8":
        unit = 1.0
    elif isinstance(layer, layers.Rescaling) and layer.name.endswith("_to_unit"):
        images, unit = layer.input, 1.0
    factors = Pixels(tuple(unit * each for each in pixels.scale), pixels.offset)
    return backbones.prepared(images, factors, name)


def require(config: Config) -> None:
    """Read the published weights that a config starts from, and keep them for `load`: missing ones
    fail now, not after hours.

    Raises:
        ConfigError: if there is no internet, no such preset or file, or its network is different.
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
                    " published ones.\nMount the published preset."
                )
        for source in _files(config):
            _file(source)


def _file(source: str) -> Path:
    """Return the path of a file of weights."""
    place = presets.place(source)
    if place is None or not place.is_file():
        raise presets.missing(source)
    return place


def load(model: Any, config: Config, given: Networks, show: Show) -> list[dict[str, Any]]:
    """Set the published weights of a model that was built with these networks.

    Args:
        show: takes a line for each source.

    Returns:
        For the manifest: each source's name, the sha256 of all its numbers in order, and whether
        they are random; nothing for a run that starts from another run's artifact.

    Raises:
        ConfigError: if they are not here, or have different shapes.
    """
    if config.init_from:
        return []
    if origin := backbones.load_published(model, config):
        return [origin]
    origins = []
    for source, network in begun(model):
        preset = given.get(source)
        if preset is None:
            names, torch = network.relay_names, network.relay_torch
            arrays = weight_files.arrays(network, _file(source), names, torch=torch)
            about, fitted = network.name, arrays
        else:
            arrays = presets.arrays(source)
            about = f"{preset.kind}, licence: {preset.family.licence}"
            fitted = presets.resized(preset, arrays, network)
        _refuse_other_shapes(source, network, fitted)
        network.set_weights(fitted)
        show(f"Starting from {source} ({sum(map(np.size, fitted)):,} parameters; {about})")
        random = bool(preset and preset.random)
        if random:
            show(f"Warning: the weights of {source} are random: the preset is for rehearsals")
        sha256 = backbones.arrays_sha256(arrays)
        origins.append({"source": source, "arrays_sha256": sha256, "random": random})
    return origins


def refuse_another(before: Sequence[Any], now: Sequence[Any]) -> None:
    """Refuse a fold whose published weights differ from those of the fold before it, which ran in
    an earlier session: a dataset may have a new version since.

    Args:
        before, now: as `load` returns them.

    Raises:
        ConfigError: if they differ.
    """
    if [*before] != [*now]:
        names = ", ".join(one["source"] for one in now)
        raise ConfigError(
            f"pretrained={names!r} has changed since the previous fold started; expected the same"
            " weights for all folds.\nMount the earlier version, or start over with --fresh."
        )


def _refuse_other_shapes(source: str, network: Any, arrays: Sequence[np.ndarray]) -> None:
    there, here = [array.shape for array in arrays], [tuple(one.shape) for one in network.weights]
    if there != here:
        wrong = next(pair for pair in zip_longest(there, here) if pair[0] != pair[1])
        raise ConfigError(
            f"pretrained={source!r}: its weights do not fit {network.name} for these inputs: the"
            f" file has {wrong[0]}, the network {wrong[1]}.\nSet data.height and data.width to the"
            " preset's, or use another preset."
        )


def begun(model: Any) -> list[tuple[str, Any]]:
    """Return the source of each network in a model that starts from published weights, and it."""
    marked = [(getattr(layer, "relay_source", ""), layer) for layer in descendants(model)]
    return [(source, layer) for source, layer in marked if source]
