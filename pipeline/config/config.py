"""What a run is: one frozen `Config`, which checks itself when it is made and survives JSON.

It uses the standard library alone, so that a command reads a config without starting Keras.

To add a field: one line with its type, its rule (`pipeline.config.rules`) and a default, in
`Config`, `Optimizer` or `pipeline.config.data_layout.Data`; and a line of the docstring above it.
An augmentation takes two edits more (CONTRIBUTING.md).
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
# The optimizers whose numbers have fields and rules of scaling; and the rules for others.
OPTIMIZERS = ("sgd", "adam", "adamw")
SCALINGS = ("linear", "sqrt", "none")
# Far above any need, and far below what ends a run for lack of memory.
MOST_BATCH = 2**20
MOMENTUM = number(0, 0.999999)
SHARE = number(0, 1, open_ends=True)
SHARES = Rule(
    lambda value: (
        isinstance(value, tuple) and all(map(SHARE.allows, value)) and [*value] == sorted({*value})
    ),
    "shares of a side that rise, each above 0 and below 1, as (0.5, 0.75)",
)
NAME = text("[a-z][a-z0-9_]*", "its file's name: lower-case letters, digits and underscores")
SLUG = text(
    "[A-Za-z0-9][A-Za-z0-9-]{2,99}",
    "the slug of kaggle.com/competitions/<slug>: 3 to 100 letters, digits and hyphens",
)
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")
MODEL = text(r"[^\W\d]\w*", "a function of the config's file or pipeline/models/architectures.py")
KAGGLE_MODEL = re.compile(
    r"(?:\w[\w.-]*/){4}[1-9][0-9]*"
)  # owner/model/framework/variation/version
FUNCTION = text(r"([^\W\d]\w*)?", "a function of the config's own file (docs/custom-code.md)")
SCHEDULE = text(r"[^\W\d]\w*", f"one of {', '.join(map(repr, SCHEDULES))}, or a custom function")
OPTIONS = rules.mapping(
    lambda value: (
        isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))
    ),
    "keyword arguments, as {'width': 32}: finite numbers, truth values or texts",
)
OPTIMIZER = text(
    r"[^\W\d]\w*", "'sgd', 'adam', 'adamw', a class of keras.optimizers, or a custom function"
)
ARGUMENTS = rules.mapping(
    lambda value: rules.TEXTS.allows(value) or OPTIONS.allows({"value": value}),
    "keyword arguments, as {'beta_1': 0.9}: numbers, truth values, texts, or lists of texts",
)
RATES = rules.mapping(number(0, 1000).allows, "names of layers with factors from 0 to 1000")
LABELS = rules.mapping(number(0, 1e6).allows, "labels with their weights, 0 to 1,000,000")
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
        name: "sgd", "adam" or "adamw"; a class of keras.optimizers, as "Lion"; or a custom function
            that returns an optimizer.
        base_rate: learning rate per optimizer step that worked at `base_batch`.
        base_batch: images per step, over all replicas, when it worked.
        arguments: of another optimizer than the first three, by keyword.
        scaling: how the rate of another one goes from `base_batch` to `batch`: "linear" (times
            batch / base_batch), "sqrt" (times the root of it) or "none". "": both are equal.
        layer_rates: {layer: factor} of the learning rate, for layers of these names and all inside;
            * and ? stand for any letters. Of several names that fit the first counts.
        momentum: of "sgd", which is Nesterov's.
        beta_1, beta_2, epsilon: of "adam" and "adamw".
        weight_decay: of "sgd" and "adamw", decoupled: each step takes learning rate x decay off the
            weights (as Keras does it), but for biases and normalization's scale and offset (Goyal
            et al. 2017, 1706.02677; He et al. 2018, 1812.01187). "adam" has none.
        clip_norm: a mean gradient of a batch with a larger norm, over all weights together, is
            scaled down to it; 1 is usual. None: never.
        layer_decay: factor of the learning rate from each block of a network, or twelfth of one
            that is no stack of blocks, to the next, away from the head
            (`pipeline.train.layer_rates.factors`); 0.65 to 0.9 is usual for a published network.
            1: none.
        schedule: how the learning rate continues after the warm-up: "cosine" falls along a half
            cosine; "one_cycle" does so after a warm-up along another one; "constant" stays, and
            falls at the end (`pipeline.train.learning_rate.schedule`); or a custom function.
        decay_share: of "constant": the share of all steps in which it falls to 0; None: 0.2.
        ema_momentum: of an average of the weights, and of BatchNorm's statistics, that is used for
            evaluation and in the artifact; None: no average. In step t it is at most (1 + t) / (10
            + t), so that the random weights of the start soon disappear.
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
        ours, expected = self.name in OPTIMIZERS, f"nothing with name={self.name!r}"
        for name in ("arguments", "scaling"):
            has = f"{expected}, which has fields and a rule of its own"
            yield name, not (ours and getattr(self, name)), has
        for name in ("momentum", "beta_1", "beta_2", "epsilon"):
            unset = getattr(self, name) == DEFAULTS[self.prefix + name]
            yield name, ours or unset, f"{expected}: put it into arguments"


@dataclass(frozen=True, kw_only=True)
class Baseline(Checked):
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

    prefix = "baseline."

    model: Annotated[str, rules.TEXT]
    metric: Annotated[str, rules.TEXT]
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
            "regression" or "custom", labels of any shape (`data.custom_labels`).
        metric: the competition's, a name in pipeline.evaluate.metrics or of a custom function
            (`pipeline.config.custom_code`); "" takes the usual one of the target.
        model, model_options: a function of `pipeline.models.architectures` or a custom one, and its
            keyword arguments.
        pretrained: the published weights to begin with, or several for a model of several networks:
            "imagenet" (what keras.applications publishes), a model of Kaggle as
            owner/model/framework/variation/version, hf://owner/name, a folder with a preset, or a
            .weights.h5 or .safetensors file (a path, or owner/slug/file in a dataset that the train
            notebook mounts); "none": random weights. "" takes "imagenet" for a network of
            keras.applications, and nothing for others (docs/published-networks.md).
        fit: how weights are found: "" by steps along gradients; "linear" leaves the published
            network as it is, computes its features once, and fits a linear model to them
            (`pipeline.train.frozen_features`); "boosting" grows trees instead
            (`pipeline.train.boosting`), of a table's columns with model="columns". Epochs,
            optimizer and augmentation do nothing in both.
        loss: a custom function, or "focal" for classes and multilabel
            (`pipeline.evaluate.losses`); "" takes the usual one of the target.
        label_smoothing: of classes and multilabel: the share of each label that all labels get in
            equal parts, in training; 0.1 is usual.
        class_weights: of classes and ordinal: how much the loss of a label's rows counts.
            "balanced" takes 1 / the number of its training rows; or {label: weight}, where others
            have 1. They are scaled to a mean of 1 over the training rows. "": all count alike.
        augment: a custom function that changes an image at random, after what `data` names.
        augment_batch: a custom function that mixes the images of a group of `batchnorm_batch`, in
            place of data.mixup and data.cutmix.
        sampler: "balanced" takes each label equally often in an epoch; or a custom function that
            says which rows an epoch has, or a weight for each. "": each row once.
        train_step: a custom function in place of `pipeline.train.step.TrainStep.train_step`.
        log: a custom function that gets each record of progress, and the pictures at the end.
        read_training, read_test: custom functions that read the inputs of data.kind="custom".
        write_submission: a custom function that makes the submission's columns; "": as
            `pipeline.infer.submission` does.
        init_from: the weights to begin with: an artifact's folder, or owner/slug of a dataset with
            one (pipeline.train.warm_start); "": those of the model.
        drop_path: of a residual network: the share of images that go without the branch of its
            last block, in training; before it fewer, linearly from 0. 0.1 is usual, 0.2 and more
            for a deep one. The model's function takes it by this name.
        batch: images per optimizer step, over all replicas. It alone determines the optimization.
        epochs: passes over the training images.
        frozen_epochs: passes at the start in which only new layers train, as the head; the
            published network trains from then on. A model without a published network freezes all
            but its last layer with weights. Only weights stay: dropout, and a BatchNormalization
            that trains later, compute as in any training, and its moving statistics move (by Keras'
            `trainable = False` it would use them).
        progressive: shares of height and width that images have at first, as (0.5, 0.75): the
            epochs are split into equal parts, one for each share and a last one of whole images.
            Sides are rounded (`pipeline.train.phases.sizes`). Held-out rows and the test set always
            have whole images.
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
        precision: of training. "auto" takes bfloat16 if the hardware computes it, and on an older
            GPU, as a T4, float16 if its outputs agree at the start; float32 for tables and other
            float32 inputs. "float32" is multiplied as such on every device. "mixed_float16" scales
            the loss (`pipeline.train.loss_scale`).
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
        baseline: what a simple model scores, which the run is compared with at its end; None: it is
            unknown. `invoke inspect` measures it.
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
    # Its effect on the labels, their logarithm, is in the fingerprint of the data.
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
        rises = self.warmup_epochs > 0 or self.optimizer.schedule != "one_cycle"
        expected = f"at most epochs={self.epochs}; with schedule='one_cycle' above 0, as 0.3 of it"
        yield "warmup_epochs", rises and self.warmup_epochs <= self.epochs, expected
        own = ("loss", "train_step", "sampler", "init_from", "label_smoothing", "progressive")
        too = [name for name in own if getattr(self, name)]
        too += ["target='custom'"] * (self.target == "custom")
        columns = self.model == "columns"
        expected = "another, or a table with fit='boosting' or 'linear', which it is for"
        yield "model", not columns or bool(self.fit and self.data.kind == "table"), expected
        yield "fit", not (self.fit and too), f"'' with {', '.join(too)}: it takes no steps"
        fewer = not self.frozen_epochs or self.frozen_epochs < self.epochs
        yield "frozen_epochs", fewer, f"fewer than epochs={self.epochs}"
        of_images = not self.progressive or self.data.images
        yield "progressive", of_images, f"() with kind={self.data.kind!r}, without images"
        fewer = len(self.progressive) < self.epochs
        yield "progressive", fewer, f"fewer shares than epochs={self.epochs}"
        given = self.optimizer
        known = given.name in OPTIMIZERS or given.scaling or self.batch == given.base_batch
        expected = f"{' or '.join(map(repr, SCALINGS))}: {given.name} has no rule of its own to go"
        expected += f" from base_batch={given.base_batch} to batch={self.batch}"
        yield "optimizer.scaling", known, expected
        divides = self.batch % (self.batchnorm_batch or self.batch) == 0
        yield "batchnorm_batch", divides, f"a divisor of batch={self.batch}, or None"
        data = self.data
        in_files = self.feed != "files" or data.kind in ("images", "tfrecords")
        yield "feed", in_files, f"another with kind={data.kind!r}, which has no image files"
        # A view that training never saw makes the prediction worse.
        most = 2**data.flip * 2**data.flip_vertical * (5 if data.crop_padding else 1)
        expected = f"at most {most}, as data.flip, data.flip_vertical and data.crop_padding are"
        yield "views", self.views <= most, expected

    def _target_needs(self) -> Iterator[Need]:
        """Yield what goes with the target."""
        target, columns, free = self.target, len(self.data.labels), self.target == "custom"
        several = columns > 1 and not free
        numbers, single = target in ("regression", "multilabel"), target in ("classes", "ordinal")
        expected = "'regression' or 'multilabel' with several label columns"
        yield "target", numbers or not several, expected
        follows = several or target == "regression"
        counted = self.num_classes in (0, columns) if follows else self.num_classes >= 2 or free
        expected = "2 or more, the number of labels; nothing with a regression or several columns"
        yield "num_classes", counted, expected
        yield "sampler", self.sampler != "balanced" or single, "another: there are no classes"
        mixed = self.augment_batch and (self.data.mixup or self.data.cutmix)
        yield (
            "augment_batch",
            not mixed,
            "nothing with data.mixup or data.cutmix, which mix already",
        )
        mixes = target in CLASSES.values or not self.data.cutmix
        expected = f"nothing with target={target!r}: a part of a picture has no part of its number"
        yield "data.cutmix", mixes, f"{expected}; mixup may stay"
        for name in ("loss", "metric", "write_submission"):
            custom = getattr(self, name).isidentifier() or not free
            yield name, custom, f"{FUNCTION.expected}, with target='custom'"
        together = bool(self.data.custom_labels) == free and (self.data.kind == "custom") >= free
        expected = 'a type and a shape with data.kind="custom" and target="custom", else nothing'
        yield "data.custom_labels", together, expected

    @property
    def kaggle_models(self) -> tuple[str, ...]:
        """The models of Kaggle among `pretrained`, which the train notebook mounts."""
        return tuple(
            name for name in rules.as_tuple(self.pretrained) if KAGGLE_MODEL.fullmatch(name)
        )

    @property
    def presets(self) -> tuple[str, ...]:
        """The presets among `pretrained`: neither files of weights, nor the words for networks of
        keras.applications.
        """
        return tuple(
            name
            for name in rules.as_tuple(self.pretrained)
            if name not in ("", "imagenet", "none") and not name.endswith((".h5", ".safetensors"))
        )

    @property
    def passes(self) -> int:
        """How often a run goes over the training images, all folds counted."""
        return 1 if self.fit else self.epochs * (self.folds or 1)

    @property
    def exact(self) -> bool:
        """Whether inputs or features must not be rounded: through trees a row would take another
        way.
        """
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
        """How many numbers a model gives for one example; with target="custom" it gives what the
        custom functions expect, and `num_classes` says no more than the config's author wants.
        """
        if self.target == "custom":
            return self.num_classes
        if self.target == "regression" or len(self.data.labels) > 1:
            return len(self.data.labels)
        return self.num_classes - (self.target == "ordinal")

    def with_epochs(self, epochs: int) -> dict[str, Any]:
        """Return the fields of a run of fewer epochs, with its share of warm-up and frozen ones,
        and at most as many sizes as epochs.

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
        """Return the config as what `json.dumps` takes; `from_json` gives an equal config back."""

        def part(value: Any) -> dict[str, Any]:
            return dict(value if isinstance(value, Mapping) else vars(value))

        return dict(json.loads(json.dumps(part(self), default=part)))


# Fields that training does not read. The images themselves are compared by content.
MAY_CHANGE = {kind.prefix + name for kind in (Config, Data) for name in rules.marked(kind, FREE)}
DEFAULTS: dict[str, Any] = {
    kind.prefix + field.name: json.loads(json.dumps(field.default))
    for kind in (Config, Data, Optimizer)
    for field in fields(kind)
    if field.default is not MISSING and kind.prefix + field.name not in MAY_CHANGE
}


def changes(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return how two configs differ in what training depends on, a text for each value. A field
    that one of them did not know yet has its default there, so a new field stops no run.

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
    """Return the values that count, by full name, for example "data.height"."""
    values = DEFAULTS | dict(config)
    for part in ("data", "optimizer"):
        values |= {f"{part}.{name}": value for name, value in values.pop(part, {}).items()}
    return {name: value for name, value in values.items() if name not in MAY_CHANGE}
