"""How a config trains, and for how long: its fields, each with its reason.

A TPU gets the recipe that public winning notebooks share: a pretrained backbone at a high
resolution, five folds, warm-up and cosine, averaged weights, mixed images, mirrored views. A CPU
gets the largest network that learns enough within the budget, by measured steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config import Config, Data, Optimizer
from pipeline.train.learning_rate import ADAM_STEPS_PER_EPOCH, LEAST_STEPS_PER_EPOCH
from workbench.budget import shown
from workbench.inspect import image_networks, training_speed
from workbench.inspect.image_headers import Headers
from workbench.inspect.image_networks import BASE, FEW_ROWS, SIDES, TINY, Candidate
from workbench.inspect.training_speed import CPU, Plan, Speed
from workbench.plan.laws import EFFICIENCY

MOST_FOLDED = 100_000  # rows: with more, one held-out part is large enough
FOLDS = 5
MOST_TABLE = 256  # rows a step


@dataclass(frozen=True)
class Task:
    """What is to be learned.

    Attributes:
        given: the fields of a config that follow from the folder: name, target, metric and so on.
        data: without augmentation.
        rows: labelled.
        rarest: rows of the rarest label; `rows` where there are no classes.
        headers: of image files.
    """

    given: dict[str, Any]
    data: Data
    rows: int
    rarest: int
    headers: Headers | None = None

    @property
    def folds(self) -> tuple[int, ...]:
        """The numbers of folds to try, the better one first; 1 is one held-out part."""
        return (FOLDS, 1) if self.rarest >= 2 * FOLDS and self.rows <= MOST_FOLDED else (1,)

    def split(self, folds: int) -> tuple[int, int]:
        """Return how many rows train and validate."""
        share = 1 / folds if folds > 1 else self.data.validation_fraction
        held = max(round(self.rows * share), 1)
        return max(self.rows - held, 1), held


@dataclass(frozen=True)
class Recipe:
    """A config, with a reason for what was chosen, and the seconds that its training takes."""

    config: Config
    reasons: dict[str, str]
    seconds: float


def recipe(
    task: Task, plan: Plan, measure: Callable[[Config], Speed] = training_speed.on_this_cpu
) -> Recipe:
    """Return how to train for a task within a plan.

    Args:
        measure: tells the speed of a network on this machine's CPU.
    """
    if task.data.kind == "table":
        return _of_table(task, plan)
    return _on_cpu(task, plan, measure) if plan.machine == CPU else _on_tpu(task, plan)


def batch_of(rows: int, most: int, steps: int = LEAST_STEPS_PER_EPOCH) -> int:
    """Return the rows of a step: fewer where an epoch of so many rows would have too few steps.

    >>> [batch_of(rows, 128) for rows in (50, 1200, 1800, 50_000)]
    [32, 32, 64, 128]
    """
    batch = BASE
    while batch < most and rows >= 2 * batch * steps:
        batch *= 2
    return batch


def chosen(
    tried: Sequence[tuple[Candidate, Speed]], task: Task, plan: Plan
) -> tuple[Candidate, Speed, int, int]:
    """Return the first candidate that learns enough, its speed, and numbers of folds and epochs.

    Folds come before the candidate: their average is better than one larger network. If nothing
    learns enough within the budget, the fastest gets what there is.

    Args:
        tried: the best candidate first.
    """
    for folds in task.folds:
        for candidate, speed in tried:
            epochs = speed.epochs(*task.split(folds), folds, plan.seconds)
            if epochs >= candidate.enough:
                return candidate, speed, folds, min(epochs, candidate.most)
    candidate, speed = min(tried, key=lambda pair: pair[1].image)
    return candidate, speed, 1, max(speed.epochs(*task.split(1), 1, plan.seconds), 1)


def _of_table(task: Task, plan: Plan) -> Recipe:
    few = task.rows < FEW_ROWS
    options = (
        {"width": 32, "depth": 1, "dropout": 0.3}
        if few
        else {"width": 128, "depth": 2, "dropout": 0.2}
    )
    folds = FOLDS if few and task.rarest >= 2 * FOLDS else 1
    rows, held = task.split(folds)
    # A rehearsal hides a fifth of the rows.
    batch = batch_of(4 * rows // 5, MOST_TABLE, ADAM_STEPS_PER_EPOCH)
    # A step of such a network takes about a millisecond on two cores, measured.
    speed = Speed(2e-3 / batch, setup=6.0)
    epochs = min(max(speed.epochs(rows, held, folds, plan.seconds), 1), 40)
    config = Config(
        **task.given,
        data=task.data,
        model="mlp",
        model_options=options,
        optimizer=Optimizer(
            name="adamw", base_rate=3e-3, base_batch=BASE, weight_decay=0.05 if few else 0.02
        ),
        **_common(task, batch, epochs, folds),
    )
    seconds = speed.seconds(rows, held, epochs, folds)
    reasons = {
        "model": f"mlp {_listed(options)}: for the rows of a table"
        + (f"; small, for {task.rows:,} rows" if few else ""),
        "batch": f"{batch} rows a step, {MOST_TABLE} at most; with under {ADAM_STEPS_PER_EPOCH} "
        "steps an epoch, Adam's scaled rate was not seen to hold (docs/dev/findings.md)",
        "epochs": f"{epochs}: about {shown(seconds)} on a TPU or a CPU; more of them overfit",
    }
    if folds > 1:
        reasons["folds"] = f"{folds}: with {task.rows:,} rows, one held-out part is too small"
    return Recipe(config, reasons, seconds)


def _on_cpu(task: Task, plan: Plan, measure: Callable[[Config], Speed]) -> Recipe:
    tried: list[tuple[Candidate, Speed]] = []
    for candidate in image_networks.for_cpu(task.data, task.rows):
        if tried:
            before, speed = tried[0]
            hoped = speed.slower(candidate.operations / before.operations)
            if hoped.epochs(*task.split(1), 1, plan.seconds) < candidate.enough:
                break
        tried.insert(0, (candidate, measure(_config(task, candidate, 1, 1))))
    candidate, speed, folds, epochs = chosen(tried, task, plan)
    config = _config(task, candidate, folds, epochs)
    seconds = speed.seconds(*task.split(folds), epochs, folds)
    fixed = speed.fixed(*task.split(folds), folds)
    measured = "; ".join(f"{each}: {1 / found.image:,.0f}" for each, found in reversed(tried))
    fits = f"the largest of those tried whose {candidate.enough} epochs fit"
    if epochs < candidate.enough:
        fits = f"the fastest; {candidate.enough} epochs would be right: raise --budget"
    reasons = {
        "model": f"{candidate.model} {candidate}: {candidate.why}; {fits} (images/s measured here: "
        f"{measured})",
        **_reasons(task, config),
        "epochs": f"{epochs}: about {shown(seconds)} of the {shown(plan.seconds)} of --budget at "
        f"{1 / speed.image:,.0f} images/s after {shown(fixed)} to start, read the images and "
        "compile, measured on this machine",
    }
    return Recipe(config, reasons, seconds)


def _on_tpu(task: Task, plan: Plan) -> Recipe:
    networks = image_networks.for_tpu(task.data, task.rows, task.given["target"], task.headers)
    tried = [
        (each, training_speed.on_tpu(_config(task, each, 1, 1), each.operations))
        for each in networks
    ]
    candidate, speed, folds, epochs = chosen(tried, task, plan)
    config = _config(task, candidate, folds, epochs)
    seconds, data = speed.seconds(*task.split(folds), epochs, folds), config.data
    size = f"{data.height}x{data.width}, as the pictures are"
    if candidate.pretrained and task.headers is not None:
        sides = ", ".join(map(str, SIDES))
        size = f"{data.height}x{data.width} by resize={data.resize!r}: of {sides} pixels the most "
        size += "that the pictures, the memory and the budget have"
    reasons = {
        "model": f"{candidate.model} {candidate}: {candidate.why}",
        "resolution": size,
        **_reasons(task, config),
        "epochs": f"{epochs}, {candidate.most} at most: about {shown(seconds)} of the "
        f"{shown(plan.seconds)} of --budget on a TPU v5e-8 at {1 / speed.image:,.0f} images/s "
        f"(assumed, at {EFFICIENCY[0]:.0%} of its peak, the least of `plan`; not yet run there)",
    }
    if candidate.pretrained:
        reasons["weights"] = (
            'pretrained="imagenet": train-tpu downloads them where its internet is on (assumed, '
            "not yet tried on Kaggle). Without internet mount the file as a dataset, or set "
            '"none", which is far weaker (CONTRIBUTING.md). infer-gpu downloads nothing'
        )
    return Recipe(config, reasons, seconds)


def _config(task: Task, candidate: Candidate, folds: int, epochs: int) -> Config:
    data = candidate.data
    batch = batch_of(task.split(1)[0], candidate.batch)
    steps = epochs * task.split(folds)[0] / batch
    # For images Adam's scaled rate was not seen to hold: these are numbers for this batch.
    times = batch / BASE
    moved = 5 if max(data.height, data.width) <= TINY else 1
    return Config(
        **task.given,
        data=data,
        model=candidate.model,
        model_options=candidate.options,
        optimizer=Optimizer(
            name="adamw",
            base_rate=round((1e-3 if candidate.pretrained else 2e-3) * times**0.5, 4),
            base_batch=batch,
            weight_decay=round(0.05 * times**0.5, 3),
            # Over the last thirtieth of the steps.
            ema_momentum=round(1 - 1 / min(max(steps / 30, 10 / times), 5000 / times), 5),
        ),
        batchnorm_batch=BASE if batch > BASE else None,
        views=(2 if data.flip else 1) * moved,
        **_common(task, batch, epochs, folds, times),
    )


def _common(task: Task, batch: int, epochs: int, folds: int, times: float = 1.0) -> dict[str, Any]:
    momentum = 0.9 if task.rows < 20 * BASE else 0.97
    return {
        "batchnorm_momentum": round(momentum**times, 3),
        "batch": batch,
        "epochs": epochs,
        "warmup_epochs": max(round(epochs / 10), 1),
        "progress_seconds": 2.0,
        "checkpoint_seconds": 30.0,
        "folds": folds if folds > 1 else None,
    }


def _reasons(task: Task, config: Config) -> dict[str, str]:
    """Return the reasons that a TPU and a CPU share."""
    data, optimizer = config.data, config.optimizer
    flips = "no flips, since grey images are often writing"
    if data.flip:
        # A flipped view that training never saw is refused.
        flips = "flips, too: for writing, or where left and right differ, set flip=False and "
        flips += f"views={config.views // 2}"
    mixes = [f"{name}={value:g}" for name in ("mixup", "cutmix") if (value := getattr(data, name))]
    mixed = f"; {', '.join(mixes)} (arXiv:1710.09412, 1905.04899)" if mixes else ""
    folds = f"{config.folds}: each row is predicted by a model that has not seen it, and their "
    folds += "average predicts the test set"
    if config.folds is None:
        why = "the budget" if len(task.folds) > 1 else "so many rows"
        why = why if task.rarest >= 2 * FOLDS else "a label with few rows"
        folds = f"none, because of {why}; {data.validation_fraction:.0%} of the rows validate"
    return {
        "batch": f"{config.batch} images a step. With under {LEAST_STEPS_PER_EPOCH} steps an "
        "epoch, BatchNorm statistics are unreliable",
        "rate": f"{optimizer.name} {optimizer.base_rate:g} for that batch: base_batch is batch, "
        "since Adam's scaled rate was not seen to hold for images (docs/dev/findings.md). It "
        f"falls to 0 by a cosine after a warm-up of {config.warmup_epochs:g} epochs; weight decay "
        f"{optimizer.weight_decay:g}",
        "average": f"ema_momentum={optimizer.ema_momentum:g}: the artifact holds an average of the "
        "last weights (arXiv:2307.13813)",
        "augmentation": f"shifts by up to {data.crop_padding} pixels; {flips}{mixed}",
        "folds": folds,
        "views": f"{config.views} of each test image, by what training did to its images",
    }


def _listed(options: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in options.items())
