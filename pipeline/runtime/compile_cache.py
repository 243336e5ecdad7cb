"""Executables: what XLA compiled is kept in the output, and the next session does not compile it
again.

An executable is code: a session takes only what lies in its own output folder, and whoever carries
that along compares it byte for byte with the list that the run wrote itself. JAX's key holds the
program, the versions, the flags and the devices, so another image or machine compiles anew.
"""

from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

FOLDER = "compiled"
_ours: list[str] = []


def keep(output: Path) -> None:
    """Keep executables in `output`/compiled from here on; a folder that the user chose for JAX
    stays the one.
    """
    chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if chosen is not None and chosen not in _ours:
        return
    _ours[:] = [str(output / FOLDER)]
    jax.config.update("jax_compilation_cache_dir", _ours[0])  # type: ignore[no-untyped-call]
    # Small programs too: a model's first weights come from dozens of them.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # type: ignore[no-untyped-call]
    compilation_cache.reset_cache()  # JAX decides once whether there is one
