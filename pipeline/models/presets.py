"""Read and write KerasHub presets, which contain a published network's config.json and weights.

A *source* is one of the strings in `Config.pretrained`. Only KerasHub classes are instantiated, by
name and from plain values. Pickles, serialized models and code in a preset are never loaded.
"""

import difflib
import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from formats.errors import writing
from pipeline.config.config import KAGGLE_MODEL
from pipeline.errors import ConfigError
from pipeline.models import weight_files
from pipeline.models.families import FAMILIES, KNOWN, Family, Known, Pixels, standardized
from pipeline.models.layer_tree import descendants
from pipeline.runtime import mounts

CONFIG, WEIGHTS = "config.json", ("model.weights.h5", "model.weights.json")
ASSETS = "assets/tokenizer"
# The characters that represent the 256 byte values in the GPT-2 and RoBERTa vocabularies.
BYTES = (*range(33, 127), *range(161, 173), *range(174, 324))
RANDOM = "random_weights.json"  # marks a preset created by `write`
# BatchNormalization scale in random presets. With 1.0, every residual block amplifies changes in
# its input, so rounding errors alone change an EfficientNet's outputs. A change of 1e-6 in 12
# photographs changed the outputs by 0.48 of the largest output (V2-S). With 0.7, it changed them by
# 1.4e-6 (V2-S, B4; measured 2026-11-28). Published networks have trained scales.
CALM = 0.7
HUGGING_FACE = "hf://"
UNKNOWN = Family("unknown")
INSTALL = (
    "pip install --no-deps 'keras-hub>=0.26,<0.30' &&"
    " pip install kagglehub regex sentencepiece tokenizers"
)
# Arguments that are set by the run instead of the preset.
OF_THE_RUN = ("dtype", "name", "trainable")
SHAPES = ("image_shape", "input_shape")
BLOCKS = "num_layers"  # of a transformer
UNWRITTEN = "num_features"  # an EfficientNet argument that KerasHub 0.26 to 0.29 do not save


@dataclass(frozen=True)
class Preset:
    """A published network's class and arguments, which are stored in the artifact.

    Attributes:
        kind: class in keras_hub.models, or the class of the image encoder.
        pixels: image preprocessing, or None if it is unknown or the network does not accept images.
        random: whether `write` created the weights.
    """

    kind: str
    numbers: Mapping[str, Any]
    pixels: Pixels | None = None
    random: bool = False

    @property
    def family(self) -> Family:
        return FAMILIES.get(self.kind, UNKNOWN)

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """The preset's image height, width and channels, or None for other inputs."""
        given = next((self.numbers[name] for name in SHAPES if self.numbers.get(name)), None)
        return given and tuple(given)

    @property
    def patch(self) -> tuple[int, int]:
        """The patch height and width in pixels, or (1, 1) for networks without patches."""
        height, width = np.broadcast_to(self.numbers.get("patch_size", 1), 2)
        return int(height), int(width)

    def to_json(self) -> dict[str, Any]:
        return dict(json.loads(json.dumps(asdict(self), default=dict)))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Preset":
        pixels = values["pixels"]
        numbers = _plain(dict(values["numbers"]), "the artifact")
        return cls(str(values["kind"]), numbers, pixels and Pixels(*map(tuple, pixels)))


def is_preset(text: str) -> bool:
    """Return whether a source is a preset rather than a weights file."""
    named = KAGGLE_MODEL.fullmatch(text) or text.startswith(HUGGING_FACE)
    return bool(named) or os.path.isdir(text)  # noqa: PTH112 - Path.is_dir raises for a long name


def _known(source: str) -> Known | None:
    return KNOWN.get(source.rpartition("/")[0].lower())


def place(source: str, *, weights: bool = True) -> Path | None:
    """Return the path of a source's folder or file, or None if it does not exist.

    Kaggle models can be in the notebook's mounted inputs or in kagglehub's cache. Datasets can only
    be in the mounted inputs. Hugging Face models are downloaded, without their weights unless
    `weights` is set.
    """
    inputs = mounts.root() / "input"
    if source.startswith(HUGGING_FACE):
        return _of_hugging_face(source, weights=weights)
    places: list[Path | None] = [Path(source).expanduser()]
    if KAGGLE_MODEL.fullmatch(source):
        home = os.environ.get("KAGGLEHUB_CACHE") or "~/.cache/kagglehub"
        cache = Path(home).expanduser() / "models"
        places += [*mounts.model(inputs, source), cache / source, cache / source.lower()]
    for one in places:
        if one and os.path.exists(one):  # noqa: PTH110 - Path.exists raises for a long name
            return one
    if KAGGLE_MODEL.fullmatch(source):
        return None
    if preset := mounts.file(inputs, f"{source}/{CONFIG}"):
        return preset.parent
    return mounts.file(inputs, source)


def _of_hugging_face(source: str, *, weights: bool) -> Path:
    wanted = ["*.json", "*.txt", "*.model", "assets/*"]
    if weights:  # .bin and .pt are excluded because they are pickles
        wanted += ["*.h5", "*.safetensors"]
    try:
        from huggingface_hub import snapshot_download

        name = source.removeprefix(HUGGING_FACE)
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # such as a network error, a missing login or an unknown name
        said, *_ = f"{type(error).__name__}: {error}".split("\n")
        raise ConfigError(
            f"pretrained={source!r} cannot be downloaded: {said[:300]}.\nEnable internet"
            " access with enable_internet for train-tpu, or with `invoke dry-run --internet`. For"
            " some models, you must accept a licence on Hugging Face. You can also download the"
            " folder and set pretrained to its path."
        ) from error


def missing(source: str) -> ConfigError:
    inputs, alike, known = mounts.root() / "input", _alike(source), _known(source)
    if not KAGGLE_MODEL.fullmatch(source):
        advice = (
            "Expected a path, a dataset as owner/slug or owner/slug/path, a Kaggle model as"
            " owner/model/framework/variation/version, or hf://owner/name. Correct pretrained. On"
            " this machine, a dataset must be at the same path below the current folder."
        )
        if alike:
            advice = f"Did you mean this model? Add a version:\npretrained='{alike}/1'"
        return ConfigError(
            f"pretrained={source!r} was not found: neither this machine nor a mounted dataset has a"
            f" folder with {CONFIG}, or a .weights.h5 or .safetensors file, of that name."
            f" {mounts.listing(inputs)}.\n{advice}"
        )
    owner, model, *_, version = source.split("/")
    commands = [f"python -c \"import kagglehub; kagglehub.model_download('{source}')\""]
    if known:
        commands.append(f"python -m pipeline preset {source} --output DIR")
    commands.append(f"invoke dry-run --model {source}=DIR")
    if alike and not known:
        commands.append(f"Did you mean this model?\npretrained='{alike}/{version}'")
    return ConfigError(
        f"pretrained={source!r} was not found in {inputs}/models or in kagglehub's cache."
        f"\nAccept the licence on https://www.kaggle.com/models/{owner}/{model}, so that push-train"
        " can mount the model. To train on this machine, download the model. For well-known models,"
        " you can write random weights instead and set pretrained='DIR':\n" + "\n".join(commands)
    )


def _alike(source: str) -> str:
    names = {name.rpartition("/")[2]: name for name in KNOWN} | {name: name for name in KNOWN}
    text = source.rpartition("/")[0] if KAGGLE_MODEL.fullmatch(source) else source
    return next((names[one] for one in difflib.get_close_matches(text.lower(), names, 1, 0.9)), "")


def find(source: str) -> Preset:
    """Return the network described by a source's config.json or the table of well-known presets."""
    folder = place(source, weights=False)
    if folder is not None and folder.is_dir():
        return _read(folder, source)
    known = _known(source)
    if folder is not None or known is None:
        raise missing(source)
    numbers = json.loads(json.dumps(known.numbers))
    return Preset(known.kind, numbers, known.pixels or FAMILIES[known.kind].pixels)


def kind(source: str) -> str:
    """Return a network's class name without importing KerasHub. If the network has a format that
    KerasHub converts, return an empty string.
    """
    folder, known = place(source, weights=False), _known(source)
    if folder is None or not folder.is_dir():
        if folder is not None or known is None:
            raise missing(source)
        return known.kind
    config = _values(folder / CONFIG)
    return str(_image_encoder(config)["class_name"]) if "registered_name" in config else ""


def _image_encoder(config: dict[str, Any]) -> dict[str, Any]:
    part = FAMILIES.get(config["class_name"], UNKNOWN).part
    return dict(config["config"][part]) if part else config


def _read(folder: Path, source: str) -> Preset:
    try:
        text = (folder / CONFIG).read_text(encoding="utf-8")
        config = json.loads(text)
        if "registered_name" not in config:  # transformers or timm, converted by KerasHub
            config = _converted(folder, text)
        config = _image_encoder(config)
        kind = config["class_name"]
        numbers = _plain(_completed(kind, config["config"], source), str(folder))
        class_of(kind)
        return Preset(kind, numbers, _pixels(folder, kind), (folder / RANDOM).is_file())
    except ConfigError:
        raise
    except Exception as error:  # an invalid preset can cause any exception
        raise ConfigError(
            f"pretrained={source!r} cannot be used: {folder / CONFIG}: {type(error).__name__}:"
            f" {error}.\nExpected a preset written by KerasHub's save_to_preset, or a transformers"
            " or timm model that KerasHub can convert. Correct the path, or download it again."
        ) from error


def _completed(kind: str, numbers: Mapping[str, Any], source: str) -> dict[str, Any]:
    known = _known(source)
    if known and known.kind == kind and UNWRITTEN in known.numbers:
        return {UNWRITTEN: known.numbers[UNWRITTEN], **numbers}
    return dict(numbers)


@functools.lru_cache(maxsize=8)
def _converted(folder: Path, text: str) -> dict[str, Any]:
    del text  # content of the file, so that the cache notices changes
    network = _hub().models.Backbone.from_preset(str(folder), load_weights=False)
    return dict(keras.saving.serialize_keras_object(network))


def _pixels(folder: Path, kind: str) -> Pixels | None:
    names = ("image_converter.json", "preprocessor.json")
    configs = (_values(folder / name).get("config") for name in names)
    hub: dict[str, Any] = next(filter(None, configs), {})
    hub = (hub.get("image_converter") or {"config": hub})["config"]
    if hub.get("scale") is not None and "variance" not in hub:
        scale, offset = hub["scale"], hub.get("offset") or 0.0
        return Pixels(*(tuple(np.atleast_1d(each).tolist()) for each in (scale, offset)))
    transformers = _values(folder / "preprocessor_config.json")
    timm = _values(folder / CONFIG).get("pretrained_cfg", {})
    told: Any = (
        (hub.get("mean"), np.sqrt(hub.get("variance", ())).tolist()),  # KerasHub before 0.20
        (transformers.get("image_mean"), transformers.get("image_std")),
        (timm.get("mean"), timm.get("std")),
    )
    found = (standardized(*each) for each in told if all(each))
    return next(found, FAMILIES.get(kind, UNKNOWN).pixels)


def _values(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _plain(numbers: Mapping[str, Any], where: str) -> dict[str, Any]:
    def part(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [part(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        if "class_name" not in value:
            return {key: part(each) for key, each in value.items() if key not in OF_THE_RUN}
        kind = value["class_name"]
        hubs = str(value.get("registered_name", "")) == f"keras_hub>{kind}"
        if not hubs or not isinstance(value.get("config"), Mapping):
            raise ConfigError(
                f"The preset in {where} contains {kind!r}; expected only plain values and KerasHub"
                " classes, because nothing else is loaded.\nUse another preset."
            )
        class_of(kind)
        return {
            "module": "keras_hub.models",
            "class_name": kind,
            "registered_name": f"keras_hub>{kind}",
            "config": part(value["config"]),
        }

    return dict(part(numbers))


def _hub() -> Any:
    try:
        import keras_hub
    except ImportError as error:
        raise ConfigError(
            f"Published networks require KerasHub, which cannot be imported: {error}.\n"
            f"Install it (newer versions conflict with the Kaggle client):\n{INSTALL}"
        ) from error
    return keras_hub


def class_of(kind: str) -> Any:
    hub = _hub()
    found = getattr(hub.models, kind, None)
    if not (isinstance(found, type) and issubclass(found, hub.models.Backbone)):
        raise ConfigError(
            f"KerasHub {hub.__version__} does not include the network {kind!r}.\nUse a network that"
            " is included in both of Kaggle's images (docs/published-networks.md)."
        )
    return found


def network(preset: Preset, shape: tuple[int, ...] | None, name: str) -> Any:
    """Build a Keras model with random weights and the current dtype policy.

    If `shape` is None, the network has the preset's image shape.
    """
    numbers = dict(preset.numbers)
    if shape is not None and preset.shape is not None:
        height, width = preset.patch
        square = "" if shape[0] == shape[1] or not preset.family.square else " and square"
        if shape[0] % height or shape[1] % width or square:
            up = [side + -side % patch for side, patch in zip(shape, preset.patch, strict=False)]
            high, wide = [max(up)] * 2 if preset.family.square else up
            raise ConfigError(
                f"{preset.kind} does not support {shape[0]}x{shape[1]} images. The image"
                f" size must be a multiple of {height}x{width}{square}.\n"
                f"Set data.height={high} and data.width={wide} in the config."
            )
        numbers |= {key: shape for key in SHAPES if key in numbers}
    return class_of(preset.kind).from_config({**numbers, "name": name})


def arrays(source: str) -> list[np.ndarray]:
    """Read the weights of a source's network, in the network's order."""
    folder = place(source)
    if folder is None or not folder.is_dir():
        raise missing(source)
    return _arrays(folder, (folder / CONFIG).read_text(encoding="utf-8"), source)


@functools.lru_cache(maxsize=2)  # reused by every fold
def _arrays(folder: Path, text: str, source: str) -> list[np.ndarray]:
    config = json.loads(text)
    try:
        if "registered_name" in config:
            kind = config["class_name"]
            numbers = _plain(_completed(kind, config["config"], source), str(folder))
            whole = class_of(kind).from_config(numbers)
            found = [folder / name for name in WEIGHTS if (folder / name).is_file()]
            if not found:
                raise FileNotFoundError(f"found neither {' nor '.join(WEIGHTS)}")
            weight_files.read_keras(whole, found[0])
        else:
            whole = _hub().models.Backbone.from_preset(str(folder))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"The weights of the preset in {folder} cannot be used: {type(error).__name__}:"
            f" {str(error)[:500]}.\nThe file {WEIGHTS[0]} next to {CONFIG} must contain the"
            f" weights of the network that {CONFIG} describes. Download the preset again."
        ) from error
    part = FAMILIES.get(type(whole).__name__, UNKNOWN).part
    seen = getattr(whole, part) if part else whole
    return [np.asarray(one) for one in seen.get_weights()]


def resized(preset: Preset, published: Sequence[np.ndarray], network: Any) -> list[np.ndarray]:
    """Adapt a preset's weights to a network with a different image size.

    Position embeddings are resized with bicubic interpolation, except for those of the extra tokens
    at the start (Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.2).
    """
    theirs, ours = preset.shape, network.input_shape
    if isinstance(ours, Mapping):
        ours = next(iter(ours.values()))
    if theirs is None or None in theirs or tuple(theirs[:2]) == tuple(ours[1:3]):
        return [*published]
    grids = [
        [side // patch for side, patch in zip(shape, preset.patch, strict=False)]
        for shape in (theirs, ours[1:3])
    ]
    fitted = []
    for array, one in zip(published, network.weights, strict=True):
        if "position_ids" in one.path:  # indices, not weights
            array = np.asarray(one)
        elif "position_embedding" in one.path and array.shape != tuple(one.shape):
            array = _interpolated(array, *grids)
        fitted.append(array)
    return fitted


def _interpolated(positions: np.ndarray, before: Sequence[int], now: Sequence[int]) -> np.ndarray:
    import jax  # only installed for training

    first = positions.shape[-2] - before[0] * before[1]  # extra tokens without a position
    *rest, _, width = positions.shape
    tokens, grid = positions[..., :first, :], positions[..., first:, :].reshape(*before, width)
    resized = np.asarray(jax.image.resize(grid, (*now, width), "bicubic"), positions.dtype)
    return np.concatenate([tokens, resized.reshape(*rest, -1, width)], axis=-2)


def write(source: str, output: Path, blocks: int | None = None) -> dict[str, Any]:
    """Write a preset with random weights from a fixed seed, for rehearsals, and return a
    description.

    The source can be an entry of `KNOWN`, or have a config.json on this machine. `blocks` is the
    maximum number of transformer blocks.
    """
    if (output / CONFIG).is_file() and not (output / RANDOM).is_file():
        raise ConfigError(
            f"{output} already contains a preset; expected a new folder.\nUse a different --output."
        )
    preset = find(source)
    if blocks and (whole := preset.numbers.get(BLOCKS)):
        preset = replace(preset, numbers={**preset.numbers, BLOCKS: min(blocks, whole)})
    keras.utils.set_random_seed(0)
    made = network(preset, None, "backbone")
    for layer in descendants(made):
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.gamma.assign(layer.gamma * CALM)
    with writing(output):
        for name, text in _files_without_weights(preset, source).items():
            (output / name).parent.mkdir(parents=True, exist_ok=True)
            (output / name).write_text(text, encoding="utf-8")
        made.save_weights(str(output / WEIGHTS[0]))
    count = int(sum(np.prod(one.shape) for one in made.weights))
    return {"source": source, "kind": preset.kind, "parameters": count, "output": str(output)}


def _files_without_weights(preset: Preset, source: str) -> dict[str, str]:
    hub = {"module": "keras_hub.models", "class_name": preset.kind}
    named = {"registered_name": f"keras_hub>{preset.kind}", "config": dict(preset.numbers)}
    marked = {"of": source, "seed": 0, "written_by": "python -m pipeline preset"}
    files = {CONFIG: json.dumps({**hub, **named}), RANDOM: json.dumps(marked)}
    if preset.pixels:
        files["image_converter.json"] = json.dumps({"config": preset.pixels._asdict()})
    if preset.kind == "RobertaBackbone":  # a tokenizer of single bytes and special tokens
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *map(chr, BYTES), "<mask>"]
        places = {piece: place for place, piece in enumerate(pieces)}
        files |= {f"{ASSETS}/vocabulary.json": json.dumps(places), f"{ASSETS}/merges.txt": ""}
    return files
