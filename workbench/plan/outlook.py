"""Estimate the memory and time of a training run on a runtime.

libtpu reports the memory for a TPU, and XLA reports it for this machine's CPU. Compiling for a GPU
requires a GPU. The memory on a GPU is therefore estimated by compiling the step for the same number
of TPU cores, with the GPU's precision. The time is estimated from earlier runs of the same network.
Without such runs, the network is assumed to reach a typical fraction of the cores' peak speed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.runtime import devices
from workbench.plan import accelerators, compiled_step, laws, probe
from workbench.plan.accelerators import CPU, RUNTIMES, Cost, precision
from workbench.plan.compiled_step import Compiled
from workbench.plan.laws import CALL, DECODES, VALIDATES, AffineLaw, Interval, Verdict
from workbench.plan.operation_counts import Counts, epochs, image_bytes
from workbench.plan.probe import Run

COMPILED, ESTIMATED, UNKNOWN = "compiled", "estimated", "unknown"  # sources of memory figures
MEASURED, PRIOR = "measured", "prior"  # sources of time figures
REFERENCE = "tpu-v6e-8"  # used for GPU estimates, because most steps fit on it
STARTS = 60.0  # assumed seconds before the first step, excluding compilation
COMPILES = 180.0  # assumed seconds; 80 to 360 were measured for large networks
LEAST_SIDE = 32  # pixels; smaller images are not recommended


@dataclass(frozen=True)
class Given:
    """What a plan is based on, in addition to the config.

    Attributes:
        images: number of labelled images.
        images_basis: source of `images`.
        test_images: number of images to predict, if known.
        largest: whether to search for the largest batch on each TPU.
        files: a sample of the labelled images, if available.
        decodes: images per second that one CPU decodes.
        decodes_basis: source of `decodes`.
    """

    images: int
    images_basis: str
    test_images: int | None = None
    runs: Sequence[Run] = ()
    largest: bool = False
    files: Any = None
    decodes: float = DECODES
    decodes_basis: str = "assumed"


@dataclass(frozen=True)
class Work:
    """The computations of a training run, which are the same on every runtime."""

    config: Config
    counts: Counts
    given: Given

    @property
    def held_out(self) -> float:
        return 1 / self.config.folds if self.config.folds else self.config.data.validation_fraction

    @property
    def images(self) -> int:
        """Training images in each fold."""
        return max(round(self.given.images * (1 - self.held_out)), 1)

    @property
    def on_devices(self) -> int:
        """Images that are kept in device memory."""
        return self.images if self.config.feed == "device" else 0

    def epoch(self, step: Interval, validating: float) -> Interval:
        """Return the seconds per epoch.

        Args:
            step: seconds per training step. A partial step counts as a fraction.
            validating: time of a validation step relative to a training step.
        """
        steps = self.images / self.config.batch
        validating = 1.0 if self.config.fit else validating  # features of all images are computed
        return step.times(steps * (1 + validating * self.held_out / (1 - self.held_out)))

    def fixed(self, cores: int) -> float:
        """Return the bytes that each core needs, regardless of the batch size."""
        return self.counts.state + -(-self.on_devices // cores) * image_bytes(self.config)


@dataclass(frozen=True)
class Outlook:
    """The estimates for a training run on one runtime. Unknown values are None.

    Attributes:
        share: images per core in each step.
        precision: Keras dtype policy.
        room: usable memory per core, in bytes.
        memory: bytes per core used by a step.
        computing: the part of `memory` that is only used while the step is running.
        memory_basis: source of `memory`, or "unknown".
        fits: whether the step fits in a core's memory.
        micro_batch: if the step does not fit, the micro-batch per core that does, or 0.
        largest: largest batch that fits without micro-batches.
        step, epoch, total: duration in seconds.
        time_basis: source of the durations, or "unknown".
        time_source: the runs from which the durations were derived.
        spent: cost for the usual total duration.
        input: whether the host's CPUs can keep up, or None if their number is unknown.
        why: what is unknown, or how to make the step fit.
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
    compiled: Compiled | None = None
    input: Verdict | None = None
    why: str = ""


def of(name: str, work: Work, show: Callable[[str], None]) -> Outlook:
    """Return the estimates for a runtime, or for this machine if `name` is "cpu".

    `show` is called with a line to print before a training step is compiled.
    """
    if name == CPU:
        return _here(work, show)
    config, runtime = work.config, RUNTIMES[name]
    core, share = runtime.core, -(-config.batch // runtime.cores)
    policy, room = precision(config, core), core.memory if core else None
    plain = Outlook(name, runtime.title, runtime.retired, share, policy, room)
    if core is None:
        return replace(plain, why="the speed of its CPUs is unknown")
    if config.batch % runtime.cores:
        why = f"batch={config.batch} cannot be split evenly across {runtime.cores} cores"
        return replace(plain, why=why, fits=False)

    def compiled(batch: int) -> Compiled:
        sized = config if batch == config.batch else compiled_step.with_batch(config, batch)
        compiles = name if core.topology else REFERENCE
        images, cores = work.on_devices, runtime.cores
        # TPUs do not support float16, but bfloat16 has the same size.
        like = "mixed_bfloat16" if policy == "mixed_float16" else policy
        return compiled_step.for_tpu(sized, compiles, like, images, cores, show)

    try:
        one = on_accelerator(plain, work, compiled(config.batch))
    except ConfigError as error:
        reason = str(error).splitlines()[0]
        also = " and --largest was skipped" * work.given.largest
        return on_accelerator(plain, work, None, f"memory is unknown{also}, because {reason}")
    if work.given.largest and core.topology:
        unit = runtime.cores * math.gcd(share, config.batchnorm_batch or 1)
        fixed = work.fixed(runtime.cores)
        useful = min(-(-work.images // unit) * unit, 2**20)
        most = compiled_step.largest(compiled, config.batch, unit, core.memory, fixed, useful)
        return replace(one, largest=most)
    return one


def on_accelerator(plain: Outlook, work: Work, found: Compiled | None, why: str = "") -> Outlook:
    """Return the estimates for a runtime with an accelerator.

    Args:
        plain: an outlook for the runtime without any estimates.
        found: the compiler's report about a step, if available. If the runtime has a GPU, the
            report is about `REFERENCE`.
        why: a known problem that is added to `Outlook.why`.
    """
    config, runtime = work.config, RUNTIMES[plain.runtime]
    core = runtime.core
    assert core is not None  # noqa: S101 - `of` only calls this with a core
    own = found if core.topology else None
    part = min(plain.share, config.micro_batch or plain.share)
    law, memory, fits = None, None, None
    if found:
        fixed = work.fixed(runtime.cores)
        # The law requires a positive slope, so use at least a thousandth.
        grown = found.memory if found.refused else max(found.memory - fixed, found.memory / 1000)
        law = AffineLaw(fixed, grown / part) if grown else None
        memory = (law.of(part) if law else None) if found.refused else found.memory
        fits = not found.refused if own else memory is not None and memory <= core.memory
    step, basis, source = _step(plain, work, found)
    need, decodes = config.batch / step.usual, work.given.decodes
    host = laws.verdict(config, runtime, work.images, need, decodes)
    # If the host is slower, it determines the time per step.
    epoch = work.epoch(step.at_least(config.batch / host.have if host else 0.0), VALIDATES)
    compiling = COMPILES * (2 if config.frozen_epochs else 1)
    total = epoch.times(epochs(config)).plus(STARTS + compiling)
    micro, smaller = None, ""
    if fits is False and law:
        micro, smaller = _smaller(work, plain.share, part, core.memory, law)
    refused = "the compiler rejects this batch size" if own and own.refused else ""
    waits = _waits(host, runtime.cpus, config.data.noun)
    return replace(
        plain, memory=memory, fits=fits, micro_batch=micro,
        memory_basis=COMPILED if own else ESTIMATED if found else UNKNOWN,
        largest=law.most(core.memory) * runtime.cores if law and (refused or not own) else None,
        step=step, epoch=epoch, total=total, time_basis=basis, time_source=source,
        spent=accelerators.cost(runtime, total.usual, session_hours=config.session_hours),
        compiled=None if refused else own, input=host,
        why="; ".join(filter(None, (why, refused, waits, smaller))),
    )  # fmt: skip


def _here(work: Work, show: Callable[[str], None]) -> Outlook:
    config, count = work.config, devices.found().count
    policy = devices.precision(config.precision, devices.found(), exact=config.exact)
    left = float(devices.memory_left())
    memory, computing = compiled_step.for_this_cpu(config, count, policy, work.on_devices)
    again = laws.decodes_each_epoch(config, work.images, left)
    files = work.given.files if again else None
    show(f"Timing a few steps with {config.batch} {config.data.noun} each on this machine")
    own = probe.of_step(replace(config, micro_batch=None), probe.LEAST, files)
    alone = 1 - own.waits  # fraction of time spent computing
    step, rate = Interval.around(own.step), config.batch / own.step
    host = Verdict(rate / max(alone, 1e-3), rate, own.waits)
    # Held-out images require no gradients, but they are read like training images.
    epoch = work.epoch(step, 1 - (1 - VALIDATES) * alone)
    total = epoch.times(epochs(config)).plus((3 if config.frozen_epochs else 2) * own.setup)
    untimed = "decoding was not timed, because --input DIR is missing" * (again and files is None)
    waits = _waits(host, devices.cores(), config.data.noun)
    return Outlook(
        CPU, "this machine's CPU", "", config.batch // count, policy, left / count,
        memory, computing, COMPILED, memory <= left / count,
        step=step, epoch=epoch, total=total, time_basis=MEASURED, input=host,
        why="; ".join(filter(None, (waits, untimed))),
    )  # fmt: skip


def _step(plain: Outlook, work: Work, found: Compiled | None) -> tuple[Interval, str, str]:
    runs = () if work.config.fit else work.given.runs  # runs had full training steps
    seen = probe.measured(runs, work.config, plain.runtime, plain.precision)
    if seen is not None:
        return seen[0], MEASURED, seen[1]
    core = RUNTIMES[plain.runtime].core
    assert core is not None  # noqa: S101 - `on_accelerator` requires one
    operations, traffic = work.counts.operations * plain.share, 0.0
    if found and not found.refused:
        operations, traffic = found.operations, found.traffic
    least = laws.roofline(core, operations, traffic, half=plain.precision != "float32")
    return laws.expected(least).at_least(CALL), PRIOR, ""


def _smaller(work: Work, share: int, part: int, memory: float, law: AffineLaw) -> tuple[int, str]:
    """Return the largest micro-batch per core that fits, and advice on changing the config.

    If none fits, the micro-batch is 0.
    Args:
        share: images per core.
        part: images per pass.
        memory: bytes available per core.
        law: bytes used by a pass.
    """
    config, room = work.config, law.most(memory)
    data, together = config.data, config.batchnorm_batch or config.optimizer.base_batch
    # Custom losses may also compare rows within a group.
    grouped = work.counts.normalizes or config.loss not in ("", "focal")
    group = min(together, config.batch) if grouped else 1
    sizes = (size for size in range(group, part, group) if share % size == 0)
    if micro := max((size for size in sizes if size <= room), default=0):
        return micro, f"set micro_batch={micro}"
    if less := min(room, part // 2):
        none = f"a BatchNorm group of {group} {data.noun} does not fit"
        return 0, f"{none}, so set batchnorm_batch to {less} or less"
    factor = max((memory - law.fixed) / law.image, 0) ** 0.5  # memory is proportional to pixels
    height, width = (int(factor * side) // 8 * 8 for side in (data.height, data.width))
    sides = f"set height={height} and width={width}, or " * (min(height, width) >= LEAST_SIDE)
    return 0, f"even a single {data.noun[:-1]} per core does not fit, so {sides}use a smaller model"


def _waits(host: Verdict | None, cpus: int | None, noun: str) -> str:
    if host is None or not host.bound:
        return ""
    return (
        f"input-bound: {cpus} CPUs supply {host.have:,.0f} {noun} per second, but {host.need:,.0f}"
        f" could be processed{', so use smaller images' * (noun == 'images')}"
    )
