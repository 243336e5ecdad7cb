"""Accelerators that a training may be planned for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """Cores that a step is compiled for.

    Attributes:
        topology: as libtpu names it.
        kind: as libtpu wants it in the environment.
        memory: bytes of a core that a program can have.
        operations: bfloat16 operations a second and core.
        bandwidth: bytes a second between a core and its memory.
    """

    topology: str
    kind: str
    memory: float
    operations: float
    bandwidth: float


# Peaks: Google's pages on TPU v5e and v6e, read 2026-11-21. Memory of a v5e: what libtpu 0.0.51
# allots at most (measured); of a v6e: assumed, in proportion.
ACCELERATORS = {
    "tpu-v5e-8": Accelerator("v5e:2x4", "v5litepod-8", 15.75 * 2**30, 197e12, 819e9),
    "tpu-v6e-8": Accelerator("v6e:2x4", "v6e-8", 31.25 * 2**30, 918e12, 1.64e12),
}
