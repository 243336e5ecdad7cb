"""A session ends itself in time, when it is asked to, and when it hangs; a checkpoint goes with
each of these.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.session import checkpoint
from pipeline.session.time_limit import STALLED, Session, age
from pipeline.training import training

ROOT = Path(__file__).resolve().parents[3]
FOR_EVER = 100_000  # epochs


@pytest.fixture
def command(competition, tiny, written_config, tmp_path):
    """Return a function that begins `python -m pipeline train` with a config that is changed so.

    It also takes options of Python.
    """

    def begin(*options: str, **change: object) -> tuple[subprocess.Popen, Path]:
        config = written_config(replace(tiny, **change))
        words = [
            "train",
            "--config",
            config,
            "--input",
            competition,
            "--output",
            tmp_path / "out",
            "--json",
        ]
        child = subprocess.Popen(
            [sys.executable, *options, "-m", "pipeline", *words],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "XLA_FLAGS": ""},
        )
        return child, tmp_path / "out"

    return begin


def ended(child):
    """Return (exit code, stdout, stderr) of a process that ends within ten minutes."""
    out, error = child.communicate(timeout=600)
    return child.returncode, out, error


def test_a_run_stops_itself_before_its_session_is_over_and_goes_on_in_the_next(command):
    """Exit code 0, since this is what was asked for. TensorFlow, which takes seconds to import and
    looks for accelerators, is not imported.
    """
    child, out = command("-X", "importtime", session_hours=6 / 3600, epochs=FOR_EVER)

    code, said, error = ended(child)

    assert code == 0, error
    assert json.loads(said.splitlines()[-1])["status"] == "partial"
    assert (
        "session_hours=0.00166667 is nearly over. "
        "The state is saved; the same command again resumes from there." in said
    )
    imported = re.findall(r"^import time:.*\| +(keras|tensorflow)$", error, re.MULTILINE)
    assert imported == ["keras"]
    found = checkpoint.latest(out / "checkpoints")
    assert found is not None
    assert f"Stopped at step {found.step} of" in said


def test_a_run_that_is_asked_to_stop_saves_its_state(competition, tiny, tmp_path):
    """SIGTERM, as a scheduler sends it before it kills."""
    said: list[str] = []

    def show(line: str) -> None:
        said.append(line)
        if '"step"' in line:
            os.kill(os.getpid(), signal.SIGTERM)

    config = replace(tiny, epochs=FOR_EVER, checkpoint_seconds=3600)
    # A signal that nobody takes fails this test, and does not end its process.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run = training.train(config, competition, tmp_path / "out", show=show)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert run.status == "partial"
    assert "asked to stop (SIGTERM)" in said[-1]
    assert checkpoint.latest(tmp_path / "out" / "checkpoints") is not None


@pytest.fixture
def at_a_terminal() -> Iterator[None]:
    """A process that Ctrl-C can interrupt, and its children: what a shell starts in the background
    ignores it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_saves_what_was_trained(at_a_terminal, command):
    """The first one; whoever presses it every minute still gets further."""
    child, out = command(epochs=FOR_EVER, checkpoint_seconds=3600)
    for line in child.stdout:
        if '"step"' in line:
            break

    child.send_signal(signal.SIGINT)
    code, said, error = ended(child)

    found = checkpoint.latest(out / "checkpoints")
    assert code == 130 and found is not None
    assert f"Stopped at step {found.step} of" in said and "asked to stop (Ctrl-C)" in said
    assert "once more to end at once" in error and "resumes from what was saved" in error


def test_ctrl_c_pressed_twice_ends_at_once(at_a_terminal, tmp_path):
    """And means again what it meant before."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Session(None, 1800, tmp_path) as session:
        os.kill(os.getpid(), signal.SIGINT)
        assert session.over(0) == "asked to stop (Ctrl-C)"
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second one is an interrupt where it strikes")
    assert signal.getsignal(signal.SIGINT) == before


def test_a_run_that_hangs_says_where_and_ends(tmp_path):
    """Reading from a pipe that nobody writes to is as good as a dead device."""
    script = tmp_path / "hang.py"
    script.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from pipeline.session.time_limit import Session\n"
        "with Session(None, 1.0, Path(sys.argv[1])) as session:\n"
        "    os.read(os.pipe()[0], 1)\n"
    )

    run = subprocess.run(
        [sys.executable, script, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )

    assert run.returncode == 1
    assert "no step was finished for 1 s (stall_seconds=1)" in run.stderr
    assert "hang.py" in (tmp_path / STALLED).read_text()


def test_a_run_that_hangs_ends_even_if_it_cannot_write_where(tmp_path):
    """A disk that is full is one of the reasons to hang."""
    (tmp_path / STALLED).mkdir()
    script = "import sys, time; from pathlib import Path\n"
    script += "from pipeline.session.time_limit import Session\n"
    script += "with Session(None, 1.0, Path(sys.argv[1])): time.sleep(30)"

    run = subprocess.run(
        [sys.executable, "-c", script, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )

    assert run.returncode == 1
    assert (
        "no step was finished for 1 s" in run.stderr
        and "It could not be written: Is a directory" in run.stderr
    )


def test_a_run_that_goes_on_is_left_alone(tmp_path):
    """Progress moves the clock of the watchdog."""
    # Less would end these tests on a machine that is busy elsewhere.
    with Session(None, 3.0, tmp_path) as session:
        for _ in range(20):
            time.sleep(0.2)
            session.progress()

    assert not (tmp_path / STALLED).exists()


@pytest.mark.parametrize(("hours", "margin"), [(9.0, 300.0), (60 / 3600, 3.0)])
def test_the_margin_is_five_minutes_and_of_a_short_session_a_twentieth(tmp_path, hours, margin):
    session = Session(hours, 1800, tmp_path)

    assert session.margin == pytest.approx(margin)
    left = hours * 3600 - age() - margin
    assert session.over(left - 2) is None
    assert "is nearly over" in session.over(left + 2)


def test_sigterm_means_again_what_it_meant_before(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with Session(None, 1800, tmp_path) as session:
        os.kill(os.getpid(), signal.SIGTERM)

        assert session.over(0) == "asked to stop (SIGTERM)"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_session_in_another_thread_goes_without_signals(tmp_path):
    """Python lets only the main thread take them."""
    before, said = signal.getsignal(signal.SIGTERM), []

    def enter() -> None:
        with Session(None, 1800, tmp_path) as session:
            said.append(session.over(0))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()

    assert said == [None]
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_age_is_that_of_the_process():
    """A notebook imports the package minutes after its process began."""
    script = "import time; time.sleep(0.5)\n"
    script += "from pipeline.session.time_limit import age; print(age())"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert 0.5 <= float(run.stdout) < 600
