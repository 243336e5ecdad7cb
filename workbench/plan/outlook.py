"""Outlook: what a training takes on one runtime, each figure with what it rests on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config import Config
from pipeline.runtime import devices
from workbench.plan import cost, input_rate, kept_plans, laws, lowered_step, probe, speed_records
from workbench.plan.accelerators import RUNTIMES, Accelerator, Runtime, precision
from workbench.plan.cost import Cost
from workbench.plan.input_rate import DECODES, Verdict
from workbench.plan.laws import CALL, VALIDATES, AffineLaw, Interval
from workbench.plan.operation_counts import Counts
from workbench.plan.speed_records import Seen

COMPILED, ESTIMATED, UNKNOWN = "compiled", "estimated", "unknown"  # of memory
MEASURED, PRIOR = "measured", "prior"  # of time
HERE = "cpu"
STARTS = 60.0  # seconds of a session before its first step, compiling aside (assumed)
COMPILES = 180.0  # seconds on the runtime's host: measured 80 to 360 here, for large networks
LEAST_SIDE = 32  # pixels, of images that are worth a training
NEAR = 0.1  # by which a law of two measured batches may be wrong on another day (assumed)


@dataclass(frozen=True)
class Work:
    """What is to be computed, wherever that is.

    Attributes:
        config: of the training.
        counts: of its network; None: it cannot be built.
        images: to train on, in each fold.
        seen: earlier runs.
        files: a sample of the competition's images; None: there is none.
        decodes: images a second that one CPU decodes. decodes_basis: what this rests on.
    """

    config: Config
    counts: Counts | None
    images: int
    seen: Sequence[Seen] = ()
    files: Any = None
    decodes: float = DECODES
    decodes_basis: str = "assumed"

    @property
    def held(self) -> float:
        """Held-out images, as a share of those to train on."""
        config = self.config
        share = 1 / config.folds if config.folds else config.data.validation_fraction
        return share / (1 - share)

    @property
    def steps(self) -> float:
        """Steps of an epoch; the one across its end counts in parts."""
        return self.images / self.config.batch

    @property
    def trainings(self) -> int:
        """Epochs, of all folds."""
        return self.config.epochs * (self.config.folds or 1)


@dataclass(frozen=True)
class Outlook:
    """What a training takes on one runtime. Of figures that are not known the basis is "unknown".

    Attributes:
        runtime: its name.
        title: for people.
        retired: what is known of its end.
        share: images of a core in each step.
        precision: Keras' policy.
        room: bytes of a core that a program can have.
        memory: bytes of a core that the step takes; memory_basis: what this rests on.
        computing: those of them that are only taken while it computes.
        fits: whether a core has room for its share.
        micro_batch: images a core that fit where the share does not; 0: not even one.
        largest: images of a batch that fit, without micro-batches.
        step, epoch, total: seconds; time_basis: what they rest on.
        time_source: the runs that were seen.
        spent: what the usual total costs.
        compiled: what a TPU's compiler says of a step of each core; None: it was not asked.
        input: whether the host's CPUs keep up; None: how many it has is not known.
        why: what is not known, or would mend what does not fit.
    """

    runtime: str
    title: str
    retired: str
    share: int
    precision: str
    room: float | None
    memory: float | None = None
    computing: float | None = None
    memory_basis: str = UNKNOWN
    fits: bool | None = None
    micro_batch: int | None = None
    largest: int | None = None
    step: Interval | None = None
    epoch: Interval | None = None
    total: Interval | None = None
    time_basis: str = UNKNOWN
    time_source: str = ""
    spent: Cost | None = None
    compiled: dict[str, Any] | None = None
    input: Verdict | None = None
    why: str = ""


def from_json(value: dict[str, Any]) -> Outlook:
    """Return the outlook of a plan that was kept."""
    kinds = {"step": Interval, "epoch": Interval, "total": Interval, "spent": Cost,
             "input": Verdict}  # fmt: skip
    parts = {name: value[name] and kind(**value[name]) for name, kind in kinds.items()}
    return Outlook(**value | parts)


def unknown(name: str, config: Config, why: str) -> Outlook:
    """Return the outlook of a runtime of which nothing is known but its name."""
    runtime = RUNTIMES[name]
    core = runtime.core
    return Outlook(
        name, runtime.title, runtime.retired, -(-config.batch // runtime.cores),
        precision(config, core) if core else "float32", core.memory if core else None, why=why,
    )  # fmt: skip


def here(work: Work, show: Callable[[str], None]) -> Outlook:
    """Return the outlook of this machine's CPU: memory by XLA's plan, time by two probes."""
    config, count = work.config, devices.found().count
    policy = devices.precision(config.precision, devices.found(), table=config.data.numbers)
    memory_left = float(devices.memory_left())
    plain = Outlook(
        HERE, "this machine's CPU", "", config.batch // count, policy, memory_left / count
    )
    if work.counts is None:
        return replace(plain, why="the model is not built")
    held = work.images if config.feed == "device" else 0
    memory, computing = kept_plans.found(
        f"memory of {count} CPUs in {policy}, {held} images held", config,
        lambda: {"bytes": lowered_step.of_step(config, count, policy, held)},
    )["bytes"]  # fmt: skip
    again = input_rate.each_epoch(config, work.images, memory_left)
    law, own = probe.law(config, count, show, work.files if again else None)
    step = law.of(config.batch)
    given = Verdict(config.batch / own.alone, config.batch / step, own.waits)
    waits = _waits(given, devices.cores(), config.data.noun)
    # Nothing is learned from held-out images, and they are read like others.
    validating = step - (1 - VALIDATES) * own.alone
    seconds = work.steps * (step + validating * work.held)
    why = "decoding is not timed without --input DIR" if again and work.files is None else ""
    exact = Interval(step, step, step)
    epoch = Interval(seconds, seconds, seconds)
    return replace(
        plain, memory=memory, computing=computing, memory_basis=COMPILED,
        fits=memory <= (plain.room or 0), step=exact,
        epoch=epoch, total=epoch.times(work.trainings).plus(2 * own.setup), time_basis=MEASURED,
        input=given, why="; ".join(filter(None, (waits, why))),
    )  # fmt: skip


def of(
    name: str, work: Work, found: dict[str, Any] | None, law: AffineLaw | None, why: str,
    refused: float | None = None,
) -> Outlook:  # fmt: skip
    """Return the outlook of a runtime whose cores are known, and of a network that is built.

    Args:
        found: as `workbench.plan.tpu_compiler.Compiled` says it; None: nothing was compiled for it.
        law: of the memory that a core takes.
        why: what is known to be wrong.
        refused: bytes of a step that the core's compiler refuses, 0 where it did not say; None: it
            refuses none.
    """
    config, runtime = work.config, RUNTIMES[name]
    core, counts = runtime.core, work.counts
    assert core is not None and counts is not None  # noqa: S101 - of the others it is `unknown`
    plain = unknown(name, config, "")
    part = min(plain.share, config.micro_batch or plain.share)
    memory = found["memory"] if found else law.of(part) if law else None
    room = law.most(core.memory) if law else None
    fits = None if memory is None else memory <= core.memory
    if refused is not None:
        fits, memory = False, refused or memory
    step, basis, source = _step(core, runtime, plain, work, found)
    given = input_rate.of(config, runtime, work.images, config.batch / step.usual, work.decodes)
    # Where the host is slower, the accelerator waits for it.
    waits = 0.0 if given is None else config.batch / given.have
    epoch = step.at_least(waits).times(work.steps * (1 + VALIDATES * work.held))
    total = epoch.times(work.trainings).plus(STARTS + COMPILES)
    notes = [why, "" if given is None else _waits(given, runtime.cpus or 0, config.data.noun)]
    micro = None
    if fits is False and room is not None:
        group = min(config.batchnorm_batch or config.optimizer.base_batch, config.batch)
        sizes = (size for size in range(group, part, group) if plain.share % size == 0)
        micro = max((size for size in sizes if size <= room), default=0)
        small = f"not even {group} {config.data.noun} that BatchNorm normalizes together fit"
        less = min(room, part // 2)
        small = f"{small}: set batchnorm_batch to {less} or less" if less else ""
        notes.append(f"set micro_batch={micro}" if micro else small or _smaller(config, core, law))
    return replace(
        plain, memory=memory, fits=fits,
        memory_basis=ESTIMATED if found is None and refused is None else COMPILED,
        micro_batch=micro, largest=None if room is None else room * runtime.cores, step=step,
        epoch=epoch, total=total, time_basis=basis, time_source=source,
        spent=cost.of(runtime, total.usual, session_hours=config.session_hours),
        compiled=found, input=given, why="; ".join(filter(None, notes)),
    )  # fmt: skip


def _step(
    core: Accelerator, runtime: Runtime, plain: Outlook, work: Work, found: dict[str, Any] | None
) -> tuple[Interval, str, str]:
    """Return the seconds of a step, what they rest on, and the runs that were seen."""
    two = speed_records.law(work.seen, work.config, plain.runtime)
    if two is not None:
        usual = two[0].of(work.config.batch)
        return Interval(usual * (1 - NEAR), usual, usual * (1 + NEAR)), MEASURED, two[1]
    operations = work.counts.in_bounds * plain.share if work.counts else 0.0
    roof = laws.roofline(core, operations, half=plain.precision != "float32")
    share, source = speed_records.efficiency(work.seen, work.config, plain.runtime)
    # Shares that were seen are of the operations alone.
    least = found["least_seconds"] if found and not source else roof
    return laws.expected(least, share).at_least(CALL), PRIOR, source


def _smaller(config: Config, core: Accelerator, law: AffineLaw | None) -> str:
    """Return which images, or which model, would fit where one image of a core does not."""
    data = config.data
    none = f"not even one {data.noun[:-1]} of a core fits"
    left = 0.0 if law is None else core.memory - law.fixed
    if law is None or left <= 0:
        return f"{none}, nor do the weights alone: take a smaller model, as convnext_tiny"
    factor = (left / law.image) ** 0.5  # what an image takes grows with its pixels
    height, width = (int(factor * side) // 8 * 8 for side in (data.height, data.width))
    if min(height, width) < LEAST_SIDE:
        return f"{none}: take a smaller model, as convnext_tiny"
    return f"{none}: set height={height} and width={width}, which would, or take a smaller model"


def _waits(given: Verdict, cpus: int, noun: str) -> str:
    """Return by how much a training is input-bound; "" where it is not."""
    if not given.bound:
        return ""
    return (
        f"input-bound: {cpus} CPUs give {given.have:,.0f} {noun} a second, and it could take"
        f" {given.need:,.0f}{'; smaller images mend it' * (noun == 'images')}"
    )
