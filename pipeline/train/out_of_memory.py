"""Out of memory: what a run does when its devices have too little memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax

from pipeline.errors import DeviceError
from pipeline.runtime import devices
from pipeline.train.accumulation import Accumulation
from pipeline.train.feed import Feed
from pipeline.train.state import TrainState
from pipeline.train.step import Batch, Report, TrainStep


def first_call(
    step: TrainStep,
    state: TrainState,
    feed: Feed,
    batches: Batch,
    steps: range,
    show: Callable[[str], None],
) -> tuple[TrainState, Report]:
    """Make a run's first call, which compiles, with smaller micro-batches until it fits.

    Before it takes rematerialization, which costs time, the inputs leave the devices.

    Args:
        feed: of the run, which made `batches`.
        steps: of the call.
        show: takes a line for each micro-batch that did not fit.

    Returns:
        The state after the call, and its report.

    Raises:
        DeviceError: not even one image fits.
    """
    before = step.layout.to_arrays(state)  # a call that fails may have taken the state's memory
    while True:
        try:
            after, report = step.train(state, feed.held, batches, len(steps))
            jax.block_until_ready(after)  # type: ignore[no-untyped-call]
            return after, report
        except jax.errors.JaxRuntimeError as error:
            if not devices.exhausted(error):
                raise
            state = step.layout.from_arrays(before, state)
            micro_batches_remain = any(not smaller.remat for smaller in step.smaller)
            if not micro_batches_remain and (sent := feed.release(steps, show)):
                batches = sent
            else:
                _shrink(step, error, show)


def _shrink(step: TrainStep, error: Exception, show: Callable[[str], None]) -> None:
    """Let the step take less memory. Raises `DeviceError` if it cannot."""
    tried, noun = step.micro_batch, step.config.data.noun
    if not step.smaller:
        raise DeviceError(
            f"A micro-batch of {tried} {noun if tried > 1 else noun[:-1]} a replica does not fit"
            f" into the memory of the devices: {_first_line(error)}\n"
            f"Use a smaller model{', or smaller images' * (noun == 'images')}."
        ) from error
    step.use(step.smaller[0])
    show(
        f"Out of memory at {tried} {noun} a replica; retrying with micro-batches of"
        f" {step.micro_batch}, {step.accumulation.micro_batches} to a step"
        f"{_cost(step.accumulation)}. Batch {step.config.batch} and the learning rate stay."
    )


def use_what_fitted(
    step: TrainStep, fitted: Accumulation | None, show: Callable[[str], None]
) -> None:
    """Begin with the micro-batches that an earlier fold or session ended with."""
    if fitted is not None and step.use(fitted):
        show(f"Micro-batches of {step.micro_batch} a replica, as fitted before{_cost(fitted)}")


@contextmanager
def later_calls(step: TrainStep) -> Iterator[None]:
    """Say what to do when a call does not fit although an earlier one did, for example because
    another process took the memory.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not devices.exhausted(error):
            raise
        smaller = ", or use a smaller model"
        if any(not one.remat for one in step.smaller):
            smaller = (
                f", or set a micro_batch below {step.micro_batch} in the config, which changes no"
                " result"
            )
        raise DeviceError(
            f"The devices ran out of memory after a call that did fit: {_first_line(error)}\n"
            f"End what else uses these devices{smaller}. The same command again resumes from the"
            " last checkpoint."
        ) from error


def _cost(accumulation: Accumulation) -> str:
    return ", computing again what the gradient needs" if accumulation.remat else ""


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:300]
