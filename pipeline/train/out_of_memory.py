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

from formats import atomic_file
from pipeline.config.compatibility import FREE
from pipeline.errors import DeviceError
from pipeline.runtime import devices
from pipeline.train.batch_cuts import Cut
from pipeline.train.train_state import State
from pipeline.train.train_step import Step

FILE = "memory.json"
# Fields of a config that say nothing of what a step takes.
NO_MEMORY = FREE - {"feed", "micro_batch", "steps_per_call"}


def first_call(
    step: Step,
    state: State,
    given: tuple[Any, Any, int],
    show: Callable[[str], None],
    kept: Path | None = None,
    release: Callable[[], tuple[Any, ...] | None] = lambda: None,
) -> tuple[State, tuple[Any, ...]]:
    """Make a run's first call, which compiles, with smaller micro-batches until it fits.

    Args:
        given: what `Step.train` takes after the state.
        show: takes a line for each micro-batch that did not fit.
        kept: a file that says what fitted at last, in another fold or session.
        release: takes images off the devices before what would change results, and returns the
            call as the host feeds it; None if there are none, or the config wants them there.

    Returns:
        The state after the call, and its totals.

    Raises:
        DeviceError: not even one image fits.
    """
    begun = step.cut
    before = state.arrays()  # a call that fails may already have taken the state's memory
    while True:
        try:
            tree, totals = step.train(state.tree, *given)
            jax.block_until_ready(tree)  # type: ignore[no-untyped-call]
        except jax.errors.JaxRuntimeError as error:
            if not devices.exhausted(error):
                raise
            tried, state = step.micro_batch, state.restored(before)
            noun = step.config.data.noun
            exact = any(cut.passes == 1 for cut in step.smaller)
            if not exact and (fed := release()):
                given = *fed, given[-1]
                continue
            if not step.smaller:
                some = noun if tried > 1 else noun[:-1]
                raise DeviceError(
                    f"A micro-batch of {tried} {some} a replica does not fit into"
                    f" the memory of the devices: {_first_line(error)}\n"
                    f"Use a smaller model{', or smaller images' * (noun == 'images')}."
                ) from error
            step.begin_with(step.smaller[0])
            show(
                f"Out of memory at {tried} {noun} a replica; retrying with micro-batches of"
                f" {step.micro_batch}, {step.cut.accumulation} to a step{_cost(step.cut)}."
                f" Batch {step.config.batch} and the learning rate stay."
            )
        else:
            state.tree = tree
            if kept is not None and step.cut != begun:
                atomic_file.write(kept, json.dumps({_name(step): asdict(step.cut)}).encode())
            return state, totals


@contextmanager
def later_calls(step: Step) -> Iterator[None]:
    """Say what to do when a call does not fit although an earlier one did, for example because
    another process took the memory.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not devices.exhausted(error):
            raise
        smaller = ", or use a smaller model"
        if any(cut.passes == 1 and not cut.remat for cut in step.smaller):
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
    given = {name: value for name, value in step.config.to_json().items() if name not in NO_MEMORY}
    parts = [given, keras.config.dtype_policy().name, str(devices.found())]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def recall(step: Step, kept: Path | None, show: Callable[[str], None]) -> None:
    """Begin with what fitted at last, if the file says so."""
    if kept is None or not kept.is_file():
        return
    try:
        cut = Cut(**json.loads(kept.read_bytes())[_name(step)])
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
