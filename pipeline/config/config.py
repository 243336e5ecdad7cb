"""What a run is: one frozen `Config`, which checks itself when it is made and survives JSON.

It uses the standard library alone, so that a command reads a config without starting Keras.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pipeline.config.data_layout import Data
from pipeline.config.field_checks import expect, one_of, text, truth, whole, within
from pipeline.config.floor import Floor
from pipeline.config.optimizer import MOST_BATCH, Optimizer

PRECISIONS = ("auto", "float32", "mixed_bfloat16")
INFER_PRECISIONS = ("auto", "float32", "mixed_float16")
FEEDS = ("auto", "device", "host", "files")
HANDOFFS = ("dataset", "kernel")
KEEPS = ("last", "best")
TARGETS = ("classes", "ordinal", "multilabel", "regression", "own")
# Far above any need.
MOST_FOLDS = 100


@dataclass(frozen=True, kw_only=True)
class Config:
    """One competition's run.

    Attributes:
        name: the config's own name, which is that of its file in pipeline/configs/.
        competition: Kaggle's slug of the competition.
        num_classes: number of labels; checked against the data. Leave it out for a regression, and
            for several label columns.
        target: what is predicted, as in pipeline.data.labels: "classes", "ordinal", "multilabel",
            "regression" or "own", labels of any shape (`data.own_labels`).
        metric: the competition's, a name in pipeline.evaluate.metrics or of an own function (own:
            `pipeline.config.own_code`); "" takes the usual one of the target.
        model, model_options: a function of `pipeline.models.architectures` or an own one, and its
            keyword arguments.
        loss: an own function, or "focal" for classes and multilabel
            (`pipeline.evaluate.losses`); "" takes the usual one of the target.
        label_smoothing: of classes and multilabel: the share of each label that all labels get in
            equal parts, in training; 0.1 is usual.
        class_weights: of classes and ordinal: how much the loss of a label's rows counts.
            "balanced" takes 1 / the number of its training rows; or {label: weight}, where others
            have 1. They are scaled to a mean of 1 over the training rows. "": all count alike.
        augment: an own function that changes an image at random, after what `data` names; "": none.
        read_training, read_test: own functions that read the inputs of data.kind="own".
        write_submission: an own function that makes the submission's columns; "": as
            `pipeline.infer.prediction_format` does.
        code: sha256 of the own functions. Loading the config's file sets it.
        init_from: the weights to begin with: an artifact's folder, or owner/slug of a dataset with
            one (pipeline.train.warm_start); "": those of the model.
        drop_path: of a residual network: the share of images that go without the branch of its
            last block, in training; before it fewer, linearly from 0. 0.1 is usual, 0.2 and more
            for a deep one. The model's function takes it by this name.
        batch: images per optimizer step, over all replicas. It alone determines the optimization.
        epochs: passes over the training images.
        warmup_epochs: passes in which the learning rate rises from 0 to its peak.
        batchnorm_momentum: at the optimizer's `base_batch`; scaled like an average.
        batchnorm_batch: images that BatchNorm normalizes together, and that an own loss compares
            where it compares rows; None takes the optimizer's `base_batch`, or the next smaller
            divisor of `batch`. It changes the result; the number of replicas does not, nor the
            memory while a group fits.
        micro_batch: images per forward and backward pass on one replica; None takes what fits,
            beginning with a replica's whole share.
        keep: "last" puts the weights of the last step into the artifact, "best" those of the epoch
            with the best validation score by the competition's metric, of equals that with the
            smallest validation loss.
        patience: epochs without a better one, by the same order, after which the run ends; None: it
            does not.
        folds: parts of the labelled images, stratified by label; a model is trained for each, on
            all the others. A label may have fewer rows than folds, which a line says. None: one
            model, and `data.validation_fraction` is held out.
        limit_predictions: of a regression: no prediction is below the least label that this run
            trains on, nor above the greatest. False where labels may lie beyond, as of a trend.
        views: of an image, whose predictions are averaged in inference (test-time augmentation): as
            it is, mirrored if data.flip is set, upside down if data.flip_vertical is, moved by a
            pixel if data.crop_padding is. They are left out first if time is short.
        precision: of training. "auto" takes bfloat16 if the hardware computes it, but for tables
            and other float32 inputs. "float32" is multiplied as such on every device.
        feed: "device" lets the devices hold all images, "host" sends each batch to them, "files"
            decodes each batch anew; "auto" takes the first that fits (pipeline.train.feed).
            Batches are the same.
        infer_precision: "auto" takes "mixed_float16" on a GPU if its golden outputs agree, else
            "float32" (pipeline.infer.restoring).
        golden_tolerance: the largest difference between golden outputs here and where the model was
            trained; None: what was measured. The submission's lineage names another.
        handoff: "dataset" publishes the artifact as a dataset; "kernel" mounts the train kernel's
            output.
        session_hours: of wall clock, from the start of the process, before whose end the run saves
            itself and ends as "partial". None: no limit. Kaggle ends a TPU session after 9 hours.
        infer_hours: that the competition allows an inference; None: as session_hours.
        progress_seconds: least time between two progress lines.
        checkpoint_seconds: least time between two checkpoints; None: as the cost of one says.
        floor: what a simple model scores, which the run is compared with at its end; None: it is
            unknown. `invoke inspect` measures it.
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
    loss: str = ""
    label_smoothing: float = 0.0
    class_weights: str | Mapping[str, float] = ""
    augment: str = ""
    read_training: str = ""
    read_test: str = ""
    write_submission: str = ""
    code: str = ""
    init_from: str = ""
    model_options: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    drop_path: float = 0.0
    warmup_epochs: float = 5.0
    batchnorm_momentum: float = 0.99
    batchnorm_batch: int | None = None
    micro_batch: int | None = None
    seed: int = 0
    keep: str = "last"
    patience: int | None = None
    folds: int | None = None
    limit_predictions: bool = True
    views: int = 1
    precision: str = "auto"
    feed: str = "auto"
    infer_precision: str = "auto"
    golden_tolerance: float | None = None
    handoff: str = "dataset"
    progress_seconds: float = 10.0
    checkpoint_seconds: float | None = None
    session_hours: float | None = 9.0
    infer_hours: float | None = None
    floor: Floor | None = None

    def __post_init__(self) -> None:
        expect(
            isinstance(self.name, str) and bool(re.fullmatch(r"[a-z][a-z0-9_]*", self.name)),
            "name",
            self.name,
            "lower-case letters, digits and underscores",
            "Name the config as its file, without .py.",
        )
        slug = r"[A-Za-z0-9][A-Za-z0-9-]{2,99}"
        expect(
            isinstance(self.competition, str) and bool(re.fullmatch(slug, self.competition)),
            "competition",
            self.competition,
            "the slug in the competition's address: 3 to 100 letters, digits and hyphens",
            "Copy it from kaggle.com/competitions/<slug>.",
        )
        known = isinstance(self.code, str)
        expect(known, "code", self.code, "a sha256, which loading sets", "Leave it out.")
        parts: dict[str, type] = {"data": Data, "optimizer": Optimizer}
        for name, kind in (parts if self.floor is None else parts | {"floor": Floor}).items():
            value, expected = getattr(self, name), f"a pipeline.config.{kind.__name__}"
            edit = f"Write {name}={kind.__name__}(…), as in pipeline/configs/digits.py."
            if name == "floor":
                edit = "Leave floor out; `invoke inspect --write` measures and writes it."
            expect(isinstance(value, kind), name, value, expected, edit)
        self._check_target()
        whole("batch", self.batch, 1, MOST_BATCH)
        whole("epochs", self.epochs, 1, 10**6)
        truth("limit_predictions", self.limit_predictions)
        expect(
            self.limit_predictions or self.target == "regression",
            "limit_predictions",
            self.limit_predictions,
            f"nothing with target={self.target!r}: it limits the numbers of a regression",
            "Leave limit_predictions out.",
        )
        whole("seed", self.seed, 0, 2**32 - 1)
        if self.init_from != "":
            text("init_from", self.init_from)
        self._check_own()
        self._check_loss()
        within("drop_path", self.drop_path, 0, 0.95)
        within("warmup_epochs", self.warmup_epochs, 0, self.epochs)
        expect(
            self.warmup_epochs > 0 or self.optimizer.schedule != "one_cycle",
            "warmup_epochs",
            self.warmup_epochs,
            "more than 0 with optimizer.schedule='one_cycle', which rises as it falls",
            f"Set it; {0.3 * self.epochs:g}, three tenths of the epochs, is usual.",
        )
        within("batchnorm_momentum", self.batchnorm_momentum, 0, 1, open_ends=True)
        within("progress_seconds", self.progress_seconds, 0, 3600)
        if self.checkpoint_seconds is not None:
            within("checkpoint_seconds", self.checkpoint_seconds, 0, 3600 * 9)
        for name in ("session_hours", "infer_hours"):
            if (hours := getattr(self, name)) is not None:
                within(name, hours, 0, 24 * 365, open_ends=True)
        expect(
            self.feed != "files" or self.data.kind in ("images", "tfrecords"),
            "feed",
            self.feed,
            f"'auto', 'device' or 'host' with kind={self.data.kind!r}: its inputs are in no image"
            " files",
            "Leave feed out.",
        )
        if self.golden_tolerance is not None:
            within("golden_tolerance", self.golden_tolerance, 0, 10, open_ends=True)
        for name, low, high in (
            ("batchnorm_batch", 1, self.batch),
            ("micro_batch", 1, self.batch),
            ("patience", 1, 10**6),
            ("folds", 2, MOST_FOLDS),
        ):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), low, high)
        expect(
            self.batchnorm_batch is None or self.batch % self.batchnorm_batch == 0,
            "batchnorm_batch",
            self.batchnorm_batch,
            f"a divisor of batch={self.batch}",
            "Set batchnorm_batch to one, or leave it out.",
        )
        self._check_views()
        for name, allowed in (
            ("precision", PRECISIONS),
            ("feed", FEEDS),
            ("infer_precision", INFER_PRECISIONS),
            ("handoff", HANDOFFS),
            ("keep", KEEPS),
        ):
            one_of(name, getattr(self, name), allowed)
        self._check_model()

    def _check_target(self) -> None:
        one_of("target", self.target, TARGETS)
        names = "See pipeline/evaluate/metrics.py for the names."
        expect(isinstance(self.metric, str), "metric", self.metric, "a text", names)
        columns = len(self.data.labels)
        if self.target == "own":
            whole("num_classes", self.num_classes, 0, 10**6)
        elif self.target == "regression" or columns > 1:
            expect(
                self.target in ("regression", "multilabel"),
                "target",
                self.target,
                "'regression' or 'multilabel' with several label columns",
                "Set target, or name one column.",
            )
            expect(
                self.num_classes in (0, columns),
                "num_classes",
                self.num_classes,
                f"{columns} or nothing",
                "Leave num_classes out: it follows from data.label_column.",
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

    def _check_own(self) -> None:
        """Check the names of own functions, and that there are those that the data need."""
        own = self.data.kind == "own", self.target == "own"
        needed = {"read_training": own[0], "read_test": own[0], "loss": own[1]}
        needed |= {"write_submission": own[1], "augment": False}
        needed |= {"metric": True} if own[1] else {}  # else it may be one of ours, as map@3
        for name, must in needed.items():
            value = getattr(self, name)
            expect(
                isinstance(value, str) and (value.isidentifier() if value else not must),
                name,
                value,
                "the name of a function in the config's own file"
                + (f", with data.kind={self.data.kind!r} and target={self.target!r}" * must),
                f"Write it there and name it (docs/own-code.md){', or leave it out' * (not must)}.",
            )
        for name in ("read_training", "read_test"):
            edit = f'Set data.kind="own", or leave {name} out.'
            expect(own[0] or not getattr(self, name), name, getattr(self, name), "nothing", edit)
        expect(
            bool(self.data.own_labels) == own[1] and (own[0] or not own[1]),
            "data.own_labels",
            self.data.own_labels,
            'a type and a shape, as ("uint8", 28, 28), with data.kind="own" and target="own", and'
            " nothing else",
            "Set all three, or none.",
        )

    def _check_loss(self) -> None:
        smooth, weights, target = self.label_smoothing, self.class_weights, self.target
        within("label_smoothing", smooth, 0, 0.999)
        expect(
            not smooth or (target in ("classes", "multilabel") and not self.loss),
            "label_smoothing",
            smooth,
            f"nothing with target={target!r} and loss={self.loss!r}: it changes the cross-entropy"
            " of classes and multilabel",
            "Leave it out, or loss.",
        )
        edit = 'Write class_weights="balanced" or class_weights={"cat": 2.0, …}, or leave it out.'
        expect(
            weights in ("", "balanced") or (isinstance(weights, Mapping) and len(weights) > 0),
            "class_weights",
            weights,
            "'balanced' or labels with their weights",
            edit,
        )
        expect(
            not weights or target in ("classes", "ordinal"),
            "class_weights",
            weights,
            f"nothing with target={target!r}, whose rows have no one label",
            "Leave it out, and give each row its weight: data.weight_column.",
        )
        if isinstance(weights, Mapping):
            for label, weight in weights.items():
                text("class_weights", label)
                within(f"class_weights[{label!r}]", weight, 0, 1e6)
            object.__setattr__(self, "class_weights", MappingProxyType(dict(weights)))

    def _check_views(self) -> None:
        data = self.data
        whole("views", self.views, 1, 10)
        # A view that training never saw makes the prediction worse.
        most = 2**data.flip * 2**data.flip_vertical * (5 if data.crop_padding else 1)
        expect(
            self.views <= most,
            "views",
            self.views,
            f"at most {most} with kind={data.kind!r}, flip={data.flip}, "
            f"crop_padding={data.crop_padding}, flip_vertical={data.flip_vertical}",
            "Lower views, or train with data.flip or data.crop_padding; a table has one view.",
        )

    def _check_model(self) -> None:
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
                "Use one of these; nothing else survives JSON.",
            )
        object.__setattr__(self, "model_options", MappingProxyType(dict(self.model_options)))

    @property
    def compares_epochs(self) -> bool:
        """Whether each epoch is scored by the competition's metric."""
        return self.keep == "best" or self.patience is not None

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for one example; with target="own" it gives what the own
        functions expect, and `num_classes` says no more than the config's author wants.
        """
        if self.target == "own":
            return self.num_classes
        if self.target == "regression" or len(self.data.labels) > 1:
            return len(self.data.labels)
        return self.num_classes - (self.target == "ordinal")

    def to_json(self) -> dict[str, Any]:
        """Return the config as what `json.dumps` takes; `from_json` gives an equal config back."""
        return {
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)},
            "data": {
                f.name: _plain(getattr(self.data, f.name)) for f in dataclasses.fields(self.data)
            },
            "optimizer": dataclasses.asdict(self.optimizer),
            "floor": None if self.floor is None else dataclasses.asdict(self.floor),
            "model_options": dict(self.model_options),
            "class_weights": _plain(self.class_weights),
        }


def _plain(value: Any) -> Any:
    """Return tuples as lists, and mappings as dicts."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return list(value) if isinstance(value, tuple) else value
