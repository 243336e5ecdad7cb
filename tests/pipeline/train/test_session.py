"""A session ends itself in time, when it is asked to, and when it hangs; a checkpoint goes with
each of these.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.train import checkpoint, training
from pipeline.train import session as session_module
from pipeline.train.session import STALLED, Session, age

ROOT = Path(__file__).resolve().parents[3]
FOR_EVER = 100_000  # epochs


@pytest.fixture
def trap() -> Iterator[object]:
    """Take the signals that nobody takes: they fail a test, and do not end its process. What a
    shell starts in the background ignores Ctrl-C.
    """
    kinds = signal.SIGTERM, signal.SIGINT
    before = [signal.signal(kind, signal.default_int_handler) for kind in kinds]
    yield signal.default_int_handler
    for kind, handler in zip(kinds, before, strict=True):
        signal.signal(kind, handler)


@pytest.mark.parametrize("why", ["session_hours", "SIGTERM"])
def test_a_run_that_has_to_end_saves_its_state_and_shows_why(
    competition, tiny, tmp_path, trap, why
):
    """Because its session is nearly over, or a scheduler is about to kill it."""
    said: list[str] = []

    def show(line: str) -> None:
        said.append(line)
        if why == "SIGTERM" and '"step"' in line:
            os.kill(os.getpid(), signal.SIGTERM)

    # A session's margin is a twentieth of it; it began when this process did.
    hours = (age() + 1) / 0.95 / 3600 if why == "session_hours" else None
    config = replace(tiny, epochs=FOR_EVER, session_hours=hours)
    run = training.train(config, competition, tmp_path / "out", show=show)

    assert run.status == "partial"
    found = checkpoint.latest(tmp_path / "out" / "checkpoints")
    assert found is not None and f"Stopped at step {found.step} of" in said[-1]
    reasons = {"session_hours": f"{hours or 0:g} is nearly over", "SIGTERM": "asked to stop (SIG"}
    assert reasons[why] in said[-1] and "run the same command" in said[-1]
    assert signal.getsignal(signal.SIGTERM) is trap


def test_ctrl_c_saves_what_was_trained(trap, competition, tiny, written_config, tmp_path):
    """The first one; whoever presses it every minute still gets further. TensorFlow, which takes
    seconds to import and looks for accelerators, is not imported.
    """
    words = ["--config", written_config(replace(tiny, epochs=FOR_EVER)), "--input", competition]
    words += ["--output", tmp_path / "out", "--json"]
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "pipeline", "train", *words],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "errors").open("w"),
        env={**os.environ, "XLA_FLAGS": ""},
    ) as child:
        assert child.stdout is not None
        next(line for line in child.stdout if '"step"' in line)
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=600)

    error = (tmp_path / "errors").read_text()
    found = checkpoint.latest(tmp_path / "out" / "checkpoints")
    assert child.returncode == 130 and found is not None
    assert f"Stopped at step {found.step} of" in said and "asked to stop (Ctrl-C)" in said
    assert "again to stop immediately" in error and "Run the same command again to resume" in error
    imported = re.findall(r"^import time:.*\| +(keras|tensorflow)$", error, re.MULTILINE)
    assert imported == ["keras"]


def test_ctrl_c_pressed_twice_ends_at_once(trap, tmp_path):
    """Afterwards Ctrl-C has its former effect."""
    with pytest.raises(KeyboardInterrupt), Session(None, tmp_path) as session:
        os.kill(os.getpid(), signal.SIGINT)
        assert session.over(0) == "asked to stop (Ctrl-C)"
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second one is an interrupt where it strikes")
    assert signal.getsignal(signal.SIGINT) is trap


HANG = """
import os, sys, time
from pathlib import Path
time.sleep(0.5)
from pipeline.train import session
print(session.age(), flush=True)
session.STALL_SECONDS = 0.5
with session.Session(None, Path(sys.argv[1])):
    os.read(os.pipe()[0], 1)
"""


@pytest.mark.parametrize("in_the_way", [False, True])
def test_a_run_that_hangs_writes_its_stacks_and_ends(tmp_path, in_the_way):
    """Reading from a pipe that nobody writes to is as good as a dead device; and it ends even if it
    cannot write where. Its age is that of the process: a notebook imports this minutes later.
    """
    (tmp_path / "hang.py").write_text(HANG)
    if in_the_way:
        (tmp_path / STALLED).mkdir()

    command = [sys.executable, tmp_path / "hang.py", tmp_path]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)

    assert run.returncode == 1 and 0.5 <= float(run.stdout) < 600
    assert "no step finished within" in run.stderr
    assert in_the_way or "hang.py" in (tmp_path / STALLED).read_text()


def test_a_run_that_makes_progress_is_left_alone(tmp_path, monkeypatch):
    """Progress resets the watchdog: 30 s and 30 s are not a minute."""
    now, looked, ended = [0.0], threading.Semaphore(0), threading.Event()

    def clock() -> float:
        looked.release()
        return now[0]

    monkeypatch.setattr(session_module.time, "monotonic", clock)
    monkeypatch.setattr(session_module.os, "_exit", lambda code: ended.set())
    monkeypatch.setattr(session_module, "min", lambda *_: 0.01, raising=False)
    monkeypatch.setattr(session_module, "STALL_SECONDS", 60)
    with Session(None, tmp_path) as session:
        for _ in range(3):
            now[0] += 30
            while looked.acquire(blocking=False):
                pass  # looks from before
            for _ in range(3):
                looked.acquire()
            assert not ended.is_set()
            session.progress()
        now[0] += 60
        assert ended.wait(600)


@pytest.mark.parametrize(("hours", "margin"), [(9.0, 300.0), (60 / 3600, 3.0)])
def test_the_margin_is_five_minutes_and_of_a_short_session_a_twentieth(tmp_path, hours, margin):
    session = Session(hours, tmp_path)

    assert session.margin == pytest.approx(margin)
    left = hours * 3600 - age() - margin
    assert session.over(left - 2) is None
    assert "is nearly over" in session.over(left + 2)


def test_a_session_in_another_thread_goes_without_signals(tmp_path):
    """Python lets only the main thread handle them."""
    before, said = signal.getsignal(signal.SIGTERM), []

    def enter() -> None:
        with Session(None, tmp_path) as session:
            said.append(session.over(0))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()

    assert said == [None]
    assert signal.getsignal(signal.SIGTERM) == before
