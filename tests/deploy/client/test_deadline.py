"""The end of a task: by its deadline, and by Ctrl-C."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from deploy import deadline
from deploy.deadline import TimeUp, limit
from deploy.errors import DeadlinePassed
from tests.deploy.invoked import ROOT


@pytest.fixture(autouse=True)
def python_own_ctrl_c() -> Iterator[None]:
    """A shell that starts the tests in the background has Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_the_handler_of_ctrl_c_is_restored(handler):
    signal.signal(signal.SIGINT, handler)
    with limit(60, "too long"):
        if handler is signal.SIG_IGN:
            signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_deadline_that_was_swallowed_comes_again():
    with pytest.raises(DeadlinePassed, match="too long"), limit(60, "too long"):
        assert signal.getitimer(signal.ITIMER_REAL)[1] == deadline.AGAIN_SECONDS
        with suppress(TimeUp):
            signal.raise_signal(signal.SIGALRM)
        signal.raise_signal(signal.SIGALRM)


LOST = """
import atexit, signal, threading
from commands import console
from deploy.deadline import limit

signal.signal(signal.SIGINT, signal.default_int_handler)
lock = threading.Lock()
atexit.register(lock.acquire)  # as urllib3 does with its pools

def task(options):
    with limit({seconds}, "too long"):
        lock.acquire()
        {strike}
        threading.Event().wait(60)

console.reported(task, {{}})
"""


@pytest.mark.parametrize(
    ("seconds", "strike", "code"),
    [(60, "signal.raise_signal(signal.SIGINT)", 130), (0.05, "pass", 5)],
)
def test_a_lost_lock_does_not_keep_the_process_alive(seconds, strike, code):
    script = LOST.format(seconds=seconds, strike=strike)
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=60, check=False)

    assert ended.returncode == code
