"""Processes: measures and kills the processes of a session."""

import subprocess
from contextlib import suppress

import psutil


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and all its descendants."""
    total = 0
    for process in _tree(pid):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            total += process.memory_info().rss
    return total


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a session and wait. When the first process of a pid namespace ends, so do the others."""
    members = _tree(process.pid)
    process.kill()
    for member in members:
        with suppress(psutil.NoSuchProcess):  # it ended with the namespace
            member.kill()
    process.wait()


def kill_strays(container: str) -> None:
    """Kill the processes that a session without a pid namespace left running.

    A daemon is not a descendant any more, but still has the session's environment.
    """
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended, or belongs to another user
            if process.environ().get("KAGGLE_CONTAINER_NAME") == container:
                process.kill()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
