"""Multi-GPU: the rows of a test set are shared among several processes, each of which has one GPU.

Each process is `python -m pipeline.infer.gpu_worker FOLDER`, a new program, since a notebook
cannot fork with a GPU in use. It gets what the parent has loaded and verified, as arrays and JSON.
It writes each block's predictions into a memory-mapped .npy file at once. So whatever ends a
process, its finished rows are there; any other row is NaN, for the parent to compute.
"""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import keras
import numpy as np

from formats.errors import writing
from pipeline import config as configs
from pipeline.artifact import Artifact
from pipeline.config import own_code
from pipeline.data import own_rows
from pipeline.data.labels import Target
from pipeline.infer.block_prediction import Report, Show
from pipeline.infer.restoring import Checked
from pipeline.infer.time_budget import Limit

JOB, WEIGHTS, GOLDEN = "job.json", "weights.npz", "golden.npz"
VALUES, BROKEN, LOG = "values.npy", "broken.jsonl", "log.txt"
CHECKED = "checked.json"
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Settings:
    """What a process needs beside the artifact.

    Attributes:
        folder: of the competition.
        precision: as `restoring.restore` takes it.
        limit: when predicting has to be over, by `time.monotonic`, which all processes share.
        batch: rows at once, or None.
    """

    folder: str
    precision: str
    limit: Limit
    batch: int | None


def run(
    artifact: Artifact,
    settings: Settings,
    values: np.ndarray,
    processes: int,
    *,
    report: Report,
    show: Show,
) -> tuple[list[range], list[Checked]]:
    """Let several processes fill `values`, float32 (n, k), and return the rows that they did not,
    and their golden checks.

    Args:
        report: is called as blocks end; what it raises ends all processes.

    Raises:
        DiskError: if there is no room for the artifact beside the output.
    """
    with tempfile.TemporaryDirectory(prefix="shares-") as scratch, writing(Path(scratch)):
        _write_artifact(Path(scratch), artifact)
        bounds = [len(values) * number // processes for number in range(processes + 1)]
        jobs = []
        for number, (first, last) in enumerate(pairwise(bounds)):
            job = Path(scratch) / f"share-{number + 1}"
            job.mkdir()
            nothing = np.full((last - first, *values.shape[1:]), np.nan, np.float32)
            np.save(job / VALUES, nothing, allow_pickle=False)
            (job / JOB).write_text(json.dumps({**asdict(settings), "first": first, "last": last}))
            (job / BROKEN).touch()
            jobs.append((job, first, last, _start(job, number)))
        show(f"{len(values):,} rows go to {processes} processes, one a GPU")
        try:
            _wait(jobs, settings.limit.end, report)
        finally:
            for _, _, _, process in jobs:
                process.kill()
                process.wait()
        missing, checked = [], []
        for number, (job, first, last, process) in enumerate(jobs, 1):
            found = np.load(job / VALUES, allow_pickle=False)
            whole = np.isfinite(found).all(axis=tuple(range(1, found.ndim)))
            values[first:last][whole] = found[whole]
            missing += _runs(np.flatnonzero(~whole) + first)
            if (job / CHECKED).is_file():
                checked.append(Checked(**json.loads((job / CHECKED).read_text())))
            lines = (job / LOG).read_text(errors="replace").strip().splitlines()
            for line in lines:
                if line.startswith(("Time allows", "Out of memory", "float16")):
                    show(f"Process {number}: {line}")
            if code := process.returncode:
                show(
                    f"Warning: process {number} ended with"
                    f" {signal.Signals(-code).name if code < 0 else code}"
                    f" after {int(whole.sum()):,} of {last - first:,} rows: {lines[-1:]}"
                )
        return missing, checked


def read_job(job: Path) -> tuple[Artifact, Settings, range, np.ndarray]:
    """Return what `run` wrote for one process: the artifact, the settings, its rows, and the
    float32 (m, k) that it writes to.
    """
    given = json.loads((job / JOB).read_text())
    rows = range(given.pop("first"), given.pop("last"))
    with np.load(job.parent / WEIGHTS, allow_pickle=False) as arrays:
        weights = dict(arrays)
    with np.load(job.parent / GOLDEN, allow_pickle=False) as arrays:
        golden = dict(arrays)
    parts = json.loads((job.parent / JOB).read_text())
    config, encoding = configs.from_json(parts["config"]), parts["encoding"]
    if parts["own"]:
        configs.load(parts["own"])
    artifact = Artifact(
        parts["manifest"],
        config,
        Target.from_json(parts["target"]),
        own_rows.encoding_of(encoding, config.data),
        golden["prior"],
        weights,
        golden["inputs"],
        golden["outputs"],
    )
    values = np.load(job / VALUES, mmap_mode="r+", allow_pickle=False)
    settings = Settings(**{**given, "limit": Limit(**given["limit"])})
    return artifact, settings, rows, values


@contextmanager
def reporting(job: Path) -> Iterator[Report]:
    """Give a process the function with which it reports each block to the parent, a line each."""
    with (job / BROKEN).open("a", encoding="utf-8") as file:

        def report(broken: Mapping[str, str], done: int) -> None:
            file.write(json.dumps({"broken": dict(broken), "done": done}) + "\n")
            file.flush()

        yield report


def _write_artifact(folder: Path, artifact: Artifact) -> None:
    weights: Any = artifact.weights
    np.savez(folder / WEIGHTS, **weights)
    np.savez(
        folder / GOLDEN,
        prior=artifact.prior,
        inputs=artifact.golden_inputs,
        outputs=artifact.golden_outputs,
    )
    parts = {
        "manifest": dict(artifact.manifest),
        "config": artifact.config.to_json(),
        "target": artifact.target.to_json(),
        "encoding": None if artifact.encoding is None else artifact.encoding.to_json(),
        "own": own_code.elsewhere(artifact.config),
    }
    (folder / JOB).write_text(json.dumps(parts))


def _start(job: Path, number: int) -> subprocess.Popen[bytes]:
    """Start process `number`, which sees GPU `number` of those that this process may use."""
    root = str(Path(__file__).resolve().parents[2])
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    environment = {
        **os.environ,
        "KERAS_BACKEND": keras.backend.backend(),
        "CUDA_VISIBLE_DEVICES": seen[number % len(seen)] if seen else str(number),
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
    }
    with (job / LOG).open("wb") as log:
        words = [sys.executable, "-m", "pipeline.infer.gpu_worker", str(job)]
        return subprocess.Popen(  # noqa: S603 - our own words
            words,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _wait(
    jobs: list[tuple[Path, int, int, subprocess.Popen[bytes]]], until: float | None, report: Report
) -> None:
    """Wait until all have ended or the time is up, and pass on what they report."""
    read = {job: 0 for job, *_ in jobs}
    done = dict(read)
    end = math.inf if until is None else until
    running = True
    while running and time.monotonic() < end:
        # Asked before the lines are read, so that the last ones are not lost.
        running = any(process.poll() is None for *_, process in jobs)
        for job in read:
            with (job / BROKEN).open("rb") as file:
                file.seek(read[job])
                for line in file:
                    if line.endswith(b"\n"):
                        read[job] += len(line)
                        block: dict[str, Any] = json.loads(line)
                        done[job] = block["done"]
                        report(block["broken"], sum(done.values()))
        if running:
            time.sleep(POLL_SECONDS)


def _runs(rows: np.ndarray) -> list[range]:
    """Return consecutive rows as ranges.

    >>> _runs(np.array([3, 4, 5, 9]))
    [range(3, 6), range(9, 10)]
    """
    parts = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []
    return [range(int(part[0]), int(part[-1]) + 1) for part in parts]
