"""What a run is: one frozen `Config`, which checks itself when it is made and survives JSON.

It uses the standard library alone, so that a command reads a config without starting Keras.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any

from pipeline.config.data_layout import Data
from pipeline.config.optimizer import MOST_BATCH, Optimizer
from pipeline.config.rules import (
    FREE,
    TEXT,
    Checked,
    Conflict,
    Rule,
    choice,
    matching,
    number,
    plain,
    whole,
)

NAME = matching(
    r"[a-z][a-z0-9_]*",
    "lower-case letters, digits and underscores",
    "Name the config as its file, without .py.",
)
SLUG = matching(
    r"[A-Za-z0-9][A-Za-z0-9-]{2,99}",
    "the slug in the competition's address: 3 to 100 letters, digits and hyphens",
    "Copy it from kaggle.com/competitions/<slug>.",
)
MODEL = matching(
    r"[^\W\d]\w*",
    "the name of a function in pipeline/models/architectures.py",
    "See MODELS at the end of pipeline/models/architectures.py.",
)
NEEDED = "Write it there and name it (docs/own-code.md)."
FUNCTION = matching(
    r"([^\W\d]\w*)?",
    "the name of a function in the config's own file",
    f"{NEEDED} Or leave it out.",
)


OPTION = Rule(
    lambda value: isinstance(value, int | str) or (isinstance(value, float) and isfinite(value)),
    "a finite number, a truth value or a text",
    "Use one of these; nothing else survives JSON.",
)
OPTIONS = Rule(
    lambda value: isinstance(value, Mapping),
    "names with values",
    "Write {name}={…}, with the keyword arguments of the model.",
    OPTION,
)
WEIGHTS = Rule(
    lambda value: value in ("", "balanced") or (isinstance(value, Mapping) and len(value) > 0),
    "'balanced' or labels with their weights",
    'Write class_weights="balanced" or class_weights={"cat": 2.0, …}, or leave it out.',
    number(0, 1e6),
)
TARGETS = ("classes", "ordinal", "multilabel", "regression", "own")
Options = Mapping[str, int | float | bool | str]
Function = Annotated[str, FUNCTION]
Hours = Annotated[float | None, number(0, 24 * 365, open_ends=True), FREE]
Batch = Annotated[int | None, whole(1, MOST_BATCH)]


@dataclass(frozen=True, kw_only=True)
class Floor(Checked):
    """The out-of-fold score of a simple model, as `invoke inspect` measured it.

    It is in the config, since the config alone reaches the notebook, the checkpoint and the
    manifest. It names its own metric: if a config's `metric` is corrected later, the two are not
    compared until `invoke inspect --metric NAME --write CONFIG` has renewed the baseline.

    Attributes:
        model: in words.
        metric: a name in pipeline.evaluate.metrics.
        score: by that metric.
        error: its standard error, over other rows of the same kind.
        rows: labelled rows that were predicted, each by a model that had not seen it: all, or a
            large sample.
    """

    prefix = "floor."

    model: Annotated[str, TEXT]
    metric: Annotated[str, TEXT]
    score: Annotated[float, number(-1e300, 1e300)]
    error: Annotated[float, number(0, 1e300)]
    rows: Annotated[int, whole(1, 10**9)]

    def __str__(self) -> str:
        shown = f"{self.metric} {self.score:.4g} ± {self.error:.2g}"
        return f"{shown}, out of fold on {self.rows:,} rows, by {self.model}"


@dataclass(frozen=True, kw_only=True)
class Config(Checked):
    """One competition's run.

    Attributes:
        name: the config's own name, which is that of its file in pipeline/configs/.
        competition: Kaggle's slug of the competition.
        num_classes: number of labels; checked against the data. Leave it out for a regression, and
            for several label columns.
        target: what is predicted, as in pipeline.data.labels: "classes", "ordinal", "multilabel",
            "regression" or "own", labels of any shape (`data.own_labels`).
        metric: the competition's, a name in pipeline.evaluate.metrics or of a custom function
            (`pipeline.config.custom_code`); "" takes the usual one of the target.
        model, model_options: a function of `pipeline.models.architectures` or a custom one, and its
            keyword arguments.
        loss: a custom function, or "focal" for classes and multilabel
            (`pipeline.evaluate.losses`); "" takes the usual one of the target.
        label_smoothing: of classes and multilabel: the share of each label that all labels get in
            equal parts, in training; 0.1 is usual.
        class_weights: of classes and ordinal: how much the loss of a label's rows counts.
            "balanced" takes 1 / the number of its training rows; or {label: weight}, where others
            have 1. They are scaled to a mean of 1 over the training rows. "": all count alike.
        augment: a custom function that changes an image at random, after what `data` names.
        read_training, read_test: custom functions that read the inputs of data.kind="own".
        write_submission: a custom function that makes the submission's columns; "": as
            `pipeline.infer.submission` does.
        init_from: the weights to begin with: an artifact's folder, or owner/slug of a dataset with
            one (pipeline.train.warm_start); "": those of the model.
        drop_path: of a residual network: the share of images that go without the branch of its
            last block, in training; before it fewer, linearly from 0. 0.1 is usual, 0.2 and more
            for a deep one. The model's function takes it by this name.
        batch: images per optimizer step, over all replicas. It alone determines the optimization.
        epochs: passes over the training images.
        warmup_epochs: passes in which the learning rate rises from 0 to its peak.
        batchnorm_momentum: at the optimizer's `base_batch`; scaled like an average.
        batchnorm_batch: images that BatchNorm normalizes together, and that a custom loss compares
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
            "float32" (pipeline.infer.check).
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

    name: Annotated[str, NAME]
    competition: Annotated[str, SLUG]
    data: Data
    model: Annotated[str, MODEL]
    optimizer: Optimizer
    batch: Annotated[int, whole(1, MOST_BATCH)]
    epochs: Annotated[int, whole(1, 10**6)]
    num_classes: Annotated[int, whole(0, 10**6)] = 0
    target: Annotated[str, choice(*TARGETS)] = "classes"
    # Its effect on the labels, their logarithm, is in the fingerprint of the data.
    metric: Annotated[str, FREE] = ""
    loss: Function = ""
    label_smoothing: Annotated[float, number(0, 0.999)] = 0.0
    class_weights: Annotated[str | Mapping[str, float], WEIGHTS] = ""
    augment: Function = ""
    read_training: Function = ""
    read_test: Annotated[str, FUNCTION, FREE] = ""
    write_submission: Annotated[str, FUNCTION, FREE] = ""
    init_from: str = ""
    model_options: Annotated[Options, OPTIONS] = field(default_factory=dict)
    drop_path: Annotated[float, number(0, 0.95)] = 0.0
    warmup_epochs: Annotated[float, number(0, 10**6)] = 5.0
    batchnorm_momentum: Annotated[float, number(0, 1, open_ends=True)] = 0.99
    batchnorm_batch: Batch = None
    micro_batch: Annotated[int | None, whole(1, MOST_BATCH), FREE] = None
    seed: Annotated[int, whole(0, 2**32 - 1)] = 0
    keep: Annotated[str, choice("last", "best")] = "last"
    patience: Annotated[int | None, whole(1, 10**6)] = None
    folds: Annotated[int | None, whole(2, 100)] = None
    limit_predictions: Annotated[bool, FREE] = True
    views: Annotated[int, whole(1, 10), FREE] = 1
    precision: Annotated[str, choice("auto", "float32", "mixed_bfloat16")] = "auto"
    feed: Annotated[str, choice("auto", "device", "host", "files"), FREE] = "auto"
    infer_precision: Annotated[str, choice("auto", "float32", "mixed_float16"), FREE] = "auto"
    handoff: Annotated[str, choice("dataset", "kernel"), FREE] = "dataset"
    progress_seconds: Annotated[float, number(0, 3600), FREE] = 10.0
    checkpoint_seconds: Annotated[float | None, number(0, 3600 * 9), FREE] = None
    session_hours: Hours = 9.0
    infer_hours: Hours = None
    floor: Annotated[Floor | None, FREE] = None

    def _conflicts(self) -> Iterator[Conflict]:
        yield from self._target_conflicts()
        yield from self._function_conflicts()
        yield from self._loss_conflicts()
        yield from self._step_conflicts()
        data = self.data
        if self.feed == "files" and data.kind not in ("images", "tfrecords"):
            expected = f"another with kind={data.kind!r}, whose inputs are in no image files"
            yield Conflict("feed", expected)
        # A view that training never saw makes the prediction worse.
        most = 2**data.flip * 2**data.flip_vertical * (5 if data.crop_padding else 1)
        if self.views > most:
            expected = (
                f"at most {most} with kind={data.kind!r}, flip={data.flip},"
                f" crop_padding={data.crop_padding}, flip_vertical={data.flip_vertical}"
            )
            edit = "Lower views, or train with data.flip or data.crop_padding; a table has one."
            yield Conflict("views", expected, edit)

    def _target_conflicts(self) -> Iterator[Conflict]:
        target, columns = self.target, len(self.data.labels)
        nothing = f"nothing with target={target!r}"
        if columns > 1 and target not in ("regression", "multilabel", "own"):
            expected = "'regression' or 'multilabel' with several label columns"
            yield Conflict("target", expected, "Set target, or name one column.")
        if target == "regression" or (columns > 1 and target != "own"):
            if self.num_classes not in (0, columns):
                edit = "Leave num_classes out: it follows from data.label_column."
                yield Conflict("num_classes", f"{columns} or nothing", edit)
        elif self.num_classes < 2 and target != "own":
            yield Conflict("num_classes", "2 or more, the number of labels", "Correct {name}.")
        if self.data.cutmix and target not in ("classes", "multilabel"):
            expected = f"{nothing}: a part of a picture has no part of its number"
            yield Conflict("data.cutmix", expected, "Leave cutmix out; mixup may stay.")
        if not self.limit_predictions and target != "regression":
            yield Conflict("limit_predictions", f"{nothing}: it limits the numbers of a regression")

    def _function_conflicts(self) -> Iterator[Conflict]:
        """Yield custom functions that the data and the target need, or cannot use."""
        reads, judges = self.data.kind == "own", self.target == "own"
        readers, judging = ("read_training", "read_test"), ("loss", "metric", "write_submission")
        kinds = f"with data.kind={self.data.kind!r} and target={self.target!r}"
        for name in (*readers * reads, *judging * judges):
            if not getattr(self, name).isidentifier():
                yield Conflict(name, f"{FUNCTION.expected}, {kinds}", NEEDED)
        for name in readers:
            if getattr(self, name) and not reads:
                yield Conflict(name, f"nothing {kinds}", 'Set data.kind="own", or leave it out.')
        if bool(self.data.own_labels) != judges or (judges and not reads):
            expected = 'a type and a shape with data.kind="own" and target="own", else nothing'
            yield Conflict("data.own_labels", expected, "Set all three, or none.")

    def _loss_conflicts(self) -> Iterator[Conflict]:
        target = self.target
        if self.label_smoothing and (self.loss or target not in ("classes", "multilabel")):
            expected = (
                f"nothing with target={target!r} and loss={self.loss!r}: it changes the"
                " cross-entropy of classes and multilabel"
            )
            yield Conflict("label_smoothing", expected, "Leave it out, or loss.")
        if self.class_weights and target not in ("classes", "ordinal"):
            expected = f"nothing with target={target!r}, whose rows have no one label"
            edit = "Leave it out, and give each row its weight: data.weight_column."
            yield Conflict("class_weights", expected, edit)

    def _step_conflicts(self) -> Iterator[Conflict]:
        """Yield what does not fit the batch or the epochs."""
        if self.warmup_epochs > self.epochs:
            expected = f"a number between 0 and {self.epochs}, the epochs"
            yield Conflict("warmup_epochs", expected, "Lower warmup_epochs, or raise epochs.")
        if not self.warmup_epochs and self.optimizer.schedule == "one_cycle":
            expected = "more than 0 with optimizer.schedule='one_cycle', which rises as it falls"
            edit = f"Set it; {0.3 * self.epochs:g}, three tenths of the epochs, is usual."
            yield Conflict("warmup_epochs", expected, edit)
        if self.micro_batch is not None and self.micro_batch > self.batch:
            expected = f"a whole number from 1 to batch={self.batch}"
            yield Conflict("micro_batch", expected, "Lower {name}, or raise batch.")
        if self.batchnorm_batch is not None and self.batch % self.batchnorm_batch:
            edit = "Set batchnorm_batch to one, or leave it out."
            yield Conflict("batchnorm_batch", f"a divisor of batch={self.batch}", edit)

    @property
    def compares_epochs(self) -> bool:
        """Whether each epoch is scored by the competition's metric."""
        return self.keep == "best" or self.patience is not None

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for one example; with target="own" it gives what the
        custom functions expect, and `num_classes` says no more than the config's author wants.
        """
        if self.target == "own":
            return self.num_classes
        if self.target == "regression" or len(self.data.labels) > 1:
            return len(self.data.labels)
        return self.num_classes - (self.target == "ordinal")

    def to_json(self) -> dict[str, Any]:
        """Return the config as what `json.dumps` takes; `from_json` gives an equal config back."""
        return dict(plain(self))
