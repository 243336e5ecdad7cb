"""Processes that start fast, since a fork server has imported what they need; tests kill them."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def begun(log: Path, work: Callable[..., object], *arguments: Any) -> multiprocessing.Process:
    """Start some work with the environment of this process; its output goes to a file."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])  # the first one's; others import it later
    # Its socket has to outlive the folder of the tests.
    before, tempfile.tempdir = tempfile.tempdir, str(Path(tempfile.gettempdir()).parent)
    try:
        process = context.Process(target=_begin, args=(log, dict(os.environ), work, arguments))
        process.start()
    finally:
        tempfile.tempdir = before
    return process


def _begin(
    log: Path, environment: Mapping[str, str], work: Callable[..., object], arguments: Any
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    work(*arguments)
