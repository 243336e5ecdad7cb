"""Keras' backend, chosen before the import, the devices of a CPU, and the cache of XLA's programs.

A compiled program is code: a session loads it only from its own output folder, which `invoke pull`
compares byte for byte with the run's list.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.runtime import devices

# The flag by which a user splits a CPU into devices.
FORCED = "xla_force_host_platform_device_count"
# Each device holds weights and optimizer state. More cores are used, too: the devices share one
# pool of threads.
MOST_CPU_DEVICES = 8
COMPILED = "compiled"  # a folder in the output
CACHE = "JAX_COMPILATION_CACHE_DIR"  # by which a user chooses another folder


def choose(*allowed: str) -> None:
    """Choose Keras' backend before Keras is imported: the environment's, or the first allowed."""
    chosen = os.environ.get("KERAS_BACKEND") or allowed[0]
    if chosen not in allowed:
        raise ConfigError(
            f"KERAS_BACKEND={chosen}: this command runs on {' or '.join(allowed)}.\n"
            "Remove the variable (env -u KERAS_BACKEND …), or correct it."
        )
    os.environ["KERAS_BACKEND"] = chosen
    accelerators = ("accel*", "vfio/[0-9]*", "nvidia[0-9]*")  # a TPU, or an NVIDIA GPU
    if find_spec("libtpu") and not any(any(Path("/dev").glob(name)) for name in accelerators):
        # With libtpu, which `python -m workbench plan` uses, JAX warns at each start of a missing
        # TPU.
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # start-up messages would hide ours


def use_every_core(batch: int) -> bool:
    """Choose JAX, and split this CPU into a device per core, or the most that divide the batch.

    By default a CPU is one device, and many operations of a small model use one core. Replicas
    change only the order of additions (`pipeline.train.step`). A number set by the user stays.

    Returns:
        False if it is too late, since JAX has started.
    """
    choose("jax")
    import jax

    chosen = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    if FORCED in os.environ.get("XLA_FLAGS", "") or chosen >= 0:
        return True
    most = min(devices.cores(), MOST_CPU_DEVICES)
    count = max(number for number in range(1, most + 1) if batch % number == 0)
    try:
        jax.config.update("jax_num_cpu_devices", count)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


def keep_compiled(output: Path) -> None:
    """Cache compiled programs in `output`/compiled for the next session, unless the user chose a
    folder.

    JAX's key contains the program, versions, flags and devices, so another image or machine
    compiles again.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    if os.environ.get(CACHE):
        return
    update = jax.config.update
    update("jax_compilation_cache_dir", str(output / COMPILED))  # type: ignore[no-untyped-call]
    # Small programs, too: dozens of them draw a model's first weights.
    update("jax_persistent_cache_min_compile_time_secs", 0.0)  # type: ignore[no-untyped-call]
    compilation_cache.reset_cache()  # JAX decides once whether there is one
