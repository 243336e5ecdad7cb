"""Use the networks in `Config.pretrained`, either with the "published" model or in custom models.

Training and inference build networks from plain arguments. Only training loads the published
weights into them. The artifact contains the arguments and the trained weights, so inference does
not require the preset, internet access or kagglehub.

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

NAME = "published"  # name of the model
Show = Callable[[str], None]
Networks = Mapping[str, Preset]


class _Build(NamedTuple):
    """The state of `backbone` and `begin` while a model is being built."""

    networks: Networks
    names: Iterator[str]
    files: Sequence[str]


NOTHING = _Build({}, iter(()), ())
_building: ContextVar[_Build] = ContextVar("building")


def sources(config: Config) -> tuple[str, ...]:
    """Return a config's presets, or () for keras.applications networks."""
    return tuple(name for name in _given(config) if not name.endswith(FILES))


def _files(config: Config) -> list[str]:
    return [name for name in _given(config) if name.endswith(FILES)]


def _given(config: Config) -> tuple[str, ...]:
    given = () if config.model in BACKBONES else rules.as_tuple(config.pretrained)
    return tuple(name for name in given if name)


def networks(config: Config) -> Networks:
    given = [name for name in rules.as_tuple(config.pretrained) if name]
    if config.model in BACKBONES:
        folders = [name for name in given if presets.is_preset(name)]
        if folders or len(given) > 1:
            raise ConfigError(
                f"pretrained={config.pretrained!r} cannot be used with model={config.model!r}, a"
                " keras.applications network; expected 'imagenet', 'none' or a weights file."
                f"\nTo use a preset, set model={NAME!r} or a custom model."
            )
    elif wrong := {IMAGENET, RANDOM} & {*given}:
        raise ConfigError(
            f"pretrained={wrong.pop()!r} cannot be used with model={config.model!r}: it is only for"
            f" keras.applications networks, {', '.join(BACKBONES)}.\nSet pretrained to a preset, or"
            " remove it."
        )
    return {name: presets.find(name) for name in sources(config)}


def carried(manifest: Mapping[str, Any]) -> Networks:
    given = manifest.get("networks") or {}
    try:
        return {name: Preset.from_json(values) for name, values in given.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"The manifest contains invalid networks: {str(given)[:100]}. Expected the classes and"
            " arguments that a training run writes.\nPull or download the artifact again."
        ) from error


@contextmanager
def building(config: Config, given: Networks) -> Iterator[None]:
    names = (f"backbone_{number}" if number > 1 else "backbone" for number in count(1))
    before = _building.set(_Build(given, names, _files(config)))
    try:
        yield
    finally:
        _building.reset(before)


def refuse_unused(model: Any, config: Config) -> None:
    """Raise `ValueError` unless a model uses all weights in the config's `pretrained`."""
    unused = {*_given(config)} - {source for source, _ in begun(model)}
    if unused:
        raise ValueError(
            f"pretrained={', '.join(map(repr, sorted(unused)))} is not used by any layer; in the"
            " model's function, call backbone(images) from pipeline.models.published, or"
            " begin(network) for a file"
        )


def backbone(
    inputs: Any,
    source: str = "",
    *,
    trainable: bool = True,
    batchnorm_momentum: float | None = None,
    prepared: bool = False,
) -> Any:
    """Return the outputs of the published network in `Config.pretrained`.

    Depending on the network, these are tokens (batch, tokens, features), a feature map (batch,
    height, width, features), or one vector per example (batch, features).

    Args:
        inputs: images passed to the model's function, (batch, height, width, 1 or 3), from 0 to 1.
            They are preprocessed like the preset's training images. Networks for other data accept
            different inputs, such as {"token_ids": …, "padding_mask": …}.
        source: which network to use, if `pretrained` has several.
        batchnorm_momentum: momentum with which BatchNormalization layers are trained over groups of
            images; None to keep the published statistics.
        prepared: whether the images are already preprocessed.
    """
    build = _building.get(NOTHING)
    given, source = build.networks, source or next(iter(build.networks), "")
    if source not in given:
        expected = ", ".join(map(repr, given)) or "no presets: set Config.pretrained"
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
    """Start training a custom network from the weights file in `Config.pretrained`.

    Args:
        network: Keras model. The file must contain all of its weights.
        source: which file to use, if `pretrained` has several.
        names: function that maps a weight's Keras name, such as "block1/conv/kernel", to its name
            in a .safetensors file (None if the names are the same).
        torch: whether the file uses PyTorch's axis order.
    """
    files = _building.get(NOTHING).files
    source = source or next(iter(files), "")
    if source not in files:
        raise ValueError(
            f"begin(network, {source!r}): pretrained contains the files {list(files)}; expected a"
            f" file name that ends with {' or '.join(FILES)}"
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
    """Return the logits of the network in `Config.pretrained` with a new head
    (`pipeline.models.heads`).

    The arguments are the same as for `backbones.logits`, except that images can have any size that
    the network supports, and "auto" always freezes BatchNormalization.

    Raises:
        ConfigError: if `pretrained` is not a single preset of an image network, or if it is unknown
            which output represents an image.
    """
    given = _building.get(NOTHING).networks
    if len(given) != 1:
        several = f"has {len(given)} presets" if given else "has no preset"
        raise ConfigError(
            f"model={NAME!r} cannot be built: pretrained {several}; expected one, a Kaggle model or"
            " a folder (docs/published-networks.md).\nFor example, add this to the config:\n"
            "pretrained='keras/dinov3/keras/dinov3_vit_small_lvd1689m/1'"
        )
    frozen = Frozen.of(batchnorm, backbone_rate, batchnorm_momentum)
    preset = next(iter(given.values()))
    if preset.shape is None:
        raise ConfigError(
            f"model={NAME!r} cannot be built: {preset.kind} does not accept images.\nUse a preset"
            " for images, or write a custom model (docs/text.md)."
        )
    momentum = frozen.batchnorm_momentum
    if images.dtype != "uint8":
        images = layers.Rescaling(1 / 255, name="pixels_to_unit")(images)
    x = backbone(images, trainable=not frozen.all, batchnorm_momentum=momentum)
    family = preset.family
    if pool == "auto" and len(x.shape) == 3 and not family.token:
        raise ConfigError(
            f"model={NAME!r} cannot be built: {preset.kind} has outputs of shape {tuple(x.shape)},"
            " and it is unknown which of them represents an image; expected pool in model_options:"
            " 'mean', 'gem' or 'attention'.\nAdd this to the config:\n"
            "model_options={'pool': 'mean'}"
        )
    sides = zip(images.shape[1:3], preset.patch, strict=True)
    places = math.prod(side // patch for side, patch in sides)
    # Extra tokens before the patches: class, register and distillation tokens.
    skip = max((x.shape[1] or places) - places, 0) if family.token and len(x.shape) == 3 else 0
    return heads.logits(x, num_classes, dropout, pool, token=family.token, skip=skip)


def _prepared(images: Any, preset: Preset, name: str) -> Any:
    """Preprocess images for the network, always in float32.

    Custom functions are called with uint8 images divided by 255. These may be in bfloat16, which is
    not precise enough. This function uses the original uint8 images if possible.
    """
    pixels, unit = preset.pixels, 255.0
    if pixels is None:
        raise ValueError(
            f"it is unknown how to preprocess images for {preset.kind}, because its preset has no"
            " image_converter.json; preprocess them and call backbone(images, prepared=True)"
        )
    layer = images._keras_history.operation
    if images.dtype == "uint8":
        unit = 1.0
    elif isinstance(layer, layers.Rescaling) and layer.name.endswith("_to_unit"):
        images, unit = layer.input, 1.0
    factors = Pixels(tuple(unit * each for each in pixels.scale), pixels.offset)
    return backbones.prepared(images, factors, name)


def require(config: Config) -> None:
    """Read and cache the config's published weights, to report problems before a long run."""
    backbones.published(config)
    on_kaggle = (mounts.root() / "input").is_dir() and devices.LOCAL not in os.environ
    if not config.init_from:
        for source in networks(config):
            presets.arrays(source)
            folder = presets.place(source)
            if on_kaggle and folder is not None and (folder / presets.RANDOM).is_file():
                raise ConfigError(
                    f"pretrained={source!r} has random weights for rehearsals; expected published"
                    " weights.\nMount the published preset."
                )
        for source in _files(config):
            _file(source)


def _file(source: str) -> Path:
    place = presets.place(source)
    if place is None or not place.is_file():
        raise presets.missing(source)
    return place


def load(model: Any, config: Config, given: Networks, show: Show) -> list[dict[str, Any]]:
    """Load the published weights into a model that was built with these networks.

    For the manifest, return the name of each source, the SHA-256 of its weights, and whether they
    are random. The list is empty for a run that starts from another run's artifact.
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
            show(f"Warning: {source} is a rehearsal preset with random weights")
        sha256 = backbones.arrays_sha256(arrays)
        origins.append({"source": source, "arrays_sha256": sha256, "random": random})
    return origins


def refuse_another(before: Sequence[Any], now: Sequence[Any]) -> None:
    """Check that a fold starts from the same published weights as the previous fold (see `load`).

    If the previous fold ran in an earlier session, a dataset may have a new version by now.
    """
    if [*before] != [*now]:
        names = ", ".join(one["source"] for one in now)
        raise ConfigError(
            f"pretrained={names!r} has changed since the previous fold started, but all folds must"
            " use the same weights.\nMount the earlier version, or start over with --fresh."
        )


def _refuse_other_shapes(source: str, network: Any, arrays: Sequence[np.ndarray]) -> None:
    there, here = [array.shape for array in arrays], [tuple(one.shape) for one in network.weights]
    if there != here:
        wrong = next(pair for pair in zip_longest(there, here) if pair[0] != pair[1])
        raise ConfigError(
            f"pretrained={source!r}: the weights do not match {network.name} for these inputs. The"
            f" file has {wrong[0]}, but the network has {wrong[1]}.\nSet data.height and data.width"
            " to the preset's values, or use another preset."
        )


def begun(model: Any) -> list[tuple[str, Any]]:
    """Return (source, network) for each network in a model that starts from published weights."""
    marked = [(getattr(layer, "relay_source", ""), layer) for layer in descendants(model)]
    return [(source, layer) for source, layer in marked if source]
