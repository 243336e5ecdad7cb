"""Programs that XLA compiled, kept in the output so that the next session does not compile again.

A compiled program is code. A session loads only its own output folder, and `invoke pull` compares
that byte for byte with the list that the run wrote. JAX's key holds the program, versions, flags
and devices, so another image or machine compiles anew.
"""

from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

FOLDER = "compiled"
_ours: list[str] = []


def keep(output: Path) -> None:
    """Keep compiled programs in `output`/compiled, unless the user chose a folder for JAX."""
    chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if chosen is not None and chosen not in _ours:
        return
    _ours[:] = [str(output / FOLDER)]
    update = jax.config.update
    update("jax_compilation_cache_dir", _ours[0])  # type: ignore[no-untyped-call]
    # Small programs too: a model's first weights come from dozens of them.
    update("jax_persistent_cache_min_compile_time_secs", 0.0)  # type: ignore[no-untyped-call]
    compilation_cache.reset_cache()  # JAX decides once whether there is one
