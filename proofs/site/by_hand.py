"""The chain by Kaggle's own client alone, by the commands of docs/by-hand.md."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from localkaggle.server import USER, LocalKaggle
from proofs.shared import environment
from proofs.shared.results_table import Row

PAGE = Path("docs", "by-hand.md")
LEAST = 0.97  # of digits' accuracy, which the rehearsal of the README exceeds
WAITS = 600.0  # seconds for a run, a dataset, a score
READY = re.compile(r"complete|ready", re.IGNORECASE)


def row(root: Path) -> Row:
    """Return the row: every command of the page, in its order, with exit code 0, to a score."""
    with tempfile.TemporaryDirectory(prefix="prove-site-") as scratch:
        folder = Path(scratch)
        project = environment.clone(root, folder / "project")
        with LocalKaggle(folder / "kaggle", competitions=("digits",)) as kaggle:
            said, failed = _follow(project, kaggle.environment)
    score = max((float(number) for number in re.findall(r"\b0\.\d+|\b1\.0\b", said)), default=0.0)
    return Row(
        "The chain by Kaggle's own client, by the page's commands alone, to a score",
        f"exit code 0 of each, {LEAST} or more",
        failed or f"exit code 0 of each, {score:g}",
        not failed and score >= LEAST,
    )


def commands(text: str) -> list[str]:
    """Return the lines of a page's shell blocks."""
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.strip().splitlines()]


def _follow(project: Path, variables: Mapping[str, str]) -> tuple[str, str]:
    """Return what the last command printed, and which one failed, how."""
    programs = Path(sys.executable).parent
    path = f"{programs}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAGGLE")}
    given = {**kept, "PYTHONPATH": str(project), **variables, "PATH": path}
    said = ""
    for line in commands((project / PAGE).read_text(encoding="utf-8")):
        command, end = line.replace("OWNER", USER), time.monotonic() + WAITS
        waits = re.search(r"kaggle (kernels|datasets) status|competitions submissions", command)
        while True:
            done = subprocess.run(
                ["/bin/bash", "-c", command], cwd=project, env=given, capture_output=True, text=True
            )
            said = done.stdout
            if done.returncode or not waits or READY.search(said) or time.monotonic() > end:
                break
            time.sleep(1)
        if done.returncode or (waits and not READY.search(said)):
            last = (done.stderr.strip() or said.strip() or "nothing").splitlines()[-1]
            return said, f"{command}: exit code {done.returncode}, {last}"
    return said, ""
