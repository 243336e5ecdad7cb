"""Machines: the shapes that a push may ask for, and how much of each kind an account gets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SHAPES = {
    *("", "None", "TpuV5E8", "TpuV6E8", "NvidiaTeslaT4", "NvidiaL4", "NvidiaL4X1"),
    *("NvidiaTeslaA100", "NvidiaH100", "NvidiaRtxPro6000"),
}
SESSIONS = {"TPU": 1, "GPU": 2, "CPU": 5}  # at the same time
WEEKLY_SECONDS = {"TPU": 20 * 3600.0, "GPU": 30 * 3600.0}


@dataclass(frozen=True)
class Machine:
    """What a session runs on, and what it may use.

    Attributes:
        shape: the machine shape that it stands for; "" is a CPU.
        internet: whether it can reach the network of this machine.
        python: the interpreter, which needs papermill and ipykernel.
        variables: extra environment variables.
        hidden: folders that look empty inside, like the user's home.
        seconds: wall clock time, after which the session is killed.
        memory_bytes: resident memory of all its processes together.
    """

    shape: str
    internet: bool
    python: str
    variables: Mapping[str, str]
    hidden: Sequence[Path]
    seconds: float
    memory_bytes: int


def kind_of(shape: str) -> str:
    """Return "TPU", "GPU" or "CPU".

    >>> kind_of("TpuV5E8"), kind_of("NvidiaTeslaT4"), kind_of("")
    ('TPU', 'GPU', 'CPU')
    """
    return "TPU" if shape.startswith("Tpu") else "GPU" if shape.startswith("Nvidia") else "CPU"


def emulated(shape: str) -> dict[str, str]:
    """Return the environment variables that let CPU devices stand in for a shape's accelerators.

    Only JAX sees the pair of T4; TensorFlow sees no GPU.

    >>> emulated("NvidiaTeslaT4")
    {'JAX_NUM_CPU_DEVICES': '2'}
    """
    if shape == "NvidiaTeslaT4":
        return {"JAX_NUM_CPU_DEVICES": "2"}
    if kind_of(shape) != "TPU":
        return {}
    return {
        "ISTPUVM": "1",
        "TPU_PROCESS_ADDRESSES": "local",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        # XLA starts one thread per device, and aborts a process with more than 32 calls in flight
        # and no spare thread.
        "PJRT_NPROC": "16",
    }
