"""Outlook: what a training takes on one runtime, each number with what it rests on.

Memory is what the compiler allots: libtpu for a TPU, XLA for this machine's CPU. For GPUs, whose
compiler wants to see one, the step is compiled for that many cores of a TPU, in their precision: an
estimate. Time is that of earlier runs of the network; else it follows from the limits of the cores
and the share of them that networks reach.
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

COMPILED, ESTIMATED, UNKNOWN = "compiled", "estimated", "unknown"  # of memory
MEASURED, PRIOR = "measured", "prior"  # of time
REFERENCE = "tpu-v6e-8"  # whose compiler says what a GPU's step takes: it has room for most
STARTS = 60.0  # seconds of a session before its first step, compiling aside (assumed)
COMPILES = 180.0  # seconds on the runtime's host: measured 80 to 360 here, for large networks
LEAST_SIDE = 32  # pixels, of images that are worth a training


@dataclass(frozen=True)
class Given:
    """What is known beside the config.

    Attributes:
        images: labelled; images_basis: what this rests on.
        test_images: to predict; None: not known.
        runs: earlier ones.
        largest: search for the largest batch of each TPU, too: three compilations.
        files: a sample of the labelled images; None: there is none.
        decodes: images per second that one CPU decodes; decodes_basis: what this rests on.
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
    """What is to be computed, wherever that is.

    Attributes:
        config: of the training. counts: of its network.
        given: what is known beside them.
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
        """Images to train on, in each fold."""
        return max(round(self.given.images * (1 - self.held_out)), 1)

    @property
    def on_devices(self) -> int:
        """Images that lie on the devices."""
        return self.images if self.config.feed == "device" else 0

    def epoch(self, step: Interval, validating: float) -> Interval:
        """Return the seconds of an epoch, by those of a step and those of one that validates, as a
        share of it. The step across an epoch's end counts in parts. Features of held-out images
        are computed like others.
        """
        steps = self.images / self.config.batch
        validating = 1.0 if self.config.fit else validating
        return step.times(steps * (1 + validating * self.held_out / (1 - self.held_out)))

    def fixed(self, cores: int) -> float:
        """Return the bytes of a core that do not grow with the batch."""
        return self.counts.state + -(-self.on_devices // cores) * image_bytes(self.config)


@dataclass(frozen=True)
class Outlook:
    """What a training takes on one runtime. Of what is not known the basis is "unknown".

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
    compiled: Compiled | None = None
    input: Verdict | None = None
    why: str = ""


def of(name: str, work: Work, show: Callable[[str], None]) -> Outlook:
    """Return the outlook of a runtime, for which a step is compiled.

    Args:
        name: of `RUNTIMES`, or "cpu" for this machine.
        show: takes a line before what takes long.
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
        # A TPU computes no float16; bfloat16 has as many bytes.
        like = "mixed_bfloat16" if policy == "mixed_float16" else policy
        return compiled_step.for_tpu(sized, compiles, like, images, cores, show)

    try:
        one = told(plain, work, compiled(config.batch))
    except ConfigError as error:
        reason = str(error).splitlines()[0]
        also = ", and --largest not searched" * work.given.largest
        return told(plain, work, None, f"memory is not known{also}: {reason}")
    if work.given.largest and core.topology:
        unit = runtime.cores * math.gcd(share, config.batchnorm_batch or 1)
        fixed = work.fixed(runtime.cores)
        useful = min(-(-work.images // unit) * unit, 2**20)
        most = compiled_step.largest(compiled, config.batch, unit, core.memory, fixed, useful)
        return replace(one, largest=most)
    return one


def told(plain: Outlook, work: Work, found: Compiled | None, why: str = "") -> Outlook:
    """Return the outlook of a runtime whose cores are known, and of a network that is built.

    Args:
        plain: its name and its cores.
        found: what its compiler says of a step; for a GPU, what `REFERENCE`'s says. None: nothing
            is compiled.
        why: what is known to be wrong.
    """
    config, runtime = work.config, RUNTIMES[plain.runtime]
    core = runtime.core
    assert core is not None  # noqa: S101 - of the others there is nothing to tell
    own = found if core.topology else None
    part = min(plain.share, config.micro_batch or plain.share)
    law, memory, fits = None, None, None
    if found:
        fixed = work.fixed(runtime.cores)
        # At least a thousandth, lest nothing seem to grow.
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
    """Return the outlook of this machine's CPU: memory by XLA's plan, time by a probe."""
    config, count = work.config, devices.found().count
    policy = devices.precision(config.precision, devices.found(), exact=config.exact)
    left = float(devices.memory_left())
    memory, computing = compiled_step.for_this_cpu(config, count, policy, work.on_devices)
    again = laws.decodes_each_epoch(config, work.images, left)
    files = work.given.files if again else None
    show(f"Timing some steps of {config.batch} {config.data.noun} on this machine")
    own = probe.of_step(replace(config, micro_batch=None), probe.LEAST, files)
    alone = 1 - own.waits  # of a step, which computes
    step, rate = Interval.around(own.step), config.batch / own.step
    host = Verdict(rate / max(alone, 1e-3), rate, own.waits)
    # Nothing is learned from held-out images, and they are read like others.
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
    """Return the seconds of a step, what they rest on, and the runs that were seen."""
    runs = () if work.config.fit else work.given.runs  # these took steps
    seen = probe.measured(runs, work.config, plain.runtime, plain.precision)
    if seen is not None:
        return seen[0], MEASURED, seen[1]
    core = RUNTIMES[plain.runtime].core
    assert core is not None  # noqa: S101 - `told` has one
    operations, traffic = work.counts.operations * plain.share, 0.0
    if found and not found.refused:
        operations, traffic = found.operations, found.traffic
    least = laws.roofline(core, operations, traffic, half=plain.precision != "float32")
    return laws.expected(least).at_least(CALL), PRIOR, ""


def _smaller(work: Work, share: int, part: int, memory: float, law: AffineLaw) -> tuple[int, str]:
    """Return which micro-batch of a core fits, 0 if none does, and what to change.

    Args:
        share: images of a core. part: those of one pass.
        memory: bytes of a core. law: those that a pass takes.
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
    """Return by how much a training is input-bound; "" where it is not."""
    if host is None or not host.bound:
        return ""
    return (
        f"input-bound: {cpus} CPUs give {host.have:,.0f} {noun} a second, and it could take"
        f" {host.need:,.0f}{'; smaller images mend it' * (noun == 'images')}"
    )
