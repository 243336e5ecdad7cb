"""Calls under way: as many as keep the devices busy, told in the order in which they were made."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.train import loop
from pipeline.train.loop import MAX_CALLS, MIN_CALLS, CallQueue, allowed


@given(st.floats(0, 1e6), st.floats(1, 10), st.integers(0, 10**15))
def test_slower_calls_or_larger_batches_never_allow_more(seconds, times, size):
    """The host is to know where the devices are. But some are under way whatever they take: not
    even a step of minutes with a batch of gigabytes is waited for before the next one is made.
    """
    assert MIN_CALLS <= allowed(seconds, size) <= MAX_CALLS
    assert allowed(seconds * times, size) <= allowed(seconds, size)
    assert allowed(seconds, int(size * times)) <= allowed(seconds, size)


@pytest.mark.parametrize(
    ("size", "replicas", "most"),
    [(100, 1, MAX_CALLS), (10**12, 1, MIN_CALLS), (1, 8, MIN_CALLS)],
)
def test_calls_end_in_order_and_none_is_skipped(size, replicas, most):
    """Large batches leave few under way, small ones many, and devices of one CPU few: with many, a
    collective of JAX 0.7.2 waited for a thread that found no place to run, and ended the process.
    """
    calls, told = CallQueue(replicas), []
    for step in range(1, 101):
        calls.add(step, jax.jit(jnp.sin)(np.float32(step)))
        told += [done for done, _ in calls.ended(size)]

    newest = calls.last()
    assert newest is not None and newest[0] == 100
    assert told == list(range(1, len(told) + 1))
    assert 100 - most <= len(told) <= 100 - MIN_CALLS
    calls.restart()  # an epoch's end reads what all calls gave
    assert calls.last() is None and list(calls.ended(1)) == []


@pytest.mark.parametrize(("pause", "idle"), [(0.04, 0.75), (0.0, 0.0)])
def test_the_time_that_devices_wait_for_the_host_is_measured(monkeypatch, pause, idle):
    """A call takes 10 ms, and the host makes one every 40 ms: they wait three quarters of the time.
    When it makes them without a pause, they never wait. What an epoch's end takes is not counted.
    """
    now, ends = [100.0], [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(jax, "block_until_ready", lambda call: call.wait())

    class Call:
        def __init__(self):
            self.ends = max(now[0], ends[-1]) + 0.01
            ends.append(self.ends)

        def is_ready(self):
            return now[0] >= self.ends

        def wait(self):
            now[0] = max(now[0], self.ends)

    calls = CallQueue()
    for step in range(1, 201):
        if step == 151:
            now[0] += 9.0
            calls.restart()
        began = now[0]
        calls.begin()
        calls.add(step, Call())
        list(calls.ended(1))
        now[0] = max(now[0], began + pause)

    assert calls.idle() == pytest.approx(idle, abs=0.02)
