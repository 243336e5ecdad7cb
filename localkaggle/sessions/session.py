"""Run a pushed notebook in separate Linux namespaces, which replace Kaggle's container.

The inputs of a session are a notebook, the folders to mount and a machine. Its results are the
files that the notebook writes to /kaggle/working, an `Outcome`, and a log that can be read while
the session is running.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from localkaggle.sessions import processes
from localkaggle.sessions.machine_shapes import Machine, emulated
from localkaggle.sessions.session_log import Log

HERE = Path(__file__).resolve().parent
NOTEBOOK = "__notebook__.ipynb"
POLL_SECONDS = 0.1
# With setpriv, Linux kills the session if this process exits. --kill-child kills its descendants.
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
NAMESPACES = (*ENDS_WITH_US, "unshare", "--mount", "--pid", "--fork", "--kill-child")
AS_USER = ("--user", "--map-root-user")
NO_NAMESPACES = (
    "Linux namespaces are not available, so sessions have internet access and can read this"
    " machine's files"
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a session.

    `reason` is the reason for a failure: "exception", "time", "memory", "killed" or "cancelled". It
    is "" if the session succeeded.
    """

    reason: str
    message: str
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.reason


@cache
def namespaces() -> tuple[str, ...]:
    """Return the prefix of a command to run in new namespaces, or () if they are not available."""
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
    """Return the paths that a Python interpreter needs, except for the user's site-packages."""
    code = (
        "import json, os, sys; print(json.dumps("
        "[sys.prefix, sys.base_prefix, os.path.realpath(sys.executable), *sys.path]))"
    )
    search = {"PATH": os.environ.get("PATH", "")}
    found = subprocess.check_output([python, "-s", "-c", code], timeout=60, env=search)  # noqa: S603
    paths = {Path(path) for path in json.loads(found) if path}
    paths |= {path.resolve() for path in paths}
    return tuple(sorted(path for path in paths if path.exists()))


class Session:
    """A single run of a notebook.

    Args:
        folder: a new folder for this session. Output is written to its `working` subfolder.
        notebook: contents of an .ipynb file.
        inputs: the folders to mount read-only, as {path in /kaggle/input: folder}.
        rerun: whether this is the scored rerun of a submission.
        machine: the machine and the session's limits.
        log: log to which the notebook's output streams are written.
    """

    def __init__(
        self,
        folder: Path,
        notebook: str,
        *,
        inputs: Mapping[str, Path],
        rerun: bool,
        machine: Machine,
        log: Log,
    ) -> None:
        self.working, self._scratch = folder / "working", folder / "tmp"
        self._private = folder / "private"
        self._folder, self._inputs, self._machine, self._log = folder, inputs, machine, log
        for path in (self.working, self._scratch / "home", self._private):
            path.mkdir(parents=True)
        self._private.chmod(0o1777)
        (self.working / NOTEBOOK).write_text(notebook, encoding="utf-8")
        self._namespaces = namespaces()
        self._environment = {**self._build_environment(rerun), **machine.variables}
        self._ended = ""  # reason to stop immediately

    def run(self) -> Outcome:
        """Run the notebook, kill the processes that it leaves behind, and return the outcome.

        The notebook's processes also exit if this process is killed with SIGKILL. Without
        namespaces, however, daemons continue to run.
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
        return Outcome(reason, self._failure_message(reason, process.returncode), seconds)

    def cancel(self) -> None:
        self._ended = "cancelled"

    def kill(self) -> None:
        """Kill the session as if its host had failed. Output that was already written is kept."""
        self._ended = "killed"

    # Starting

    def _start(self) -> subprocess.Popen[bytes]:
        # -s excludes packages that are installed in the user's home.
        command = [self._machine.python, "-s", "-c", (HERE / "execute.py").read_text(), NOTEBOOK]
        if self._namespaces:
            command, folder = self._sandboxed(command), None
        else:
            remapped = "Paths in /kaggle are remapped (LOCALKAGGLE_ROOT)"
            self._log.add("stderr", f"localkaggle: {NO_NAMESPACES}. {remapped}.\n")
            # Without namespaces, the session must check whether this process is still running.
            command, folder = [*command, str(os.getpid())], self.working
        return subprocess.Popen(  # noqa: S603 - the user's own notebook, in its sandbox
            command,
            cwd=folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def _sandboxed(self, command: list[str]) -> list[str]:
        root, machine = self._folder / "root", self._machine
        root.mkdir()
        kept = [str(path) for path in needed(machine.python)]
        if machine.internet:  # often a link to /run, which is not mounted
            kept.append(str(Path("/etc/resolv.conf").resolve()))
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)  # HOME may be a different folder
        spec = {
            "root": str(root),
            "working": str(self.working),
            "tmp": str(self._scratch),
            "private": str(self._private),
            "inputs": [[str(path), place] for place, path in sorted(self._inputs.items())],
            "covered": sorted({str(path.resolve()) for path in (home, *machine.hidden)}),
            "kept": kept,
            "isolated": not machine.internet,
            "environment": self._environment,
            "command": command,
        }
        written = self._folder / "session.json"
        written.write_text(json.dumps(spec))
        network = () if machine.internet else ("--net",)
        sandbox = (sys.executable, str(HERE / "sandbox.py"), str(written))
        return [*self._namespaces, *network, *sandbox]

    def _build_environment(self, rerun: bool) -> dict[str, str]:
        # No variables are inherited, so that the session does not get the host's credentials.
        root = "/kaggle"
        if not self._namespaces:
            root = str(self._folder / "kaggle")
            self._remap(Path(root))
        home = f"{root}/tmp/home"  # noqa: S108 - below the session's own root
        values = {
            "PATH": f"{Path(self._machine.python).parent}:/usr/local/bin:/usr/bin:/bin",
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
        if self._machine.shape:
            values["LOCALKAGGLE_ACCELERATOR"] = self._machine.shape
        values |= emulated(self._machine.shape)
        if not self._namespaces:
            values["LOCALKAGGLE_ROOT"] = root
        return values

    def _remap(self, root: Path) -> None:
        # Without a mount namespace, links replace the mounts.
        (root / "input").mkdir(parents=True)
        (root / "working").symlink_to(self.working)
        (root / "tmp").symlink_to(self._scratch)
        for place, path in self._inputs.items():
            link = root / "input" / place
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)

    # Watching

    def _guard(self, process: subprocess.Popen[bytes], began: float) -> str:
        """Wait for the session to exit, and kill it if it exceeds a limit. Return the reason."""
        checked = began
        while process.poll() is None:
            now = time.monotonic()
            reason = self._ended or ("time" if now - began > self._machine.seconds else "")
            if not reason and now - checked > 5 * POLL_SECONDS:
                checked, used = now, processes.resident_bytes(process.pid)
                reason = "memory" if used > self._machine.memory_bytes else ""
            if reason:
                processes.kill(process)
                return reason
            time.sleep(POLL_SECONDS)
        return "exception" if process.returncode else ""

    def _read(self, pipe: IO[bytes] | None, name: str) -> None:
        assert pipe is not None  # noqa: S101 - both are pipes
        for line in iter(pipe.readline, b""):
            self._log.add(name, line.decode("utf-8", "replace"))

    def _tidy(self) -> None:
        if not self._namespaces:
            processes.kill_strays(self._environment["KAGGLE_CONTAINER_NAME"])
        for name in ("root", "tmp", "private", "kaggle"):
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def _failure_message(self, reason: str, code: int | None) -> str:
        machine, killed = self._machine, "was killed (exit code 137)"
        memory = f"more than {machine.memory_bytes:,} bytes of memory"
        return {
            "": "",
            "exception": f"The notebook threw an exception (exit code {code}); see the log",
            "time": f"The session exceeded {machine.seconds:g} seconds and {killed}",
            "memory": f"The session used {memory} and {killed}",
            "killed": f"The session {killed}",
            "cancelled": "The session was cancelled",
        }[reason]
