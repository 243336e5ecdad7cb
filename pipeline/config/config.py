"""The description of a run: one frozen `Config` that validates itself and round-trips through JSON.

It uses the standard library alone, so that commands read a config without starting Keras.
CONTRIBUTING.md explains how to add a field.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any

from pipeline.config import rules
from pipeline.config.data_layout import Data
from pipeline.config.rules import FREE, Checked, Need, Only, Rule, choice, number, text, whole

SCHEDULES = ("cosine", "one_cycle", "constant")
# The optimizers with fields and scaling rules of their own, and the rules for other optimizers.
OPTIMIZERS = ("sgd", "adam", "adamw")
SCALINGS = ("linear", "sqrt", "none")
# More than anybody needs, and too few to run out of memory.
MOST_BATCH = 2**20
FINITE = number(-1e300, 1e300)
MOMENTUM = number(0, 0.999999)
SHARE = number(0, 1, open_ends=True)
SHARES = Rule(
    lambda value: (
        isinstance(value, tuple) and all(map(SHARE.allows, value)) and [*value] == sorted({*value})
    ),
    "increasing fractions between 0 and 1, as (0.5, 0.75)",
)
NAME = text("[a-z][a-z0-9_]*", "the file's name: lower-case letters, digits and underscores")
SLUG = text(
    "[A-Za-z0-9][A-Za-z0-9-]{2,99}",
    "the slug of kaggle.com/competitions/<slug>: 3 to 100 letters, digits and hyphens",
)
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")
MODEL = rules.identifier("a function in the config's file or in pipeline/models/architectures.py")
# owner/model/framework/variation/version
KAGGLE_MODEL = re.compile(r"(?:\w[\w.-]*/){4}[1-9][0-9]*")
FUNCTION = text(rf"({rules.IDENTIFIER})?", "a function in the config's file (docs/custom-code.md)")
SCHEDULE = rules.identifier(f"one of {', '.join(map(repr, SCHEDULES))}, or a custom function")
OPTIMIZER = rules.identifier(
    "'sgd', 'adam', 'adamw', a class of keras.optimizers, or a custom function"
)
OPTIONS = rules.mapping(
    lambda value: isinstance(value, int | str) or FINITE.allows(value),
    "keyword arguments, as {'width': 32}: finite numbers, booleans or strings",
)
ARGUMENTS = rules.mapping(
    lambda value: rules.TEXTS.allows(value) or OPTIONS.allows({"value": value}),
    "keyword arguments, as {'beta_1': 0.9}: numbers, booleans, strings or lists of strings",
)
RATES = rules.mapping(number(0, 1000).allows, "layer names with factors from 0 to 1000")
LABELS = rules.mapping(number(0, 1e6).allows, "labels with weights from 0 to 1,000,000")
WEIGHTS = Rule(
    lambda value: value in ("", "balanced") or (value and LABELS.allows(value)),
    f"'balanced', or {LABELS.expected}, as {{'cat': 2.0}}",
)
TARGETS = ("classes", "ordinal", "multilabel", "regression", "custom")
CLASSES = Only("target", ("classes", "multilabel"))
Weights = str | Mapping[str, float]
Options = Mapping[str, int | float | bool | str]
Arguments = Mapping[str, int | float | bool | str | tuple[str, ...]]
Function = Annotated[str, FUNCTION]
Reader = Annotated[Function, Only("data.kind", ("custom",), needed=True)]
Hours = Annotated[float | None, number(0, 24 * 365, open_ends=True), FREE]
Images = Annotated[int | None, whole(1, MOST_BATCH)]


@dataclass(frozen=True, kw_only=True)
class Optimizer(Checked):
    """An optimizer and the batch for which its numbers were tuned.

    `pipeline.train.learning_rate` scales them to another batch.

    Attributes:
        name: "sgd" (with Nesterov momentum), "adam" or "adamw"; a class of keras.optimizers, as
            "Lion"; or a custom function that returns an optimizer.
        base_rate: the learning rate that worked at `base_batch`.
        base_batch: images per step, over all replicas, for which `base_rate` was tuned.
        arguments: keyword arguments for an optimizer other than the first three.
        scaling: how the rate of such an optimizer scales from `base_batch` to `batch`: "linear"
            (times batch / base_batch), "sqrt" (times its square root) or "none". "" requires equal
            batches.
        layer_rates: {layer: factor} of the learning rate, for layers with these names and all that
            they contain; * and ? are wildcards. The first name that matches counts.
        momentum: for "sgd".
        beta_1, beta_2, epsilon: for "adam" and "adamw".
        weight_decay: for "sgd" and "adamw", decoupled as in Keras: each step subtracts learning
            rate x decay x weight. Biases, and normalization's scale and offset, are exempt (Goyal
            et al. 2017, 1706.02677; He et al. 2018, 1812.01187).
        clip_norm: the largest global norm of a batch's mean gradient; larger gradients are scaled
            down to it. 1 is usual; None: no clipping.
        layer_decay: factor of the learning rate from one block of the network to the next, away
            from the head; a network that is no stack of blocks is divided into twelfths
            (`pipeline.train.layer_rates.factors`). 0.65 to 0.9 is usual for a published network; 1:
            no decay.
        schedule: the learning rate after the warm-up: "cosine" falls along a half cosine;
            "one_cycle" also rises along one; "constant" stays, and falls at the end
            (`pipeline.train.learning_rate.schedule`); or a custom function.
        decay_share: for "constant": the share of all steps in which the rate falls to 0; None: 0.2.
        ema_momentum: of the moving average of weights and BatchNorm statistics that evaluation and
            the artifact use; None: no average. At step t it is at most (1 + t) / (10 + t), so that
            the random initial weights soon disappear.
    """

    prefix = "optimizer."

    name: Annotated[str, OPTIMIZER]
    base_rate: Annotated[float, number(0, 100, open_ends=True)]
    base_batch: Annotated[int, whole(1, MOST_BATCH)]
    arguments: Annotated[Arguments, ARGUMENTS] = field(default_factory=dict)
    scaling: Annotated[str, choice("", *SCALINGS)] = ""
    layer_rates: Annotated[Mapping[str, float], RATES] = field(default_factory=dict)
    momentum: Annotated[float, MOMENTUM] = 0.9
    beta_1: Annotated[float, MOMENTUM] = 0.9
    beta_2: Annotated[float, MOMENTUM] = 0.999
    epsilon: Annotated[float, SHARE] = 1e-7
    weight_decay: Annotated[float, number(0, 10), Only("name", ("sgd", "adamw"))] = 0.0
    clip_norm: Annotated[float | None, number(0, 1e6, open_ends=True)] = None
    layer_decay: Annotated[float, number(0.01, 1)] = 1.0
    schedule: Annotated[str, SCHEDULE] = "cosine"
    decay_share: Annotated[float | None, SHARE, Only("schedule", ("constant",))] = None
    ema_momentum: Annotated[float | None, SHARE] = None

    def _needs(self) -> Iterator[Need]:
        ours, expected = self.name in OPTIMIZERS, f"no value with name={self.name!r}"
        for name in ("arguments", "scaling"):
            has = f"{expected}, which has its own fields and scaling rule"
            yield name, not (ours and getattr(self, name)), has
        for name in ("momentum", "beta_1", "beta_2", "epsilon"):
            unset = getattr(self, name) == DEFAULTS[self.prefix + name]
            yield name, ours or unset, f"{expected}: put it into arguments"


@dataclass(frozen=True, kw_only=True)
class Baseline(Checked):
    """The out-of-fold score of a simple model, as measured by `invoke inspect`.

    It is part of the config because only the config reaches the notebook, the checkpoint and the
    manifest. If you change the config's `metric`, the two are not compared until `invoke inspect
    --metric NAME --write CONFIG` has renewed the baseline.

    Attributes:
        model: a description of the model.
        metric: a name in pipeline.evaluate.metrics.
        score: by that metric.
        error: standard error of the score, over other rows of the same kind.
        rows: labelled rows that were predicted, each by a model that had not seen it: all, or a
            large sample.
    """

    prefix = "baseline."

    model: Annotated[str, rules.TEXT]
    metric: Annotated[str, rules.TEXT]
    score: Annotated[float, FINITE]
    error: Annotated[float, number(0, 1e300)]
    rows: Annotated[int, whole(1, 10**9)]

    def __str__(self) -> str:
        shown = f"{self.metric} {self.score:.4g} ± {self.error:.2g}"
        return f"{shown}, out of fold on {self.rows:,} rows, by {self.model}"


@dataclass(frozen=True, kw_only=True)
class Config(Checked):
    """One competition's run.

    Attributes:
        name: the same as the name of its file in pipeline/configs/.
        competition: the competition's slug on Kaggle.
        num_classes: number of labels; checked against the data. Leave it out for a regression, and
            for several label columns.
        target: what is predicted (`pipeline.data.labels`): "classes", "ordinal", "multilabel",
            "regression" or "custom" (labels of any shape, see `data.custom_labels`).
        metric: the competition's metric: a name in pipeline.evaluate.metrics or a custom function
            (`pipeline.config.custom_code`); "": the usual one for the target.
        model, model_options: a function of `pipeline.models.architectures` or a custom one, and its
            keyword arguments.
        pretrained: the published weights to start from, or a tuple for a model of several networks:
            "imagenet" (from keras.applications), a Kaggle model as
            owner/model/framework/variation/version, hf://owner/name, a folder with a preset, or a
            .weights.h5 or .safetensors file (a path, or owner/slug/file in a dataset that the train
            notebook mounts); "none": random weights. "": "imagenet" for a network of
            keras.applications, else random weights (docs/published-networks.md).
        fit: how weights are found: "" by gradient descent; "linear" computes the features of the
            frozen published network once and fits a linear model to them
            (`pipeline.train.frozen_features`); "boosting" grows trees on these features
            (`pipeline.train.boosting`), or on a table's columns with model="columns". Both ignore
            epochs, optimizer and augmentation.
        loss: a custom function, or "focal" for classes and multilabel
            (`pipeline.evaluate.losses`); "": the usual one for the target.
        label_smoothing: for classes and multilabel: the share of each training label that is spread
            evenly over all labels; 0.1 is usual.
        class_weights: for classes and ordinal: the weight of each label's rows in the loss.
            "balanced": 1 / the label's number of training rows; or {label: weight}, 1 for labels
            that are not listed. They are scaled to a mean of 1 over the training rows. "": equal.
        augment: a custom function that changes an image at random, after the changes in `data`.
        augment_batch: a custom function that mixes a group of `batchnorm_batch` images, in place of
            data.mixup and data.cutmix.
        sampler: "balanced" draws each label equally often in an epoch; or a custom function that
            returns an epoch's rows, or a weight for each row. "": each row once.
        train_step: a custom function in place of `pipeline.train.step.TrainStep.train_step`.
        log: a custom function that receives each record of progress, and the pictures at the end.
        read_training, read_test: custom functions that read the inputs for data.kind="custom".
        write_submission: a custom function that returns the submission's columns; "": see
            `pipeline.infer.submission`.
        init_from: an earlier artifact to start from: its folder, or owner/slug of a dataset that
            contains it (pipeline.train.warm_start).
        drop_path: for residual networks: the share of training images that skip the branch of the
            last block; it rises linearly from 0 over the blocks. 0.1 is usual, 0.2 and more for a
            deep network. It is passed to the model's function by this name.
        batch: images per optimizer step, over all replicas. It alone determines the optimization.
        epochs: passes over the training images.
        frozen_epochs: epochs at the start in which only new layers train, such as the head; then
            the published network trains, too. A model without one freezes all but its last layer
            with weights. Only weights are frozen: dropout is active, and a BatchNormalization that
            trains later uses the batch's statistics and updates its moving ones (unlike
            `trainable = False` in Keras).
        progressive: fractions of height and width for the first images, as (0.5, 0.75): the epochs
            are split into equal parts, one for each fraction and a last one with full-size images.
            Sides are rounded (`pipeline.train.phases.sizes`). Validation and inference always use
            full-size images.
        warmup_epochs: epochs in which the learning rate rises from 0 to its peak.
        batchnorm_momentum: at the optimizer's `base_batch`; scaled like an average.
        batchnorm_batch: images that BatchNorm normalizes together, and that a custom loss may
            compare; None: the optimizer's `base_batch`, or the next smaller divisor of `batch`. It
            changes the result; the number of replicas and the size of memory do not.
        micro_batch: images per forward and backward pass on one replica; None: as many as fit,
            at first a replica's whole share.
        keep: "last" saves the weights of the last step in the artifact, "best" those of the epoch
            with the best validation score by the competition's metric (of equal ones, the one with
            the smallest validation loss).
        patience: number of epochs without a better one, by the same order, after which the run
            ends; None: all epochs run.
        folds: number of parts of the labelled images, stratified by label; for each part a model
            trains on all the others. None: one model, with `data.validation_fraction` held out.
        limit_predictions: for a regression: clip predictions to the range of the training labels.
            Set it to False if labels may lie outside, as with a trend.
        views: number of test-time augmentations whose predictions are averaged: unchanged, mirrored
            if data.flip is set, upside down if data.flip_vertical is, moved by a pixel if
            data.crop_padding is. They are the first to be dropped when time is short.
        precision: for training. "auto": bfloat16 where the hardware has it, float16 on older GPUs
            such as the T4 if its outputs agree at the start, and float32 for tables and other
            float32 inputs. "float32" uses full precision on every device. "mixed_float16" scales
            the loss (`pipeline.train.loss_scale`).
        feed: "device" keeps all images in device memory, "host" sends each batch, "files" decodes
            each batch anew; "auto": the first that fits (pipeline.train.feed). The batches are the
            same.
        infer_precision: "auto": "mixed_float16" on a GPU if its golden outputs agree, else
            "float32" (pipeline.infer.check).
        handoff: "dataset" publishes the artifact as a dataset; "kernel" mounts the train kernel's
            output.
        session_hours: wall-clock hours from the start of the process; the run saves itself before
            they are over and ends as "partial". None: no limit. Kaggle ends a TPU session after 9.
        infer_hours: time limit of the competition for inference; None: as session_hours.
        progress_seconds: least time between two progress lines.
        checkpoint_seconds: least time between two checkpoints; None: chosen by their cost.
        baseline: the score of a simple model, to compare the run with at its end. `invoke inspect`
            measures it.
    """

    name: Annotated[str, NAME]
    competition: Annotated[str, SLUG]
    data: Annotated[Data, rules.instance(Data)]
    model: Annotated[str, MODEL]
    optimizer: Annotated[Optimizer, rules.instance(Optimizer)]
    batch: Annotated[int, whole(1, MOST_BATCH)]
    epochs: Annotated[int, whole(1, 10**6)]
    pretrained: Annotated[str | tuple[str, ...], rules.one_or_more(rules.ANY_TEXT)] = ""
    num_classes: Annotated[int, whole(0, 10**6)] = 0
    target: Annotated[str, choice(*TARGETS)] = "classes"
    # FREE, since the data's fingerprint has its effect on the labels (their logarithm).
    metric: Annotated[str, rules.ANY_TEXT, FREE] = ""
    fit: Annotated[str, choice("", "linear", "boosting")] = ""
    loss: Function = ""
    label_smoothing: Annotated[float, number(0, 0.999), CLASSES, Only("loss", ("",))] = 0.0
    class_weights: Annotated[Weights, WEIGHTS, Only("target", ("classes", "ordinal"))] = ""
    augment: Function = ""
    augment_batch: Function = ""
    sampler: Function = ""
    train_step: Function = ""
    log: Annotated[Function, FREE] = ""
    read_training: Reader = ""
    read_test: Annotated[Reader, FREE] = ""
    write_submission: Annotated[Function, FREE] = ""
    init_from: Annotated[str, rules.ANY_TEXT] = ""
    model_options: Annotated[Options, OPTIONS] = field(default_factory=dict)
    drop_path: Annotated[float, number(0, 0.95)] = 0.0
    warmup_epochs: Annotated[float, number(0, 10**6)] = 5.0
    frozen_epochs: Annotated[int, whole(0, 10**6)] = 0
    progressive: Annotated[tuple[float, ...], SHARES] = ()
    batchnorm_momentum: Annotated[float, number(0, 1, open_ends=True)] = 0.99
    batchnorm_batch: Images = None
    micro_batch: Annotated[Images, FREE] = None
    seed: Annotated[int, whole(0, 2**32 - 1)] = 0
    keep: Annotated[str, choice("last", "best")] = "last"
    patience: Annotated[int | None, whole(1, 10**6)] = None
    folds: Annotated[int | None, whole(2, 100)] = None
    limit_predictions: Annotated[bool, rules.TRUTH, FREE] = True
    views: Annotated[int, whole(1, 10), FREE] = 1
    precision: Annotated[str, choice(*PRECISIONS)] = "auto"
    feed: Annotated[str, choice("auto", "device", "host", "files"), FREE] = "auto"
    infer_precision: Annotated[str, choice("auto", "float32", "mixed_float16"), FREE] = "auto"
    handoff: Annotated[str, choice("dataset", "kernel"), FREE] = "dataset"
    progress_seconds: Annotated[float, number(0, 3600), FREE] = 5.0
    checkpoint_seconds: Annotated[float | None, number(0, 3600 * 9), FREE] = None
    session_hours: Hours = 9.0
    infer_hours: Hours = None
    baseline: Annotated[Baseline | None, rules.instance(Baseline), FREE] = None

    def _needs(self) -> Iterator[Need]:
        yield from self._target_needs()
        data, epochs, given = self.data, self.epochs, self.optimizer
        rises = self.warmup_epochs > 0 or given.schedule != "one_cycle"
        expected = f"at most epochs={epochs}, and with schedule='one_cycle' above 0 (0.3 of them)"
        yield "warmup_epochs", rises and self.warmup_epochs <= epochs, expected
        steps = ("loss", "train_step", "sampler", "init_from", "label_smoothing", "progressive")
        too = [name for name in steps if getattr(self, name)]
        too += ["target='custom'"] * (self.target == "custom")
        fitted = self.model != "columns" or (self.fit and data.kind == "table")
        expected = "another model, or a table with fit='boosting' or fit='linear'"
        yield "model", fitted, expected
        yield "fit", not (self.fit and too), f"'' with {', '.join(too)}: it takes no steps"
        yield "frozen_epochs", self.frozen_epochs < epochs, f"fewer than epochs={epochs}"
        of_images = not self.progressive or data.images
        yield "progressive", of_images, f"() with kind={data.kind!r}, which has no images"
        fewer = len(self.progressive) < epochs
        yield "progressive", fewer, f"fewer fractions than epochs={epochs}"
        known = given.name in OPTIMIZERS or given.scaling or self.batch == given.base_batch
        expected = f"{' or '.join(map(repr, SCALINGS))}: there is no rule for {given.name} to scale"
        expected += f" from base_batch={given.base_batch} to batch={self.batch}"
        yield "optimizer.scaling", known, expected
        divides = self.batch % (self.batchnorm_batch or self.batch) == 0
        yield "batchnorm_batch", divides, f"a divisor of batch={self.batch}, or None"
        in_files = self.feed != "files" or data.kind in ("images", "tfrecords")
        yield "feed", in_files, f"another value with kind={data.kind!r}, which has no image files"
        # A view that training never saw makes the prediction worse.
        most = 2**data.flip * 2**data.flip_vertical * (5 if data.crop_padding else 1)
        expected = f"at most {most}, by data.flip, data.flip_vertical and data.crop_padding"
        yield "views", self.views <= most, expected

    def _target_needs(self) -> Iterator[Need]:
        """Yield what the target demands of other fields."""
        target, columns, free = self.target, len(self.data.labels), self.target == "custom"
        several, data = columns > 1 and not free, self.data
        numbers, single = target in ("regression", "multilabel"), target in ("classes", "ordinal")
        expected = "'regression' or 'multilabel' with several label columns"
        yield "target", numbers or not several, expected
        follows = several or target == "regression"
        counted = self.num_classes in (0, columns) if follows else self.num_classes >= 2 or free
        expected = "the number of labels, 2 or more; no value for a regression or several columns"
        yield "num_classes", counted, expected
        expected = f"another value with target={target!r}, which has no classes"
        yield "sampler", self.sampler != "balanced" or single, expected
        mixed = self.augment_batch and (data.mixup or data.cutmix)
        yield "augment_batch", not mixed, "'' with data.mixup or data.cutmix, which already mix"
        mixes = target in CLASSES.values or not data.cutmix
        expected = f"0 with target={target!r}: a part of a picture has no part of its number"
        yield "data.cutmix", mixes, f"{expected}; mixup works"
        for name in ("loss", "metric", "write_submission"):
            custom = getattr(self, name).isidentifier() or not free
            yield name, custom, f"{FUNCTION.expected}, with target='custom'"
        together = bool(data.custom_labels) == free and (data.kind == "custom") >= free
        expected = 'a type and a shape with data.kind="custom" and target="custom", else no value'
        yield "data.custom_labels", together, expected

    @property
    def kaggle_models(self) -> tuple[str, ...]:
        """The Kaggle models in `pretrained`, which the train notebook mounts."""
        return tuple(
            name for name in rules.as_tuple(self.pretrained) if KAGGLE_MODEL.fullmatch(name)
        )

    @property
    def presets(self) -> tuple[str, ...]:
        """The presets in `pretrained`, without weight files, "imagenet" and "none"."""
        return tuple(
            name
            for name in rules.as_tuple(self.pretrained)
            if name not in ("", "imagenet", "none") and not name.endswith((".h5", ".safetensors"))
        )

    @property
    def passes(self) -> int:
        """Passes over the training images, over all folds."""
        return 1 if self.fit else self.epochs * (self.folds or 1)

    @property
    def exact(self) -> bool:
        """Whether inputs must not be rounded: through trees a row would take another path."""
        return self.data.numbers or self.fit == "boosting"

    @property
    def growing_epochs(self) -> tuple[int, ...]:
        """The epochs after which `progressive` images become larger."""
        parts = len(self.progressive) + 1
        return tuple(self.epochs * part // parts for part in range(1, parts))

    @property
    def compares_epochs(self) -> bool:
        """Whether each epoch is scored by the competition's metric."""
        return self.keep == "best" or self.patience is not None

    @property
    def outputs(self) -> int:
        """The number of a model's outputs for one example; with target="custom" the shape is up to
        the custom functions, which get `num_classes`.
        """
        if self.target == "custom":
            return self.num_classes
        if self.target == "regression" or len(self.data.labels) > 1:
            return len(self.data.labels)
        return self.num_classes - (self.target == "ordinal")

    def with_epochs(self, epochs: int) -> dict[str, Any]:
        """Return the fields of a run with fewer epochs: warm-up and frozen epochs in proportion,
        and no more image sizes than epochs.

        >>> from dataclasses import replace
        >>> from pipeline import config
        >>> digits = replace(config.load("digits"), epochs=20, warmup_epochs=1, frozen_epochs=6)
        >>> [digits.with_epochs(number)["frozen_epochs"] for number in (10, 3, 1)]
        [3, 1, 0]
        >>> replace(digits, progressive=(0.5, 0.75)).with_epochs(2)["progressive"]
        (0.5,)
        """
        share = epochs / self.epochs
        changes: dict[str, Any] = {"epochs": epochs, "warmup_epochs": self.warmup_epochs * share}
        if self.frozen_epochs:
            changes["frozen_epochs"] = min(math.ceil(self.frozen_epochs * share), epochs - 1)
        if self.progressive:
            changes["progressive"] = self.progressive[: epochs - 1]
        return changes

    def to_json(self) -> dict[str, Any]:
        """Return the config for `json.dumps`; `from_json` restores an equal one."""

        def part(value: Any) -> dict[str, Any]:
            return dict(value if isinstance(value, Mapping) else vars(value))

        return dict(json.loads(json.dumps(part(self), default=part)))


# Fields that no weight depends on.
MAY_CHANGE = {kind.prefix + name for kind in (Config, Data) for name in rules.marked(kind, FREE)}
DEFAULTS: dict[str, Any] = {
    kind.prefix + field.name: json.loads(json.dumps(field.default))
    for kind in (Config, Data, Optimizer)
    for field in fields(kind)
    if field.default is not MISSING and kind.prefix + field.name not in MAY_CHANGE
}


def changes(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return how two configs differ in what training depends on, a text per field. A field that is
    missing in one has its default, so that a new field stops no run.

    >>> changes({"batch": 8, "data": {"flip": True}}, {"batch": 6, "data": {"flip": True}})
    ['batch: 8 then, 6 now']
    >>> changes({"batch": 8}, {"batch": 8, "optimizer": {"momentum": 0.9}, "data": {"mixup": 0.2}})
    ['data.mixup: 0.0 then, 0.2 now']
    >>> changes({"views": 1, "baseline": {"rows": 5}}, {"views": 2, "baseline": None})
    []
    """
    before, now = _by_full_name(theirs), _by_full_name(ours)
    return [
        f"{name}: {before.get(name)!r} then, {now.get(name)!r} now"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def _by_full_name(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that training depends on, by full name, as "data.height"."""
    values = DEFAULTS | dict(config)
    for part in ("data", "optimizer"):
        values |= {f"{part}.{name}": value for name, value in values.pop(part, {}).items()}
    return {name: value for name, value in values.items() if name not in MAY_CHANGE}
