"""What a training takes on one runtime. Each number comes with its basis.

Memory is what the compiler allots: libtpu for a TPU, XLA for this machine's CPU. The compiler for
GPUs needs one, so the step is compiled for equally many cores of a TPU, in the GPU's precision: an
estimate. Time comes from earlier runs of the network, or else from the limits of the cores and the
share of them that networks reach.
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

COMPILED, ESTIMATED, UNKNOWN = "compiled", "estimated", "unknown"  # bases of memory
MEASURED, PRIOR = "measured", "prior"  # bases of time
REFERENCE = "tpu-v6e-8"  # stands in for a GPU's compiler: most steps fit
STARTS = 60.0  # seconds of a session before its first step, without compiling (assumed)
COMPILES = 180.0  # seconds on the runtime's host; measured here: 80 to 360 for large networks
LEAST_SIDE = 32  # pixels, of images that are worth training on


@dataclass(frozen=True)
class Given:
    """What is known besides the config.

    Attributes:
        images: number of labelled images; images_basis: where it comes from.
        test_images: number of images to predict, if known.
        runs: earlier ones.
        largest: whether to search for the largest batch of each TPU: three compilations.
        files: a sample of the labelled images, if any.
        decodes: images per second that one CPU decodes; decodes_basis: where it comes from.
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
    """What a training computes on any runtime.

    Attributes:
        config: of the training.
        counts: the size of its network.
        given: what else is known.
    """

    config: Config
    counts: Counts
    given: Given

    @property
    def held_out(self) -> float:
        """The share of the labelled images that is held out."""
        return 1 / self.config.folds if self.config.folds else self.config.data.validation_fraction

    @property
    def images(self) -> int:
        """Images to train on in each fold."""
        return max(round(self.given.images * (1 - self.held_out)), 1)

    @property
    def on_devices(self) -> int:
        """Images in the memory of the devices."""
        return self.images if self.config.feed == "device" else 0

    def epoch(self, step: Interval, validating: float) -> Interval:
        """Return the seconds of an epoch.

        Args:
            step: seconds of a training step. One across an epoch's end counts in parts.
            validating: time of a validation step, relative to that.
        """
        steps = self.images / self.config.batch
        validating = 1.0 if self.config.fit else validating  # features are computed for all images
        return step.times(steps * (1 + validating * self.held_out / (1 - self.held_out)))

    def fixed(self, cores: int) -> float:
        """Return the bytes per core that do not grow with the batch."""
        return self.counts.state + -(-self.on_devices // cores) * image_bytes(self.config)


@dataclass(frozen=True)
class Outlook:
    """What a training takes on one runtime. None, or the basis "unknown", if not known.

    Attributes:
        runtime: its name.
        title: for people.
        retired: when it was retired, or "".
        share: images per core in each step.
        precision: Keras' policy.
        room: bytes per core that a program can use.
        memory: bytes per core that the step takes; memory_basis: where this comes from.
        computing: the part of them that is only taken while it computes.
        fits: whether the step fits into a core.
        micro_batch: images per core that fit where the step does not; 0 if not even one does.
        largest: images of the largest batch that fits without micro-batches.
        step, epoch, total: seconds; time_basis: where they come from.
        time_source: the runs that they come from.
        spent: the cost of the usual total.
        compiled: the TPU compiler's report of a step on one core, if it was asked.
        input: whether the host's CPUs keep up; None if their number is not known.
        why: what is not known, or how to make it fit.
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
    """Return the outlook of a runtime, with a step compiled for it.

    Args:
        name: of `RUNTIMES`, or "cpu" for this machine.
        show: gets a line before a long step.
    """
    if name == CPU:
        return _here(work, show)
    config, runtime = work.config, RUNTIMES[name]
    core, share = runtime.core, -(-config.batch // runtime.cores)
    policy, room = precision(config, core), core.memory if core else None
    plain = Outlook(name, runtime.title, runtime.retired, share, policy, room)
    if core is None:
        return replace(plain, why="its processors were not measured")
    if config.batch % runtime.cores:
        why = f"batch={config.batch} does not split over its {runtime.cores} cores"
        return replace(plain, why=why, fits=False)

    def compiled(batch: int) -> Compiled:
        sized = config if batch == config.batch else compiled_step.with_batch(config, batch)
        compiles = name if core.topology else REFERENCE
        images, cores = work.on_devices, runtime.cores
        # A TPU has no float16; bfloat16 takes equally many bytes.
        like = "mixed_bfloat16" if policy == "mixed_float16" else policy
        return compiled_step.for_tpu(sized, compiles, like, images, cores, show)

    try:
        one = on_accelerator(plain, work, compiled(config.batch))
    except ConfigError as error:
        reason = str(error).splitlines()[0]
        also = ", and --largest not searched" * work.given.largest
        return on_accelerator(plain, work, None, f"memory is not known{also}: {reason}")
    if work.given.largest and core.topology:
        unit = runtime.cores * math.gcd(share, config.batchnorm_batch or 1)
        fixed = work.fixed(runtime.cores)
        useful = min(-(-work.images // unit) * unit, 2**20)
        most = compiled_step.largest(compiled, config.batch, unit, core.memory, fixed, useful)
        return replace(one, largest=most)
    return one


def on_accelerator(plain: Outlook, work: Work, found: Compiled | None, why: str = "") -> Outlook:
    """Return the outlook of a runtime with an accelerator.

    Args:
        plain: its name and its cores.
        found: its compiler's report of a step; for a GPU, that of `REFERENCE`. None if there is
            none.
        why: a problem that is known already.
    """
    config, runtime = work.config, RUNTIMES[plain.runtime]
    core = runtime.core
    assert core is not None  # noqa: S101 - `of` returns early without one
    own = found if core.topology else None
    part = min(plain.share, config.micro_batch or plain.share)
    law, memory, fits = None, None, None
    if found:
        fixed = work.fixed(runtime.cores)
        # At least a thousandth: a law needs something that grows.
        grown = found.memory if found.refused else max(found.memory - fixed, found.memory / 1000)
        law = AffineLaw(fixed, grown / part) if grown else None
        memory = (law.of(part) if law else None) if found.refused else found.memory
        fits = not found.refused if own else memory is not None and memory <= core.memory
    step, basis, source = _step(plain, work, found)
    need, decodes = config.batch / step.usual, work.given.decodes
    host = laws.verdict(config, runtime, work.images, need, decodes)
    # Where the host is slower, the accelerator waits for it.
    epoch = work.epoch(step.at_least(config.batch / host.have if host else 0.0), VALIDATES)
    compiling = COMPILES * (2 if config.frozen_epochs else 1)
    total = epoch.times(epochs(config)).plus(STARTS + compiling)
    micro, smaller = None, ""
    if fits is False and law:
        micro, smaller = _smaller(work, plain.share, part, core.memory, law)
    refused = "its compiler refuses this batch" if own and own.refused else ""
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
    """Return the outlook of this machine's CPU: memory from XLA, time from timed steps."""
    config, count = work.config, devices.found().count
    policy = devices.precision(config.precision, devices.found(), exact=config.exact)
    left = float(devices.memory_left())
    memory, computing = compiled_step.for_this_cpu(config, count, policy, work.on_devices)
    again = laws.decodes_each_epoch(config, work.images, left)
    files = work.given.files if again else None
    show(f"Timing some steps of {config.batch} {config.data.noun} on this machine")
    own = probe.of_step(replace(config, micro_batch=None), probe.LEAST, files)
    alone = 1 - own.waits  # share of a step that computes
    step, rate = Interval.around(own.step), config.batch / own.step
    host = Verdict(rate / max(alone, 1e-3), rate, own.waits)
    # Held-out images have no gradients, but are read like others.
    epoch = work.epoch(step, 1 - (1 - VALIDATES) * alone)
    total = epoch.times(epochs(config)).plus((3 if config.frozen_epochs else 2) * own.setup)
    untimed = "decoding is not timed without --input DIR" * (again and files is None)
    waits = _waits(host, devices.cores(), config.data.noun)
    return Outlook(
        CPU, "this machine's CPU", "", config.batch // count, policy, left / count,
        memory, computing, COMPILED, memory <= left / count,
        step=step, epoch=epoch, total=total, time_basis=MEASURED, input=host,
        why="; ".join(filter(None, (waits, untimed))),
    )  # fmt: skip


def _step(plain: Outlook, work: Work, found: Compiled | None) -> tuple[Interval, str, str]:
    """Return the seconds of a step, their basis, and the runs that they come from."""
    runs = () if work.config.fit else work.given.runs  # earlier runs took training steps
    seen = probe.measured(runs, work.config, plain.runtime, plain.precision)
    if seen is not None:
        return seen[0], MEASURED, seen[1]
    core = RUNTIMES[plain.runtime].core
    assert core is not None  # noqa: S101 - `on_accelerator` has one
    operations, traffic = work.counts.operations * plain.share, 0.0
    if found and not found.refused:
        operations, traffic = found.operations, found.traffic
    least = laws.roofline(core, operations, traffic, half=plain.precision != "float32")
    return laws.expected(least).at_least(CALL), PRIOR, ""


def _smaller(work: Work, share: int, part: int, memory: float, law: AffineLaw) -> tuple[int, str]:
    """Return the micro-batch per core that fits, or 0, and what to change in the config.

    Args:
        share: images per core.
        part: images of one pass.
        memory: bytes per core.
        law: bytes of a pass.
    """
    config, room = work.config, law.most(memory)
    data, together = config.data, config.batchnorm_batch or config.optimizer.base_batch
    # A custom loss may compare the rows of a group, too.
    grouped = work.counts.normalizes or config.loss not in ("", "focal")
    group = min(together, config.batch) if grouped else 1
    sizes = (size for size in range(group, part, group) if share % size == 0)
    if micro := max((size for size in sizes if size <= room), default=0):
        return micro, f"set micro_batch={micro}"
    if less := min(room, part // 2):
        none = f"not even {group} {data.noun} that BatchNorm normalizes together fit"
        return 0, f"{none}: set batchnorm_batch to {less} or less"
    factor = max((memory - law.fixed) / law.image, 0) ** 0.5  # an image takes what its pixels take
    height, width = (int(factor * side) // 8 * 8 for side in (data.height, data.width))
    sides = f"set height={height} and width={width}, or " * (min(height, width) >= LEAST_SIDE)
    return 0, f"not even one {data.noun[:-1]} of a core fits: {sides}take a smaller model"


def _waits(host: Verdict | None, cpus: int | None, noun: str) -> str:
    """Return how far a training is input-bound, or ""."""
    if host is None or not host.bound:
        return ""
    return (
        f"input-bound: {cpus} CPUs feed {host.have:,.0f} {noun} per second, and it could take"
        f" {host.need:,.0f}{': use smaller images' * (noun == 'images')}"
    )
