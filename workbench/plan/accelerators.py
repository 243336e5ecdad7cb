"""Accelerators, and the runtimes that one may train on: memory, speed, host, hours and price.

Datasheet figures, each with its source below. Nothing here was run on them but what says so.
"""

from dataclasses import dataclass

from pipeline.config import Config
from pipeline.errors import ConfigError

GIB = 2.0**30
TFLOPS = 1e12


@dataclass(frozen=True)
class Accelerator:
    """One core: what a step is compiled for, and what its share of a batch has.

    Attributes:
        memory: bytes of a core that a program can have.
        operations: in bfloat16 or float16, a second and core.
        float32: operations a second and core in float32.
        bandwidth: bytes a second between a core and its memory.
        bfloat16: whether trainings take it here without being asked.
        topology: of eight cores as libtpu names it; "" for what is no TPU.
        kind: as libtpu wants it in the environment.
    """

    memory: float
    operations: float
    float32: float
    bandwidth: float
    bfloat16: bool = True
    topology: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Runtime:
    """A machine that somebody lends.

    Attributes:
        title: for people.
        core: of its accelerator; None: it has none.
        cores: that a batch splits over.
        cpus, ram, disk: of the host; ram and disk in bytes. None: not known.
        session_hours: after which it ends; None: no limit is known.
        weekly_hours: of quota; None: none is known, or it is paid.
        quota: whose hours these are, as Kaggle counts them: "TPU" or "GPU".
        units: Colab's compute units an hour; None: not sold so.
        retired: what is known of its end; "": nothing.
    """

    title: str
    core: Accelerator | None
    cores: int
    cpus: int | None = None
    ram: float | None = None
    disk: float | None = None
    session_hours: float | None = None
    weekly_hours: float | None = None
    quota: str = ""
    units: float | None = None
    retired: str = ""


# Peaks: Google's pages on TPU v3, v5e and v6e (read 2026-11-21); of a v2 the Scaling Book of the
# JAX team (23e12 a core), and 700 GB/s a chip (assumed, from Google's papers). Memory of a v5e:
# what libtpu 0.0.51 allots at most (measured); of the others: assumed, in the same proportion.
# float32 takes a TPU six passes in bfloat16 (`pipeline.runtime.devices.matmul_precision`): for a
# v5e libtpu 0.0.51 estimates 5.8 times the cycles of one pass, for a product of 4,096 x 4,096.
V5E = Accelerator(15.75 * GIB, 197 * TFLOPS, 32.8 * TFLOPS, 819e9, True, "v5e:2x4", "v5litepod-8")
V6E = Accelerator(31.25 * GIB, 918 * TFLOPS, 153 * TFLOPS, 1.64e12, True, "v6e:2x4", "v6e-8")
V3 = Accelerator(15.75 * GIB, 61.5 * TFLOPS, 10.2 * TFLOPS, 450e9, True, "v3:2x2", "v3-8")
V2 = Accelerator(7.875 * GIB, 22.5 * TFLOPS, 3.75 * TFLOPS, 350e9, True, "v2:2x2", "v2-8")
# NVIDIA's datasheets, dense, by way of third parties (read 2026-11-21). Memory: nine tenths, since
# CUDA and XLA keep the rest (assumed). A P100 has no tensor cores.
T4 = Accelerator(0.9 * 16e9, 65 * TFLOPS, 8.1 * TFLOPS, 320e9, bfloat16=False)
P100 = Accelerator(0.9 * 16e9, 19.1 * TFLOPS, 9.5 * TFLOPS, 732e9, bfloat16=False)
V100 = Accelerator(0.9 * 16e9, 125 * TFLOPS, 15.7 * TFLOPS, 900e9, bfloat16=False)
L4 = Accelerator(0.9 * 24e9, 121 * TFLOPS, 30.3 * TFLOPS, 300e9)
A100 = Accelerator(0.9 * 40e9, 312 * TFLOPS, 19.5 * TFLOPS, 1.56e12)
H100 = Accelerator(0.9 * 80e9, 989 * TFLOPS, 67 * TFLOPS, 3.35e12)
H200 = Accelerator(0.9 * 141e9, 989 * TFLOPS, 67 * TFLOPS, 4.8e12)

# Kaggle: hosts, hours and quotas as people reported them in August and September 2026. Of two
# reports on the host of a v5e-8 (96 and 224 CPUs) the smaller one stands here. v3-8: the old docs.
TPU_HOURS, TPU_WEEK, GPU_HOURS, GPU_WEEK = 9.0, 20.0, 12.0, 30.0


def _kaggle(
    title: str, core: Accelerator, cores: int, cpus: int | None = None, ram: float | None = None,
    disk: float | None = None, retired: str = "",
) -> Runtime:  # fmt: skip
    """Return a machine of Kaggle, with the hours of its quota."""
    tpu = bool(core.topology)
    return Runtime(
        f"Kaggle {title}", core, cores, cpus, ram, disk,
        session_hours=TPU_HOURS if tpu else GPU_HOURS, weekly_hours=TPU_WEEK if tpu else GPU_WEEK,
        quota="TPU" if tpu else "GPU", retired=retired,
    )  # fmt: skip


def _colab(
    title: str, core: Accelerator | None, cores: int, cpus: int, ram: float, disk: float,
    units: float, retired: str = "",
) -> Runtime:  # fmt: skip
    """Return a runtime of Colab as an article listed it; Colab may sell others today."""
    return Runtime(
        f"Colab, {title}", core, cores, cpus, ram * 1e9, disk * 1e9, session_hours=24.0,
        units=units, retired=retired,
    )  # fmt: skip


RUNTIMES = {
    "tpu-v5e-8": _kaggle("TPU v5e-8", V5E, 8, 96, 377e9, 1.1e12),
    "tpu-v6e-8": _kaggle("TPU v6e-8, where a competition has it", V6E, 8),
    "tpu-v3-8": _kaggle("TPU v3-8", V3, 8, 96, 330e9, retired="retired"),
    "tpu-v2-8": Runtime("TPU v2-8", V2, 8, retired="retired"),
    "gpu-t4x2": _kaggle("GPU T4 x2", T4, 2, 4, 29e9),
    "gpu-p100": _kaggle("GPU P100", P100, 1, 4, 29e9, retired="retired on 2026-09-15"),
    "gpu-l4x4": _kaggle("GPU L4 x4, where a competition has it", L4, 4),
    "gpu-a100": Runtime("one A100, 40 GB", A100, 1),
    "gpu-h100": Runtime("one H100", H100, 1),
    "gpu-h200": Runtime("one H200", H200, 1),
    "colab-cpu": _colab("CPU", None, 1, 2, 12.7, 225.8, 0.08),
    "colab-cpu-high": _colab("CPU, high memory", None, 1, 8, 51.0, 225.8, 0.12),
    "colab-t4": _colab("T4", T4, 1, 2, 12.7, 166.8, 1.96),
    "colab-t4-high": _colab("T4, high memory", T4, 1, 8, 51.0, 116.8, 2.05),
    "colab-tpu": _colab("TPU", V2, 8, 2, 12.7, 225.8, 1.96, "retired"),
    "colab-tpu-high": _colab("TPU, high memory", V2, 8, 40, 32.5, 225.8, 1.96, "retired"),
    "colab-v100": _colab("V100", V100, 1, 2, 12.7, 166.8, 5.36),
    "colab-v100-high": _colab("V100, high memory", V100, 1, 8, 51.0, 116.8, 5.45),
    "colab-a100": _colab("A100", A100, 1, 12, 83.5, 166.8, 13.08),
}


# A machine here with a run's kind of devices, by a part of what JAX calls them.
MACHINES = {
    "TPU v5 lite": "tpu-v5e-8", "TPU v6 lite": "tpu-v6e-8", "TPU v3": "tpu-v3-8",
    "TPU v2": "tpu-v2-8", "Tesla T4": "gpu-t4x2", "P100": "gpu-p100",
    "NVIDIA L4 ": "gpu-l4x4", "A100": "gpu-a100", "H100": "gpu-h100", "H200": "gpu-h200",
    "(cpu)": "cpu",
}  # fmt: skip


def named(devices: str) -> str:
    """Return the name of the machine that a run's manifest says it had; "": none is known.

    >>> [named(f"{one} (gpu)") for one in ("2 x Tesla T4", "1 x Tesla T4", "1 x NVIDIA K80")]
    ['gpu-t4x2', '', '']
    """
    name, runtime = like(devices), RUNTIMES.get(like(devices))
    return name if runtime is None or runtime.cores == counted(devices) else ""


def like(devices: str) -> str:
    """Return the name of a machine with such devices, whatever their number; "": none is known."""
    kind = devices.partition(" x ")[2]
    return next((name for part, name in MACHINES.items() if part in kind), "")


def counted(devices: str) -> int:
    """Return how many devices a run had.

    >>> counted("8 x TPU v5 lite (tpu)")
    8
    """
    return int(devices.partition(" x ")[0])


def precision(config: Config, core: Accelerator) -> str:
    """Return Keras' policy that a config trains in on such cores, as
    `pipeline.runtime.devices.precision` chooses it there.
    """
    if config.precision != "auto":
        return config.precision
    return "mixed_bfloat16" if core.bfloat16 and not config.data.numbers else "float32"


def found(name: str) -> Runtime:
    """Return the runtime of a name.

    Raises:
        ConfigError: if there is none.

    >>> found("gpu-t4x2").cores
    2
    """
    if name not in RUNTIMES:
        raise ConfigError(
            f"--for {name[:40]}: expected one of {', '.join(RUNTIMES)}, cpu.\n"
            "Correct it: --for tpu-v5e-8"
        )
    return RUNTIMES[name]
