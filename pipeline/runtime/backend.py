"""Backend: what Keras runs on, chosen before it is imported."""

import os
from importlib.util import find_spec
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.runtime import devices


def choose(*allowed: str) -> None:
    """Choose Keras' backend before Keras is imported: the environment's, or the first allowed."""
    chosen = os.environ.get("KERAS_BACKEND") or allowed[0]
    if chosen not in allowed:
        raise ConfigError(
            f"KERAS_BACKEND={chosen}: this command runs on {' or '.join(allowed)}.\n"
            "Remove the variable (env -u KERAS_BACKEND …), or correct it."
        )
    os.environ["KERAS_BACKEND"] = chosen
    if find_spec("libtpu") and not _accelerators():
        # With the compiler of `python -m workbench plan` JAX looks for a TPU at each start, and
        # complains that there is none.
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its start-up messages hide ours


def _accelerators() -> bool:
    """Return whether Linux knows a TPU or an NVIDIA GPU here."""
    found = (Path("/dev").glob(name) for name in ("accel*", "vfio/[0-9]*", "nvidia[0-9]*"))
    return any(path for paths in found for path in paths)


def use_every_core(batch: int) -> bool:
    """Choose JAX before Keras is imported, with devices for a batch (`devices.use_cores`)."""
    choose("jax")
    return devices.use_cores(batch)
