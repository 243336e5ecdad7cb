"""Select the Keras backend and the number of CPU devices, and set up JAX's compilation cache.

Compiled programs are code, so a session only loads them from its own output folder. `invoke pull`
compares the files in this folder with the run's list.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.runtime import devices

# XLA flag with which users split a CPU into devices.
FORCED = "xla_force_host_platform_device_count"
# Each device holds a copy of the weights and the optimizer state. Additional cores are still used
# because the devices share a thread pool.
MOST_CPU_DEVICES = 8
COMPILED = "compiled"  # subfolder of the output
CACHE = "JAX_COMPILATION_CACHE_DIR"  # lets the user choose a different folder


def choose(*allowed: str) -> None:
    """Set the Keras backend to the user's choice, or to the first allowed backend by default.

    Call this function before Keras is imported.
    """
    chosen = os.environ.get("KERAS_BACKEND") or allowed[0]
    if chosen not in allowed:
        raise ConfigError(
            f"Invalid KERAS_BACKEND={chosen}: this command requires {' or '.join(allowed)}.\n"
            "Unset the variable (env -u KERAS_BACKEND …) or correct it."
        )
    os.environ["KERAS_BACKEND"] = chosen
    accelerators = ("accel*", "vfio/[0-9]*", "nvidia[0-9]*")  # a TPU, or an NVIDIA GPU
    if find_spec("libtpu") and not any(any(Path("/dev").glob(name)) for name in accelerators):
        # If libtpu is installed (for `python -m workbench plan`), JAX warns about a missing TPU
        # every time it starts.
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # startup messages would bury ours


def use_every_core(batch: int) -> bool:
    """Select JAX, and split this CPU into devices that divide the batch evenly, up to one per core.
    Return False if JAX has already started.

    By default, a CPU is a single device, and many operations of a small model only use one core.
    More devices only change the order in which numbers are added (`pipeline.train.step`). A device
    count set by the user is kept.
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
    """Cache compiled programs in `output`/compiled for the next session, unless the user has set a
    cache folder.

    JAX's cache key covers the program, versions, flags and devices, so a different image or machine
    compiles again.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    if os.environ.get(CACHE):
        return
    update = jax.config.update
    update("jax_compilation_cache_dir", str(output / COMPILED))  # type: ignore[no-untyped-call]
    # Include small programs, since dozens of them initialize a model's weights.
    update("jax_persistent_cache_min_compile_time_secs", 0.0)  # type: ignore[no-untyped-call]
    compilation_cache.reset_cache()  # JAX only checks once whether a cache exists
