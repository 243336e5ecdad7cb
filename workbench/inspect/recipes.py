"""Choose hyperparameters for a task, a machine and a time budget, and explain the choices.

The recipe for a TPU follows winning notebooks. The recipe for a CPU is a linear model on the
features of a published network if the network's weights are on this machine. Otherwise, it is the
largest network that can be trained for enough epochs within the budget. The time for the epochs is
estimated from measured steps. Recipes have not been run on a TPU, so the speed of the TPU is
assumed (docs/facts.md).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config import Config, Data, Optimizer
from pipeline.errors import ConfigError
from pipeline.train.learning_rate import ADAM_STEPS_PER_EPOCH, LEAST_STEPS_PER_EPOCH
from workbench import budget as budgets
from workbench.budget import shown
from workbench.inspect import published_networks
from workbench.inspect.inputs import Reader
from workbench.inspect.published_networks import FILLING, Published
from workbench.plan.accelerators import V5E
from workbench.plan.laws import CALL, DECODES, EFFICIENCY, GATHERS, VALIDATES, roofline

TPU, CPU = "tpu-v5e-8", "cpu"
BUDGETS = {TPU: "2h", CPU: "8m"}  # defaults

BASE = 32  # batch size for which the learning rates are given
TINY = 64  # pixels; larger images use a published network, others train from scratch
PICTURES = 96  # pixels; minimum side for transformers, and for features on a CPU
POSITIONS = 256  # pixels; in images with a smaller area, positions matter
SIDES = (224, 288, 384)  # pixels; image sides for pretrained networks
ROUND = 32
LEAST_SIDE = 32  # pixels; keras.applications does not support smaller images
FEW_ROWS = 1000
MANY_ROWS = 5_000  # table rows; with fewer, "tabular" overfits (docs/dev/findings.md)
MOST_FOLDED = 100_000  # rows; with more, a single validation set is large enough
FOLDS = 5
MOST_TABLE = 256  # maximum batch size for tables
PATIENCE = 8  # epochs without improvement; on some tables, networks overfit after 10 of 40
MOST_BYTES = 100e9  # decoded images that fit in a TPU host's memory
ENOUGH_IMAGES = 240_000  # training examples to process from scratch on a CPU, if time allows

CPUS, CORES, REACHED = 96, 8, EFFICIENCY[0]  # TPU v5e-8 and its host, as in `plan`
AGAIN = 0.3  # fraction of setup time for later folds, whose compilation is cached (19 % measured)
FILLED = 0.85  # fraction of the budget to use, because the speed of a machine varies
LINEAR = 0.7  # fraction of that for computing features; linear models get the rest
TUNED = 10  # epochs if the user removes fit="linear" from the config
FASTEST = 1e12  # upper limit of operations per second, to skip networks that are too slow


@dataclass(frozen=True)
class Plan:
    """The machine ("tpu-v5e-8" or "cpu") and the time budget of a training run.

    Attributes:
        seconds: time from the start of the training run until its artifact is written.
    """

    machine: str = TPU
    seconds: float = 2 * 3600.0


def plan(machine: str = "", budget: str = "") -> Plan:
    """Return the plan that is specified by the values of `--for` and `--budget`.

    Raises:
        ConfigError: if the machine is unknown, or if the budget is not a duration.

    >>> plan("cpu", "8m"), plan("", "1.5h").seconds
    (Plan(machine='cpu', seconds=480.0), 5400.0)
    """
    machine = machine or TPU
    if machine not in BUDGETS:
        raise ConfigError(
            f"Invalid --for {machine[:40]}: expected one of {', '.join(BUDGETS)}.\n"
            f"Correct it, for example: --for {CPU}"
        )
    return Plan(machine, budgets.seconds(budget or BUDGETS[machine]))


@dataclass(frozen=True)
class Task:
    """A learning task.

    Attributes:
        given: config fields that are already known, such as name, target and metric.
        data: the config's `data`, without augmentation.
        rarest: number of rows in the rarest class, or `rows` if there are no classes.
        size: median width and height of image files, or None if there are none.
    """

    given: dict[str, Any]
    data: Data
    rows: int
    rarest: int
    size: tuple[int, int] | None = None

    @property
    def folds(self) -> tuple[int, ...]:
        """Fold counts in order of preference. 1 means a single validation split."""
        return (FOLDS, 1) if self.rarest >= 2 * FOLDS and self.rows <= MOST_FOLDED else (1,)

    def split(self, folds: int) -> tuple[int, int]:
        share = 1 / folds if folds > 1 else self.data.validation_fraction
        held = max(round(self.rows * share), 1)
        return max(self.rows - held, 1), held


@dataclass(frozen=True)
class Speed:
    """How fast a network trains.

    Attributes:
        image: seconds per image, including input pipeline and augmentation.
        setup: seconds for building and compiling in the first fold.
        decodes: number of images read from files per second (959 JPEGs of 500x375 per second were
            measured on two cores on 2026-11-21).
        start: seconds for imports, the final evaluation and plots.
    """

    image: float
    setup: float
    decodes: float = 1_000.0
    start: float = 12.0

    def fixed(self, task: Task, folds: int) -> float:
        setups = self.setup * (1 + AGAIN * (folds - 1))
        return self.start + setups + task.rows / self.decodes

    def seconds(self, task: Task, folds: int, epochs: int) -> float:
        """Return the duration of a training run. `folds` is 1 if there are no folds."""
        rows, held = task.split(folds)
        epoch = self.image * (rows + VALIDATES * held)
        return self.fixed(task, folds) + folds * epochs * epoch

    def lacking(self, task: Task, folds: int, epochs: int, network: "Network") -> str:
        if epochs >= network.enough:
            return ""
        minutes = math.ceil(self.seconds(task, folds, network.enough) / FILLED / 60)
        return f". For the recommended {network.enough} epochs, pass --budget {minutes}m"

    def epochs(self, task: Task, folds: int, seconds: float) -> int:
        """Return the number of epochs that can be trained in the given time, which may be 0."""
        fixed = self.fixed(task, folds)
        return max(int((FILLED * seconds - fixed) / (self.seconds(task, folds, 1) - fixed)), 0)


@dataclass(frozen=True)
class Network:
    """A candidate network.

    Attributes:
        options: value of `model_options` in the config.
        data: the config's `data`, including image size and augmentation.
        operations: number of operations for one image's forward pass.
        why: why it was chosen, to be shown to the user.
        enough, most: minimum number of epochs that is useful, and the number beyond which further
            epochs do not help.
        batch: maximum batch size.
        published: the published weights, or None for random initialization.
    """

    model: str
    options: dict[str, Any]
    data: Data
    operations: float
    why: str
    enough: int = 30
    most: int = 200
    batch: int = 4 * BASE
    published: Published | None = None

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.options.items())


@dataclass(frozen=True)
class Recipe:
    """A proposed config with the reason for each choice.

    Attributes:
        seconds: expected duration of the training run.
        reasons: explanation of each choice, keyed by topic.
    """

    config: Config
    plan: Plan
    seconds: float
    reasons: dict[str, str]
    reader: Reader | None = None


def on_this_cpu(config: Config, least_seconds: float = 1.0) -> Speed:
    """Measure how fast a config's network trains on this machine, using random images.

    The config's number of epochs is ignored. The measurement takes at least three steps.
    """
    from workbench.plan import probe

    if config.fit:
        found = probe.of_features(config, least_seconds)
        return Speed(found.step / config.batch, setup=found.setup)
    found = probe.of_step(config, least_seconds)
    # Evaluation is a separate program of about half the size.
    return Speed(found.step / config.batch, setup=1.5 * found.setup)


def on_tpu(config: Config, network: Network) -> Speed:
    """Estimate the speed on a TPU v5e-8.

    A training step is assumed to cost as much as three predictions.
    """
    step = max(roofline(V5E, 3 * network.operations * config.batch / CORES) / REACHED, CALL)
    image = max(step / config.batch, math.prod(config.data.shape) / (CPUS * GATHERS))
    return Speed(image, setup=180.0, decodes=CPUS * DECODES, start=60.0)


def in_budget(epochs: int, seconds: float, plan: Plan) -> str:
    """Describe how long a number of epochs takes, compared with the budget.

    >>> in_budget(9, 90, Plan(CPU, 120)), in_budget(1, 180, Plan(CPU, 120))
    ('9: about 90 s, within the --budget of 2 min', '1: about 3 min, over the --budget of 2 min')
    """
    between = "within" if seconds <= plan.seconds else "over"
    return f"{epochs}: about {shown(seconds)}, {between} the --budget of {shown(plan.seconds)}"


def batch_of(rows: int, most: int, steps: int = LEAST_STEPS_PER_EPOCH) -> int:
    """Return the largest batch size that gives each epoch enough steps, but at most `most`.

    >>> [batch_of(rows, 128) for rows in (50, 1200, 1800, 50_000)]
    [32, 32, 64, 128]
    """
    batch = BASE
    while batch < most and rows >= 2 * batch * steps:
        batch *= 2
    return batch


def recipe(task: Task, plan: Plan, measure: Callable[[Config], Speed] = on_this_cpu) -> Recipe:
    """Return the best recipe for a task on a machine within a time budget.

    Args:
        measure: function that returns the speed of a config's network on this machine's CPU.
    """
    if plan.machine == CPU and (found := _on_features(task, plan, measure)):
        return found
    tried: list[tuple[Network, Speed]] = []  # from best to worst
    if task.data.kind == "table":
        network = for_table(task)
        # On two cores, a step takes about 1 ms, or 6 ms for "tabular" (measured 2026-11-28).
        step = (8e-3 if network.model == "tabular" else 2e-3) / _config(task, network, 1, 1).batch
        tried = [(network, Speed(step, setup=6.0, decodes=math.inf))]
    elif plan.machine == TPU:
        tried = [(each, on_tpu(_config(task, each, 1, 1), each)) for each in for_tpu(task)]
    else:
        for network in for_cpu(task):
            if tried:
                smaller, speed = tried[0]
                hoped = replace(speed, image=speed.image * network.operations / smaller.operations)
                if hoped.epochs(task, 1, plan.seconds) < network.enough:
                    break
            tried.insert(0, (network, measure(_config(task, network, 1, 1))))
    # Prefer folds to a larger network, because averaging the folds is better. If no network can
    # learn enough within the budget, use the fastest one.
    fitting = (
        (network, speed, folds)
        for folds in task.folds
        for network, speed in tried
        if speed.epochs(task, folds, plan.seconds) >= network.enough
    )
    fastest = min(tried, key=lambda pair: pair[1].image)
    network, speed, folds = next(fitting, (*fastest, 1))
    epochs = max(min(speed.epochs(task, folds, plan.seconds), network.most), 1)
    config = _config(task, network, folds, epochs)
    seconds = speed.seconds(task, folds, epochs)
    machine = f"on a TPU v5e-8 at {REACHED:.0%} of peak speed (estimated; not yet run there)"
    if task.data.kind == "table":
        machine = "on a TPU or a CPU. More epochs overfit"
    elif plan.machine == CPU:
        speeds = "; ".join(f"{each}: {1 / found.image:,.0f}" for each, found in reversed(tried))
        machine = f"on this machine (images/s measured here: {speeds})"
    reasons = _reasons(task, network, config)
    reasons["epochs"] = (
        f"{in_budget(epochs, seconds, plan)}, including {shown(speed.fixed(task, folds))} to start "
        f"and compile, {machine}{speed.lacking(task, folds, epochs, network)}"
    )
    return Recipe(config, plan, seconds, reasons)


def for_table(task: Task) -> Network:
    if task.rows >= MANY_ROWS:
        why = f"suits {task.rows:,} table rows, because it learns thresholds as boosting does"
        return Network("tabular", {}, task.data, 0.0, why, enough=20, most=40, batch=MOST_TABLE)
    few = task.rows < FEW_ROWS
    width, depth, dropout, most = (32, 1, 0.3, 40) if few else (128, 2, 0.5, 15)
    options = {"width": width, "depth": depth, "dropout": dropout}
    why = f"suits {task.rows:,} table rows"
    return Network("mlp", options, task.data, 0.0, why, enough=1, most=most, batch=MOST_TABLE)


def for_cpu(task: Task) -> Iterator[Network]:
    # On a CPU, mixup would double the compilation time and make steps 20 % slower.
    data = _shifted(task.data, 8)
    area, channels = data.height * data.width, data.channels
    enough = min(max(round(ENOUGH_IMAGES / task.rows), 30), 80)  # few rows overfit early
    limits: Any = {"enough": enough, "most": 400, "batch": 2 * BASE}
    if area <= POSITIONS:
        for width in (32, 64):
            adds = area * 9 * (channels * width + width**2 + 6 * width**2 / 4)
            options = {"width": width, "dropout": 0.3}
            why = "suits tiny images, where positions matter"
            yield Network("small_cnn", options, data, 2 * adds, why, **limits)
        return
    coarse = 2 ** max(math.ceil(math.log2(max(data.height, data.width) / 16)), 0)
    sizes = [(coarse, 32), (coarse, 48), (coarse, 64), (max(coarse // 2, 1), 48)]
    for stride, width in dict.fromkeys(sizes):
        options = {"width": width, "stride": stride, "dropout": 0.2}
        stem = 9 * channels * stride**2 * width
        adds = area / stride**2 * (stem + 3 * 2 * 9 * width**2 + 4 * width**2)
        why = "uses few channels at full resolution, which is efficient on a CPU"
        yield Network("strided_resnet", options, data, 2 * adds, why, **limits)


def for_tpu(task: Task) -> Iterator[Network]:
    data, size = task.data, task.size or (task.data.width, task.data.height)
    area = data.height * data.width
    mixing: dict[str, Any] = {
        "mixup": 0.2,
        "cutmix": float(task.given["target"] in ("classes", "multilabel")),
    }
    if min(data.height, data.width) < 16:  # too small for the pooling in other networks
        options: dict[str, Any] = {"width": 32, "dropout": 0.3}
        why = "suits tiny images, where positions matter"
        yield Network("small_cnn", options, _shifted(data, 8), 2 * area * 9 * 6 * 32**2, why)
    elif max(size) <= TINY or (task.size is None and min(size) < LEAST_SIDE):
        why = f"trained from scratch, because published networks expect more than {TINY} pixels"
        options, adds = {"k": 4, "n": 2, "kernel_size": 3}, area * 3 * 4 * 9 * 64**2
        mixed = replace(_shifted(data, 8), **mixing)
        yield Network("wide_resnet", options, mixed, 2 * adds, why)
    else:
        sizes, most = [data], 40 if task.rows < FEW_ROWS else 20
        if task.size:  # the largest side that is not above the image size, then 224
            fits = [s for s in SIDES if 3 * task.rows * s**2 <= MOST_BYTES and s <= max(size)]
            sides = sorted({*fits[-1:], SIDES[0]}, reverse=True)
            sizes = [_sized(data, size, side) for side in sides]
        for sized in (replace(_shifted(each, 16), **mixing) for each in sizes):
            for one in published_networks.buildable():
                odd = sized.height % one.patch or sized.width % one.patch
                if not (one.is_transformer and (odd or max(size) < PICTURES)):
                    yield _published(one, sized, enough=8, most=most)


def _published(one: Published, data: Data, **limits: int) -> Network:
    why = f"{one.pretrained} ({one.known}), as in winning notebooks. Layers below the head use a "
    why += "tenth of the learning rate"
    if one.decay < 1:
        why += f", and each block uses {one.decay:g} times the learning rate of the next one"
    options = {"backbone_rate": 0.1, "dropout": 0.2}
    operations = 2 * one.adds * data.height * data.width / SIDES[0] ** 2
    batch = FILLING if one.fills else 4 * BASE
    return Network(one.model, options, data, operations, why, batch=batch, published=one, **limits)


def _on_features(task: Task, plan: Plan, measure: Callable[[Config], Speed]) -> Recipe | None:
    """Return the recipe for a linear model on a published network's features, or None.

    It uses the largest network that can process all images within the budget and whose weights are
    on this machine. Small images are not supported.
    """
    size = task.size or (task.data.width, task.data.height)
    if task.data.kind not in ("images", "tfrecords") or min(size) < PICTURES:
        return None
    sized = _sized(task.data, size, SIDES[0]) if task.size else task.data
    best, image, room = None, 1 / FASTEST, FILLED * LINEAR * plan.seconds
    for one in published_networks.at_hand():
        network = replace(_published(one, _shifted(sized, 16)), batch=2 * BASE)
        odd = sized.height % one.patch or sized.width % one.patch
        if odd or task.rows * image * network.operations > room:
            continue
        config = replace(_config(task, network, task.folds[0], TUNED), fit="linear", views=1)
        speed = measure(config)
        image = speed.image / network.operations
        if (seconds := speed.fixed(task, 1) + task.rows * speed.image) > room:
            break
        best = network, config, speed, seconds / LINEAR
    if best is None:
        return None
    network, config, speed, seconds = best
    reasons = _reasons(task, network, config)
    text = in_budget(config.epochs, seconds, plan)
    reasons["epochs"] = (
        f"{text}. fit='linear' requires only one pass over the images, at {1 / speed.image:,.0f} "
        "images/s, measured here. Remove that line to fine-tune for this number of epochs"
    )
    return Recipe(config, plan, seconds, reasons)


def _sized(data: Data, size: tuple[int, int], side: int) -> Data:
    """Scale the image size to a longest side of `side`, and keep the aspect ratio of `size`."""
    if data.resize == "pad":
        return replace(data, height=side, width=side)
    width, height = (max(round(each * side / max(size) / ROUND), 2) * ROUND for each in size)
    return replace(data, height=height, width=width, resize="stretch")


def _shifted(data: Data, part: int) -> Data:
    """Add random shifts, and random flips to colour images.

    Grey images are not flipped, because they often show handwriting or print.
    """
    padding = max(min(data.height, data.width) // part, 1)
    return replace(data, crop_padding=padding, flip=data.channels == 3)


def _config(task: Task, network: Network, folds: int, epochs: int) -> Config:
    data, published = network.data, network.published
    rows, moved, fields = task.split(folds)[0], 1, dict[str, Any]()
    if data.kind == "table":  # a rehearsal holds out a fifth of the rows
        batch, times = batch_of(4 * rows // 5, network.batch, ADAM_STEPS_PER_EPOCH), 1.0
        rate = 7e-4 if network.model == "tabular" else 3e-3
        numbers: dict[str, Any] = {"base_rate": rate, "base_batch": BASE}
        numbers["weight_decay"] = 0.02 if network.model == "tabular" else 0.05
        fields = {"keep": "best", "patience": PATIENCE} if network.model == "tabular" else {}
    else:
        batch = batch_of(task.split(1)[0], network.batch)
        # No scaling rule proved reliable for Adam and images, so base_batch is the batch itself.
        times = batch / BASE
        moved = 5 if max(data.height, data.width) <= TINY else 1
        rate, decay = (1e-3 if published else 2e-3) * times**0.5, 0.05 * times**0.5
        if published and published.decay < 1:  # usual at 256 rows, assumed for other sizes
            rate, decay = 1e-3 * (batch / FILLING) ** 0.5, 0.05
        numbers = {
            "base_rate": round(rate, 5),
            "base_batch": batch,
            "weight_decay": round(decay, 3),
            # Average over about the last thirtieth of the steps.
            "ema_momentum": round(
                1 - 1 / min(max(epochs * rows / batch / 30, 10 / times), 5000 / times), 5
            ),
        }
        fields = {"batchnorm_batch": BASE} if batch > BASE else {}
        if published:
            numbers["layer_decay"] = published.decay
            # Otherwise, the random head would damage the published weights.
            fields |= {"pretrained": published.pretrained, "frozen_epochs": int(epochs > 2)}
    return Config(
        **task.given,
        data=data,
        model=network.model,
        model_options=network.options,
        optimizer=Optimizer(name="adamw", **numbers),
        batch=batch,
        epochs=epochs,
        warmup_epochs=max(round(epochs / 10), 1),
        batchnorm_momentum=round((0.9 if task.rows < 20 * BASE else 0.97) ** times, 3),
        views=(2 if data.flip else 1) * moved,
        folds=folds if folds > 1 else None,
        progress_seconds=2.0,
        checkpoint_seconds=30.0,
        **fields,
    )


def why_folds(task: Task, config: Config) -> str:
    if config.folds:
        return f"{config.folds}: each row is predicted by a model that has not seen it"
    why = "the budget is too small" if len(task.folds) > 1 else "there are many rows"
    why = why if task.rarest >= 2 * FOLDS else "a label has few rows"
    return f"none, because {why}; {config.data.validation_fraction:.0%} of the rows are held out"


def _reasons(task: Task, network: Network, config: Config) -> dict[str, str]:
    data, optimizer, published = config.data, config.optimizer, network.published
    steps, why = LEAST_STEPS_PER_EPOCH, "BatchNorm statistics would be unreliable"
    if data.kind == "table":
        steps, why = ADAM_STEPS_PER_EPOCH, "scaling Adam's learning rate is unreliable"
    elif published:
        why = "weights would be updated too rarely"
    reasons = {
        "model": f"{f'{network.model} {network}'.strip()}: {network.why}",
        "batch": f"{config.batch} rows per step, because with under {steps} steps per epoch, {why}",
    }
    reasons["folds"] = why_folds(task, config)
    if config.patience:
        reasons["keep"] = "the epoch with the best validation score. Training stops after "
        reasons["keep"] += f"{config.patience} epochs without improvement, to avoid overfitting"
    if data.kind == "table":
        return reasons
    if published:
        size = f"{data.height}x{data.width} by resize={data.resize!r}"
        reasons["resolution"] = f"{size}, limited by image size, memory and budget"
    if config.fit:
        del reasons["batch"]
        reasons["model"] = (
            f"a linear model on features of {config.model} {config.pretrained} "
            f"({published.known if published else ''}), because its weights are on this machine"
        )
        return reasons
    flips = "no flips, because grey images often show handwriting or print"
    if data.flip:  # flipped views require flips in training
        flips = f"flips (if images show text, set flip=False and views={config.views // 2})"
    mixing = f"mixup={data.mixup:g} and cutmix={data.cutmix:g} (arXiv:1710.09412, 1905.04899)"
    reasons |= {
        "rate": f"{optimizer.name} with base_rate={optimizer.base_rate:g}, cosine decay to 0 after "
        f"{config.warmup_epochs:g} warm-up epochs, and weight decay {optimizer.weight_decay:g}",
        "average": f"ema_momentum={optimizer.ema_momentum:g}, which averages the last weights",
        "augmentation": f"shifts by up to {data.crop_padding} pixels; {flips}; "
        + (mixing if data.mixup else "no mixing"),
        "views": f"{config.views} per test image, which are averaged (test-time augmentation)",
    }
    if published:
        reasons["frozen_epochs"] = (
            f"{config.frozen_epochs}: at first, only the new head is trained, so that its first "
            "steps do not damage the published weights (arXiv:2202.10054)"
        )
        reasons["weights"] = _weights(published, config)
    if published and published.fills and config.batch == FILLING:
        small, large = published.fills
        reasons["batch"] = (
            f"{FILLING} rows per step, which use {small:g} GB of a TPU core's 16.9 GB at "
            f"{SIDES[0]} pixels, and {large:g} GB at {SIDES[-1]} (compiled, but not yet run there)"
        )
    return reasons


def _weights(published: Published, config: Config) -> str:
    text = f'pretrained="{published.pretrained}": '
    if published.is_transformer:
        owner, model, *_ = published.pretrained.split("/")
        return text + (
            f"accept the licence on kaggle.com/models/{owner}/{model}, so that push-train can "
            "mount the model. Rehearsals use weights downloaded by kagglehub, or else random "
            "weights of the same shapes. infer-gpu does not download anything"
        )
    text += (
        "train-tpu downloads the weights if its internet is on (assumed; not yet tried on Kaggle). "
        'Otherwise, mount the file as a dataset, or set "none", which is much less accurate '
        "(docs/published-networks.md). infer-gpu does not download anything"
    )
    hub = any(one.is_transformer for one in published_networks.buildable())
    if not hub and min(config.data.shape[:2]) >= PICTURES:
        text += ". If you install KerasHub, inspect proposes DINOv3 (docs/published-networks.md)"
    return text
