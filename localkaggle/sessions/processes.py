"""Processes: measure and kill the processes of a session."""

import subprocess

import psutil


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and all its descendants."""
    total = 0
    for process in _tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue  # it ended since it was listed
    return total


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a session and wait. A pid namespace whose first process ends loses all others."""
    members = _tree(process.pid)
    process.kill()
    for member in members:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue  # it ended with the namespace
    process.wait()


def kill_strays(container: str) -> None:
    """Kill what a session without a pid namespace left.

    A daemon is no longer a descendant, but still has the session's environment.
    """
    for process in psutil.process_iter():
        try:
            if process.environ().get("KAGGLE_CONTAINER_NAME") == container:
                process.kill()
        except psutil.Error:
            continue  # it ended, or belongs to another user


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
