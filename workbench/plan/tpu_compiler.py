"""TPU compiler: the training step of a config, compiled for a TPU that is not there.

libtpu compiles on any x86 machine with Linux, for a topology in place of devices. Memory is what it
allots; operations and bytes are what it counts.

Near its limit it computes again what it would else keep, so memory grows there by another law than
far below. It says what a batch needs that it refuses: that is a point of this law, from which the
largest batch follows, and a third compilation confirms it (docs/dev/findings.md).
"""

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from formats import atomic_file
from pipeline.config import Config
from pipeline.errors import ConfigError
from workbench.plan import laws, lowered_step
from workbench.plan.accelerators import RUNTIMES, Accelerator, precision

CORES = 8  # of each accelerator
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
BEYOND = 1.5  # times the batch at which all memory of the first one, were it for images, is used up
BELOW = 0.99  # of the predicted limit, which is compiled to confirm it


@dataclass(frozen=True)
class Compiled:
    """What the compiler says of one step, of each core.

    Attributes:
        memory: bytes at most.
        operations: floating-point operations.
        traffic: bytes that are read from memory and written to it.
        collectives: how often cores wait for each other, by kind.
        gathered: bytes of the largest array of images that is gathered from other cores.
        least_seconds: of a step: operations or traffic at the core's full speed, whichever takes
            longer.
        compile_seconds: here.
        libtpu: its version.
        program: sha256 of what was compiled.
    """

    memory: int
    operations: float
    traffic: float
    collectives: dict[str, int]
    gathered: int
    least_seconds: float
    compile_seconds: float
    libtpu: str
    program: str

    def to_json(self) -> dict[str, Any]:
        """Return the numbers for `json.dumps`."""
        return asdict(self)


class TooLarge(ConfigError):
    """A step does not fit into a core's memory, as the compiler says."""

    @property
    def required(self) -> float | None:
        """Bytes that it needs beside its arguments; None if the compiler did not say."""
        found = re.search(r"\(([\d.]+)([MG])\) exceeds", str(self))
        return float(found[1]) * {"M": 2**20, "G": 2**30}[found[2]] if found else None


def compile_step(
    config: Config, accelerator: str, *, images: int = 0, kept: Path | None = None
) -> Compiled:
    """Return what the step of a config takes on an accelerator.

    Args:
        accelerator: of `workbench.plan.accelerators.RUNTIMES`, one with TPU cores.
        images: that lie on the devices; 0: the host sends each batch.
        kept: a JSON file of results by program; one that is in it is not compiled again.

    Raises:
        ConfigError: if libtpu is not installed, or the batch does not split over the cores.
        TooLarge: if the step does not fit.
    """
    target = RUNTIMES[accelerator].core
    assert target is not None  # noqa: S101 - those have one
    if find_spec("libtpu") is None:
        raise ConfigError(
            "To compile for a TPU takes libtpu, which is not installed.\n"
            "Install it: pip install -e '.[plan]' (Linux on x86-64)."
        )
    if config.batch % CORES:
        raise ConfigError(
            f"batch={config.batch} does not split over the {CORES} cores of {accelerator}.\n"
            f"Set batch in pipeline/configs/{config.name}.py to a multiple of {CORES}."
        )
    lowered = _lowered(config, target, images)
    version = _version()
    program = hashlib.sha256(f"{version} {lowered.as_text()}".encode()).hexdigest()
    known = json.loads(kept.read_text()) if kept is not None and kept.is_file() else {}
    what = {"config": config.name, "batch": config.batch, "images held": images}

    def keep(result: dict[str, Any]) -> None:
        if kept is not None:
            known[program] = {"of": what | {"accelerator": accelerator}, **result}
            atomic_file.write(kept, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())

    if program in known:
        if "refused" in known[program]:
            raise TooLarge(known[program]["refused"])
        return Compiled(**known[program]["found"])
    begun = time.monotonic()
    import jax

    try:
        done = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        refused = (
            f"A step of {config.name} does not fit into {target.memory / 2**30:.2f} GiB a core:"
            f" {str(error).splitlines()[0][:300]}\nLower batch, or set micro_batch."
        )
        keep({"refused": refused})
        raise TooLarge(refused) from error
    seconds, cost = time.monotonic() - begun, done.cost_analysis()
    text = done.as_text()
    operations, traffic = float(cost["flops"]), float(cost["bytes accessed"])
    found = Compiled(
        memory=int(done.memory_analysis().peak_memory_in_bytes),
        operations=operations,
        traffic=traffic,
        collectives=collectives(text),
        gathered=gathered(text),
        least_seconds=laws.roofline(
            target, operations, traffic, half=precision(config, target) != "float32"
        ),
        compile_seconds=round(seconds, 1),
        libtpu=version,
        program=program,
    )
    keep({"found": found.to_json()})
    return found


@dataclass(frozen=True)
class Tried:
    """A compilation.

    Attributes:
        batch: that was compiled.
        memory: bytes that it takes of a core; of one that is refused, those that it needs.
        taken: whether the compiler took it.
    """

    batch: int
    memory: float
    taken: bool


def search(
    compiled: Callable[[int], Tried], first: int, unit: int, room: float, fixed: float
) -> list[Tried]:
    """Return up to three compilations; the largest batch is that of the largest one taken.

    Args:
        compiled: compiles a batch.
        first: the batch to begin with.
        unit: what a batch is a multiple of.
        room: bytes of a core.
        fixed: bytes of a core that do not grow with the batch: weights, and what the optimizer
            keeps.
    """
    tried = [compiled(first)]
    if tried[0].taken:
        # At least a thousandth, lest the next batch be absurd where almost nothing grows.
        growing = max(tried[0].memory - fixed, tried[0].memory / 1000)
        beyond = int(BEYOND * first * (room - fixed) / growing) // unit * unit
        tried.append(compiled(max(beyond, first + unit)))
    last = tried[-1]
    grown = last.memory if not last.taken else last.memory - fixed
    limit = int(BELOW * last.batch * (room - fixed) / grown) // unit * unit
    if limit > 0 and limit not in {one.batch for one in tried}:
        tried.append(compiled(limit))
    return tried


def largest(tried: list[Tried]) -> int:
    """Return the largest batch that was taken; 0: none was."""
    return max((one.batch for one in tried if one.taken), default=0)


def collectives(text: str) -> dict[str, int]:
    """Return how often each kind of operation across cores stands in a compiled program.

    >>> collectives("a = f32[] all-reduce(b), c = u8[4]{0} all-gather-start(d), all-gather-done(c)")
    {'all-reduce': 1, 'all-gather': 1}
    """
    found = Counter(re.findall(rf" ({'|'.join(COLLECTIVES)})(?:-start)?\(", text))
    return dict(found)


def gathered(text: str) -> int:
    """Return the bytes of the largest array of uint8 that a compiled program gathers.

    >>> gathered("a = u8[128,32,32,3]{3,2,1,0} all-gather(b), c = f32[8] all-gather(d)")
    393216
    """
    shapes = re.findall(r"u8\[([\d,]+)\]\S* all-gather(?:-start)?\(", text)
    return max((int(np.prod([int(n) for n in shape.split(",")])) for shape in shapes), default=0)


def _version() -> str:
    from importlib.metadata import version

    return version("libtpu")


def _lowered(config: Config, target: Accelerator, images: int) -> Any:
    # libtpu asks the machine's metadata server which TPU it is on; there is none.
    os.environ.update(
        TPU_SKIP_MDS_QUERY="1", TPU_WORKER_HOSTNAMES="localhost", TPU_ACCELERATOR_TYPE=target.kind,
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # it drives no TPU that two processes could share
    )  # fmt: skip
    os.environ["JAX_PLATFORMS"] = "cpu"
    # libtpu ends the process at a flag that it does not know, such as one of a newer jaxlib's CPU.
    flags = os.environ.get("XLA_FLAGS", "").split()
    others = ("--xla_cpu_", "--xla_gpu_")
    os.environ["XLA_FLAGS"] = " ".join(flag for flag in flags if not flag.startswith(others))
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(platform="tpu", topology_name=target.topology)
    return lowered_step.of(config, topology.devices, precision(config, target), images)
