"""Specifications of accelerators and runtimes, such as their memory, speed, quota and price.

Most figures are from the datasheets cited below. Figures that were measured or assumed are marked.
"""

import math
from dataclasses import dataclass

from pipeline.config import Config

GIB = 2.0**30


@dataclass(frozen=True)
class Accelerator:
    """One core of an accelerator.

    Attributes:
        device: substring of the device name in JAX.
        memory: usable memory in bytes.
        operations: peak operations per second in bfloat16 or float16.
        float32: peak operations per second in float32.
        bandwidth: memory bandwidth in bytes per second.
        topology: libtpu's name for a topology of eight cores, or "" if this is not a TPU.
        kind: value of libtpu's environment variable for the accelerator type.
        bfloat16: whether training uses bfloat16 rather than float32 by default.
    """

    device: str
    memory: float
    operations: float
    float32: float
    bandwidth: float
    topology: str = ""
    kind: str = ""
    bfloat16: bool = True


# The peak speeds of TPU v3, v5e and v6e are from Google's documentation (read 2026-11-21). The peak
# speed of v2 is from the JAX team's Scaling Book (23e12 per core), and its bandwidth of 700 GB/s
# per chip is assumed, based on Google's papers. The memory of v5e is the maximum that libtpu 0.0.51
# allocates, which was measured. The other TPUs are assumed to have the same usable fraction. In
# float32, TPUs need six bfloat16 passes (`pipeline.runtime.devices.matmul_precision`). libtpu
# 0.0.51 estimates 5.8 times the cycles of a single pass for a 4,096 x 4,096 product on v5e.
V5E = Accelerator("TPU v5 lite", 15.75 * GIB, 197e12, 32.8e12, 819e9, "v5e:2x4", "v5litepod-8")
V6E = Accelerator("TPU v6 lite", 31.25 * GIB, 918e12, 153e12, 1.64e12, "v6e:2x4", "v6e-8")
V3 = Accelerator("TPU v3", 15.75 * GIB, 61.5e12, 10.2e12, 450e9, "v3:2x2", "v3-8")
V2 = Accelerator("TPU v2", 7.875 * GIB, 22.5e12, 3.75e12, 350e9, "v2:2x2", "v2-8")
# Figures are from NVIDIA's datasheets without sparsity, as quoted by third parties (2026-11-21). We
# assume that 90 % of the memory is usable, because CUDA and XLA reserve the rest. P100 has no
# tensor cores.
T4 = Accelerator("Tesla T4", 0.9 * 16e9, 65e12, 8.1e12, 320e9, bfloat16=False)
P100 = Accelerator("P100", 0.9 * 16e9, 19.1e12, 9.5e12, 732e9, bfloat16=False)
V100 = Accelerator("V100", 0.9 * 16e9, 125e12, 15.7e12, 900e9, bfloat16=False)
L4 = Accelerator("NVIDIA L4 ", 0.9 * 24e9, 121e12, 30.3e12, 300e9)
A100 = Accelerator("A100", 0.9 * 40e9, 312e12, 19.5e12, 1.56e12)
H100 = Accelerator("H100", 0.9 * 80e9, 989e12, 67e12, 3.35e12)
H200 = Accelerator("H200", 0.9 * 141e9, 989e12, 67e12, 4.8e12)

# Quotas in hours. Users reported Kaggle's quotas in August and September 2026. The quotas of Colab
# Pro+ are from an article.
SESSION_HOURS = {"TPU": 9.0, "GPU": 12.0, "Colab": 24.0}
WEEKLY_HOURS = {"TPU": 20.0, "GPU": 30.0}
# According to an article, the 500 units of Colab Pro+ cost 5,767 yen. According to another article,
# a unit costs "about 10 yen". We assume that 100 units cost 9.99 dollars in "Pay As You Go".
YEN_PER_UNIT, USD_PER_UNIT = 5767 / 500, 0.0999


@dataclass(frozen=True)
class Runtime:
    """A machine for training.

    Attributes:
        core: core of its accelerator, if it has one.
        cores: number of cores over which a batch is split.
        sold: the quota that a run uses, which is "TPU" or "GPU" on Kaggle, "Colab", or "".
        cpus, ram: number of CPUs and bytes of memory of the host, or None if unknown.
        units: Colab compute units per hour, if any.
        retired: when the runtime was retired, or "".
    """

    title: str
    core: Accelerator | None
    cores: int
    sold: str = ""
    cpus: int | None = None
    ram: float | None = None
    units: float | None = None
    retired: str = ""

    @property
    def session_hours(self) -> float | None:
        return SESSION_HOURS.get(self.sold)

    @property
    def weekly_hours(self) -> float | None:
        return WEEKLY_HOURS.get(self.sold)


# Users reported Kaggle's hosts in August and September 2026. For v5e-8, two reports gave 96 and 224
# CPUs, and the smaller number is used. v3-8 is from Kaggle's old documentation. Colab's machines
# are from an article and may have changed.
RUNTIMES = {
    "tpu-v5e-8": Runtime("Kaggle TPU v5e-8", V5E, 8, "TPU", 96, 377e9),
    "tpu-v6e-8": Runtime("Kaggle TPU v6e-8, in some competitions", V6E, 8, "TPU"),
    "tpu-v3-8": Runtime("Kaggle TPU v3-8", V3, 8, "TPU", 96, 330e9, retired="retired"),
    "tpu-v2-8": Runtime("TPU v2-8", V2, 8, retired="retired"),
    "gpu-t4x2": Runtime("Kaggle GPU T4 x2", T4, 2, "GPU", 4, 29e9),
    "gpu-p100": Runtime(
        "Kaggle GPU P100", P100, 1, "GPU", 4, 29e9, retired="retired on 2026-09-15"
    ),
    "gpu-l4x4": Runtime("Kaggle GPU L4 x4, in some competitions", L4, 4, "GPU"),
    "gpu-a100": Runtime("one A100, 40 GB", A100, 1),
    "gpu-h100": Runtime("one H100", H100, 1),
    "gpu-h200": Runtime("one H200", H200, 1),
    "colab-cpu": Runtime("Colab, CPU", None, 1, "Colab", 2, 12.7e9, 0.08),
    "colab-cpu-high": Runtime("Colab, CPU, high memory", None, 1, "Colab", 8, 51e9, 0.12),
    "colab-t4": Runtime("Colab, T4", T4, 1, "Colab", 2, 12.7e9, 1.96),
    "colab-t4-high": Runtime("Colab, T4, high memory", T4, 1, "Colab", 8, 51e9, 2.05),
    "colab-tpu": Runtime("Colab, TPU", V2, 8, "Colab", 2, 12.7e9, 1.96, "retired"),
    "colab-tpu-high": Runtime(
        "Colab, TPU, high memory", V2, 8, "Colab", 40, 32.5e9, 1.96, "retired"
    ),
    "colab-v100": Runtime("Colab, V100", V100, 1, "Colab", 2, 12.7e9, 5.36),
    "colab-v100-high": Runtime("Colab, V100, high memory", V100, 1, "Colab", 8, 51e9, 5.45),
    "colab-a100": Runtime("Colab, A100", A100, 1, "Colab", 12, 83.5e9, 13.08),
}
CPU = "cpu"  # the machine that runs this code


def named(devices: str) -> str:
    """Return the runtime that has the devices named in a manifest, or "" if it is unknown.

    >>> [named(f"{one} (gpu)") for one in ("2 x Tesla T4", "1 x Tesla T4", "1 x NVIDIA K80")]
    ['gpu-t4x2', '', '']
    """
    count, _, kind = devices.partition(" x ")
    if f"({CPU})" in kind:
        return CPU
    same = (name for name, one in RUNTIMES.items() if one.core and one.core.device in kind)
    name = next(same, "")
    return name if name and RUNTIMES[name].cores == int(count) else ""


def precision(config: Config, core: Accelerator | None) -> str:
    """Return the Keras dtype policy that `pipeline.runtime.devices.precision` would choose."""
    if config.precision != "auto":
        return config.precision
    if core is None or config.exact:
        return "float32"
    return "mixed_bfloat16" if core.bfloat16 else "mixed_float16"


@dataclass(frozen=True)
class Cost:
    """Cost of a training run. Fields are None if unknown.

    `weeks` is the number of weeks, including this week, whose quota the run needs. `units` are
    Colab compute units.
    """

    hours: float
    sessions: int | None
    weeks: int | None
    units: float | None
    yen: float | None
    usd: float | None


def cost(
    runtime: Runtime, seconds: float, *, left: float | None = None,
    session_hours: float | None = None,
) -> Cost:  # fmt: skip
    """Return the cost of a training run that takes `seconds`.

    Args:
        left: hours that are left of this week's quota, or None if none of it has been used yet.
        session_hours: hours after which a run on Kaggle stops by itself, or None.

    >>> [round(cost(RUNTIMES[name], 881).units, 2) for name in ("colab-t4", "colab-a100")]
    [0.48, 3.2]
    """
    hours, weekly = seconds / 3600, runtime.weekly_hours
    ends = [one for one in (runtime.session_hours, weekly and session_hours) if one]
    weeks, units = None, runtime.units and runtime.units * hours
    if weekly:
        later = hours - (weekly if left is None else left)
        weeks = 1 + max(math.ceil(later / weekly), 0)
    return Cost(
        hours, math.ceil(hours / min(ends)) if ends else None, weeks,
        units, units and YEN_PER_UNIT * units, units and USD_PER_UNIT * units,
    )  # fmt: skip
