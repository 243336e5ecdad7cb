"""What a run is: one frozen object that checks itself on construction and goes to JSON and back.

Reads  nothing but its arguments (and, in `load`, one file of pipeline/configs/ or a file of the
same form) Gives  `Config`, which every other module takes, and which travels inside the artifact

Uses the standard library alone, so that `tasks.py` can read a config without starting Keras.
"""

import dataclasses
import importlib
import importlib.util
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from pipeline.config.data_layout import Data
from pipeline.config.field_checks import expect, truth, whole, within
from pipeline.errors import ConfigError, place

__all__ = ["Config", "Data", "Optimizer", "from_json", "load", "to_text"]

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
OPTIMIZERS = ("sgd", "adam", "adamw")
PRECISIONS = ("auto", "float32", "mixed_bfloat16")
HANDOFFS = ("dataset", "kernel")
KEEPS = ("last", "best")
TARGETS = ("classes", "ordinal", "multilabel", "regression")
# Far above what anyone needs, and far below what would end a run without a word for lack of memory.
MOST_BATCH, MOST_FOLDS = 2**20, 100


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optimizer and the batch at which its numbers were tuned; `learning_rate` scales them to
    another batch.

    Attributes:
        name: "sgd", "adam" or "adamw".
        base_rate: learning rate per optimizer step that worked at `base_batch`.
        base_batch: images per step, over all replicas, when it worked.
        momentum: of SGD, which is Nesterov's. beta_1, beta_2, epsilon: of Adam and AdamW.
        weight_decay: of SGD and AdamW, decoupled: each step takes rate x decay off the weights (as
            Keras does it). Adam has none.
        ema_momentum: of an average of the weights, and of BatchNorm's statistics, that is used for
            evaluation and in the artifact; None: no average. In step t it is at most (1 + t) / (10
            + t), so that the random weights of the start are soon forgotten.
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
        expect(
            self.name in OPTIMIZERS,
            "optimizer.name",
            self.name,
            "one of " + ", ".join(OPTIMIZERS),
            "Set name to one of these.",
        )
        within("optimizer.base_rate", self.base_rate, 0, 100, open_ends=True)
        whole("optimizer.base_batch", self.base_batch, 1, MOST_BATCH)
        for name in ("momentum", "beta_1", "beta_2"):
            within(f"optimizer.{name}", getattr(self, name), 0, 0.999999)
        within("optimizer.epsilon", self.epsilon, 0, 1, open_ends=True)
        within("optimizer.weight_decay", self.weight_decay, 0, 10)
        expect(
            self.name != "adam" or self.weight_decay == 0,
            "optimizer.weight_decay",
            self.weight_decay,
            "0 with Adam, whose decay no rule scales",
            'Set name="adamw", which is Adam with decoupled weight decay.',
        )
        if self.ema_momentum is not None:
            within("optimizer.ema_momentum", self.ema_momentum, 0, 1, open_ends=True)


@dataclass(frozen=True, kw_only=True)
class Config:
    """One competition's run.

    Attributes:
        name: the config's own name; the file in pipeline/configs/ is called the same.
        competition: Kaggle's slug of the competition.
        num_classes: how many labels there are; checked against the data. Left out for a regression,
            and for several label columns.
        target: what is predicted, as pipeline.data.labels has it: "classes", "ordinal",
            "multilabel" or "regression".
        metric: the competition's, a name in pipeline.metrics; "" takes the usual one of the target.
        model, model_options: a function of `pipeline.models.architectures` and its keyword
            arguments.
        batch: images per optimizer step, over all replicas. The optimization follows from it alone.
        noise_cap: measure the gradient-noise scale before the first step, and take a smaller batch
            where this one is past it.
        epochs: passes over the training images.
        warmup_epochs: passes in which the rate rises from 0 to its peak.
        batchnorm_momentum: at the optimizer's `base_batch`; scaled like an average.
        batchnorm_batch: images that BatchNorm normalizes together; None takes the optimizer's
            `base_batch`, or the next smaller divisor of `batch`. It changes the result, and nothing
            else about replicas and memory does.
        micro_batch: images per forward and backward pass on one replica; None takes what fits,
            beginning with a replica's whole share.
        steps_per_call: steps that are handed to the devices at once; more than 1 pays where a step
            takes less than a millisecond.
        keep: "last" puts the weights of the last step into the artifact, "best" those of the epoch
            with the best validation accuracy, or, where several labels or a number are told, the
            smallest validation loss.
        patience: epochs without a better one after which the run ends; None: it does not.
        folds: parts that the labelled images are cut into, stratified by label; a model is trained
            for each, on all the others. None: one model, and `data.validation_fraction` is held
            back.
        views: of an image, whose predictions are averaged in inference: as it is, mirrored where
            data.flip is set, moved by a pixel where data.crop_padding is. They are left out first
            where time is short.
        precision: "auto" takes bfloat16 where the hardware has it.
        handoff: "dataset" publishes the artifact as a dataset; "kernel" mounts the train kernel's
            output.
        session_hours: of wall clock, from the start of the process; before they are over the run
            saves itself and ends as "partial". None: no limit. Kaggle ends a TPU session after 9
            hours.
        stall_seconds: without one finished step, after which the run writes down where it hangs and
            ends; compiling counts.
        progress_seconds: at least this much time between two lines.
        checkpoint_seconds: at least this much time between two checkpoints; None follows from what
            one costs.
    """

    name: str
    competition: str
    data: Data
    model: str
    optimizer: Optimizer
    batch: int
    epochs: int
    num_classes: int = 0
    target: str = "classes"
    metric: str = ""
    noise_cap: bool = False
    model_options: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    warmup_epochs: float = 5.0
    batchnorm_momentum: float = 0.99
    batchnorm_batch: int | None = None
    micro_batch: int | None = None
    steps_per_call: int = 1
    seed: int = 0
    keep: str = "last"
    patience: int | None = None
    folds: int | None = None
    views: int = 1
    precision: str = "auto"
    handoff: str = "dataset"
    progress_seconds: float = 10.0
    checkpoint_seconds: float | None = None
    session_hours: float | None = 9.0
    stall_seconds: float = 1800.0

    def __post_init__(self) -> None:
        slug = r"[a-z0-9][a-z0-9-]{2,49}"
        expect(
            isinstance(self.name, str) and bool(re.fullmatch(r"[a-z][a-z0-9_]*", self.name)),
            "name",
            self.name,
            "lower-case letters, digits and underscores",
            "Name the config as its file, without .py.",
        )
        expect(
            isinstance(self.competition, str) and bool(re.fullmatch(slug, self.competition)),
            "competition",
            self.competition,
            "the slug in the competition's address: 3 to 50 lower-case letters, digits and hyphens",
            "Copy it from kaggle.com/competitions/<slug>.",
        )
        for name, kind in (("data", Data), ("optimizer", Optimizer)):
            expect(
                isinstance(getattr(self, name), kind),
                name,
                getattr(self, name),
                f"a pipeline.config.{kind.__name__}",
                f"Write {name}={kind.__name__}(…), as in pipeline/configs/digits.py.",
            )
        self._check_target()
        whole("batch", self.batch, 1, MOST_BATCH)
        whole("epochs", self.epochs, 1, 10**6)
        truth("noise_cap", self.noise_cap)
        whole("seed", self.seed, 0, 2**32 - 1)
        within("warmup_epochs", self.warmup_epochs, 0, self.epochs)
        within("batchnorm_momentum", self.batchnorm_momentum, 0, 1, open_ends=True)
        within("progress_seconds", self.progress_seconds, 0, 3600)
        if self.checkpoint_seconds is not None:
            within("checkpoint_seconds", self.checkpoint_seconds, 0, 3600 * 9)
        if self.session_hours is not None:
            within("session_hours", self.session_hours, 0, 24 * 365, open_ends=True)
        within("stall_seconds", self.stall_seconds, 1, 3600 * 9)
        whole("steps_per_call", self.steps_per_call, 1, 10_000)
        for name in ("batchnorm_batch", "micro_batch"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1, self.batch)
        if self.batchnorm_batch:
            expect(
                self.batch % self.batchnorm_batch == 0,
                "batchnorm_batch",
                self.batchnorm_batch,
                f"a divisor of batch={self.batch}",
                "Set batchnorm_batch to one, or leave it out.",
            )
        for name, least, most in (("patience", 1, 10**6), ("folds", 2, MOST_FOLDS)):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least, most)
        self._check_views()
        for name, allowed in (("precision", PRECISIONS), ("handoff", HANDOFFS), ("keep", KEEPS)):
            value = getattr(self, name)
            expect(
                value in allowed,
                name,
                value,
                "one of " + ", ".join(allowed),
                f"Set {name} to one of these.",
            )
        expect(
            isinstance(self.model, str) and self.model.isidentifier(),
            "model",
            self.model,
            "the name of a function in pipeline/models/architectures.py",
            "See MODELS at the end of pipeline/models/architectures.py.",
        )
        expect(
            isinstance(self.model_options, Mapping),
            "model_options",
            self.model_options,
            "names with values",
            "Write model_options={…}, with the keyword arguments of the model.",
        )
        for key, value in self.model_options.items():
            finite = isinstance(value, float) and math.isfinite(value)
            expect(
                isinstance(key, str) and (finite or isinstance(value, (int, bool, str))),
                f"model_options[{key!r}]",
                value,
                "a finite number, a truth value or a text",
                "Only these go to JSON and back unchanged.",
            )
        object.__setattr__(self, "model_options", MappingProxyType(dict(self.model_options)))

    def _check_views(self) -> None:
        whole("views", self.views, 1, 10)
        # An image seen in a way that training never saw it gives another answer, and not a better
        # one.
        most = (2 if self.data.flip else 1) * (5 if self.data.crop_padding else 1)
        expect(
            self.views <= most,
            "views",
            self.views,
            f"at most {most} with kind={self.data.kind!r}, flip={self.data.flip}, crop_padding={self.data.crop_padding}",
            "Lower views, or train with data.flip or data.crop_padding; a table has one view.",
        )

    def _check_target(self) -> None:
        shown = ", ".join(TARGETS)
        expect(
            self.target in TARGETS,
            "target",
            self.target,
            f"one of {shown}",
            "Set target to one of these.",
        )
        expect(
            isinstance(self.metric, str),
            "metric",
            self.metric,
            "a text",
            "See pipeline/metrics.py for the names.",
        )
        columns = len(self.data.labels)
        if self.target == "regression" or columns > 1:
            expect(
                self.target in ("regression", "multilabel"),
                "target",
                self.target,
                "'regression' or 'multilabel' with several label columns",
                "Set target, or name one column.",
            )
            edit = "Leave num_classes out: it follows from data.label_column."
            expect(
                self.num_classes in (0, columns),
                "num_classes",
                self.num_classes,
                f"{columns} or nothing",
                edit,
            )
        else:
            whole("num_classes", self.num_classes, 2, 10**6)
        expect(
            not self.data.cutmix or self.target in ("classes", "multilabel"),
            "data.cutmix",
            self.data.cutmix,
            f"nothing with target={self.target!r}: a part of a picture has no part of its number",
            "Leave cutmix out; mixup may stay.",
        )

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for one example."""
        if self.target == "regression" or len(self.data.labels) > 1:
            return len(self.data.labels)
        return self.num_classes - (self.target == "ordinal")

    def to_json(self) -> dict[str, Any]:
        """Return the config as what `json.dumps` takes; `from_json` gives an equal config back."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            **fields,
            "data": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in dataclasses.asdict(self.data).items()
            },
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
    """Return the config of that name in pipeline/configs/, or the `CONFIG` of the file at that
    path.

    Raises:
        ConfigError: if there is no such config, the file cannot be run, holds no `CONFIG`, or one
            with another name.

    >>> load("digits").num_classes
    10
    """
    named = not config.endswith(".py")
    names = [] if not named and os.path.isfile(config) else _names()  # noqa: PTH113 - Path.is_file raises for a long name
    path = CONFIGS / f"{config}.py" if named else Path(config)
    if names and not (named and config in names):
        raise ConfigError(
            f"--config {config!r}: there is no such config. Expected one of {', '.join(names)}, or the path of a .py file of the same form.\n"
            "Correct the name, or copy pipeline/configs/digits.py and edit it."
        )
    try:
        value = getattr(
            importlib.import_module(f"pipeline.configs.{config}") if named else _run(path),
            "CONFIG",
            None,
        )
    except ConfigError as error:
        raise ConfigError(f"In {path}{place(error, path)}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{path}{place(error, path)} could not be read: {type(error).__name__}: {error}.\n"
            "Expected a Python file of the form of pipeline/configs/digits.py. Correct that line."
        ) from error
    if not isinstance(value, Config):
        raise ConfigError(
            f"{path}: CONFIG is {value!r}; expected a pipeline.config.Config.\nEnd the file with CONFIG = Config(…)."
        )
    if value.name != path.stem:
        raise ConfigError(
            f"{path} says name={value.name!r}; expected {path.stem!r}: notebooks and manifests find the file by the name.\n"
            f"Set name={path.stem!r}, or rename the file."
        )
    return value


def _names() -> list[str]:
    return sorted(path.stem for path in CONFIGS.glob("*.py") if path.stem != "__init__")


def _run(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"relay_config_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # noqa: S101 - true for every file that ends in .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def to_text(config: Config) -> str:
    """Return the config as indented JSON, keys sorted: equal configs give equal texts."""
    return json.dumps(config.to_json(), indent=2, sort_keys=True)
