"""Commands as a person types them, many in one process, whose start takes longest."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HANGS_AFTER = 300.0  # seconds: no measure of speed
Ended = tuple[int, str, str]  # exit code, stdout, stderr
PROGRAM = """
import contextlib, io, json, sys
from invoke.main import program

told = []
for words in json.loads(sys.argv[1]):
    shown, said, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
        try:
            program.run(["invoke", *words])
        except SystemExit as end:
            code = end.code or 0
    told.append([code, shown.getvalue(), said.getvalue()])
print(json.dumps(told))
"""


def ended(commands: Sequence[Sequence[str]], cwd: Path = ROOT) -> list[Ended]:
    """Return how each of these commands, given in one process without a terminal, ends."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_AFTER,
    )
    return [(each[0], each[1], each[2]) for each in json.loads(done.stdout.splitlines()[-1])]
