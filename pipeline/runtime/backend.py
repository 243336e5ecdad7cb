"""What Keras runs on: its backend, chosen before it is imported, a CPU's devices, and the programs
that XLA compiled.

A compiled program is code. A session loads only its own output folder, and `invoke pull` compares
that byte for byte with the list that the run wrote.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.runtime import devices

# With this flag a user tells XLA how many devices a CPU is.
FORCED = "xla_force_host_platform_device_count"
# Each holds weights and optimizer state of its own. All cores are used beyond it, too: the devices
# share one pool of threads.
MOST_CPU_DEVICES = 8
COMPILED = "compiled"  # a folder in the output
CACHE = "JAX_COMPILATION_CACHE_DIR"  # by which a user chooses another one


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
        # With the compiler of `python -m workbench plan` JAX looks for a TPU at each start, and
        # complains that there is none.
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its start-up messages hide ours


def use_every_core(batch: int) -> bool:
    """Choose JAX, and let it split this CPU into as many devices as it has cores, or the most that
    divide the batch. Call it before JAX computes.

    JAX makes one device of a CPU, and many operations of a small model use one core. Replicas
    change only the order of additions (`pipeline.train.step`). A number that the user chose stays,
    and so do the devices of a process in which JAX computes already.

    Returns:
        Whether that could be; False if JAX computes already.
    """
    choose("jax")
    import jax

    chosen = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    if FORCED in os.environ.get("XLA_FLAGS", "") or chosen >= 0:
        return True
    # XLA has a thread per core, and needs a spare one from 33 calls in flight on: `Loop` has fewer
    # (`pipeline.train.loop.EVALUATIONS`).
    most = min(devices.cores(), MOST_CPU_DEVICES)
    count = max(number for number in range(1, most + 1) if batch % number == 0)
    try:
        jax.config.update("jax_num_cpu_devices", count)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


def keep_compiled(output: Path) -> None:
    """Keep compiled programs in `output`/compiled, so that the next session does not compile again;
    unless the user chose a folder for JAX.

    JAX's key holds the program, versions, flags and devices, so another image or machine compiles
    anew.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    if os.environ.get(CACHE):
        return
    update = jax.config.update
    update("jax_compilation_cache_dir", str(output / COMPILED))  # type: ignore[no-untyped-call]
    # Small programs too: a model's first weights come from dozens of them.
    update("jax_persistent_cache_min_compile_time_secs", 0.0)  # type: ignore[no-untyped-call]
    compilation_cache.reset_cache()  # JAX decides once whether there is one
