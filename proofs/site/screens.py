"""`invoke watch` in a real terminal, tmux, and in a pipe.

The local Kaggle really runs small notebooks that print lines of progress. A run is queued until its
screen was captured, so no clock decides what is seen.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import nbformat

from deploy.client.client import Kaggle
from localkaggle import fault_kinds
from localkaggle.server import USER, LocalKaggle
from localkaggle.sessions.session import Outcome, Session
from proofs.shared.results_table import Row, Show
from proofs.training.chained_sessions import signed_in

HANDLE = f"{USER}/digits-train-tpu"
LARGE, SMALL = (80, 24), (40, 10)  # columns and lines
MOST_SECONDS, SESSION_SECONDS = 120, 600
STEPS = 600
TRAIN = f"""
import json, math, time
for step in range(1, {STEPS} + 1):
    line = {{"step": step, "steps": {STEPS}, "loss": 0.2 + 2.1 * math.exp(-step / 60),
            "accuracy": 1 - 0.9 * math.exp(-step / 60), "images_per_second": 1834.5,
            "eta_seconds": ({STEPS} - step) * 0.02}}
    print(json.dumps(line), flush=True)
    time.sleep(0.02)
"""
FAIL = "raise ValueError('the batch does not fit')"
METADATA = {
    "id": HANDLE,
    "title": "Digits train TPU",
    "language": "python",
    "kernel_type": "notebook",
    "is_private": True,
    "enable_gpu": False,
    "enable_tpu": True,
    "enable_internet": False,
    "machine_shape": "TpuV5E8",
}
SCREENS = "`invoke watch` in tmux, 80x24 and 40x10: screens at queue, running, error, end, Ctrl-C"
LINES = "`invoke watch` in a pipe, though FORCE_COLOR is set"
STREAM = "`invoke watch --json-lines` in a pipe"
ENDED = "ended with"


class Held(Session):
    """A session that begins once `started` is set."""

    def __init__(self, started: threading.Event, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._started = started

    def run(self) -> Outcome:
        """Wait, and run the notebook."""
        self._started.wait(SESSION_SECONDS)
        return super().run()


@dataclass(frozen=True)
class World:
    """A local Kaggle of one user. `started`: whether its runs may begin."""

    root: Path
    folder: Path
    local: LocalKaggle
    started: threading.Event

    @property
    def newest(self) -> int:
        """The newest version of the notebook."""
        return len(self.local.kernels.kernels[HANDLE].versions)

    def push(self, cells: list[str]) -> None:
        """Push a notebook of these cells, once the run before has ended."""
        made = nbformat.v4.new_notebook(
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        )
        made.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        text = nbformat.writes(made)
        saved = Kaggle.connect().save_kernel(METADATA, text, timeout_seconds=SESSION_SECONDS)
        if saved.error:
            raise RuntimeError(saved.error)

    def words(self, *more: str) -> list[str]:
        """Return the command that watches the newest version."""
        run = f"{HANDLE}/{self.newest}"
        return [sys.executable, "-m", "invoke", "watch", "--run", run, "--config", "digits", *more]

    @contextmanager
    def watched(self, cells: list[str]) -> Iterator["Screen"]:
        """Give the screen of a watch of a new run, and wait for the run at the end."""
        self.started.clear()
        self.local.faults.say("GetKernelSessionStatus", self._queued())
        self.push(cells)
        screen = Screen(self.root, self.folder, self.words())
        try:
            yield screen
        finally:
            self.started.set()
            screen.do("kill-server")
            version = self.local.kernels.version(HANDLE, self.newest)
            if version is not None:
                version.done.wait(SESSION_SECONDS)

    def _queued(self) -> Iterator[fault_kinds.Kind]:
        while not self.started.is_set():
            yield fault_kinds.edited(status="QUEUED")

    def piped(self, *more: str) -> str:
        """Return what a watch of a new run prints into a pipe."""
        self.push([TRAIN])
        done = subprocess.run(
            self.words(*more),
            cwd=self.root,
            env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"},
            capture_output=True,
            text=True,
            timeout=SESSION_SECONDS,
        )
        if done.returncode:
            raise RuntimeError(f"the watch ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout


class Screen:
    """A terminal in which one command runs; its shell stays, and says with what it ended."""

    def __init__(self, root: Path, folder: Path, words: list[str]) -> None:
        self._tmux = ("tmux", "-S", str(folder / "tmux"), "-f", str(folder / "tmux.conf"))
        (folder / "tmux.conf").write_text("set -g status off\n")
        # The shell outlives Ctrl-C, which its command gets, too.
        command = (
            f'trap : INT; {shlex.join(words)}; echo "{ENDED} $?"; exec sleep {SESSION_SECONDS}'
        )
        width, height = map(str, LARGE)
        size = ("-x", width, "-y", height)
        kept = {name: value for name, value in os.environ.items() if name != "TMUX"}
        subprocess.run(
            [*self._tmux, "-u", "new-session", "-d", *size, "sh", "-c", command],
            cwd=root,
            env=kept,
            check=True,
        )

    def do(self, *words: str) -> str:
        """Give tmux a command, and return what it prints."""
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def resize(self, size: tuple[int, int]) -> None:
        """Make the window that wide and high."""
        self.do("resize-window", "-x", str(size[0]), "-y", str(size[1]))

    def capture(self, *texts: str) -> str:
        """Wait until the screen shows these texts, and return it; after two minutes as it is."""
        deadline = time.monotonic() + MOST_SECONDS
        while True:
            seen = "\n".join(line.rstrip() for line in self.do("capture-pane", "-p").splitlines())
            if all(text in seen for text in texts) or time.monotonic() > deadline:
                return seen.rstrip()
            time.sleep(0.1)

    @property
    def restored(self) -> bool:
        """Whether the cursor shows, on the screen that was there before."""
        return self.do("display", "-p", "#{cursor_flag} #{alternate_on}").strip() == "1 0"


def rows(root: Path, show: Show) -> Iterator[Row]:
    """Yield the rows."""
    started = threading.Event()
    with tempfile.TemporaryDirectory(prefix="prove-screens-") as temporary:
        folder = Path(temporary)
        session = partial(Held, started)
        with LocalKaggle(folder / "kaggle", offline=True, session=session) as local:
            world = World(root, folder, local, started)
            with signed_in(local):
                if shutil.which("tmux"):
                    yield _screens(world, show)
                else:
                    target = "measured where tmux is at hand"
                    yield Row(SCREENS, target, "not measured: there is none", True)
                started.set()
                yield _lines(world.piped())
                yield _stream(world.piped("--json-lines"))


def _screens(world: World, show: Show) -> Row:
    found, fits, restored = list[bool](), list[bool](), list[bool]()

    def captured(name: str, screen: Screen, size: tuple[int, int], *texts: str) -> None:
        text = screen.capture(*texts)
        lines = text.splitlines()
        for line in (f"{name}, {size[0]}x{size[1]}", *lines):
            show(f"      | {line}")
        found.append(all(part in text for part in texts))
        fits.append(len(lines) <= size[1] and max(map(len, lines), default=0) <= size[0])

    for name, cells, code, last in (
        ("end", [TRAIN], 0, ("✓ complete", "Next: invoke pull")),
        ("error", [TRAIN, FAIL], 1, ("✗ failed", "the batch does not fit")),
    ):
        with world.watched(cells) as screen:
            captured("queue", screen, LARGE, "waiting for a machine", "h left", "next")
            world.started.set()
            captured("running", screen, LARGE, "● running", "to go", "▅", "h left", "next")
            screen.resize(SMALL)
            captured("running", screen, SMALL, "● running", "to go", "loss", "next")
            screen.resize(LARGE)
            captured(name, screen, LARGE, f"{ENDED} {code}")
            whole = screen.do("capture-pane", "-p", "-S", "-200")  # what has scrolled away, too
            found.append(all(part in whole for part in last))
            restored.append(screen.restored)
    with world.watched([TRAIN]) as screen:
        world.started.set()
        screen.capture("● running")
        screen.do("send-keys", "C-c")
        again = f"invoke watch --run {HANDLE}/{world.newest}"
        captured("Ctrl-C", screen, LARGE, "Detached from", again, f"{ENDED} 130")
        restored.append(screen.restored)
    figure = (
        f"{sum(found)} of {len(found)} show it, {sum(fits)} of {len(fits)} fit;"
        f" restored {sum(restored)} of {len(restored)} times"
    )
    target = "each shows what it must, fits, and the terminal is then restored"
    return Row(SCREENS, target, figure, all([*found, *fits, *restored]))


def _lines(text: str) -> Row:
    codes, lines = text.count("\x1b") + text.count("\r"), text.splitlines()
    whole = "RUNNING  step " in text and lines[-1].startswith("Next: invoke pull")
    figure = f"{len(lines)} lines, {codes} escape codes"
    return Row(LINES, "lines only, to the end of the run", figure, whole and not codes)


def _stream(text: str) -> Row:
    told = [json.loads(line) for line in text.splitlines()]
    looks = [each for each in told if each.get("progress")]
    figure = f"{len(told)} objects, {len(looks)} of them with progress"
    whole = bool(looks) and told[-1]["status"] == "COMPLETE"
    return Row(STREAM, "each line one JSON object, the result last", figure, whole)
