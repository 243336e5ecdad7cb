"""`invoke watch` as lines, as JSON lines, and as a screen."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from commands import screen
from commands.telling import Telling
from deploy.events import Status
from localkaggle import faults
from localkaggle.server import LocalKaggle
from tests.faults.world import competition
from tests.localkaggle.pushed_notebooks import SECONDS_AT_MOST, Scripted, push, soon
from tests.shipped import DIGITS

ROOT = Path(__file__).resolve().parents[2]
RUN = "rehearsal/digits-train-tpu/1"
WATCH = ("watch", "--run", RUN, "--config", str(DIGITS))
LOSSES = (2.5, 1.5, 0.75, 0.5)


class World:
    """A local Kaggle whose one run prints its progress and waits until `released` is set.

    Attributes:
        fails: whether the run then ends with an error.
    """

    def __init__(self, folder: Path) -> None:
        self.released, self.fails = threading.Event(), False
        self.local = LocalKaggle(
            folder,
            competitions=[competition()],
            offline=True,
            queue_seconds=0.0,
            session=partial(Scripted, self._train),
        )

    def _train(self, session: Scripted) -> None:
        for step, loss in enumerate(LOSSES, 1):
            line = {"step": step, "steps": 8, "loss": loss, "eta_seconds": 3600.0}
            session.log.add("stdout", json.dumps(line) + "\n")
        self.released.wait(SECONDS_AT_MOST)
        if self.fails:
            raise ValueError("the batch does not fit")
        # Without any output a watch would wait for Kaggle to list some.
        (session.working / "history.csv").write_text("epoch\n")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world with one version pushed; the environment leads there."""
    world = World(tmp_path / "kaggle")
    with world.local as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        push(local, text="{}", slug="rehearsal/digits-train-tpu", machineShape="TpuV5E8")
        yield world
        world.released.set()


def test_json_lines_end_with_the_error(world):
    """It has the exit code, as with --json."""
    command, told, world.fails = [sys.executable, "-m", "invoke", *WATCH, "--json-lines"], [], True

    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            told.append(json.loads(line))
            if str(LOSSES[-1]) in line:
                world.released.set()

    looks = [each for each in told if "progress" in each]
    running = next(each for each in looks if each["progress"])
    assert [each["status"] for each in looks][-1] == "ERROR"
    assert running["progress"] == {"step": 4, "steps": 8, "loss": 0.5, "eta_seconds": 3600.0}
    assert (running["run"], running["accelerator"], running["hours_allowed"]) == (RUN, "TPU", 20)
    assert any(each.get("line", "").startswith("Logging in to") for each in told)
    assert process.returncode == told[-1]["exit_code"] == 1
    assert "the batch does" in told[-1]["error"]


class Terminal:
    """A task on a pseudo-terminal of 80x24.

    Attributes:
        text: its output so far.
    """

    def __init__(self, *words: str) -> None:
        self.text = ""
        self._own, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        sized = ("COLUMNS", "LINES")
        kept = {name: value for name, value in os.environ.items() if name not in sized}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "invoke", *words],
            cwd=ROOT,
            env={**kept, "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        data = b""
        while True:
            try:
                data += os.read(self._own, 65536)
            except OSError:  # the task has ended
                return
            self.text = data.decode(errors="ignore")

    def shows(self, text: str) -> bool:
        """Wait until its output has this text."""
        return soon(lambda: text in self.text)

    def ended(self) -> int:
        """Wait for the end, and return the exit code."""
        code = self.process.wait(SECONDS_AT_MOST)
        self._reader.join(SECONDS_AT_MOST)
        os.close(self._own)
        return code

    def plain(self) -> str:
        """Return its output without escape sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.text)


def test_a_terminal_shows_a_screen_from_the_queue_to_the_end(world):
    """At the end it shows the last state and every line."""
    seen = threading.Event()

    def queued() -> Iterator[faults.Kind | str]:
        yield faults.edited(status="QUEUED")
        yield "502"
        while not seen.is_set():
            yield faults.edited(status="QUEUED")

    world.local.faults.say("GetKernelSessionStatus", queued())
    terminal = Terminal(*WATCH)

    assert terminal.shows("waiting for a machine") and terminal.shows("Retrying for up to")
    seen.set()
    assert terminal.shows("running") and terminal.shows("4 of 8") and terminal.shows("█▆▃▁")
    assert terminal.shows("h left") and terminal.shows(f"invoke pull --run {RUN}")
    world.released.set()
    assert terminal.ended() == 0

    shown = terminal.plain()
    assert "✓ complete" in shown and shown.count("Retrying for up to") == 1
    assert shown.splitlines()[-1] == f"Next: invoke pull --run {RUN} --config {DIGITS}"


def test_a_screen_that_is_interrupted_restores_the_terminal(world):
    """It shows how to attach again after Ctrl-C."""
    terminal = Terminal(*WATCH)
    assert terminal.shows("4 of 8")

    terminal.process.send_signal(signal.SIGINT)

    assert terminal.ended() == 130
    said = f"Detached from {RUN}.\r\nThe run continues. To watch it again:"
    assert "● running" in terminal.plain() and said in terminal.plain()
    assert "\x1b[?25h" in terminal.text.rpartition("\x1b[?25l")[2]


def seen(progress: Any = (), **values: Any) -> Status:
    """Return the status of a run with these lines of progress."""
    usual = {"run": RUN, "status": "RUNNING", "seconds": 751.0, "ran_seconds": 700.0, "words": ""}
    quota = {"accelerator": "TPU", "left": 14.7 * 3600, "allowed": 20 * 3600.0}
    return Status(**{**usual, **quota, **values, "progress": progress})


def drawn(status: Status, width: int = 80) -> str:
    """Return what a terminal of this width shows."""
    terminal = Console(width=width)
    with terminal.capture() as shown:
        terminal.print(screen.drawing(status, 3.0, f"invoke pull --run {RUN}"))
    return shown.get()


@pytest.mark.parametrize(("as_json", "lines"), [(False, 1), (True, 2)])
def test_a_pipe_shows_progress_rarely_and_json_lines_show_it_each_time(capsys, as_json, lines):
    """`Status.often` marks progress soon after the last one."""
    telling = Telling(as_json=as_json)

    for often in (False, True):
        telling(seen([{"step": 4, "steps": 8}], often=often))

    assert capsys.readouterr().out.count(RUN) == lines


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.lists(st.none())
)
NAMES = st.sampled_from(["step", "steps", "loss", "eta_seconds", "fold", "idle", "epoch"])


@settings(max_examples=10)
@given(
    st.lists(st.dictionaries(NAMES, VALUES), max_size=9),
    st.integers(1, 130),
    st.sampled_from([*screen.STATES, "NEW"]),
)
def test_any_log_can_be_drawn(progress, width, status):
    """A log may contain anything, and a window may be small."""
    assert max(map(len, drawn(seen(progress, status=status), width).splitlines())) <= width


def test_small_quotas_nan_and_secrets_are_drawn_correctly():
    """0.0 hours would look free, and a secret in a log must not be shown."""
    said = "will use under 0.1 of the 14.7 TPU hours left"

    assert said in drawn(seen([{"step": 1, "eta_seconds": 30.0}], ran_seconds=10.0))
    assert "not a number" in drawn(seen([{"step": 2, "loss": float("nan")}]))
    assert "KGAT_…" in drawn(seen(words=f"token KGAT_{'0123456789abcdef' * 2}"))
