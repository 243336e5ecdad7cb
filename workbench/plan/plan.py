"""What a training will take on each runtime, before anything is spent.

Memory and time of a step (`workbench.plan.outlook`), sessions, quota and price. Each number comes
with its basis; an unknown one is None, never 0.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from pipeline.config import Config
from workbench.budget import shown
from workbench.plan import compiled_step, laws, operation_counts, outlook
from workbench.plan.accelerators import RUNTIMES
from workbench.plan.laws import Interval
from workbench.plan.operation_counts import Counts, passes
from workbench.plan.outlook import Given, Outlook, Work

OFFERED = ("tpu-v5e-8", "gpu-t4x2")  # Kaggle's accelerators today
LONG = 7 * 24 * 3600.0  # seconds of a training to warn about
INFERS = "gpu-t4x2"  # the machine of infer-gpu
GROWS = "Time: with full-size images in each epoch; with progressive it is less"
STARTS = 90.0  # seconds of an inference: imports, compiling and the golden outputs (assumed)


@dataclass(frozen=True)
class Inference:
    """What infer-gpu takes on two T4, with all folds and views.

    Attributes:
        images: to predict, if known.
        total: seconds, if the images are known.
        limit: seconds allowed, if limited.
        most: images that fit into the limit at the usual speed, if limited.
    """

    images: int | None
    total: Interval | None
    limit: float | None
    most: int | None


@dataclass(frozen=True)
class Plan:
    """What a training will take.

    Attributes:
        config: its name.
        batch, epochs, folds, fit, frozen_epochs: of the config.
        labelled: number of labelled images.
        images: to train on in each fold; images_basis: where both numbers come from.
        counts: the size of the network.
        checkpoint: bytes; 0 if there is none.
        decodes: images per second that one CPU decodes; decodes_basis: where it comes from.
        outlooks: one per runtime.
        inference: of the submission.
        advice: in one sentence.
        noun: the name of its examples.
        note: what the times leave out.
    """

    config: str
    batch: int
    epochs: int
    folds: int
    labelled: int
    images: int
    images_basis: str
    counts: Counts
    checkpoint: float
    decodes: float
    decodes_basis: str
    outlooks: tuple[Outlook, ...]
    inference: Inference
    advice: str
    noun: str = "images"
    fit: str = ""
    frozen_epochs: int = 0
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the plan for `json.dumps`."""
        return asdict(self)


def from_json(value: dict[str, Any]) -> Plan:
    """Return the plan from `Plan.to_json`.

    Raises:
        LookupError, TypeError: if it is not a plan.
    """
    made: Plan = _restored(Plan, value)
    return made


def make(
    config: Config,
    names: Sequence[str],
    given: Given,
    show: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Return the plan of a config.

    Args:
        names: of runtimes.
        show: gets a line before a long step.

    Raises:
        ConfigError: if the model cannot be built.
    """
    config = operation_counts.planned(config)
    made = compiled_step.kept("counts", config, lambda: asdict(operation_counts.of(config)))
    work = Work(config, Counts(**made), given)
    outlooks = tuple(outlook.of(name, work, show) for name in names)
    averaged = config.optimizer.ema_momentum is not None
    checkpoint = work.counts.state + 4.0 * work.counts.parameters * averaged
    checkpoint = 0.0 if config.fit else checkpoint
    return Plan(
        config.name, config.batch, config.epochs, config.folds or 1,
        given.images, work.images, given.images_basis,
        work.counts, checkpoint, given.decodes, given.decodes_basis, outlooks, _inference(work),
        advice(outlooks, config.data.noun), config.data.noun, config.fit, config.frozen_epochs,
        GROWS if config.progressive else "",
    )  # fmt: skip


def advice(outlooks: Sequence[Outlook], noun: str = "images") -> str:
    """Return in one sentence where to train, or why the training does not fit."""
    there = [one for one in outlooks if not one.retired and one.total is not None]
    fit = [one for one in there if one.fits is not False or one.micro_batch]
    if not there:
        return "Nothing is known about these runtimes."
    if not fit:
        widest = max(there, key=lambda one: one.room or 0)
        needed = (widest.memory or 0) / 1e9
        return (
            f"It fits nowhere: one step takes {needed:,.0f} GB per core, and {widest.title} has"
            f" {(widest.room or 0) / 1e9:.0f} GB; {widest.why.rpartition('; ')[2]}."
        )
    best = min(fit, key=lambda one: one.total.usual if one.total else math.inf)
    usual, spent = best.total.usual if best.total else 0.0, best.spent
    less = f"fewer epochs{', smaller images' * (noun == 'images')} or a smaller model"
    said = f"Train on {best.title}: about {shown(usual)}"
    if spent and spent.weeks and spent.weeks > 1:
        said += f", which is the quota of {spent.weeks:,} weeks: take {less}"
    elif spent and spent.sessions and spent.sessions > 1:
        said += f" in {spent.sessions} sessions (push-train --until-done)"
    elif usual > LONG:
        said += f": take {less}"
    if best.fits is None:
        return f"{said}; whether a step fits into its memory is not known."
    return f"{said}{'' if best.fits else f', with micro_batch={best.micro_batch}'}."


def _inference(work: Work) -> Inference:
    """Return the time of an inference on two T4."""
    config, runtime, images = work.config, RUNTIMES[INFERS], work.given.test_images
    core, cpus = runtime.core, runtime.cpus
    assert core is not None and cpus is not None  # noqa: S101 - both are known
    half = config.infer_precision != "float32" and not config.exact
    predictions = config.views * (1 if config.fit else config.folds or 1)
    operations = predictions * work.counts.operations / passes(config) / runtime.cores
    files = config.data.kind in ("images", "tfrecords")
    reading = 1 / (work.given.decodes * cpus) if files else 0.0
    each = laws.expected(laws.roofline(core, operations, half=half)).at_least(reading)
    hours = config.infer_hours or config.session_hours
    limit = None if hours is None else 3600 * hours
    most = None if limit is None else max(int((limit - STARTS) / each.usual), 0)
    total = None if images is None else each.times(images).plus(STARTS)
    return Inference(images, total, limit, most)


def _restored(kind: Any, value: Any) -> Any:
    """Return a value of a type from its JSON, which `asdict` made."""
    if value is None:
        return None
    inner: Any = next((one for one in (kind, *get_args(kind)) if is_dataclass(one)), None)
    if isinstance(value, list | tuple):
        return tuple(value if inner is None else (_restored(inner, one) for one in value))
    if inner is None:
        return value
    kinds = get_type_hints(inner)
    return inner(**{one.name: _restored(kinds[one.name], value[one.name]) for one in fields(inner)})
