"""Runs a module of the project in a process of its own, with a fresh Keras backend on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

# For short proofs, of which half the time would be compiling. RELAY_XLA_FLAGS may raise it again.
UNOPTIMIZED = "--xla_backend_optimization_level=0"
EIGHT = "--xla_force_host_platform_device_count=8"


def environment(
    root: Path, *, backend: str = "jax", flags: str = "", compiled: Path | None = None
) -> dict[str, str]:
    """Return the environment variables of such a process.

    Args:
        root: of the repository.
        backend: of Keras.
        flags: for XLA. Without any there is one device, whatever this process has.
        compiled: for what XLA compiles, so that such processes share it, unless a folder is set
            already. None keeps none.
    """
    kept = {
        "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", str(compiled)),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return {
        **os.environ,
        **(kept if compiled else {}),
        "KERAS_BACKEND": backend,
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        # RELAY_XLA_FLAGS: what `invoke prove house` adds, for fewer instructions.
        "XLA_FLAGS": " ".join([flags, os.environ.get("RELAY_XLA_FLAGS", "")]).strip(),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
    }


def output(
    root: Path,
    *words: object,
    backend: str = "jax",
    flags: str = "",
    compiled: Path | None = None,
    codes: tuple[int, ...] = (0,),
) -> str:
    """Return what `python -m` with these words prints.

    Args:
        root: of the repository.
        words: the module and its arguments.
        backend, flags, compiled: as `environment` takes them.
        codes: the exit codes with which it may end.

    Raises:
        RuntimeError: if it ends with another exit code.
    """
    command = list(map(str, words))
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=root,
        env=environment(root, backend=backend, flags=flags, compiled=compiled),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in codes:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return done.stdout
