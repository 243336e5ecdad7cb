"""Compile a training step for a TPU or for this machine's CPU, to determine its memory and cost.

The step is not run. No TPU is needed, because libtpu can compile for a TPU topology on any x86
machine with Linux. When memory is nearly full, the compiler recomputes values instead of storing
them, so memory use grows more slowly. If a batch does not fit, the compiler reports how much memory
it would need (docs/dev/findings.md).

Results are cached as JSON files in ~/.cache/kaggle-relay/plans (or under XDG_CACHE_HOME). You can
delete them at any time.
"""

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from formats import atomic_file
from pipeline.config import Config, custom_code
from pipeline.config.data_layout import sizes
from pipeline.errors import ConfigError
from pipeline.runtime import provenance
from workbench.plan.accelerators import RUNTIMES, Accelerator, precision

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
NO_LIBTPU = "libtpu is not installed. Install it with: pip install -e '.[plan]'"
BEYOND = 1.5  # factor applied to the batch that would fill the memory by linear extrapolation
BELOW = 0.99  # the last compilation uses this fraction of the predicted limit
ROOT = Path(__file__).resolve().parents[2]
# Fields that do not affect the compiled program, such as the number of epochs. `feed` affects the
# number of images in device memory, which is part of the cache key.
NOTHING = (
    "name", "competition", "epochs", "seed", "folds", "views", "keep", "patience", "handoff",
    "session_hours", "infer_hours", "progress_seconds", "checkpoint_seconds",
    "baseline", "metric", "feed",
)  # fmt: skip


@dataclass(frozen=True)
class Compiled:
    """The compiler's per-core report for one step.

    Attributes:
        memory: peak memory in bytes. If the step does not fit, this is the memory required on top
            of the step's arguments, or 0 if the compiler did not report it.
        operations: number of floating-point operations.
        traffic: bytes read from and written to memory.
        collectives: number of collective operations of each kind.
        refused: compiler error if the step does not fit, or else "".
    """

    memory: float
    operations: float
    traffic: float
    collectives: dict[str, int]
    compile_seconds: float
    libtpu: str
    refused: str = ""


def for_tpu(
    config: Config, runtime: str, policy: str = "", images: int = 0, cores: int = 8,
    show: Callable[[str], None] = lambda line: None,
) -> Compiled:  # fmt: skip
    """Return the TPU compiler's report about a step, from the cache if possible.

    Args:
        runtime: a key of `workbench.plan.accelerators.RUNTIMES` that has TPU cores.
        policy: Keras dtype policy for training, or "" to use the runtime's default.
        images: number of images in device memory, or 0 if the host sends each batch.
        cores: number of cores over which a batch is split, at most eight.

    Raises:
        ConfigError: if libtpu is not installed.
    """
    core = RUNTIMES[runtime].core
    assert core is not None  # noqa: S101 - all TPU runtimes have one
    if find_spec("libtpu") is None:
        raise ConfigError(NO_LIBTPU)
    policy = policy or precision(config, core)

    def compute() -> dict[str, Any]:
        show(f"Compiling a {policy} step of {config.name} for {runtime}. This may take minutes")
        with _topology(core) as devices:
            return asdict(_compile(lowered(config, devices[:cores], policy, images), libtpu))

    libtpu = version("libtpu")
    what = f"step of {policy} for {cores} of {core.topology} by {libtpu}, {images} images held"
    return Compiled(**kept(what, config, compute))


def for_this_cpu(config: Config, count: int, policy: str, images: int = 0) -> tuple[float, float]:
    """Return the bytes that a step uses on each of `count` devices of this machine's CPU.

    The first value is the total, and the second value is the part that is only used while the step
    is running. See `for_tpu` for the arguments.
    """
    import jax

    def compute() -> dict[str, Any]:
        found = lowered(config, jax.devices("cpu")[:count], policy, images).compile()
        sizes = found.memory_analysis()
        only = sizes.temp_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
        return {"all": float(sizes.argument_size_in_bytes + only), "computing": float(only)}

    made = kept(f"memory of {count} CPUs in {policy}, {images} images held", config, compute)
    return made["all"], made["computing"]


def largest(
    compiled: Callable[[int], Compiled],
    first: int,
    unit: int,
    room: float,
    fixed: float,
    most: int = 2**20,
) -> int:
    """Return the largest batch that fits, or 0 if none fits, using at most three compilations.

    Args:
        compiled: function that compiles a step for a batch size.
        first: batch size to start from.
        unit: number by which batch sizes must be divisible.
        room: memory per core in bytes.
        fixed: bytes per core that do not depend on the batch, such as weights and optimizer state.
        most: maximum batch size to try.
    """
    tried = {first: compiled(first)}
    if not tried[first].refused:
        # Use at least a thousandth, because otherwise the next batch could be far too large.
        growing = max(tried[first].memory - fixed, tried[first].memory / 1000)
        beyond = int(BEYOND * first * (room - fixed) / growing) // unit * unit
        beyond = max(min(max(beyond, first + unit), most), first)
        tried[beyond] = tried.get(beyond) or compiled(beyond)
    last, found = max(tried.items())
    if grown := found.memory - fixed * (not found.refused):
        limit = int(BELOW * last * (room - fixed) / grown) // unit * unit
        if 0 < limit <= most and limit not in tried:
            tried[limit] = compiled(limit)
    return max((batch for batch, one in tried.items() if not one.refused), default=0)


def with_batch(config: Config, batch: int) -> Config:
    """Change the batch size, but not the BatchNorm groups or the learning rate."""
    group = config.batchnorm_batch or min(config.optimizer.base_batch, config.batch)
    optimizer = replace(config.optimizer, base_batch=batch)
    return replace(config, batch=batch, batchnorm_batch=group, optimizer=optimizer)


@contextmanager
def building(config: Config, policy: str, mesh: Any) -> Iterator[Any]:
    """Yield a `pipeline.train.step.TrainStep`. A Keras dtype policy is set within the block.

    For a linear model on features, the step only trains the last layer, which costs almost nothing.

    Raises:
        ConfigError: if the model does not support images of this size.
    """
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    from pipeline.models import architectures
    from pipeline.train import learning_rate
    from pipeline.train.step import TrainStep
    from workbench.plan import operation_counts

    config, before = operation_counts.planned(config), keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        architectures.seed(config.seed)
        applied = learning_rate.apply(config, 1000 * config.batch)
        model = operation_counts.network(config, applied.batchnorm_momentum)
        yield TrainStep(config, applied, model, mesh)
    finally:
        keras.config.set_dtype_policy(before)


def lowered(config: Config, devices: Sequence[Any], policy: str, images: int = 0) -> Any:
    """Lower a training step to a `jax.stages.Lowered`. See `for_tpu` for the arguments.

    Args:
        devices: JAX or topology devices over which a batch is split.
    """
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from pipeline.data.dataset import Weighted
    from pipeline.runtime import replicas
    from pipeline.train.step import Batch

    mesh = Mesh(np.array(devices), (replicas.AXIS,))
    struct: Any = jax.ShapeDtypeStruct

    def there(array: Any, *axes: Any) -> Any:
        where = NamedSharding(mesh, PartitionSpec(*axes))  # type: ignore[no-untyped-call]
        return struct(array.shape, array.dtype, sharding=where)

    with building(config, policy, mesh) as step:
        state = jax.tree.map(there, step.layout.initial())
        size, data = (step.steps_per_call, config.batch), config.data
        pixels = struct((*size, *data.shape), np.dtype(data.dtype))
        truth: Any = blank_labels(config, size)
        if config.class_weights or data.weight_column is not None:
            truth = Weighted(truth, struct(size, np.float32))
        draws = struct((*size, step.augmentation.draws(0).shape[1]), np.int32)
        split = partial(jax.tree.map, lambda array: there(array, None, replicas.AXIS))
        held: tuple[Any, ...] = ()
        given = split(pixels)
        if images:  # batches then contain positions of images
            shape = (-(-images // mesh.size) * mesh.size, *data.shape)
            held = (there(struct(shape, pixels.dtype), replicas.AXIS),)
            given = there(struct(size, np.int32))
        return step.lowered(state, held, Batch(given, split(truth), split(draws)))


def blank_labels(config: Config, size: tuple[int, ...]) -> np.ndarray:
    """Return zeros with the shape and dtype of the labels, without allocating memory for them."""
    shape: tuple[int, ...] = (config.outputs,)
    dtype = "float32"
    if config.target == "custom":
        shape, dtype = sizes(config.data.custom_labels), str(config.data.custom_labels[0])
    elif config.target in ("classes", "ordinal") and not config.learns_shares:
        shape, dtype = (), "int32"
    return np.broadcast_to(np.zeros((), dtype), (*size, *shape))


def kept(what: str, config: Config, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a result from the cache, or compute it and add it to the cache.

    Args:
        what: description of the result, including everything that it depends on, except for the
            config and the code.
    """
    fields = {name: value for name, value in config.to_json().items() if name not in NOTHING}
    del fields["data"]["labelled"]  # this field does not affect the program either
    parts = [what, json.dumps(fields, sort_keys=True), custom_code.digest(config), _code()]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = place / "kaggle-relay" / "plans" / f"{key}.json"
    # Recompute results that cannot be read.
    with suppress(OSError, ValueError, TypeError, RecursionError):
        return dict(json.loads(path.read_bytes()))
    numbers = compute()
    with suppress(OSError):  # without a cache, planning only takes longer
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(path, (json.dumps(numbers, indent=1) + "\n").encode())
    return numbers


@cache
def _code() -> str:
    digest = hashlib.sha256(str(provenance.versions()).encode())
    for folder in ("formats", "pipeline", "workbench/plan"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "configs" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _topology(core: Accelerator) -> Iterator[Sequence[Any]]:
    """Yield the devices of a TPU topology that libtpu describes.

    libtpu reads some of its environment variables when it compiles, so they stay set in the block.
    """
    from jax.experimental import topologies

    before = dict(os.environ)
    # libtpu exits if it does not know a flag.
    others = ("--xla_cpu_", "--xla_gpu_")
    flags = [each for each in before.get("XLA_FLAGS", "").split() if not each.startswith(others)]
    # Otherwise, libtpu queries a metadata server for the TPU type, but there is no such server.
    os.environ.update(
        TPU_SKIP_MDS_QUERY="1", TPU_WORKER_HOSTNAMES="localhost", TPU_ACCELERATOR_TYPE=core.kind,
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # allowed, because the processes do not share a TPU
        JAX_PLATFORMS="cpu", XLA_FLAGS=" ".join(flags),
    )  # fmt: skip
    try:
        yield topologies.get_topology_desc(platform="tpu", topology_name=core.topology).devices
    finally:  # processes that are started later get the flags that the user set
        os.environ.clear()
        os.environ.update(before)


def _compile(step: Any, libtpu: str) -> Compiled:
    import jax

    begun = time.monotonic()
    try:
        done = step.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        found = re.search(r"\(([\d.]+)([MG])\) exceeds", str(error))
        needs = float(found[1]) * {"M": 2**20, "G": 2**30}[found[2]] if found else 0.0
        why = str(error).splitlines()[0][:300]
        return Compiled(needs, 0.0, 0.0, {}, round(time.monotonic() - begun, 1), libtpu, why)
    seconds, costs, text = time.monotonic() - begun, done.cost_analysis(), done.as_text()
    across = Counter(re.findall(rf" ({'|'.join(COLLECTIVES)})(?:-start)?\(", text))
    return Compiled(
        int(done.memory_analysis().peak_memory_in_bytes), float(costs["flops"]),
        float(costs["bytes accessed"]), dict(across), round(seconds, 1), libtpu,
    )  # fmt: skip
