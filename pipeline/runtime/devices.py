"""Detect this machine's accelerator, and check that it is the requested one.

Kaggle silently provides a CPU if a TPU push includes a docker pin, if the account is not verified,
or if a machine shape is retired. See Kaggle/kaggle-cli issue 1197 (checked on 2026-11-21).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import DeviceError
from pipeline.runtime import provenance

# Kaggle's machine names (kaggle 2.2.5), with the JAX or TensorFlow platform and number of devices.
SHAPES = {"TpuV5E8": ("tpu", 8), "TpuV6E8": ("tpu", 8), "NvidiaTeslaT4": ("gpu", 2)}
# Set by the local Kaggle to the machine shape that it simulates on this CPU.
LOCAL = "LOCALKAGGLE_ACCELERATOR"
BFLOAT16 = 8.0  # minimum compute capability for bfloat16 on an NVIDIA GPU
# Parts of the error messages of JAX and TensorFlow when a device runs out of memory.
NO_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "OOM when")


@dataclass(frozen=True)
class Devices:
    """The devices used by a run.

    Attributes:
        platform: "tpu", "gpu" or "cpu".
        kind: device name, for example "TPU v5 lite".
        simulated: shape simulated by the local Kaggle, or None on real hardware.
    """

    platform: str
    kind: str
    count: int
    simulated: str | None

    def __str__(self) -> str:
        note = f", in place of {self.simulated} (local Kaggle)" if self.simulated else ""
        return f"{self.count} x {self.kind} ({self.platform}){note}"


def share_memory() -> None:
    """Allocate GPU memory on demand. Call this function before Keras computes anything.

    By default, TensorFlow and JAX allocate almost all memory of each GPU at startup. Settings made
    by the user are kept.
    """
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def exhausted(error: Exception) -> bool:
    """Return whether this error means that JAX or TensorFlow ran out of memory.

    >>> exhausted(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 128192968 bytes."))
    True
    """
    return isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY)


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # on macOS, a process can use all cores


def found() -> Devices:
    import keras

    simulated = os.environ.get(LOCAL) or None
    if keras.backend.backend() == "jax":
        import jax

        seen = jax.devices()
        platform = "gpu" if seen[0].platform in ("gpu", "cuda", "rocm") else seen[0].platform
        return Devices(platform, seen[0].device_kind, len(seen), simulated)
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        return Devices("gpu", str(details.get("device_name", "GPU")), len(gpus), simulated)
    return Devices("cpu", "cpu", 1, simulated)


def prove(shape: str | None, *, least: int | None = None) -> Devices:
    """Return the devices if they match `shape`, or if the local Kaggle simulates `shape` on a CPU.

    The first cell of each notebook calls this, so a wrong machine costs at most a minute of quota.
    By default, all devices of the machine are required.
    """
    platform, count = SHAPES.get(str(shape), ("unknown", 1))
    here = found()
    right = here.simulated == shape if here.platform == "cpu" else here.platform == platform
    if shape in SHAPES and right and here.count >= (least or count):
        return here
    local = f" The local Kaggle simulates {here.simulated}." if here.simulated else ""
    raise DeviceError(
        f"Requested {shape or 'no machine'} ({least or count} x {platform}), but found {here.count}"
        f" x {here.kind} ({here.platform}).{local}\n"
        "The run was stopped before it could use up quota. Common causes:\n"
        f"  - machine_shape in kernel-metadata.json: expected one of {', '.join(SHAPES)};\n"
        "  - with a GPU, the image: JAX requires jax-cuda13-plugin or jax-cuda12-plugin"
        f" ({provenance.versions_line()});\n"
        "  - the account is not verified: kaggle.com/settings, Phone and identity verification;\n"
        "  - the notebook has a docker pin: push it with `invoke push-train`, which removes it;\n"
        "  - the competition or the weekly quota does not allow this accelerator: `invoke status`."
    )


def precision(wanted: str, here: Devices, *, exact: bool = False) -> str:
    """Return the Keras dtype policy for training.

    "auto" selects bfloat16 on a TPU, and on an NVIDIA GPU with compute capability 8.0 (Ampere) or
    higher. A T4 (compute capability 7.5) is eight times as fast in float16 as in float32. Weights
    and weight updates are always float32. bfloat16 has the same exponent range as float32, so
    gradients do not underflow. With float16, the loss is scaled. The precision of bfloat16 and
    float16 (8 and 11 bits) is sufficient for pixels but not for table columns, for which `exact`
    selects float32.
    """
    if wanted != "auto":
        return wanted
    if exact or here.platform == "cpu":
        return "float32"
    if here.platform == "gpu":
        import jax

        capability = getattr(jax.devices()[0], "compute_capability", None)
        if float(capability or 0) < BFLOAT16:
            return "mixed_float16"
    return "mixed_bfloat16"


@contextmanager
def refusing_float16() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "F16_F16_F32" not in str(error):
            raise
        raise DeviceError(
            "precision='mixed_float16' does not support attention on a CPU; expected 'float32' or"
            " 'mixed_bfloat16'.\nSet precision to one of these, or to 'auto', in the config."
        ) from error


def matmul_precision(policy: str) -> str | None:
    """Return JAX's matmul precision for a Keras dtype policy, or None for the default.

    By default, TPUs round float32 to bfloat16, and NVIDIA GPUs since Ampere round it to TF32.
    "highest" computes products and convolutions in float32 on both, with six bfloat16 passes on a
    TPU. JAX's presets with three passes ("BF16_BF16_F32_X3") do not apply to convolutions there.
    """
    return "highest" if policy == "float32" else None


def memory_left() -> int:
    """Return the available memory in bytes, or the total memory if /proc does not exist."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    values = dict(line.split(":", 1) for line in lines)
    return int(values["MemAvailable"].split()[0]) * 1024
