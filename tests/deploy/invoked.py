"""Commands as a person types them, many in one process, whose start takes longest."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
HANGS_AFTER = 300.0  # seconds: no measure of speed
Ended = tuple[int, str, str]  # exit code, stdout, stderr
# What a command starts gets neither the next command nor a place among the answers.
PROGRAM = """
import contextlib, io, json, os, runpy, sys, traceback

given, told = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
for descriptor in (0, 1):
    os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
for line in given:
    sys.argv, environment = json.loads(line)
    os.environ.clear()
    os.environ.update(environment)
    shown, said, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
        try:
            runpy.run_module(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
        except Exception:
            code = traceback.print_exc() or 1
    print(json.dumps([code, shown.getvalue(), said.getvalue()]), file=told, flush=True)
"""


class Prompt:
    """One process without a terminal, in a folder, that runs `python -m MODULE …` again and again,
    each time with the environment of the process that asks. A context manager.
    """

    def __init__(self, cwd: Path = ROOT) -> None:
        self._cwd = cwd

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=self._cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate(timeout=HANGS_AFTER)

    def __call__(self, *words: object, module: str = "invoke") -> Ended:
        """Return how a command ends."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([[module, *map(str, words)], dict(os.environ)]) + "\n")
        self._process.stdin.flush()
        code, shown, said = json.loads(self._process.stdout.readline())
        return code, shown, said


def ended(commands: Sequence[Sequence[str]], cwd: Path = ROOT) -> list[Ended]:
    """Return how each of these commands, given in one process without a terminal, ends."""
    with Prompt(cwd) as prompt:
        return [prompt(*words) for words in commands]
