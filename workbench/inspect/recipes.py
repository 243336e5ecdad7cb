"""How a config trains, and for how long: its fields, each with a reason.

A TPU gets the recipe that winning notebooks share: a published network at a high resolution, five
folds, warm-up and cosine, averaged weights, mixed images, mirrored views. A CPU gets a linear model
on a published network's features if the weights are on this machine, otherwise the largest network
that learns enough within the budget, by measured steps. Nothing here has run on a TPU: its speed is
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
BUDGETS = {TPU: "2h", CPU: "8m"}  # by default

BASE = 32  # images per step that the learning rates are for
TINY = 64  # pixels a side: larger images get a published network, others one from scratch
PICTURES = 96  # pixels a side: the least for a transformer, and for features on a CPU
POSITIONS = 256  # pixels: in smaller images it matters where something is
SIDES = (224, 288, 384)  # pixels, for pretrained networks
ROUND = 32
LEAST_SIDE = 32  # pixels; keras.applications refuses smaller images
FEW_ROWS = 1000
MANY_ROWS = 5_000  # of a table; with fewer "tabular" overfits (docs/dev/findings.md)
MOST_FOLDED = 100_000  # rows: with more, one held-out part is large enough
FOLDS = 5
MOST_TABLE = 256  # rows per step
PATIENCE = 8  # epochs without improvement, of 40: some tables are overfitted after ten
MOST_BYTES = 100e9  # of decoded images in the memory of a TPU's host
ENOUGH_IMAGES = 240_000  # images that a network from scratch should see on a CPU, if time allows

CPUS, CORES, REACHED = 96, 8, EFFICIENCY[0]  # of a TPU v5e-8 and its host, as in `plan`
AGAIN = 0.3  # of the setup, for each later fold, since XLA's cache is warm (19 % measured)
FILLED = 0.85  # of a budget to plan for: no machine is always equally fast
LINEAR = 0.7  # of that, for the features of all rows; the rest is for the linear models
TUNED = 10  # epochs, for when a person removes fit="linear" from the config
FASTEST = 1e12  # operations per second that no CPU exceeds: saves measuring hopeless networks


@dataclass(frozen=True)
class Plan:
    """Where a config will train, and for how long.

    Attributes:
        machine: "tpu-v5e-8" or "cpu".
        seconds: from the start of the training to its artifact.
    """

    machine: str = TPU
    seconds: float = 2 * 3600.0


def plan(machine: str = "", budget: str = "") -> Plan:
    """Return the plan that `--for` and `--budget` ask for.

    Raises:
        ConfigError: if there is no such machine, or if the budget is not a time.

    >>> plan("cpu", "8m"), plan("", "1.5h").seconds
    (Plan(machine='cpu', seconds=480.0), 5400.0)
    """
    machine = machine or TPU
    if machine not in BUDGETS:
        raise ConfigError(
            f"--for {machine[:40]}: expected one of {', '.join(BUDGETS)}.\nCorrect it: --for {CPU}"
        )
    return Plan(machine, budgets.seconds(budget or BUDGETS[machine]))


@dataclass(frozen=True)
class Task:
    """What to learn.

    Attributes:
        given: the fields of a config that follow from the folder: name, target, metric and so on.
        data: without augmentation.
        rows: number of labelled rows.
        rarest: rows of the rarest label; `rows` if there are no classes.
        size: median width and height of image files; None if there are none.
    """

    given: dict[str, Any]
    data: Data
    rows: int
    rarest: int
    size: tuple[int, int] | None = None

    @property
    def folds(self) -> tuple[int, ...]:
        """The numbers of folds to try, best first; 1 means one held-out part."""
        return (FOLDS, 1) if self.rarest >= 2 * FOLDS and self.rows <= MOST_FOLDED else (1,)

    def split(self, folds: int) -> tuple[int, int]:
        """Return the numbers of rows to train on and to validate on."""
        share = 1 / folds if folds > 1 else self.data.validation_fraction
        held = max(round(self.rows * share), 1)
        return max(self.rows - held, 1), held


@dataclass(frozen=True)
class Speed:
    """How fast a network trains.

    Attributes:
        image: seconds per image, with feeding and augmentation.
        setup: seconds to build and compile, in the first fold.
        decodes: images per second read from files (measured on two cores, 2026-11-21: 959 JPEGs of
            500x375).
        start: seconds of imports, the last evaluation and the pictures.
    """

    image: float
    setup: float
    decodes: float = 1_000.0
    start: float = 12.0

    def fixed(self, task: Task, folds: int) -> float:
        """Return the seconds outside epochs: to start, read the images and compile."""
        setups = self.setup * (1 + AGAIN * (folds - 1))
        return self.start + setups + task.rows / self.decodes

    def seconds(self, task: Task, folds: int, epochs: int) -> float:
        """Return the seconds of a training with these folds (1: none) and epochs in each."""
        rows, held = task.split(folds)
        epoch = self.image * (rows + VALIDATES * held)
        return self.fixed(task, folds) + folds * epochs * epoch

    def lacking(self, task: Task, folds: int, epochs: int, network: "Network") -> str:
        """Return the budget with which a network would learn enough, for a reason, or ""."""
        if epochs >= network.enough:
            return ""
        minutes = math.ceil(self.seconds(task, folds, network.enough) / FILLED / 60)
        return f"; {network.enough} would be right: --budget {minutes}m"

    def epochs(self, task: Task, folds: int, seconds: float) -> int:
        """Return the number of epochs that fit; 0 if not even one does."""
        fixed = self.fixed(task, folds)
        return max(int((FILLED * seconds - fixed) / (self.seconds(task, folds, 1) - fixed)), 0)


@dataclass(frozen=True)
class Network:
    """A candidate network.

    Attributes:
        model, options: of the config.
        data: with size and augmentation.
        operations: of one image's forward pass.
        why: the reason, in words.
        enough, most: epochs that it needs, and beyond which more are of little use.
        batch: the most images per step.
        published: its weights; None starts from random ones.
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
    """A proposed config.

    Attributes:
        config: the proposal.
        plan: the machine and the time that it is for.
        seconds: that its training takes.
        reasons: for each choice, in words.
        reader: custom reader for its file, if any.
    """

    config: Config
    plan: Plan
    seconds: float
    reasons: dict[str, str]
    reader: Reader | None = None


def on_this_cpu(config: Config, least_seconds: float = 1.0) -> Speed:
    """Return how fast a config's network trains on this machine, timed with random pixels.

    Args:
        config: of images; its epochs do not matter.
        least_seconds: of timing; three steps at least.
    """
    from workbench.plan import probe

    if config.fit:
        found = probe.of_features(config, least_seconds)
        return Speed(found.step / config.batch, setup=found.setup)
    found = probe.of_step(config, least_seconds)
    # The evaluation is another program, about half as large.
    return Speed(found.step / config.batch, setup=1.5 * found.setup)


def on_tpu(config: Config, network: Network) -> Speed:
    """Return the assumed speed on a TPU v5e-8: a training step computes three predictions."""
    step = max(roofline(V5E, 3 * network.operations * config.batch / CORES) / REACHED, CALL)
    image = max(step / config.batch, math.prod(config.data.shape) / (CPUS * GATHERS))
    return Speed(image, setup=180.0, decodes=CPUS * DECODES, start=60.0)


def in_budget(epochs: int, seconds: float, plan: Plan) -> str:
    """Describe epochs and their time beside the budget.

    >>> in_budget(9, 90, Plan(CPU, 120)), in_budget(1, 180, Plan(CPU, 120))
    ('9: about 90 s of the 2 min of --budget', '1: about 3 min, more than the 2 min of --budget')
    """
    between = " of" if seconds <= plan.seconds else ", more than"
    return f"{epochs}: about {shown(seconds)}{between} the {shown(plan.seconds)} of --budget"


def batch_of(rows: int, most: int, steps: int = LEAST_STEPS_PER_EPOCH) -> int:
    """Return the rows per step: fewer if an epoch over `rows` would have too few steps.

    >>> [batch_of(rows, 128) for rows in (50, 1200, 1800, 50_000)]
    [32, 32, 64, 128]
    """
    batch = BASE
    while batch < most and rows >= 2 * batch * steps:
        batch *= 2
    return batch


def recipe(task: Task, plan: Plan, measure: Callable[[Config], Speed] = on_this_cpu) -> Recipe:
    """Return how to train for a task within a plan.

    Args:
        measure: returns the speed of a config's network on this machine's CPU.
    """
    if plan.machine == CPU and (found := _on_features(task, plan, measure)):
        return found
    tried: list[tuple[Network, Speed]] = []  # the best first
    if task.data.kind == "table":
        network = for_table(task)
        # A step takes about 1 ms on two cores, of "tabular" 6 (measured 2026-11-28).
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
    # Folds come first: their average is better than one larger network. If nothing learns enough
    # within the budget, the fastest network is taken.
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
    machine = f"a TPU v5e-8 at {REACHED:.0%} of its peak (assumed; not yet run there)"
    if task.data.kind == "table":
        machine = "a TPU or a CPU; more of them overfit"
    elif plan.machine == CPU:
        speeds = "; ".join(f"{each}: {1 / found.image:,.0f}" for each, found in reversed(tried))
        machine = f"this machine (images/s measured here: {speeds})"
    reasons = _reasons(task, network, config)
    reasons["epochs"] = (
        f"{in_budget(epochs, seconds, plan)}, {shown(speed.fixed(task, folds))} of them to start "
        f"and compile, on {machine}{speed.lacking(task, folds, epochs, network)}"
    )
    return Recipe(config, plan, seconds, reasons)


def for_table(task: Task) -> Network:
    """Return the network for a table."""
    if task.rows >= MANY_ROWS:
        why = f"for {task.rows:,} rows of a table: it follows thresholds as boosting does"
        return Network("tabular", {}, task.data, 0.0, why, enough=20, most=40, batch=MOST_TABLE)
    few = task.rows < FEW_ROWS
    width, depth, dropout, most = (32, 1, 0.3, 40) if few else (128, 2, 0.5, 15)
    options = {"width": width, "depth": depth, "dropout": dropout}
    why = f"for {task.rows:,} rows of a table"
    return Network("mlp", options, task.data, 0.0, why, enough=1, most=most, batch=MOST_TABLE)


def for_cpu(task: Task) -> Iterator[Network]:
    """Yield networks that learn fast without an accelerator, the smallest first."""
    # No mixup: on a CPU it compiles for twice as long, and steps take a fifth longer.
    data = _shifted(task.data, 8)
    area, channels = data.height * data.width, data.channels
    enough = min(max(round(ENOUGH_IMAGES / task.rows), 30), 80)  # few rows overfit soon
    limits: Any = {"enough": enough, "most": 400, "batch": 2 * BASE}
    if area <= POSITIONS:
        for width in (32, 64):
            adds = area * 9 * (channels * width + width**2 + 6 * width**2 / 4)
            options = {"width": width, "dropout": 0.3}
            why = "for tiny images, where positions matter"
            yield Network("small_cnn", options, data, 2 * adds, why, **limits)
        return
    coarse = 2 ** max(math.ceil(math.log2(max(data.height, data.width) / 16)), 0)
    sizes = [(coarse, 32), (coarse, 48), (coarse, 64), (max(coarse // 2, 1), 48)]
    for stride, width in dict.fromkeys(sizes):
        options = {"width": width, "stride": stride, "dropout": 0.2}
        stem = 9 * channels * stride**2 * width
        adds = area / stride**2 * (stem + 3 * 2 * 9 * width**2 + 4 * width**2)
        why = "few channels at full size, so that a CPU learns much per second"
        yield Network("strided_resnet", options, data, 2 * adds, why, **limits)


def for_tpu(task: Task) -> Iterator[Network]:
    """Yield networks for a TPU, the best first."""
    data, size = task.data, task.size or (task.data.width, task.data.height)
    area = data.height * data.width
    mixing: dict[str, Any] = {
        "mixup": 0.2,
        "cutmix": float(task.given["target"] in ("classes", "multilabel")),
    }
    if min(data.height, data.width) < 16:  # other networks would pool this to nothing
        options: dict[str, Any] = {"width": 32, "dropout": 0.3}
        why = "for tiny images, where positions matter"
        yield Network("small_cnn", options, _shifted(data, 8), 2 * area * 9 * 6 * 32**2, why)
    elif max(size) <= TINY or (task.size is None and min(size) < LEAST_SIDE):
        why = f"from scratch, since images of up to {TINY} pixels lack what 224 pixels show"
        options, adds = {"k": 4, "n": 2, "kernel_size": 3}, area * 3 * 4 * 9 * 64**2
        mixed = replace(_shifted(data, 8), **mixing)
        yield Network("wide_resnet", options, mixed, 2 * adds, why)
    else:
        sizes, most = [data], 40 if task.rows < FEW_ROWS else 20
        if task.size:  # the largest side that the pictures have, then 224
            fits = [s for s in SIDES if 3 * task.rows * s**2 <= MOST_BYTES and s <= max(size)]
            sides = sorted({*fits[-1:], SIDES[0]}, reverse=True)
            sizes = [_sized(data, size, side) for side in sides]
        for sized in (replace(_shifted(each, 16), **mixing) for each in sizes):
            for one in published_networks.buildable():
                odd = sized.height % one.patch or sized.width % one.patch
                if not (one.is_transformer and (odd or max(size) < PICTURES)):
                    yield _published(one, sized, enough=8, most=most)


def _published(one: Published, data: Data, **limits: int) -> Network:
    """Return a published network to fine-tune on images of a size."""
    why = f"{one.pretrained} ({one.known}), as winning notebooks do; all but the head learns at a "
    why += "tenth of the rate"
    if one.decay < 1:
        why += f", and each block at {one.decay:g} of the rate of the one above it"
    options = {"backbone_rate": 0.1, "dropout": 0.2}
    operations = 2 * one.adds * data.height * data.width / SIDES[0] ** 2
    batch = FILLING if one.fills else 4 * BASE
    return Network(one.model, options, data, operations, why, batch=batch, published=one, **limits)


def _on_features(task: Task, plan: Plan, measure: Callable[[Config], Speed]) -> Recipe | None:
    """Return a linear model on the features of the largest published network whose weights are on
    this machine and that sees all images within the budget; None if there is none, or if images
    are small.
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
        f"{text}: fit='linear' takes one pass ({1 / speed.image:,.0f} images/s measured here). "
        "Epochs count once you remove that line, to fine-tune"
    )
    return Recipe(config, plan, seconds, reasons)


def _sized(data: Data, size: tuple[int, int], side: int) -> Data:
    """Return the data with this longest side, in the proportions of `size` (width, height)."""
    if data.resize == "pad":
        return replace(data, height=side, width=side)
    width, height = (max(round(each * side / max(size) / ROUND), 2) * ROUND for each in size)
    return replace(data, height=height, width=width, resize="stretch")


def _shifted(data: Data, part: int) -> Data:
    """Return the data with shifts, and with flips unless images are grey (often writing)."""
    padding = max(min(data.height, data.width) // part, 1)
    return replace(data, crop_padding=padding, flip=data.channels == 3)


def _config(task: Task, network: Network, folds: int, epochs: int) -> Config:
    data, published = network.data, network.published
    rows, moved, fields = task.split(folds)[0], 1, dict[str, Any]()
    if data.kind == "table":  # a rehearsal hides a fifth of the rows
        batch, times = batch_of(4 * rows // 5, network.batch, ADAM_STEPS_PER_EPOCH), 1.0
        rate = 7e-4 if network.model == "tabular" else 3e-3
        numbers: dict[str, Any] = {"base_rate": rate, "base_batch": BASE}
        numbers["weight_decay"] = 0.02 if network.model == "tabular" else 0.05
        fields = {"keep": "best", "patience": PATIENCE} if network.model == "tabular" else {}
    else:
        batch = batch_of(task.split(1)[0], network.batch)
        # No scaling rule was seen to hold for Adam and images: these numbers are for this batch.
        times = batch / BASE
        moved = 5 if max(data.height, data.width) <= TINY else 1
        rate, decay = (1e-3 if published else 2e-3) * times**0.5, 0.05 * times**0.5
        if published and published.decay < 1:  # its usual rate at 256 rows; fewer are assumed
            rate, decay = 1e-3 * (batch / FILLING) ** 0.5, 0.05
        numbers = {
            "base_rate": round(rate, 5),
            "base_batch": batch,
            "weight_decay": round(decay, 3),
            # Averages about the last thirtieth of the steps.
            "ema_momentum": round(
                1 - 1 / min(max(epochs * rows / batch / 30, 10 / times), 5000 / times), 5
            ),
        }
        fields = {"batchnorm_batch": BASE} if batch > BASE else {}
        if published:
            numbers["layer_decay"] = published.decay
            # The random head would spoil the published weights.
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
    """Return the reason for a config's folds, or for having none."""
    if config.folds:
        return f"{config.folds}: each row is predicted by a model that has not seen it"
    why = "the budget" if len(task.folds) > 1 else "the many rows"
    why = why if task.rarest >= 2 * FOLDS else "a label with few rows"
    return f"none, because of {why}; {config.data.validation_fraction:.0%} of the rows validate"


def _reasons(task: Task, network: Network, config: Config) -> dict[str, str]:
    """Return the reasons for the fields of a training."""
    data, optimizer, published = config.data, config.optimizer, network.published
    steps, why = LEAST_STEPS_PER_EPOCH, "BatchNorm statistics are unreliable"
    if data.kind == "table":
        steps, why = ADAM_STEPS_PER_EPOCH, "Adam's scaled rate was not seen to hold"
    elif published:
        why = "the weights change too seldom"
    reasons = {
        "model": f"{f'{network.model} {network}'.strip()}: {network.why}",
        "batch": f"{config.batch} rows per step: with under {steps} steps per epoch, {why}",
    }
    reasons["folds"] = why_folds(task, config)
    if config.patience:
        reasons["keep"] = "the epoch with the best validation score; training stops after "
        reasons["keep"] += f"{config.patience} epochs without a better one, against overfitting"
    if data.kind == "table":
        return reasons
    if published:
        size = f"{data.height}x{data.width} by resize={data.resize!r}"
        reasons["resolution"] = f"{size}, by the pictures' size, memory and budget"
    if config.fit:
        del reasons["batch"]
        reasons["model"] = (
            f"{config.model} {config.pretrained} ({published.known if published else ''}), whose "
            "weights are on this machine: a linear model on its features, which are computed once"
        )
        return reasons
    flips = "no flips, since grey images are often writing"
    if data.flip:  # without flips in training, flipped views are refused
        flips = f"flips (if the pictures show writing: flip=False, views={config.views // 2})"
    mixing = f"mixup={data.mixup:g} and cutmix={data.cutmix:g} (arXiv:1710.09412, 1905.04899)"
    reasons |= {
        "rate": f"{optimizer.name} at {optimizer.base_rate:g}, falling to 0 by a cosine after a "
        f"warm-up (epochs: {config.warmup_epochs:g}); weight decay {optimizer.weight_decay:g}",
        "average": f"ema_momentum={optimizer.ema_momentum:g}: the mean of the last weights is used",
        "augmentation": f"shifts by up to {data.crop_padding} pixels; {flips}; "
        + (mixing if data.mixup else "no mixing"),
        "views": f"{config.views} of each test image, changed as in training",
    }
    if published:
        reasons["frozen_epochs"] = (
            f"{config.frozen_epochs}: the new head trains alone first, so that its first steps do "
            "not spoil the published weights (arXiv:2202.10054)"
        )
        reasons["weights"] = _weights(published, config)
    if published and published.fills and config.batch == FILLING:
        small, large = published.fills
        reasons["batch"] = (
            f"{FILLING} rows per step: they take {small:g} GB of a TPU core's 16.9 at {SIDES[0]} "
            f"pixels, {large:g} at {SIDES[-1]} (compiled for it; not yet run there)"
        )
    return reasons


def _weights(published: Published, config: Config) -> str:
    """Describe where published weights come from."""
    text = f'pretrained="{published.pretrained}": '
    if published.is_transformer:
        owner, model, *_ = published.pretrained.split("/")
        return text + (
            f"accept its licence on kaggle.com/models/{owner}/{model}; push-train mounts it. A "
            "rehearsal takes what kagglehub has downloaded, otherwise random weights of the same "
            "shapes. infer-gpu downloads nothing"
        )
    text += (
        "train-tpu downloads them if its internet is on (assumed, not yet tried on Kaggle). "
        'Otherwise mount the file as a dataset, or set "none", which is far weaker '
        "(docs/published-networks.md). infer-gpu downloads nothing"
    )
    hub = any(one.is_transformer for one in published_networks.buildable())
    if not hub and min(config.data.shape[:2]) >= PICTURES:
        text += ". With KerasHub here a DINOv3 is proposed (docs/published-networks.md)"
    return text
