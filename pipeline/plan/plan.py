"""Plan: what a training will take on each runtime, before anything is spent.

Memory by compiling the step (TPUs) or by XLA's plan of its buffers on a CPU (GPUs); time by the
limits of the cores and the share of them that networks reach; then sessions, quota and price. Each
figure says what it rests on; what is not known is None, never 0.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any

from pipeline.config import Config
from pipeline.config.budget import shown
from pipeline.errors import ConfigError
from pipeline.plan import (
    cost,
    input_rate,
    kept_plans,
    largest_batch,
    operation_counts,
    step_memory,
    step_time,
)
from pipeline.plan.accelerators import RUNTIMES, Accelerator, Runtime, precision
from pipeline.plan.cost import Cost
from pipeline.plan.input_rate import Verdict
from pipeline.plan.largest_batch import Tried
from pipeline.plan.operation_counts import Counts
from pipeline.plan.step_memory import MemoryLaw
from pipeline.plan.step_time import CALL, VALIDATES, Interval

COMPILED, ESTIMATED, UNKNOWN = "compiled", "estimated", "unknown"  # of memory
MEASURED, PRIOR = "measured", "prior"  # of time
HERE = "cpu"
# Kaggle's accelerators of today, of which one is chosen; others by name.
OFFERED = ("tpu-v5e-8", "gpu-t4x2")
STARTS = 60.0  # seconds of a session before its first step, compiling aside (assumed)
COMPILES = 180.0  # seconds on the runtime's host: measured 80 to 360 here, for large networks
LONG = 7 * 24 * 3600.0  # seconds of a training that nobody should begin without a thought


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
        fits: whether a core has room for its share.
        micro_batch: images a core that fit where the share does not; 0: not even one.
        largest: images of a batch that fit, without micro-batches.
        step, epoch, total: seconds; time_basis: what they rest on.
        spent: what the usual total costs.
        compiled: what a TPU's compiler says of a step of each core; None: it was not asked.
        input: whether the host's CPUs keep up, by rates that are assumed; None: how many it has is
            not known.
        why: what is not known, or would mend what does not fit.
    """

    runtime: str
    title: str
    retired: str
    share: int
    precision: str
    room: float | None
    memory: float | None = None
    memory_basis: str = UNKNOWN
    fits: bool | None = None
    micro_batch: int | None = None
    largest: int | None = None
    step: Interval | None = None
    epoch: Interval | None = None
    total: Interval | None = None
    time_basis: str = UNKNOWN
    spent: Cost | None = None
    compiled: dict[str, Any] | None = None
    input: Verdict | None = None
    why: str = ""


@dataclass(frozen=True)
class Plan:
    """What a training will take.

    Attributes:
        config: its name.
        batch, epochs, folds: of the config.
        images: to train on; images_basis: what this rests on.
        counts: of the network; None: it cannot be built.
        outlooks: of each runtime.
        advice: in one sentence.
        warnings: what went wrong on the way to it.
    """

    config: str
    batch: int
    epochs: int
    folds: int
    images: int
    images_basis: str
    counts: Counts | None
    outlooks: tuple[Outlook, ...]
    advice: str
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the plan for `json.dumps`."""
        return asdict(self)


def make(
    config: Config,
    names: Sequence[str],
    images: int,
    images_basis: str,
    show: Callable[[str], None] = lambda line: None,
    *,
    largest: bool = False,
) -> Plan:
    """Return the plan of a config.

    Args:
        names: of runtimes.
        images: to train on, in each fold.
        show: takes a line before what takes long.
        largest: search for the largest batch of each TPU, too: three compilations.
    """
    warnings: list[str] = []
    counts = None
    laws: dict[str, MemoryLaw] = {}
    try:
        made = kept_plans.found("counts", config, lambda: asdict(operation_counts.of(config)))
        counts = Counts(**made)
    except ConfigError as error:
        warnings.append(str(error))
    outlooks = []
    for name in names:
        if name == HERE:
            outlooks.append(_here(config, counts, images, show))
            continue
        runtime = RUNTIMES[name]
        core = runtime.core
        if core is None or counts is None:
            why = "its processors were not measured" if core is None else "the model is not built"
            outlooks.append(_unknown(name, runtime, config, why))
            continue
        found: dict[str, Any] | None = None
        why = ""
        if core.topology and find_spec("libtpu"):
            try:
                found = _compiled(config, name, show)
            except ConfigError as error:
                why = str(error).splitlines()[0]
        elif core.topology:
            why = "estimated, since libtpu is not installed: pip install -e '.[plan]'"
        refused = found is not None and "refused" in found
        most = None
        if largest and found is not None:
            most = _largest(config, name, runtime, core, counts, show)
        if refused:
            found, why = None, "its compiler refuses this batch"
        policy = precision(config, core)
        if found is None and policy not in laws:
            laws[policy] = _law(config, policy, show)
        law = laws.get(policy)
        one = _outlook(name, runtime, core, config, counts, images, found, law, why)
        one = one if most is None else replace(one, largest=most)
        outlooks.append(replace(one, fits=False) if refused else one)
    return Plan(
        config.name, config.batch, config.epochs, config.folds or 1, images, images_basis, counts,
        tuple(outlooks), advice(outlooks), tuple(warnings),
    )  # fmt: skip


def advice(outlooks: Sequence[Outlook]) -> str:
    """Return in one sentence where to train, or what keeps the training from fitting."""
    there = [one for one in outlooks if not one.retired and one.total is not None]
    fit = [one for one in there if one.fits or one.micro_batch]
    if not there:
        return "Nothing can be said of the runtimes that were asked for."
    if not fit:
        widest = max(there, key=lambda one: one.room or 0)
        needed = (widest.memory or 0) / 1e9
        return (
            f"It fits nowhere: one step takes {needed:,.0f} GB a core, and {widest.title} has"
            f" {(widest.room or 0) / 1e9:.0f} GB; take smaller images, or a smaller model."
        )
    best = min(fit, key=lambda one: one.total.usual if one.total else math.inf)
    assert best.total is not None  # noqa: S101 - of those that have one
    said = f"Train on {best.title}: about {shown(best.total.usual)}"
    if best.spent and best.spent.weeks and best.spent.weeks > 1:
        said += f", which is the quota of {best.spent.weeks:,} weeks: take fewer epochs, smaller"
        said += " images or a smaller model"
    elif best.spent and best.spent.sessions and best.spent.sessions > 1:
        said += f" in {best.spent.sessions} sessions (push-train --until-done)"
    elif best.total.usual > LONG:
        said += ": take fewer epochs, smaller images or a smaller model"
    return f"{said}{'' if best.fits else f', with micro_batch={best.micro_batch}'}."


def _here(
    config: Config, counts: Counts | None, images: int, show: Callable[[str], None]
) -> Outlook:
    """Return the outlook of this machine's CPU: memory by XLA's plan, time by two probes."""
    from pipeline.plan import probe
    from pipeline.runtime import devices

    count = devices.found().count
    policy = devices.precision(config.precision, devices.found(), table=config.data.numbers)
    plain = Outlook(
        HERE, "this machine's CPU", "", config.batch // count, policy, devices.memory_left() / count
    )
    if counts is None:
        return replace(plain, why="the model is not built")
    memory = kept_plans.found(
        f"memory of {count} CPUs in {policy}", config,
        lambda: {"bytes": step_memory.of_step(config, count, policy)},
    )["bytes"]  # fmt: skip
    law, setup = probe.law(config, count, show)
    step = law.step(config.batch)
    steps = Interval(*3 * [step])
    epoch = steps.times(_steps(config, images))
    total = epoch.times(config.epochs * (config.folds or 1)).plus(2 * setup)
    return replace(
        plain, memory=memory, memory_basis=COMPILED, fits=memory <= (plain.room or 0), step=steps,
        epoch=epoch, total=total, time_basis=MEASURED,
    )  # fmt: skip


def _steps(config: Config, images: int) -> float:
    """Return the steps of an epoch, with what validation takes besides, in steps."""
    held = 1 / config.folds if config.folds else config.data.validation_fraction
    return math.ceil(images / config.batch) * (1 + VALIDATES * held / (1 - held))


def _compiled(config: Config, name: str, show: Callable[[str], None]) -> dict[str, Any]:
    from pipeline.plan import tpu_compiler

    def compute() -> dict[str, Any]:
        show(f"Compiling a step of {config.name} for {name}; a large network takes minutes")
        try:
            return tpu_compiler.compile_step(config, name).to_json()
        except tpu_compiler.TooLarge as error:
            return {"refused": str(error), "required": error.required}

    core = RUNTIMES[name].core
    what = f"step for {core.topology if core else name}"
    return kept_plans.found(what, config, compute)


def _largest(
    config: Config, name: str, runtime: Runtime, core: Accelerator, counts: Counts,
    show: Callable[[str], None],
) -> int:  # fmt: skip
    def tried(batch: int) -> Tried:
        found = _compiled(with_batch(config, batch), name, show)
        taken = "refused" not in found
        return Tried(batch, float(found["memory" if taken else "required"]), taken)

    unit = runtime.cores * math.gcd(config.batch // runtime.cores, config.batchnorm_batch or 1)
    room = core.memory
    return largest_batch.largest(
        largest_batch.search(tried, config.batch, unit, room, counts.state)
    )


def with_batch(config: Config, batch: int) -> Config:
    """Return the config at another batch, with the same BatchNorm groups and no other rate."""
    group = config.batchnorm_batch or min(config.optimizer.base_batch, config.batch)
    optimizer = replace(config.optimizer, base_batch=batch)
    return replace(config, batch=batch, batchnorm_batch=group, optimizer=optimizer)


def _law(config: Config, policy: str, show: Callable[[str], None]) -> MemoryLaw:
    def compute() -> dict[str, Any]:
        show(f"Compiling two steps of {config.name} for this CPU ({policy})")
        return asdict(step_memory.on_this_cpu(config, policy))

    return MemoryLaw(**kept_plans.found(f"memory in {policy}", config, compute))


def _unknown(name: str, runtime: Runtime, config: Config, why: str) -> Outlook:
    core = runtime.core
    return Outlook(
        name, runtime.title, runtime.retired, config.batch // runtime.cores,
        precision(config, core) if core else "float32", core.memory if core else None, why=why,
    )  # fmt: skip


def _outlook(
    name: str, runtime: Runtime, core: Accelerator, config: Config, counts: Counts, images: int,
    found: dict[str, Any] | None, law: MemoryLaw | None, why: str,
) -> Outlook:  # fmt: skip
    share = -(-config.batch // runtime.cores)
    plain = _unknown(name, runtime, config, why)
    memory = found["memory"] if found else law.bytes(share) if law else None
    room = law.fits(core.memory) if law else None
    fits = None if memory is None else memory <= core.memory
    half = plain.precision != "float32"
    roof = step_time.roofline(core, counts.in_bounds * share, half=half)
    step = step_time.expected(found["least_seconds"] if found else roof).at_least(CALL)
    given = input_rate.of(config, runtime, images, config.batch / step.usual)
    # Where the host is slower, the accelerator waits for it.
    waits = 0.0 if given is None else config.batch / given.have
    epoch = step.at_least(waits).times(_steps(config, images))
    total = epoch.times(config.epochs * (config.folds or 1)).plus(STARTS + COMPILES)
    if given is not None and given.bound:
        slow = (
            f"input-bound: its {runtime.cpus} CPUs give {given.have:,.0f} images a second, and it"
        )
        why = "; ".join(filter(None, (why, f"{slow} could take {given.need:,.0f}")))
    micro = None
    if fits is False and room is not None:
        sizes = (size for size in range(1, share + 1) if share % size == 0)
        micro = max((size for size in sizes if size <= room), default=0)
        mended = f"set micro_batch={micro}" if micro else "not even one image of a core fits"
        why = "; ".join(filter(None, (why, mended)))
    return replace(
        plain, memory=memory, memory_basis=COMPILED if found else ESTIMATED, fits=fits,
        micro_batch=micro, largest=None if room is None else room * runtime.cores, step=step,
        epoch=epoch, total=total, time_basis=PRIOR, spent=cost.of(runtime, total.usual), why=why,
        compiled=found, input=given,
    )  # fmt: skip
