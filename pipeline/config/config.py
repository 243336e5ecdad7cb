"""The `Config` class, a frozen dataclass that validates itself and can be converted to JSON.

This module uses only the standard library, so commands can load a config without importing Keras.
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
# Optimizers that have their own fields and scaling rules, and the scaling rules for all others.
OPTIMIZERS = ("sgd", "adam", "adamw")
SCALINGS = ("linear", "sqrt", "none")
# Larger than any practical batch, but small enough that we never run out of memory.
MOST_BATCH = 2**20
FINITE = number(-1e300, 1e300)
MOMENTUM = number(0, 0.999999)
SHARE = number(0, 1, open_ends=True)
SHARES = Rule(
    lambda value: (
        isinstance(value, tuple) and all(map(SHARE.allows, value)) and [*value] == sorted({*value})
    ),
    "increasing fractions between 0 and 1, such as (0.5, 0.75)",
)
PATH = f"'' for the test set, or {rules.FILE.expected}"
ABOVE_0 = "a number above 0, up to 1"
NAME = text("[a-z][a-z0-9_]*", "the file name: lowercase letters, digits and underscores")
SLUG = text(
    "[A-Za-z0-9][A-Za-z0-9-]{2,99}",
    "the slug in kaggle.com/competitions/<slug>: 3 to 100 letters, digits and hyphens",
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
    "keyword arguments such as {'width': 32}: finite numbers, booleans or strings",
)
ARGUMENTS = rules.mapping(
    lambda value: rules.TEXTS.allows(value) or OPTIONS.allows({"value": value}),
    "keyword arguments such as {'beta_1': 0.9}: numbers, booleans, strings or lists of strings",
)
RATES = rules.mapping(number(0, 1000).allows, "a factor from 0 to 1000 for each layer name")
LABELS = rules.mapping(number(0, 1e6).allows, "a weight from 0 to 1,000,000 for each label")
WEIGHTS = Rule(
    lambda value: value in ("", "balanced") or (value and LABELS.allows(value)),
    f"'balanced' or {LABELS.expected}, such as {{'cat': 2.0}}",
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
    """An optimizer, its hyperparameters, and the batch size for which they were tuned.

    `pipeline.train.learning_rate` scales the hyperparameters to other batch sizes.

    Attributes:
        name: "sgd" (with Nesterov momentum), "adam", "adamw", a class of keras.optimizers such as
            "Lion", or a custom function that returns an optimizer.
        base_rate: learning rate that was tuned for `base_batch`.
        base_batch: images per step, summed over all replicas, for which `base_rate` was tuned.
        arguments: keyword arguments for any optimizer except "sgd", "adam" and "adamw".
        scaling: how to scale the learning rate of these optimizers from `base_batch` to `batch`:
            "linear" multiplies it by batch / base_batch, "sqrt" by the square root of that, and
            "none" keeps it. If this is "", both batch sizes must be the same.
        layer_rates: {name: factor} to multiply the learning rate of layers with this name and of
            their sublayers. * and ? are wildcards, and the first matching name applies.
        momentum: momentum of "sgd".
        beta_1, beta_2, epsilon: hyperparameters of "adam" and "adamw".
        weight_decay: decoupled weight decay for "sgd" and "adamw". As in Keras, each step subtracts
            learning rate x decay x weight. Biases and normalization parameters are exempt (Goyal et
            al. 2017, 1706.02677; He et al. 2018, 1812.01187).
        clip_norm: maximum global norm of a batch's mean gradient. Larger gradients are scaled down
            to this norm. A typical value is 1; None disables clipping.
        layer_decay: factor by which the learning rate decreases from each block to the one before
            it, starting at the head. If the network is not a stack of blocks, it is split into 12
            parts with the same number of layers (`pipeline.train.layer_rates.factors`). Typical
            values for pretrained networks are 0.65 to 0.9; 1 disables the decay.
        schedule: learning rate schedule after the warm-up, or a custom function. "cosine" decays
            along half a cosine; "one_cycle" also warms up along half a cosine; "constant" only
            decays at the end (`pipeline.train.learning_rate.schedule`).
        decay_share: fraction of steps in which a "constant" schedule decays to 0 (None means 0.2).
        ema_momentum: momentum of a moving average of the weights and BatchNorm statistics.
            Evaluation and the artifact use this average. At step t, the momentum is at most
            (1 + t) / (10 + t), so that the random initial weights are soon forgotten. None disables
            the average.
        swa_start: fraction of all steps after which weights and BatchNorm statistics are averaged
            over all following steps (stochastic weight averaging, Izmailov et al. 2018,
            1803.05407). Evaluation and the artifact use this average. A typical value is 0.75; None
            disables it.
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
    swa_start: Annotated[float | None, SHARE] = None

    def _needs(self) -> Iterator[Need]:
        ours, expected = self.name in OPTIMIZERS, f"no value with name={self.name!r}"
        for name in ("arguments", "scaling"):
            has = f"{expected}, because it has its own fields and scaling rule"
            yield name, not (ours and getattr(self, name)), has
        for name in ("momentum", "beta_1", "beta_2", "epsilon"):
            unset = getattr(self, name) == DEFAULTS[self.prefix + name]
            yield name, ours or unset, f"{expected}; pass it in `arguments` instead"
        once = self.swa_start is None or self.ema_momentum is None
        yield "swa_start", once, "None with ema_momentum, which averages the weights as well"

    @property
    def averages(self) -> bool:
        return self.ema_momentum is not None or self.swa_start is not None


@dataclass(frozen=True, kw_only=True)
class Baseline(Checked):
    """The out-of-fold score of a simple model, measured by `invoke inspect`.

    It is stored in the config because only the config is copied to the notebook, the checkpoint and
    the manifest. After you change the config's `metric`, scores are not compared with the baseline
    until you update it with `invoke inspect --metric NAME --write CONFIG`.

    Attributes:
        model: description of the model.
        metric: name of a metric in pipeline.evaluate.metrics.
        score: value of that metric.
        error: estimated standard error of the score on other rows of the same kind.
        rows: number of predicted rows, which are all labelled rows or a large sample. Each row was
            predicted by a model that was not trained on it.
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
class PseudoLabels(Checked):
    """Unlabelled rows to train on. Their labels are the predictions of an earlier run, the teacher
    (docs/pseudo-labels.md).

    Attributes:
        teacher: artifact of a run with the same folds: its folder, or the owner/slug/version of the
            dataset that contains it.
        rows: rows to label: the path of a table, a folder of images, an array or TFRecord files in
            the competition folder, like data.test_csv, data.test_images and so on. "" uses the test
            set.
        confidence: minimum probability of a row's most probable label. Less certain rows are not
            used.
        share: fraction of the rows of each predicted label to use, beginning with the most
            confident ones.
        power: exponent that is applied to probabilities. For target="classes", they are then
            divided by their sum, so an exponent above 1 makes labels more certain. For
            "multilabel", it makes small probabilities, which are often noise, even smaller.
        weight: weight of these rows in the loss. Labelled rows have a weight of 1.
    """

    prefix = "pseudo_labels."

    teacher: Annotated[str, rules.TEXT]
    rows: Annotated[str, Rule(lambda value: value == "" or rules.FILE.allows(value), PATH)] = ""
    confidence: Annotated[float, number(0, 1)] = 0.0
    share: Annotated[float, Rule(lambda value: value == 1 or SHARE.allows(value), ABOVE_0)] = 1.0
    power: Annotated[float, number(0.01, 100)] = 1.0
    weight: Annotated[float, number(0, 1000, open_ends=True)] = 1.0

    @property
    def defaults(self) -> bool:
        """Whether predictions are used unchanged. Regression requires this."""
        return (self.confidence, self.share, self.power) == (0, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Config(Checked):
    """The configuration of a run for one competition.

    Attributes:
        name: name of the config's file in pipeline/configs/.
        competition: slug of the competition on Kaggle.
        num_classes: number of labels, which is checked against the data. Omit it for regression and
            when there are several label columns.
        target: type of the prediction target (`pipeline.data.labels`): "classes", "ordinal",
            "multilabel", "regression" or "custom" (labels of any shape, see `data.custom_labels`).
            "classes" with several label columns uses soft labels (docs/soft-labels.md).
        metric: the competition's metric, either a name in pipeline.evaluate.metrics or a custom
            function (`pipeline.config.custom_code`). "" selects the default for the target.
        model, model_options: a function in `pipeline.models.architectures` or a custom function,
            and its keyword arguments.
        pretrained: pretrained weights to start from, or a tuple if the model has several networks.
            Can be "imagenet" (keras.applications), a Kaggle model in the form
            owner/model/framework/variation/version, hf://owner/name, a folder with a preset, or a
            .weights.h5 or .safetensors file (a path, or owner/slug/file in a dataset that the train
            notebook mounts). "none" uses random weights. "" uses "imagenet" for networks from
            keras.applications and random weights otherwise (docs/published-networks.md).
        fit: how to find the weights. "" uses gradient descent. "linear" computes the features of
            the frozen pretrained network once and fits a linear model to them
            (`pipeline.train.frozen_features`). "boosting" grows trees on these features
            (`pipeline.train.boosting`), or on a table's columns with model="columns". "linear" and
            "boosting" ignore epochs, optimizer and augmentation.
        loss: a custom function, or "focal" for classes and multilabel
            (`pipeline.evaluate.losses`). "" selects the default for the target.
        label_smoothing: for classes and multilabel, the fraction of each training label that is
            spread evenly over all labels. A typical value is 0.1.
        class_weights: for classes and ordinal, the weight of each label's rows in the loss:
            "balanced" (1 / the label's number of training rows) or {label: weight}, where labels
            that are not listed have a weight of 1. Weights are scaled to a mean of 1 over the
            training rows. "" gives all labels the same weight.
        augment: custom function that augments an image after the augmentations in `data`.
        augment_batch: custom function that mixes the images of a group (`batchnorm_batch`). It
            replaces data.mixup and data.cutmix.
        sampler: "balanced" to draw each label equally often in an epoch, or a custom function that
            returns an epoch's rows or a weight per row. "" uses each row once.
        train_step: custom function that replaces `pipeline.train.step.TrainStep.train_step`.
        log: custom function that receives every progress record, and the plots at the end.
        read_training, read_test: custom functions that read the inputs if data.kind="custom".
        postprocess: custom function that changes averaged predictions before they are scored or
            submitted (`pipeline.evaluate.postprocess`).
        thresholds: for a metric of labels, whether to decide the labels with thresholds or class
            factors that are found on out-of-fold rows (`pipeline.evaluate.thresholds`).
        write_submission: custom function that returns the columns of the submission.
            `pipeline.infer.submission` describes the default.
        init_from: earlier artifact to start from: its folder, or the owner/slug of a dataset that
            contains it (pipeline.train.warm_start).
        pseudo_labels: unlabelled rows to train on as well, with labels predicted by another run.
        drop_path: stochastic depth for residual networks, an argument of the model's function. For
            this fraction of the training images, the branch of the last block is skipped. The
            fraction increases linearly from 0 over the blocks. Typical values are 0.1, or 0.2 and
            more for deep networks.
        batch: images per optimizer step, summed over all replicas (only this size affects
            optimization).
        epochs: number of passes over the training images.
        frozen_epochs: number of initial epochs in which only new layers, such as the head, are
            trained. After these, the pretrained network is trained as well. If the model has no
            pretrained network, all layers except the last one with weights are frozen. Only weights
            are frozen: dropout stays active, and a BatchNormalization layer that is trained later
            uses batch statistics and updates its moving averages (unlike `trainable = False` in
            Keras).
        progressive: fractions of the full height and width at which training starts, such as
            (0.5, 0.75). The epochs are split into equal parts: one per fraction, and a final one
            with full-size images. Sides are rounded (`pipeline.train.phases.sizes`). Validation and
            inference always use full-size images.
        warmup_epochs: number of epochs in which the learning rate increases from 0 to its peak.
        batchnorm_momentum: momentum of BatchNorm's moving averages at the optimizer's `base_batch`.
            It is scaled to other batch sizes.
        batchnorm_batch: number of images that BatchNorm normalizes together, and that a custom loss
            can compare. Unlike the number of replicas and the memory size, this number affects the
            result. If None, it is the largest divisor of `batch` up to the optimizer's
            `base_batch`, or a slightly smaller one that can be split evenly between eight replicas
            (`pipeline.train.learning_rate.grouped`).
        micro_batch: images per forward and backward pass on one replica. If None, a replica
            processes all of its images at once or, if that fails, as many as fit in memory.
        keep: "last" saves the final weights in the artifact. "best" saves the weights of the epoch
            with the best validation score, measured with the competition's metric (ties are broken
            by the smallest validation loss).
        patience: number of epochs without improvement after which training stops. Epochs are
            compared in the same way as for `keep`. None runs all epochs.
        folds: number of parts into which the labelled images are split, stratified by label. For
            each part, a model is trained on all other parts. None trains a single model and holds
            out `data.validation_fraction`.
        limit_predictions: for regression, whether to clip predictions to the range of the training
            labels. Set it to False if labels can lie outside this range, for example because they
            follow a trend.
        views: number of test-time augmentations whose predictions are averaged. The first view is
            the original image. It is followed by mirrored images if data.flip is set, upside-down
            images if data.flip_vertical is set, and rotated images if data.rotate is set. All of
            these are then repeated: zoomed in on the centre if data.crop_scale is set, and shifted
            by one pixel if data.crop_padding is set. See `pipeline.infer.views`. If time runs
            short, views are dropped first.
        precision: precision for training. "auto" uses bfloat16 on hardware that supports it,
            float16 on older GPUs such as the T4 if its outputs agree with float32 at the start, and
            float32 for tables and other float32 inputs. "float32" uses full precision on every
            device. "mixed_float16" scales the loss (`pipeline.train.loss_scale`).
        feed: "device" keeps all images in device memory, "host" transfers each batch, "files"
            decodes each batch again, and "auto" selects the first of these that fits
            (pipeline.train.feed). All produce the same batches.
        infer_precision: "auto" selects "mixed_float16" on a GPU if its golden outputs agree, and
            "float32" otherwise (pipeline.infer.check).
        handoff: "dataset" publishes the artifact as a dataset; "kernel" mounts the train kernel's
            output.
        session_hours: time limit in hours, measured from the start of the process. Before it is
            reached, the run saves its state and finishes as "partial". None disables the limit.
            Kaggle stops a TPU session after 9 hours.
        infer_hours: the competition's time limit for inference (None uses session_hours).
        progress_seconds: minimum time between progress lines.
        checkpoint_seconds: minimum time between checkpoints (None derives it from their cost).
        baseline: score of a simple model, measured by `invoke inspect`. The run is compared with it
            at the end.
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
    # FREE, because a metric that changes the labels also changes the fingerprint of the data.
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
    postprocess: Annotated[Function, FREE] = ""
    thresholds: Annotated[bool, rules.TRUTH, Only("target", TARGETS[:3]), FREE] = False
    write_submission: Annotated[Function, FREE] = ""
    init_from: Annotated[str, rules.ANY_TEXT] = ""
    pseudo_labels: Annotated[PseudoLabels | None, rules.instance(PseudoLabels)] = None
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
        expected = f"at most epochs={epochs}, and above 0 with 'one_cycle' (such as 0.3 x epochs)"
        yield "warmup_epochs", rises and self.warmup_epochs <= epochs, expected
        steps = ["loss", "train_step", "sampler", "init_from", "label_smoothing", "progressive"]
        steps += ["pseudo_labels"]
        too = [name for name in steps if getattr(self, name)]
        too += ["target='custom'"] * (self.target == "custom")
        fitted = self.model != "columns" or (self.fit and data.kind == "table")
        expected = "another model, or a table with fit='boosting' or fit='linear'"
        yield "model", fitted, expected
        expected = f"'' with {', '.join(too)}, because fit does not run training steps"
        yield "fit", not (self.fit and too), expected
        yield "frozen_epochs", self.frozen_epochs < epochs, f"fewer than epochs={epochs}"
        of_images = not self.progressive or data.images
        yield "progressive", of_images, f"() because kind={data.kind!r} has no images"
        fewer = len(self.progressive) < epochs
        yield "progressive", fewer, f"fewer fractions than epochs={epochs}"
        known = given.name in OPTIMIZERS or given.scaling or self.batch == given.base_batch
        expected = f"{' or '.join(map(repr, SCALINGS))}: no built-in rule scales {given.name}"
        expected += f" from base_batch={given.base_batch} to batch={self.batch}"
        yield "optimizer.scaling", known, expected
        divides = self.batch % (self.batchnorm_batch or self.batch) == 0
        yield "batchnorm_batch", divides, f"a divisor of batch={self.batch}, or None"
        in_files = self.feed != "files" or data.kind in ("images", "tfrecords")
        yield "feed", in_files, f"another value because kind={data.kind!r} has no image files"
        # Views that were never used in training would make predictions worse.
        sides = min(2 ** (data.flip + data.flip_vertical + 2 * data.rotate), 8)
        most = sides * (1 + 2 * (data.crop_scale > 0) + 4 * (data.crop_padding > 0))
        expected = f"at most {most}, given data.flip, data.flip_vertical, data.rotate,"
        expected += " data.crop_scale and data.crop_padding"
        yield "views", self.views <= most, expected

    def _target_needs(self) -> Iterator[Need]:
        target, columns, free = self.target, len(self.data.labels), self.target == "custom"
        several, data = columns > 1 and not free, self.data
        single = target in ("classes", "ordinal")
        expected = "'classes' (votes), 'regression' or 'multilabel' with several label columns"
        yield "target", target != "ordinal" or not several, expected
        follows = several or target == "regression"
        counted = self.num_classes in (0, columns) if follows else self.num_classes >= 2 or free
        expected = "the number of labels, 2 or more"
        if follows:
            expected = f"{columns}, the number of label columns, or no value"
        yield "num_classes", counted, expected
        expected = f"another value because target={target!r} has no classes"
        yield "sampler", self.sampler != "balanced" or single, expected
        pseudo = self.pseudo_labels
        labelled = target not in ("ordinal", "custom")
        yield "pseudo_labels", not pseudo or labelled, f"None with target={target!r}"
        used = target != "regression" or not pseudo or pseudo.defaults
        expected = "confidence=0, share=1 and power=1, because numbers have no probabilities"
        yield "pseudo_labels", used, expected
        mixed = self.augment_batch and (data.mixup or data.cutmix)
        yield "augment_batch", not mixed, "'' with data.mixup or data.cutmix, which also mix images"
        mixes = target in CLASSES.values or not data.cutmix
        expected = f"0 with target={target!r}, because CutMix requires class labels"
        yield "data.cutmix", mixes, f"{expected}; use mixup instead"
        for name in ("loss", "metric", "write_submission"):
            custom = getattr(self, name).isidentifier() or not free
            yield name, custom, f"{FUNCTION.expected}, because target='custom'"
        together = bool(data.custom_labels) == free and (data.kind == "custom") >= free
        expected = 'a type and shape with data.kind="custom" and target="custom", otherwise ()'
        yield "data.custom_labels", together, expected

    @property
    def kaggle_models(self) -> tuple[str, ...]:
        """Kaggle models in `pretrained`, which the train notebook mounts."""
        return tuple(
            name for name in rules.as_tuple(self.pretrained) if KAGGLE_MODEL.fullmatch(name)
        )

    @property
    def presets(self) -> tuple[str, ...]:
        return tuple(
            name
            for name in rules.as_tuple(self.pretrained)
            if name not in ("", "imagenet", "none") and not name.endswith((".h5", ".safetensors"))
        )

    @property
    def passes(self) -> int:
        return 1 if self.fit else self.epochs * (self.folds or 1)

    @property
    def exact(self) -> bool:
        """Whether inputs must not be rounded. Rounding could change a row's path in a tree."""
        return self.data.numbers or self.fit == "boosting"

    @property
    def growing_epochs(self) -> tuple[int, ...]:
        """The epochs after which the image size increases if `progressive` is set."""
        parts = len(self.progressive) + 1
        return tuple(self.epochs * part // parts for part in range(1, parts))

    @property
    def compares_epochs(self) -> bool:
        return self.keep == "best" or self.patience is not None

    @property
    def outputs(self) -> int:
        """Number of model outputs per example.

        With target="custom", this is `num_classes`, because custom functions determine the shape.
        """
        if self.target == "custom":
            return self.num_classes
        if self.target == "regression" or len(self.data.labels) > 1:
            return len(self.data.labels)
        return self.num_classes - (self.target == "ordinal")

    @property
    def classes(self) -> int:
        return self.outputs + (self.target == "ordinal")

    @property
    def soft(self) -> bool:
        """Whether each class has a label column of votes or probabilities."""
        return self.target == "classes" and len(self.data.labels) > 1

    @property
    def training_files(self) -> tuple[str, ...] | None:
        """Paths or patterns of the competition's files that training reads.

        This is None for a custom reader, which can read any file.
        """
        files, pseudo = self.data.files("train"), self.pseudo_labels
        if files is None or pseudo is None:
            return files
        unlabelled = (pseudo.rows,) if pseudo.rows else self.data.files("test") or ()
        return (*files, *unlabelled)

    @property
    def learns_shares(self) -> bool:
        """Whether the class labels used for training are probabilities."""
        return self.soft or (self.target == "classes" and self.pseudo_labels is not None)

    def with_epochs(self, epochs: int) -> dict[str, Any]:
        """Return the changed fields for a run with this number of epochs.

        Warm-up and frozen epochs are reduced in proportion. The number of image sizes is limited to
        the number of epochs.

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
        def part(value: Any) -> dict[str, Any]:
            return dict(value if isinstance(value, Mapping) else vars(value))

        return dict(json.loads(json.dumps(part(self), default=part)))


# Fields that do not affect the weights.
MAY_CHANGE = {kind.prefix + name for kind in (Config, Data) for name in rules.marked(kind, FREE)}
DEFAULTS: dict[str, Any] = {
    kind.prefix + field.name: json.loads(json.dumps(field.default))
    for kind in (Config, Data, Optimizer)
    for field in fields(kind)
    if field.default is not MISSING and kind.prefix + field.name not in MAY_CHANGE
}


def changes(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return the differences between two configs that affect training, one string per field.

    A missing field has its default value, so runs stay valid when a new field is added.

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
    values = DEFAULTS | dict(config)
    for part in ("data", "optimizer"):
        values |= {f"{part}.{name}": value for name, value in values.pop(part, {}).items()}
    return {name: value for name, value in values.items() if name not in MAY_CHANGE}
