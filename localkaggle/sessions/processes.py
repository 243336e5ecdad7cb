"""Measure and kill the processes of a session."""

import subprocess
from contextlib import suppress

import psutil


def resident_bytes(pid: int) -> int:
    total = 0
    for process in _tree(pid):
        with suppress(psutil.NoSuchProcess):  # the process has exited
            total += process.memory_info().rss
    return total


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process of a session, and wait for it to exit.

    When the first process in a PID namespace exits, Linux kills all other processes in it.
    """
    members = _tree(process.pid)
    process.kill()
    for member in members:
        with suppress(psutil.NoSuchProcess):  # already killed with the namespace
            member.kill()
    process.wait()


def kill_strays(container: str) -> None:
    """Kill the processes that a session without a PID namespace has left behind.

    Daemons are no longer descendants of the session, but they still have its environment variables.
    """
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has exited or belongs to another user
            if process.environ().get("KAGGLE_CONTAINER_NAME") == container:
                process.kill()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
