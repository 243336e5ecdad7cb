"""What a run is: one frozen object that checks itself on construction and goes to JSON and back.

Reads  nothing but its arguments (and, in `load`, one file of pipeline/configs/ or a file of the same form)
Gives  `Config`, which every other module takes, and which travels inside the artifact

Uses the standard library alone, so that `tasks.py` can read a config without starting Keras.
"""

import dataclasses
import importlib
import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline.errors import ConfigError

CONFIGS = Path(__file__).parent / "configs"
OPTIMIZERS = ("sgd", "adam", "adamw")
PRECISIONS = ("auto", "float32", "mixed_bfloat16")
HANDOFFS = ("dataset", "kernel")


def _expect(holds: bool, name: str, value: object, expected: str, edit: str) -> None:
    """Raise a `ConfigError` that names the field, the value, what was expected, and the edit."""
    if not holds:
        raise ConfigError(f"{name}={value!r} cannot work: expected {expected}.\n{edit}")


def _whole(name: str, value: object, least: int) -> None:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= least
    _expect(good, name, value, f"a whole number of at least {least}", f"Set {name} to {least} or more in the config.")


def _within(name: str, value: object, low: float, high: float, *, open_ends: bool = False) -> None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    if good and open_ends:
        good = low < value < high  # type: ignore[operator]
    ends = "between {} and {}" + (", ends excluded" if open_ends else "")
    _expect(good, name, value, "a number " + ends.format(low, high), f"Set {name} inside that range in the config.")


def _file_name(name: str, value: object) -> None:
    good = isinstance(value, str) and bool(value) and not value.startswith(("/", "~")) and ".." not in value.split("/")
    _expect(good, name, value, "a path inside the competition folder", f"Set {name} to a name such as 'train.csv'.")


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the images and labels of a competition are, and how they are augmented.

    Attributes:
        height, width: pixels of every image.
        channels: 1 (grey) or 3 (colour).
        train_csv: a table with one row an image: `id_column`, `label_column`.
        train_images, test_images: folders of `<id><suffix>`.
        sample_submission: the table whose ids, order, columns and types the submission repeats.
        crop_padding: pixels of zeros around an image before a random crop of the original size; 0: no crop.
        flip: mirror half of the images left to right.
        validation_fraction: share of the labelled images held back, stratified by label.
    """

    height: int
    width: int
    channels: int
    train_csv: str = "train.csv"
    train_images: str = "train"
    test_images: str = "test"
    sample_submission: str = "sample_submission.csv"
    id_column: str = "id"
    label_column: str = "label"
    suffix: str = ".png"
    crop_padding: int = 0
    flip: bool = False
    validation_fraction: float = 0.1

    def __post_init__(self) -> None:
        _whole("data.height", self.height, 1)
        _whole("data.width", self.width, 1)
        _expect(
            self.channels in (1, 3), "data.channels", self.channels, "1 (grey) or 3 (colour)", "Set channels to 1 or 3."
        )
        for name in ("train_csv", "train_images", "test_images", "sample_submission"):
            _file_name(f"data.{name}", getattr(self, name))
        _expect(
            self.suffix in (".png", ".jpg", ".jpeg"),
            "data.suffix",
            self.suffix,
            "'.png', '.jpg' or '.jpeg'",
            "Set suffix to the ending of the image files, with its dot.",
        )
        _whole("data.crop_padding", self.crop_padding, 0)
        _within("data.validation_fraction", self.validation_fraction, 0, 1, open_ends=True)


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optimizer and the batch at which its numbers were tuned; `learning_rate` scales them to another batch.

    Attributes:
        name: "sgd", "adam" or "adamw".
        base_rate: learning rate per optimizer step that worked at `base_batch`.
        base_batch: images per step, over all replicas, when it worked.
        momentum: of SGD. beta_1, beta_2, epsilon: of Adam and AdamW.
        weight_decay: of AdamW, decoupled, per step and times the rate (as Keras does it).
        ema_momentum: of an average of the weights that is used for evaluation and in the artifact; None: no average.
    """

    name: str
    base_rate: float
    base_batch: int
    momentum: float = 0.9
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    weight_decay: float = 0.0
    ema_momentum: float | None = None

    def __post_init__(self) -> None:
        _expect(
            self.name in OPTIMIZERS,
            "optimizer.name",
            self.name,
            "one of " + ", ".join(OPTIMIZERS),
            "Set name to one of these.",
        )
        _within("optimizer.base_rate", self.base_rate, 0, 100, open_ends=True)
        _whole("optimizer.base_batch", self.base_batch, 1)
        for name in ("momentum", "beta_1", "beta_2"):
            _within(f"optimizer.{name}", getattr(self, name), 0, 0.999999)
        _within("optimizer.epsilon", self.epsilon, 0, 1, open_ends=True)
        _within("optimizer.weight_decay", self.weight_decay, 0, 10)
        if self.ema_momentum is not None:
            _within("optimizer.ema_momentum", self.ema_momentum, 0, 1, open_ends=True)


@dataclass(frozen=True, kw_only=True)
class Config:
    """One competition's run.

    Attributes:
        name: the config's own name; the file in pipeline/configs/ is called the same.
        competition: Kaggle's slug of the competition.
        num_classes: how many labels there are; checked against the data.
        model, model_options: a function of `pipeline.model` and its keyword arguments.
        batch: images per optimizer step, over all replicas. The optimization follows from it alone.
        epochs: passes over the training images.
        warmup_epochs: passes in which the rate rises from 0 to its peak.
        batchnorm_momentum: at the optimizer's `base_batch`; scaled like an average.
        precision: "auto" takes bfloat16 where the hardware has it.
        handoff: "dataset" publishes the artifact as a dataset; "kernel" mounts the train kernel's output.
        progress_seconds, checkpoint_seconds: at least this much time between two lines, two checkpoints.
    """

    name: str
    competition: str
    num_classes: int
    data: Data
    model: str
    optimizer: Optimizer
    batch: int
    epochs: int
    model_options: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    warmup_epochs: float = 5.0
    batchnorm_momentum: float = 0.99
    seed: int = 0
    precision: str = "auto"
    handoff: str = "dataset"
    progress_seconds: float = 10.0
    checkpoint_seconds: float = 300.0

    def __post_init__(self) -> None:
        slug = r"[a-z0-9][a-z0-9-]{2,49}"
        _expect(
            isinstance(self.name, str) and bool(re.fullmatch(r"[a-z][a-z0-9_]*", self.name)),
            "name",
            self.name,
            "lower-case letters, digits and underscores",
            "Name the config as its file, without .py.",
        )
        _expect(
            isinstance(self.competition, str) and bool(re.fullmatch(slug, self.competition)),
            "competition",
            self.competition,
            "the slug in the competition's address: 3 to 50 lower-case letters, digits and hyphens",
            "Copy it from kaggle.com/competitions/<slug>.",
        )
        _whole("num_classes", self.num_classes, 2)
        _whole("batch", self.batch, 1)
        _whole("epochs", self.epochs, 1)
        _whole("seed", self.seed, 0)
        _within("warmup_epochs", self.warmup_epochs, 0, self.epochs)
        _within("batchnorm_momentum", self.batchnorm_momentum, 0, 1, open_ends=True)
        _within("progress_seconds", self.progress_seconds, 0, 3600)
        _within("checkpoint_seconds", self.checkpoint_seconds, 0, 3600 * 9)
        for name, allowed in (("precision", PRECISIONS), ("handoff", HANDOFFS)):
            value = getattr(self, name)
            _expect(value in allowed, name, value, "one of " + ", ".join(allowed), f"Set {name} to one of these.")
        _expect(
            isinstance(self.model, str) and self.model.isidentifier(),
            "model",
            self.model,
            "the name of a function in pipeline/model.py",
            "See MODELS at the end of pipeline/model.py.",
        )
        for key, value in self.model_options.items():
            _expect(
                isinstance(key, str) and isinstance(value, (int, float, bool, str)),
                f"model_options[{key!r}]",
                value,
                "a number, a truth value or a text",
                "Only these go to JSON and back unchanged.",
            )
        object.__setattr__(self, "model_options", MappingProxyType(dict(self.model_options)))

    def to_json(self) -> dict[str, Any]:
        """Return the config as what `json.dumps` takes; `from_json` gives an equal config back."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            **fields,
            "data": dataclasses.asdict(self.data),
            "optimizer": dataclasses.asdict(self.optimizer),
            "model_options": dict(self.model_options),
        }


def from_json(value: Mapping[str, Any]) -> Config:
    """Return the `Config` that `to_json` wrote.

    Raises:
        ConfigError: if a key is unknown or missing, or a value cannot work.

    >>> from pipeline import config
    >>> config.from_json(config.load("digits").to_json()) == config.load("digits")
    True
    """
    parts = dict(value)
    parts["data"] = _build(Data, parts.get("data"), "data")
    parts["optimizer"] = _build(Optimizer, parts.get("optimizer"), "optimizer")
    config: Config = _build(Config, parts, "the config")
    return config


def _build(kind: type, value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{where}={value!r} cannot work: expected an object with the fields of {kind.__name__}.\nAdd it."
        )
    known = {f.name for f in dataclasses.fields(kind)}
    needed = {
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }
    for problem, names in (("unknown", set(value) - known), ("missing", needed - set(value))):
        if names:
            listed = ", ".join(sorted(map(str, names)))
            raise ConfigError(
                f"{where} has {problem} fields: {listed}; expected {', '.join(sorted(known))}.\nCorrect the spelling or edit the file."
            )
    return kind(**value)


def load(config: str) -> Config:
    """Return the config of that name in pipeline/configs/, or the `CONFIG` of the file at that path.

    Raises:
        ConfigError: if there is no such config, the file cannot be run, or it holds no `CONFIG`.

    >>> load("digits").num_classes
    10
    """
    names = sorted(path.stem for path in CONFIGS.glob("*.py") if path.stem != "__init__")
    path = Path(config)
    if config in names:
        module = importlib.import_module(f"pipeline.configs.{config}")
    elif path.suffix == ".py" and path.is_file():
        spec = importlib.util.spec_from_file_location(f"relay_config_{path.stem}", path)
        assert spec is not None and spec.loader is not None  # noqa: S101 - true for every file that ends in .py
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except ConfigError as error:
            raise ConfigError(f"In {path}: {error}") from error
        except Exception as error:
            raise ConfigError(
                f"{path} could not be read: {type(error).__name__}: {error}.\n"
                "Expected a Python file of the form of pipeline/configs/digits.py. Correct that line."
            ) from error
    else:
        raise ConfigError(
            f"--config {config!r}: there is no such config. Expected one of {', '.join(names)}, or the path of a .py file of the same form.\n"
            "Correct the name, or copy pipeline/configs/digits.py and edit it."
        )
    value = getattr(module, "CONFIG", None)
    if not isinstance(value, Config):
        raise ConfigError(
            f"{config}: CONFIG is {value!r}; expected a pipeline.config.Config.\nEnd the file with CONFIG = Config(…)."
        )
    return value


def to_text(config: Config) -> str:
    """Return the config as indented JSON, keys sorted: equal configs give equal texts."""
    return json.dumps(config.to_json(), indent=2, sort_keys=True)
