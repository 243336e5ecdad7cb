"""The benchmark's notebook in the local Kaggle, on a TPU and on a pair of T4; then the page."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.project import BENCH, Project
from deploy.relay import relay
from localkaggle.server import LocalKaggle
from localkaggle.sessions.machine_shapes import WEEKLY_SECONDS
from proofs.shared.results_table import Row, Show
from proofs.training.chained_sessions import signed_in

ROOT = Path(__file__).resolve().parents[2]
# The shapes that are pushed, and seconds of quota that are left of each, as a week's end leaves it.
RUNTIMES = {"tpu-v5e-8": ("TPU", 240), "gpu-t4x2": ("GPU", 240)}
CLAIM = "`invoke push-bench` in the local Kaggle on a TPU and on a pair of T4, merged in one page"
TARGET = (
    "each ends in time with what is left of its quota; the next push repeats no cell; both on one"
    " page, as Chromium shows it"
)
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --window-size=1200,1600"


def row(folder: Path, show: Show) -> Row:
    """Return the row; each shape is pushed, the first of them twice."""
    options: Mapping[str, Any] = {"queue_seconds": 0.05, "ready_seconds": 0.1}
    given = folder / "kaggle"
    with (
        LocalKaggle(given, offline=True, competitions=["digits"], **options) as local,
        signed_in(local),
    ):
        kaggle = Kaggle.connect(pace=Pace(first=0.05, most=0.5, patience=30))
        ours = Project(ROOT, "digits", "digits", "dataset", folder / "runs", folder / "build")
        pulled, counts = [], []
        for runtime in (*RUNTIMES, next(iter(RUNTIMES))):
            kind, seconds = RUNTIMES[runtime]
            local.kernels.used_seconds[kind] = WEEKLY_SECONDS[kind] - seconds
            project = replace(ours, runtime=runtime)
            run = relay.push(kaggle, project, BENCH, show=show)
            status = relay.watch(kaggle, project, run, show=lambda line: None)
            pulled.append(relay.pull(kaggle, project, run))
            counts.append(_cells(pulled[-1]))
            show(f"      {runtime}: {status}, {counts[-1]} cells")
    first, both, more = counts
    page = _page(pulled[1:], folder / "page")
    repeated = _changed(pulled[1], pulled[2])
    shown = f"{page['pictures']} pictures, {page['rows']} rows" if page else "no Chromium here"
    return Row(
        CLAIM,
        TARGET,
        f"{first} cells on the TPU, {both - first} on the T4, {more - both} more by the next push,"
        f" {repeated} repeated; {shown}, devices {', '.join(page.get('devices', []))}",
        0 < first < both < more and repeated == 0 and page.get("pictures") == 4
        and len(page.get("devices", [])) == len(RUNTIMES),
    )  # fmt: skip


def _cells(folder: Path) -> int:
    return len(list(folder.glob("cells/*/*.json")))


def _changed(before: Path, after: Path) -> int:
    """Return how many cells of an output the next one has with other bytes, or not at all."""
    names = [path.relative_to(before) for path in before.glob("cells/*/*.json")]
    return sum(
        not (after / name).is_file() or (after / name).read_bytes() != (before / name).read_bytes()
        for name in names
    )


def _page(runs: list[Path], output: Path) -> dict[str, Any]:
    """Write the page by the command that a user gives, and return what Chromium makes of it."""
    words = ["-m", "invoke", "bench-report", "--runs", ",".join(map(str, runs))]
    words += ["--output", str(output), "--json"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    made = json.loads(done.stdout.splitlines()[-1])
    if BROWSER is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="prove-browser-") as profile:
        flags = [*FLAGS.split(), f"--user-data-dir={profile}", "--dump-dom"]
        dumped = subprocess.run(
            [BROWSER, *flags, Path(made["page"]).as_uri()],
            capture_output=True, text=True, check=True, timeout=120,
        ).stdout  # fmt: skip
    body = dumped.partition("<body")[2]
    found = sorted(set(re.findall(r"(\d+ x [\w ]+ \(cpu\))", body)))
    return {
        "pictures": len(re.findall(r'<img[^>]*src="data:image/png;base64,\w', body)),
        "rows": body.count("<tr"),
        "devices": found,
    }
