"""Out of memory: what a run does when its devices have too little memory."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import keras

from pipeline.errors import DeviceError
from pipeline.runtime import devices
from pipeline.storage import atomic_file
from pipeline.training.batch_cuts import Cut
from pipeline.training.train_state import State
from pipeline.training.train_step import Step


def exhausted(error: Exception) -> bool:
    """Return whether XLA reports with this error that it got no memory.

    >>> exhausted(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 128192968 bytes."))
    True
    """
    return "RESOURCE_EXHAUSTED" in str(error) or "Out of memory" in str(error)


FILE = "memory.json"


def first_call(
    step: Step,
    state: State,
    given: tuple[Any, Any, int],
    show: Callable[[str], None],
    kept: Path | None = None,
) -> tuple[State, tuple[Any, ...]]:
    """Make a run's first call, which compiles, with smaller micro-batches until it fits.

    Args:
        given: what `Step.train` takes after the state.
        show: takes a line for each micro-batch that did not fit.
        kept: a file that says what fitted at last, in another fold or session.

    Returns:
        The state after the call, and its totals.

    Raises:
        DeviceError: not even one image fits.
    """
    name = _name(step)
    _recall(step, kept, name, show)
    begun = step.cut
    before = state.arrays()  # a call that fails may already have taken the state's memory
    while True:
        try:
            tree, totals = step.train(state.tree, *given)
            jax.block_until_ready(tree)  # type: ignore[no-untyped-call]
        except jax.errors.JaxRuntimeError as error:
            if not exhausted(error):
                raise
            tried = step.micro_batch
            if not step.shrink():
                raise DeviceError(
                    f"A micro-batch of {tried} image{'s' * (tried > 1)} a replica does not fit into"
                    f" the memory of the devices: {_first_line(error)}\n"
                    "Use a smaller model, or smaller images."
                ) from error
            show(
                f"Out of memory at {tried} images a replica; retrying with micro-batches of"
                f" {step.micro_batch}, {step.cut.accumulation} to a step{_cost(step.cut)}."
                f" Batch {step.config.batch} and the learning rate stay."
            )
            state = state.restored(before)
        else:
            state.tree = tree
            if kept is not None and step.cut != begun:
                atomic_file.write(kept, json.dumps({name: asdict(step.cut)}).encode())
            return state, totals


@contextmanager
def later_calls(step: Step) -> Iterator[None]:
    """Say what to do when a call does not fit although an earlier one did, for example because
    another process took the memory.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not exhausted(error):
            raise
        smaller = ", or use a smaller model"
        if step.divides:
            smaller = (
                f", or set a micro_batch below {step.micro_batch} in the config, which changes"
            )
            smaller += " no result"
        raise DeviceError(
            f"The devices ran out of memory after a call that did fit: {_first_line(error)}\n"
            f"End what else uses these devices{smaller}. The same command again resumes from the"
            " last checkpoint."
        ) from error


def _name(step: Step) -> str:
    """Return what the memory of a step depends on, as a sha256."""
    parts = [step.config.to_json(), keras.config.dtype_policy().name, str(devices.found())]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _recall(step: Step, kept: Path | None, name: str, show: Callable[[str], None]) -> None:
    """Begin with what fitted at last, if the file says so."""
    if kept is None or not kept.is_file():
        return
    try:
        cut = Cut(**json.loads(kept.read_bytes())[name])
    except (ValueError, KeyError, TypeError):
        return  # of another config or machine, or corrupt: it is found again
    if step.begin_with(cut):
        show(f"Micro-batches of {step.micro_batch} a replica, as fitted before{_cost(cut)}")


def _cost(cut: Cut) -> str:
    again = ", computing again what the gradient needs" if cut.remat else ""
    if cut.passes == 1:
        return again
    return f"{again}. BatchNorm takes two passes, which changes results (docs/decisions/0014)"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:300]
