"""Compilations: which programs JAX compiled meanwhile, and for how long."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

EVENT = "/jax/core/compile/backend_compile_duration"
# What JAX calls a step and an evaluation of Keras' fit, and of ours.
STEPS = ("jit(train_step)", "jit(test_step)", "jit(_train_steps)", "jit(_evaluated)")
Program = tuple[str, float]


@dataclass
class Compilations:
    """Name and seconds of each compilation by XLA, in order."""

    programs: list[Program] = field(default_factory=list)


_open: list[Compilations] = []


@cache  # JAX keeps a listener for ever, so there is one
def _listen() -> None:
    import jax

    jax.monitoring.register_event_duration_secs_listener(_heard)


def _heard(event: str, duration_secs: float, **more: str | int) -> None:
    if event == EVENT:
        for each in _open:
            each.programs.append((str(more.get("fun_name", "")), duration_secs))


@contextmanager
def counted() -> Iterator[Compilations]:
    """Count what is compiled inside the context, in any thread."""
    _listen()
    found = Compilations()
    _open.append(found)
    try:
        yield found
    finally:
        _open.remove(found)


def steps(programs: Sequence[Program]) -> tuple[str, ...]:
    """Return the names of steps and evaluations among these."""
    return tuple(name for name, _ in programs if name in STEPS)
