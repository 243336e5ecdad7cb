"""The machine shapes that a push can request, and the limits of an account."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SHAPES = {
    *("", "None", "TpuV5E8", "TpuV6E8", "NvidiaTeslaT4", "NvidiaL4", "NvidiaL4X1"),
    *("NvidiaTeslaA100", "NvidiaH100", "NvidiaRtxPro6000"),
}
SESSIONS = {"TPU": 1, "GPU": 2, "CPU": 5}  # maximum number of concurrent sessions
WEEKLY_SECONDS = {"TPU": 20 * 3600.0, "GPU": 30 * 3600.0}


@dataclass(frozen=True)
class Machine:
    """The machine and the limits of a session.

    Attributes:
        shape: the machine shape that is emulated, or "" for a CPU.
        internet: whether the session has access to this machine's network.
        python: path to the Python interpreter, which requires papermill and ipykernel.
        variables: additional environment variables.
        hidden: folders that appear empty in the session, as the user's home always does.
        seconds: wall-clock time limit.
        memory_bytes: limit on the total resident memory of the session's processes.
    """

    shape: str
    internet: bool
    python: str
    variables: Mapping[str, str]
    hidden: Sequence[Path]
    seconds: float
    memory_bytes: int


def kind_of(shape: str) -> str:
    """Return the accelerator of a machine shape, either "TPU", "GPU" or "CPU".

    >>> kind_of("TpuV5E8"), kind_of("NvidiaTeslaT4"), kind_of("")
    ('TPU', 'GPU', 'CPU')
    """
    return "TPU" if shape.startswith("Tpu") else "GPU" if shape.startswith("Nvidia") else "CPU"


def emulated(shape: str) -> dict[str, str]:
    """Return environment variables that replace a shape's accelerators with CPU devices.

    The two T4 GPUs are only emulated for JAX. TensorFlow does not see a GPU.

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
        # By default, XLA starts one thread per device. It aborts the process if all threads are
        # busy and more than 32 calls are in flight.
        "PJRT_NPROC": "16",
    }
