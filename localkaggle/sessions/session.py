"""Runner: one session. Really executes a pushed notebook, the way Kaggle does, in namespaces of its
own.

Reads  a notebook, the folders to mount, a machine shape and limits
Gives  what it left in /kaggle/working, its log while it runs, and how it ended
"""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

import psutil

from localkaggle.sessions.session_log import Log

HERE = Path(__file__).resolve().parent
NOTEBOOK = "__notebook__.ipynb"
POLL_SECONDS = 0.1
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
AS_USER = ("--user", "--map-root-user")


@dataclass(frozen=True)
class Limits:
    """What a session may use.

    Attributes:
        seconds: wall clock; then the session is killed.
        memory_bytes: resident, all of its processes together.
        output_bytes: in /kaggle/working.
    """

    seconds: float
    memory_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class Outcome:
    """How a session ended. `reason`: "", "exception", "time", "memory", "output", "killed" or
    "cancelled".
    """

    reason: str
    message: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the notebook ran to its end."""
        return not self.reason


@cache
def namespaces() -> tuple[str, ...]:
    """Return the command that opens namespaces here, as root or as a user; () where none are
    permitted.
    """
    for command in (NAMESPACES, (*NAMESPACES, *AS_USER)):
        try:
            probe = subprocess.run(  # noqa: S603 - fixed words
                [*command, "--net", "mount", "-t", "tmpfs", "none", "/mnt"],
                capture_output=True,
                timeout=20,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if probe.returncode == 0:
            return command
    return ()


@cache
def needed(python: str) -> tuple[Path, ...]:
    """Return the folders that this interpreter needs to start and to import, with no path that the
    user's shell adds.

    Raises:
        OSError: if it cannot be run.
    """
    code = "import json, os, sys; print(json.dumps([sys.prefix, sys.base_prefix, os.path.realpath(sys.executable), *sys.path]))"
    done = subprocess.run(  # noqa: S603 - fixed words
        [python, "-s", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ.get("PATH", "")},
    )
    if done.returncode:
        raise OSError(f"{python} does not run: {done.stderr.strip()[-200:]}")
    paths = {Path(path) for path in json.loads(done.stdout) if path}
    paths |= {path.resolve() for path in paths}
    return tuple(sorted(path for path in paths if path.exists()))


def outermost(folders: Sequence[Path]) -> list[str]:
    """Return the folders, in order, without those that lie in another of them.

    >>> outermost([Path("/home/ann"), Path("/work"), Path("/home/ann/project")])
    ['/home/ann', '/work']
    """
    resolved = sorted({path.resolve() for path in folders})
    return [
        str(path)
        for path in resolved
        if not any(path != other and path.is_relative_to(other) for other in resolved)
    ]


def machine(shape: str) -> str:
    """Return "TPU", "GPU" or "CPU".

    >>> machine("TpuV5E8"), machine("NvidiaTeslaT4"), machine("")
    ('TPU', 'GPU', 'CPU')
    """
    return "TPU" if shape.startswith("Tpu") else "GPU" if shape.startswith("Nvidia") else "CPU"


class Session:
    """One execution of one notebook.

    Args:
        folder: of this session; its `working` holds the output afterwards.
        notebook: text of an .ipynb.
        inputs: {place below /kaggle/input: folder}, mounted read-only.
        shape: the machine that is pretended to be given; "" is a CPU session.
        internet: whether the network of this machine can be reached.
        rerun: whether this is the scored rerun of a submission.
        limits: what it may use.
        hidden: folders that look empty inside, beside the user's home.
        python: the interpreter; it needs papermill and ipykernel.
        log: gets what is printed.
    """

    def __init__(
        self,
        folder: Path,
        notebook: str,
        *,
        inputs: Mapping[str, Path],
        shape: str,
        internet: bool,
        rerun: bool,
        limits: Limits,
        hidden: Sequence[Path],
        python: str = sys.executable,
        log: Log,
    ) -> None:
        self.working, self._scratch, self._private = (
            folder / "working",
            folder / "tmp",
            folder / "private",
        )
        self._folder, self._inputs, self._limits, self._hidden = folder, inputs, limits, hidden
        self._internet, self._python, self._log = internet, python, log
        for path in (self.working, self._scratch / "home", self._private):
            path.mkdir(parents=True)
        self._private.chmod(0o1777)
        (self.working / NOTEBOOK).write_text(notebook, encoding="utf-8")
        self._namespaces = namespaces()
        self._environment = self._describe(shape, rerun)
        self._cancelled, self._killed = threading.Event(), threading.Event()

    def run(self) -> Outcome:
        """Run it to its end and return how it ended. Nothing of it survives.

        With namespaces it does not survive a kill -9 of this process either; without them its first
        process does not.
        """
        self._log.start()
        began = time.monotonic()
        process = self._start()
        readers = [
            threading.Thread(target=self._read, args=(pipe, name), daemon=True)
            for pipe, name in ((process.stdout, "stdout"), (process.stderr, "stderr"))
        ]
        for reader in readers:
            reader.start()
        reason = self._guard(process, began)
        for reader in readers:
            reader.join(10)
        self._tidy()
        seconds = time.monotonic() - began
        return Outcome(reason, self._say(reason, process.returncode), seconds)

    def cancel(self) -> None:
        """End it at once."""
        self._cancelled.set()

    def kill(self) -> None:
        """Kill all of its processes by SIGKILL, as a host that fails does; what it has written
        until then stays.
        """
        self._killed.set()

    # Starting

    def _start(self) -> subprocess.Popen[bytes]:
        # -s: a package in the home folder of the host must not help.
        command = [self._python, "-s", "-c", (HERE / "execute.py").read_text(), NOTEBOOK]
        if not self._namespaces:
            self._log.add(
                "stderr",
                "localkaggle: namespaces are not permitted on this machine. Paths below /kaggle are remapped (LOCALKAGGLE_ROOT)"
                f"{'' if self._internet else ', and the internet cannot be switched off'}.\n",
            )
            return self._spawn(command, cwd=self.working)
        root = self._folder / "root"
        root.mkdir()
        kept = [str(path) for path in needed(self._python)]
        if self._internet:
            kept.append(
                str(Path("/etc/resolv.conf").resolve())
            )  # often a link into /run, which is left out
        spec = {
            "root": str(root),
            "working": str(self.working),
            "tmp": str(self._scratch),
            "private": str(self._private),
            "inputs": [[str(path), place] for place, path in sorted(self._inputs.items())],
            "covered": outermost(
                [Path(pwd.getpwuid(os.getuid()).pw_dir), *self._hidden]
            ),  # HOME may be another
            "kept": kept,
            "isolated": not self._internet,
            "environment": self._environment,
            "command": command,
        }
        written = self._folder / "session.json"
        written.write_text(json.dumps(spec))
        network = () if self._internet else ("--net",)
        return self._spawn(
            [*self._namespaces, *network, sys.executable, str(HERE / "sandbox.py"), str(written)]
        )

    def _spawn(self, command: Sequence[str], cwd: Path | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - the user's own notebook, in its sandbox
            command,
            cwd=cwd,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )

    def _describe(self, shape: str, rerun: bool) -> dict[str, str]:
        """Return the session's environment, made from nothing: no credential of the host can be in
        it.
        """
        root = "/kaggle"
        if not self._namespaces:
            root = str(self._folder / "kaggle")
            self._remap(Path(root))
        home = f"{root}/tmp/home"  # noqa: S108 - below the session's own root
        values = {
            "PATH": f"{Path(self._python).parent}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": home,
            "TMPDIR": f"{root}/tmp",  # noqa: S108
            "KAGGLE_KERNEL_RUN_TYPE": "Batch",
            "KAGGLE_URL_BASE": "https://www.kaggle.com",
            "KAGGLE_CONTAINER_NAME": f"localkaggle-{self._folder.name}-{uuid.uuid4().hex[:12]}",
            "MPLBACKEND": "agg",
            "PYTHONUSERBASE": f"{home}/.local",
            "PYTHONUNBUFFERED": "1",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            "JAX_PLATFORMS": "cpu",
            "CUDA_VISIBLE_DEVICES": "-1",
        }
        if rerun:
            values["KAGGLE_IS_COMPETITION_RERUN"] = "1"
        if shape:
            values["LOCALKAGGLE_ACCELERATOR"] = shape
        if machine(shape) == "TPU":
            values |= {
                "ISTPUVM": "1",
                "TPU_PROCESS_ADDRESSES": "local",
                "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
                # Threads: the eight devices wait for each other, each in one; where something else
                # takes one, XLA ends the process.
                "PJRT_NPROC": "16",
            }
        if not self._namespaces:
            values["LOCALKAGGLE_ROOT"] = root
        return values

    def _remap(self, root: Path) -> None:
        """Make the folders of a session without a mount namespace: links in place of mounts."""
        (root / "input").mkdir(parents=True)
        (root / "working").symlink_to(self.working)
        (root / "tmp").symlink_to(self._scratch)
        for place, path in self._inputs.items():
            (root / "input" / place).parent.mkdir(parents=True, exist_ok=True)
            (root / "input" / place).symlink_to(path)

    # Watching

    def _guard(self, process: subprocess.Popen[bytes], began: float) -> str:
        """Wait for the end; kill what uses more than it may. Returns the reason, as in `Outcome`."""
        checked = 0.0
        while process.poll() is None:
            now = time.monotonic()
            reason = ""
            if self._cancelled.is_set():
                reason = "cancelled"
            elif self._killed.is_set():
                reason = "killed"
            elif now - began > self._limits.seconds:
                reason = "time"
            elif now - checked > 5 * POLL_SECONDS:
                checked = now
                if _resident(process.pid) > self._limits.memory_bytes:
                    reason = "memory"
                elif _size(self.working) > self._limits.output_bytes:
                    reason = "output"
            if reason:
                _kill(process)
                return reason
            time.sleep(POLL_SECONDS)
        if _size(self.working) > self._limits.output_bytes:
            return "output"
        return "exception" if process.returncode else ""

    def _read(self, pipe: IO[bytes] | None, name: str) -> None:
        assert pipe is not None  # noqa: S101 - both are pipes
        for line in iter(pipe.readline, b""):
            self._log.add(name, line.decode("utf-8", "replace"))

    def _tidy(self) -> None:
        if not self._namespaces:
            _kill_strays(self._environment["KAGGLE_CONTAINER_NAME"])
        for name in ("root", "tmp", "private", "kaggle"):
            path = self._folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)  # scratch; the next session has its own

    def _say(self, reason: str, code: int | None) -> str:
        return {
            "": "",
            "exception": f"The notebook threw an exception (exit code {code}); see the log",
            "time": f"The session exceeded {self._limits.seconds:g} seconds and was killed (exit code 137)",
            "memory": f"The session used more than {self._limits.memory_bytes:,} bytes of memory and was killed (exit code 137)",
            "output": f"/kaggle/working holds more than {self._limits.output_bytes:,} bytes",
            "killed": "The session was killed (exit code 137)",
            "cancelled": "The session was cancelled",
        }[reason]


def _die_with_parent() -> None:
    import ctypes

    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _resident(pid: int) -> int:
    total = 0
    for process in _tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue  # ended since it was listed
    return total


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).lstat().st_size
            except FileNotFoundError:
                continue  # removed since it was listed
    return total


def _kill_strays(container: str) -> None:
    """Kill what a session without a process namespace left: a daemon leaves the tree, its
    environment stays.
    """
    for process in psutil.process_iter():
        try:
            if process.environ().get("KAGGLE_CONTAINER_NAME") == container:
                process.kill()
        except psutil.Error:
            continue  # gone, or somebody else's


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the session and wait. With its first process a pid namespace loses all others."""
    members = _tree(process.pid)
    process.kill()
    for member in members:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue  # gone with the namespace
    process.wait()
