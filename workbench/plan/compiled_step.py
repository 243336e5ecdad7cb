"""What a training step takes on a TPU that is not there, or on this machine's CPU.

The step is the training's own program, which is compiled and not run. libtpu compiles on any x86
machine with Linux, for a topology in place of devices. Memory is what it allots; operations and
bytes are what it counts.

Near its limit the compiler recomputes values in place of keeping them, so memory grows more slowly
there. For a batch that it refuses it reports the memory needed. The largest batch follows from such
a point, and a third compilation confirms it (docs/dev/findings.md).

Results are cached in ~/.cache/kaggle-relay/plans (or under XDG_CACHE_HOME), one JSON file each. You
can remove them at any time.
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
NO_LIBTPU = "libtpu is not installed: pip install -e '.[plan]'"
BEYOND = 1.5  # times the batch that would fill the memory if it grew as in the first compilation
BELOW = 0.99  # of the predicted limit, to compile in order to confirm it
ROOT = Path(__file__).resolve().parents[2]
# Fields that do not change the program: the length of a run, and what happens around its steps. The
# cache's key has the images held on the devices, which depend on `feed`.
NOTHING = (
    "name", "competition", "epochs", "seed", "folds", "views", "keep", "patience", "handoff",
    "session_hours", "infer_hours", "progress_seconds", "checkpoint_seconds",
    "baseline", "metric", "feed",
)  # fmt: skip


@dataclass(frozen=True)
class Compiled:
    """The compiler's report of one step, per core.

    Attributes:
        memory: peak bytes. If the step is refused: the bytes that it needs besides its arguments,
            or 0 if the compiler did not report them.
        operations: floating-point operations.
        traffic: bytes read from memory and written to it.
        collectives: number of exchanges between cores, by kind.
        compile_seconds: on this machine.
        libtpu: its version.
        refused: why the step does not fit, or "".
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
    """Return a TPU compiler's report of a step, from the cache if possible.

    Args:
        runtime: of `workbench.plan.accelerators.RUNTIMES`, one with TPU cores.
        policy: of Keras, the precision of the training; "" for the runtime's default.
        images: held on the devices; 0 if the host sends each batch.
        cores: that share each batch; eight at most.
        show: gets a line before a long step.

    Raises:
        ConfigError: if libtpu is not installed.
    """
    core = RUNTIMES[runtime].core
    assert core is not None  # noqa: S101 - a TPU has one
    if find_spec("libtpu") is None:
        raise ConfigError(NO_LIBTPU)
    policy = policy or precision(config, core)

    def compute() -> dict[str, Any]:
        show(f"Compiling a step of {config.name} in {policy} for {runtime}, which may take minutes")
        devices = _devices(core)[:cores]
        return asdict(_compile(lowered(config, devices, policy, images), libtpu))

    libtpu = version("libtpu")
    what = f"step of {policy} for {cores} of {core.topology} by {libtpu}, {images} images held"
    return Compiled(**kept(what, config, compute))


def for_this_cpu(config: Config, count: int, policy: str, images: int = 0) -> tuple[float, float]:
    """Return the bytes that a step takes on each of `count` devices of this machine's CPU, and the
    part of them that is only taken while it computes. See `for_tpu` for the arguments.
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
    """Return the largest batch that a compiler accepts, or 0, after at most three compilations.

    Args:
        compiled: compiles a batch.
        first: the batch to start from.
        unit: batches are multiples of it.
        room: bytes per core.
        fixed: bytes per core that do not grow with the batch: weights and optimizer state.
        most: the largest batch to try.
    """
    tried = {first: compiled(first)}
    if not tried[first].refused:
        # At least a thousandth, or the next batch would be absurd if almost nothing grows.
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
    """Return the config with another batch, the same BatchNorm groups and the same rate."""
    group = config.batchnorm_batch or min(config.optimizer.base_batch, config.batch)
    optimizer = replace(config.optimizer, base_batch=batch)
    return replace(config, batch=batch, batchnorm_batch=group, optimizer=optimizer)


@contextmanager
def building(config: Config, policy: str, mesh: Any) -> Iterator[Any]:
    """Build a `pipeline.train.step.TrainStep` in a policy of Keras, which applies within the block.

    For a linear model on features, the step trains the last layer, which costs almost nothing.

    Args:
        mesh: of the devices that a batch splits over.

    Raises:
        ConfigError: if the model does not take images of this size.
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
    """Return the step as JAX lowers it: `jax.stages.Lowered`.

    Args:
        devices: of JAX, or of a topology, that a batch splits over.
        policy: of Keras, the precision of the training.
        images: held on the devices; 0 if the host sends each batch.
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
        if images:  # then a batch holds positions
            shape = (-(-images // mesh.size) * mesh.size, *data.shape)
            held = (there(struct(shape, pixels.dtype), replicas.AXIS),)
            given = there(struct(size, np.int32))
        return step.lowered(state, held, Batch(given, split(truth), split(draws)))


def blank_labels(config: Config, size: tuple[int, ...]) -> np.ndarray:
    """Return zeros in the shape and dtype of these labels, without taking memory."""
    shape: tuple[int, ...] = (config.outputs,)
    dtype = "float32"
    if config.target == "custom":
        shape, dtype = sizes(config.data.custom_labels), str(config.data.custom_labels[0])
    elif config.target in ("classes", "ordinal"):
        shape, dtype = (), "int32"
    return np.broadcast_to(np.zeros((), dtype), (*size, *shape))


def kept(what: str, config: Config, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a cached result for a config, or compute it.

    Args:
        what: the result's name, with all that it depends on besides config and code.
        compute: returns numbers for JSON.
    """
    fields = {name: value for name, value in config.to_json().items() if name not in NOTHING}
    del fields["data"]["labelled"]  # this does not change the program either
    parts = [what, json.dumps(fields, sort_keys=True), custom_code.digest(config), _code()]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = place / "kaggle-relay" / "plans" / f"{key}.json"
    # A corrupt result is computed again.
    with suppress(OSError, ValueError, TypeError, RecursionError):
        return dict(json.loads(path.read_bytes()))
    numbers = compute()
    with suppress(OSError):  # a full or read-only disk only costs time
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(path, (json.dumps(numbers, indent=1) + "\n").encode())
    return numbers


@cache
def _code() -> str:
    """Return the sha256 of the modules that train and plan, and of their libraries' versions."""
    digest = hashlib.sha256(str(provenance.versions()).encode())
    for folder in ("formats", "pipeline", "workbench/plan"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "configs" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _devices(core: Accelerator) -> Sequence[Any]:
    """Return the devices of a TPU's topology, from libtpu."""
    # Otherwise libtpu asks a metadata server, which is not there, which TPU it runs on.
    os.environ.update(
        TPU_SKIP_MDS_QUERY="1", TPU_WORKER_HOSTNAMES="localhost", TPU_ACCELERATOR_TYPE=core.kind,
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # there is no TPU for processes to share
    )  # fmt: skip
    os.environ["JAX_PLATFORMS"] = "cpu"
    # libtpu ends the process on unknown flags, such as those for a newer jaxlib's CPU.
    flags = os.environ.get("XLA_FLAGS", "").split()
    others = ("--xla_cpu_", "--xla_gpu_")
    os.environ["XLA_FLAGS"] = " ".join(flag for flag in flags if not flag.startswith(others))
    from jax.experimental import topologies

    found = topologies.get_topology_desc(platform="tpu", topology_name=core.topology)
    devices: Sequence[Any] = found.devices
    return devices


def _compile(step: Any, libtpu: str) -> Compiled:
    """Compile a step that was lowered for a TPU."""
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
