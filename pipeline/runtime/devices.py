"""The accelerator of this machine, and whether it is the requested one.

Kaggle silently provides a CPU if a TPU push carries a docker pin, if the account is not verified,
or if a machine shape is retired (Kaggle/kaggle-cli issue 1197, read 2026-11-21).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import DeviceError
from pipeline.runtime import provenance

# Kaggle's name of a machine (kaggle 2.2.5): platform in JAX or TensorFlow, number of devices.
SHAPES = {"TpuV5E8": ("tpu", 8), "TpuV6E8": ("tpu", 8), "NvidiaTeslaT4": ("gpu", 2)}
# The local Kaggle sets it to the shape that it simulates on this CPU.
LOCAL = "LOCALKAGGLE_ACCELERATOR"
BFLOAT16 = 8.0  # the least compute capability of an NVIDIA GPU with bfloat16
# Words of JAX and TensorFlow when a device runs out of memory.
NO_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "OOM when")


@dataclass(frozen=True)
class Devices:
    """The devices of a run.

    Attributes:
        platform: "tpu", "gpu" or "cpu".
        kind: the name of the device, for example "TPU v5 lite".
        count: number of devices.
        simulated: the shape that the local Kaggle simulates; None on real hardware.
    """

    platform: str
    kind: str
    count: int
    simulated: str | None

    def __str__(self) -> str:
        note = f", in place of {self.simulated} (local Kaggle)" if self.simulated else ""
        return f"{self.count} x {self.kind} ({self.platform}){note}"


def share_memory() -> None:
    """Let this process allocate a GPU's memory as needed. Call it before Keras computes.

    By default TensorFlow and JAX allocate nearly all of each GPU at once. The user's settings stay.
    """
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def exhausted(error: Exception) -> bool:
    """Return whether JAX or TensorFlow report that memory ran out.

    >>> exhausted(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 128192968 bytes."))
    True
    """
    return isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS lets a process use all


def found() -> Devices:
    """Return the devices of the Keras backend."""
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
    """Return the devices if they are those of `shape`, or simulated in the local Kaggle.

    The first cell of a notebook calls it, so a wrong machine costs a minute of quota at most.

    Args:
        shape: Kaggle's name of the machine, as in kernel-metadata.json; a key of `SHAPES`.
        least: sufficient number of devices; None: all of the machine.

    Raises:
        DeviceError: if they are not, or the shape is unknown.
    """
    platform, count = SHAPES.get(str(shape), ("unknown", 1))
    here = found()
    right = here.simulated == shape if here.platform == "cpu" else here.platform == platform
    if shape in SHAPES and right and here.count >= (least or count):
        return here
    raise DeviceError(
        f"Asked for {shape or 'no machine'} ({least or count} x {platform}); found {here.count} x"
        f" {here.kind} ({here.platform}), accelerator given:"
        f" {here.simulated or 'none (a CPU session)'}.\n"
        "The run stops here, before it spends quota. Usual causes:\n"
        f"  - machine_shape in kernel-metadata.json: expected one of {', '.join(SHAPES)};\n"
        "  - with a GPU, the image: its JAX needs jax-cuda13-plugin or jax-cuda12-plugin"
        f" ({provenance.versions_line()});\n"
        "  - the account is not verified: kaggle.com/settings, Phone and identity verification;\n"
        "  - the notebook carries a docker pin: push it with `invoke push-train`, which removes "
        "it;\n"
        "  - the competition or the week's quota does not allow this accelerator: `invoke status`."
    )


def precision(wanted: str, here: Devices, *, exact: bool = False) -> str:
    """Return the Keras dtype policy for training.

    "auto" is bfloat16 if the hardware computes it: a TPU, or an NVIDIA GPU with compute capability
    8.0 (Ampere) or more. A T4 has 7.5, and computes float16 eight times as fast as float32. Weights
    and their updates are always float32. bfloat16 has float32's exponents, so gradients do not
    underflow; in float16 the loss is scaled. Their 8 and 11 bits are enough for pixels, but too few
    for the columns of a table.

    Args:
        exact: as `Config.exact`.
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
    """Raise a DeviceError with advice if a CPU cannot multiply float16, as in attention."""
    try:
        yield
    except ValueError as error:
        if "F16_F16_F32" not in str(error):
            raise
        raise DeviceError(
            "precision='mixed_float16' cannot compute attention on a CPU; expected 'float32' or"
            " 'mixed_bfloat16' here.\nSet precision to one of them, or to 'auto', in the config."
        ) from error


def matmul_precision(policy: str) -> str | None:
    """Return JAX's matmul precision for a Keras dtype policy; None: the default.

    By default a TPU rounds float32 to bfloat16, and an NVIDIA GPU from Ampere on to TF32. "highest"
    is float32 on both, for products and convolutions: six passes in bfloat16 on a TPU. Golden
    outputs and inference use it, too. JAX's presets of three passes ("BF16_BF16_F32_X3") do not
    reach the convolutions of a TPU.
    """
    return "highest" if policy == "float32" else None


def memory_left() -> int:
    """Return the bytes of memory that are free or can be freed; without /proc, all memory."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    values = dict(line.split(":", 1) for line in lines)
    return int(values["MemAvailable"].split()[0]) * 1024
