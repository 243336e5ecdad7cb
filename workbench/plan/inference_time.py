"""How long the submission takes, beside the time that a competition allows for it."""

from dataclasses import dataclass
from typing import Any

from pipeline.config import Config
from workbench.plan import laws
from workbench.plan.accelerators import RUNTIMES
from workbench.plan.laws import Interval
from workbench.plan.operation_counts import Counts, passes

RUNTIME = "gpu-t4x2"  # of infer-gpu
STARTS = 90.0  # seconds: imports, compiling and the golden outputs (assumed)


@dataclass(frozen=True)
class Inference:
    """What infer-gpu takes.

    Attributes:
        images: to predict; None: not known, then those that fit are all that is said.
        total: seconds; None: as above.
        limit: seconds that there are; None: no limit.
        most: images that fit into the limit, by the usual speed; None: no limit.
        waits: whether reading the images takes longer than computing.
    """

    images: int | None
    total: Interval | None
    limit: float | None
    most: int | None
    waits: bool


def from_json(value: dict[str, Any]) -> Inference:
    """Return the inference of a plan that was kept."""
    return Inference(**value | {"total": value["total"] and Interval(**value["total"])})


def of(config: Config, counts: Counts, images: int | None, decodes: float) -> Inference:
    """Return the time of an inference on two T4, of all folds and views.

    Args:
        images: to predict; None: not known.
        decodes: images a second that one CPU decodes.
    """
    runtime = RUNTIMES[RUNTIME]
    core, cpus = runtime.core, runtime.cpus
    assert core is not None and cpus is not None  # noqa: S101 - Kaggle says both
    half = config.infer_precision != "float32" and not config.data.numbers
    predictions = config.views * (config.folds or 1)
    operations = predictions * counts.in_bounds / passes(config) / runtime.cores
    each = laws.expected(laws.roofline(core, operations, half=half))
    files = config.data.kind in ("images", "tfrecords")
    reading = 1 / (decodes * cpus) if files else 0.0
    waits = reading > each.usual
    each = each.at_least(reading)
    hours = config.infer_hours or config.session_hours
    limit = None if hours is None else 3600 * hours
    most = None if limit is None else max(int((limit - STARTS) / each.usual), 0)
    total = None if images is None else each.times(images).plus(STARTS)
    return Inference(images, total, limit, most, waits)
