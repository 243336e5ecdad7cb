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
from pipeline.data.image_arrays import Paths
from pipeline.errors import ConfigError, PipelineError
from workbench.budget import shown
from workbench.plan import (
    inference_time,
    kept_plans,
    lowered_step,
    operation_counts,
    outlook,
    probe,
    run_files,
    tpu_compiler,
)
from workbench.plan.accelerators import RUNTIMES, precision
from workbench.plan.inference_time import Inference
from workbench.plan.laws import AffineLaw
from workbench.plan.operation_counts import Counts
from workbench.plan.outlook import HERE, Outlook, Work
from workbench.plan.run_files import Files
from workbench.plan.speed_records import Seen
from workbench.plan.tpu_compiler import Tried

# Kaggle's accelerators of today, of which one is chosen; others by name.
OFFERED = ("tpu-v5e-8", "gpu-t4x2")
LONG = 7 * 24 * 3600.0  # seconds of a training that nobody should begin without a thought
NO_LIBTPU = "libtpu is not installed: pip install -e '.[plan]'"


@dataclass(frozen=True)
class Given:
    """What is known beside the config.

    Attributes:
        images: labelled; images_basis: what this rests on.
        test_images: to predict; None: not known.
        paths: of the labelled images, some of which are decoded; empty: rates are assumed.
        seen: earlier runs.
        largest: search for the largest batch of each TPU, too: three compilations.
    """

    images: int
    images_basis: str
    test_images: int | None = None
    paths: Paths = ()
    seen: Sequence[Seen] = ()
    largest: bool = False


@dataclass(frozen=True)
class Plan:
    """What a training will take.

    Attributes:
        config: its name.
        batch, epochs, folds: of the config.
        labelled: images. images: to train on, in each fold; images_basis: what both rest on.
        counts: of the network; None: it cannot be built.
        files: what a run keeps; None: as above.
        decodes: images a second that one CPU decodes; decodes_basis: what this rests on.
        outlooks: of each runtime.
        inference: of the submission; None: the network cannot be built.
        advice: in one sentence.
        warnings: what went wrong on the way to it.
        noun: what its examples are called.
    """

    config: str
    batch: int
    epochs: int
    folds: int
    labelled: int
    images: int
    images_basis: str
    counts: Counts | None
    files: Files | None
    decodes: float
    decodes_basis: str
    outlooks: tuple[Outlook, ...]
    inference: Inference | None
    advice: str
    warnings: tuple[str, ...]
    noun: str = "images"

    def to_json(self) -> dict[str, Any]:
        """Return the plan for `json.dumps`."""
        return asdict(self)


def from_json(value: dict[str, Any]) -> Plan:
    """Return the plan that `Plan.to_json` wrote.

    Raises:
        LookupError, TypeError: if it is none.
    """
    parts = dict(value)
    parts["counts"] = parts["counts"] and Counts(**parts["counts"])
    parts["files"] = parts["files"] and Files(**parts["files"])
    parts["inference"] = parts["inference"] and inference_time.from_json(parts["inference"])
    parts["outlooks"] = tuple(map(outlook.from_json, parts["outlooks"]))
    parts["warnings"] = tuple(parts["warnings"])
    return Plan(**parts)


def make(
    config: Config,
    names: Sequence[str],
    given: Given,
    show: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Return the plan of a config.

    Args:
        names: of runtimes.
        show: takes a line before what takes long.
    """
    warnings: list[str] = []
    counts = None
    try:
        made = kept_plans.found("counts", config, lambda: asdict(operation_counts.of(config)))
        counts = Counts(**made)
    except ConfigError as error:
        warnings.append(str(error))
    held = 1 / config.folds if config.folds else config.data.validation_fraction
    images = max(round(given.images * (1 - held)), 1)
    work = Work(config, counts, images, given.seen)
    if given.paths:
        try:
            work = _sampled(work, given.paths)
        except PipelineError as error:
            warnings.append(str(error))
    laws: dict[str, AffineLaw] = {}
    outlooks = tuple(_of(name, work, laws, given, show) for name in names)
    return Plan(
        config.name, config.batch, config.epochs, config.folds or 1, given.images, images,
        given.images_basis,
        counts, None if counts is None else run_files.of(config, counts, given.images),
        work.decodes, work.decodes_basis, outlooks,
        None if counts is None else inference_time.of(
            config, counts, given.test_images, work.decodes
        ),
        advice(outlooks, config.data.noun), tuple(warnings), config.data.noun,
    )  # fmt: skip


def _sampled(work: Work, paths: Paths) -> Work:
    files, decodes = probe.sample(paths, work.config.data)
    basis = f"measured here on {len(files)} of its images"
    return replace(work, files=files, decodes=decodes, decodes_basis=basis)


def _of(
    name: str, work: Work, laws: dict[str, AffineLaw], given: Given, show: Callable[[str], None]
) -> Outlook:
    """Return the outlook of a runtime; `laws` of memory, by precision, get what is computed."""
    if name == HERE:
        return outlook.here(work, show)
    config, core = work.config, RUNTIMES[name].core
    if core is None or work.counts is None:
        why = "its processors were not measured" if core is None else "the model is not built"
        return outlook.unknown(name, config, why)
    cores = RUNTIMES[name].cores
    held = work.images if config.feed == "device" else 0
    if config.batch % cores:
        why = f"batch={config.batch} does not split over its {cores} cores"
        return replace(outlook.unknown(name, config, why), fits=False)
    found: dict[str, Any] | None = None
    most, why = None, ""
    if core.topology and find_spec("libtpu"):
        try:
            found = _compiled(config, name, held, show)
            if given.largest:
                most = _largest(work, name, held, show)
        except ConfigError as error:
            why = str(error).splitlines()[0]
    elif core.topology:
        also = ", and --largest not searched" * given.largest
        why = f"estimated{also}, since {NO_LIBTPU}"
    refused: float | None = None  # what it needs; 0: its compiler did not say
    if found is not None and "refused" in found:
        refused, found, why = found["required"] or 0.0, None, "its compiler refuses this batch"
    policy = precision(config, core)
    if found is None and policy not in laws:
        laws[policy] = _law(config, policy, show)
    law = None
    if found is None:  # of a step alone: images that the cores hold come to it
        law = laws[policy]
        law = replace(law, fixed=law.fixed + -(-held // cores) * run_files.image_bytes(config))
    one = outlook.of(name, work, found, law, why, refused)
    return one if most is None else replace(one, largest=most)


def advice(outlooks: Sequence[Outlook], noun: str = "images") -> str:
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
            f" {(widest.room or 0) / 1e9:.0f} GB; {widest.why.rpartition('; ')[2]}."
        )
    best = min(fit, key=lambda one: one.total.usual if one.total else math.inf)
    assert best.total is not None  # noqa: S101 - of those that have one
    less = f"fewer epochs{', smaller images' * (noun == 'images')} or a smaller model"
    said = f"Train on {best.title}: about {shown(best.total.usual)}"
    if best.spent and best.spent.weeks and best.spent.weeks > 1:
        said += f", which is the quota of {best.spent.weeks:,} weeks: take {less}"
    elif best.spent and best.spent.sessions and best.spent.sessions > 1:
        said += f" in {best.spent.sessions} sessions (push-train --until-done)"
    elif best.total.usual > LONG:
        said += f": take {less}"
    return f"{said}{'' if best.fits else f', with micro_batch={best.micro_batch}'}."


def _compiled(config: Config, name: str, held: int, show: Callable[[str], None]) -> dict[str, Any]:
    """Return what a TPU's compiler says of a step; `held`: images that lie on its cores."""
    from workbench.plan import tpu_compiler

    def compute() -> dict[str, Any]:
        show(f"Compiling a step of {config.name} for {name}; a large network takes minutes")
        try:
            return tpu_compiler.compile_step(config, name, images=held).to_json()
        except tpu_compiler.TooLarge as error:
            return {"refused": str(error), "required": error.required}

    core = RUNTIMES[name].core
    what = f"step for {core.topology if core else name}, {held} images held"
    return kept_plans.found(what, config, compute)


def _largest(work: Work, name: str, held: int, show: Callable[[str], None]) -> int:
    config, counts = work.config, work.counts
    assert counts is not None  # noqa: S101 - of a network that is built

    def tried(batch: int) -> Tried:
        found = _compiled(with_batch(config, batch), name, held, show)
        taken = "refused" not in found
        memory = found["memory"] if taken else found["required"] or math.inf
        return Tried(batch, float(memory), taken)

    runtime = RUNTIMES[name]
    assert runtime.core is not None  # noqa: S101 - a TPU has one
    unit = runtime.cores * math.gcd(config.batch // runtime.cores, config.batchnorm_batch or 1)
    room = runtime.core.memory
    fixed = counts.state + held * run_files.image_bytes(config) / runtime.cores
    return tpu_compiler.largest(tpu_compiler.search(tried, config.batch, unit, room, fixed))


def with_batch(config: Config, batch: int) -> Config:
    """Return the config at another batch, with the same BatchNorm groups and no other rate."""
    group = config.batchnorm_batch or min(config.optimizer.base_batch, config.batch)
    optimizer = replace(config.optimizer, base_batch=batch)
    return replace(config, batch=batch, batchnorm_batch=group, optimizer=optimizer)


def _law(config: Config, policy: str, show: Callable[[str], None]) -> AffineLaw:
    def compute() -> dict[str, Any]:
        show(f"Compiling two steps of {config.name} for this CPU ({policy})")
        return asdict(lowered_step.on_this_cpu(config, policy))

    return AffineLaw(**kept_plans.found(f"memory in {policy}", config, compute))
