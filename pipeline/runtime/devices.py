"""Devices: which accelerator is here, and whether it is the one that was asked for. The only module
that asks.

Kaggle gives a CPU in silence when a TPU push carries a docker pin, when the account is not
verified, or when a shape is retired (Kaggle/kaggle-cli issue 1197, read 2026-11-21). A run that
noticed hours later would have spent them.
"""

import os
from dataclasses import dataclass

from pipeline.errors import DeviceError

# Shape → (platform of jax or tensorflow, how many devices). Names as of kaggle 2.2.5; NvidiaTeslaT4
# is the pair.
SHAPES = {"TpuV5E8": ("tpu", 8), "TpuV6E8": ("tpu", 8), "NvidiaTeslaT4": ("gpu", 1)}
# Set by the local Kaggle alone, to the shape that it pretends to have given. It knows no other
# accelerator than this machine's CPU.
LOCAL = "LOCALKAGGLE_ACCELERATOR"


@dataclass(frozen=True)
class Devices:
    """What a run computes on.

    Attributes:
        platform: "tpu", "gpu" or "cpu".
        kind: the device's own name, for example "TPU v5 lite".
        count: how many of them.
        rehearsed: the shape that the local Kaggle pretends to have given; None on real hardware.
    """

    platform: str
    kind: str
    count: int
    rehearsed: str | None

    def __str__(self) -> str:
        note = f", in place of {self.rehearsed} (local Kaggle)" if self.rehearsed else ""
        return f"{self.count} x {self.kind} ({self.platform}){note}"


def found() -> Devices:
    """Return the devices that the Keras backend sees."""
    import keras

    rehearsed = os.environ.get(LOCAL) or None
    if keras.backend.backend() == "jax":
        import jax

        seen = jax.devices()
        platform = "gpu" if seen[0].platform in ("gpu", "cuda", "rocm") else seen[0].platform
        return Devices(platform, seen[0].device_kind, len(seen), rehearsed)
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        return Devices("gpu", str(details.get("device_name", "GPU")), len(gpus), rehearsed)
    return Devices("cpu", "cpu", 1, rehearsed)


def prove(shape: str) -> Devices:
    """Return the devices, having made sure that they are what `shape` promises; a cell that calls
    this first loses a minute at most.

    Args:
        shape: Kaggle's name of the machine, as in kernel-metadata.json: one of `SHAPES`.

    Raises:
        DeviceError: if they are not. The local Kaggle is believed when it says that it stands in
            for the shape.
    """
    platform, count = SHAPES[shape]
    here = found()
    given = here.rehearsed or "none (a CPU session)"
    if (
        here.platform == "cpu"
        and here.rehearsed == shape
        and (platform != "tpu" or here.count == count)
    ):
        return here
    if here.platform == platform and here.count >= count:
        return here
    raise DeviceError(
        f"Asked for {shape} ({count} x {platform}); found {here.count} x {here.kind} ({here.platform}), accelerator given: {given}.\n"
        "Stopped at once, so that no quota is spent. The usual causes:\n"
        "  - the account is not verified: kaggle.com/settings, Phone and identity verification;\n"
        "  - the notebook carries a docker pin: push it with `invoke push-train`, which removes it;\n"
        "  - the competition or the week's quota does not allow this accelerator: `invoke status`."
    )


def precision(wanted: str, here: Devices) -> str:
    """Return the Keras dtype policy for training: bfloat16 where the hardware computes it, else
    float32.

    A TPU has it, and an NVIDIA GPU from compute capability 8.0 (Ampere) on; a T4 (7.5) has not.
    """
    if wanted != "auto":
        return wanted
    if here.platform == "tpu":
        return "mixed_bfloat16"
    if here.platform == "gpu":
        import jax

        capability = str(getattr(jax.devices()[0], "compute_capability", "0"))
        return "mixed_bfloat16" if float(capability or 0) >= 8.0 else "float32"
    return "float32"


def hide_from_tensorflow() -> None:
    """Keep TensorFlow, which only reads files where JAX computes, from taking the accelerator's
    memory.
    """
    import tensorflow as tf

    for kind in ("GPU", "TPU"):
        tf.config.set_visible_devices([], kind)
