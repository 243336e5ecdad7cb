"""Shares: the rows of a test set among several processes, each of which has one GPU.

Each is `python -m pipeline.inference.gpu_worker FOLDER`, a program of its own, since a notebook
cannot fork with a GPU in use. It gets what the parent has loaded and verified, as arrays and JSON,
and writes each block's predictions into a memory-mapped .npy file as soon as it has them. So
whatever ends a process, what it has finished is there; a row that is not is no number, and the
parent makes it, or leaves it as it was.
"""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline import config as configs
from pipeline.artifact import Artifact
from pipeline.data.labels import Target
from pipeline.data.tabular import Encoding
from pipeline.errors import writing

JOB, WEIGHTS, VALUES, BROKEN, LOG = (
    "job.json",
    "weights.npz",
    "values.npy",
    "broken.jsonl",
    "log.txt",
)
POLL_SECONDS = 0.2

Tell = Callable[[Mapping[str, str], int], None]
Show = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What a process needs beside the artifact.

    Attributes:
        folder: of the competition. precision: of the model. batch: rows at once, or None.
        until: by `time.monotonic`, which all processes of a machine share, when predicting has to
            be over, or None.
    """

    folder: str
    precision: str
    until: float | None
    batch: int | None


def run(
    artifact: Artifact,
    settings: Settings,
    values: np.ndarray,
    processes: int,
    *,
    tell: Tell,
    show: Show,
) -> list[range]:
    """Let that many processes fill `values`, float32 (n, k), and return the rows that none of them
    did.

    Args:
        tell: takes what cannot be read, by its id, and how many rows are done; what it raises ends
            all of them.

    Raises:
        DiskError: if there is no room for the artifact beside the output.
    """
    with tempfile.TemporaryDirectory(prefix="shares-") as scratch, writing(Path(scratch)):
        _hand(Path(scratch), artifact)
        bounds = [len(values) * number // processes for number in range(processes + 1)]
        jobs = []
        for number, (first, last) in enumerate(pairwise(bounds)):
            job = Path(scratch) / f"share-{number + 1}"
            job.mkdir()
            np.save(
                job / VALUES,
                np.full((last - first, values.shape[1]), np.nan, np.float32),
                allow_pickle=False,
            )
            (job / JOB).write_text(json.dumps({**asdict(settings), "first": first, "last": last}))
            (job / BROKEN).touch()
            jobs.append((job, first, last, _start(job, number)))
        show(f"{len(values):,} rows go to {processes} processes, one a GPU")
        try:
            _wait(jobs, settings.until, tell)
        finally:
            for _, _, _, process in jobs:
                process.kill()
                process.wait()
        missing = []
        for number, (job, first, last, process) in enumerate(jobs, 1):
            found = np.load(job / VALUES, allow_pickle=False)
            whole = np.isfinite(found).all(axis=1)
            values[first:last][whole] = found[whole]
            missing += _runs(np.flatnonzero(~whole) + first)
            for line in (job / LOG).read_text(errors="replace").splitlines():
                if line.startswith(("Time allows", "Out of memory")):
                    show(f"Process {number}: {line}")
            if process.returncode:
                said = (job / LOG).read_text(errors="replace").strip().splitlines()[-1:]
                ended = (
                    signal.Signals(-process.returncode).name
                    if process.returncode < 0
                    else process.returncode
                )
                show(
                    f"Warning: process {number} ended with {ended} after {int(whole.sum()):,} of {last - first:,} rows: {said}"
                )
        return missing


def taken(job: Path) -> tuple[Artifact, Settings, range, np.ndarray]:
    """Return what `run` left for one process: the artifact, the settings, its rows, and the float32
    (m, k) that it writes to.
    """
    given = json.loads((job / JOB).read_text())
    rows = range(given.pop("first"), given.pop("last"))
    with np.load(job.parent / WEIGHTS, allow_pickle=False) as arrays:
        own = {part: dict[str, np.ndarray]() for part in ("weights", "golden")}
        for name in arrays.files:
            part, _, rest = name.partition("/")
            own[part][rest] = arrays[name]
    said = json.loads((job.parent / JOB).read_text())
    config = configs.from_json(said["config"])
    artifact = Artifact(
        said["manifest"],
        config,
        Target.from_json(said["target"]),
        None if said["encoding"] is None else Encoding.from_json(said["encoding"], config.data),
        own["golden"]["prior"],
        own["weights"],
        own["golden"]["inputs"],
        own["golden"]["outputs"],
    )
    return (
        artifact,
        Settings(**given),
        rows,
        np.load(job / VALUES, mmap_mode="r+", allow_pickle=False),
    )


@contextmanager
def telling(job: Path) -> Iterator[Tell]:
    """Give what a process tells of its blocks to, one line each, whole or not there."""
    with (job / BROKEN).open("a", encoding="utf-8") as file:

        def tell(broken: Mapping[str, str], done: int) -> None:
            file.write(json.dumps({"broken": dict(broken), "done": done}) + "\n")
            file.flush()

        yield tell


def _hand(folder: Path, artifact: Artifact) -> None:
    golden = {
        "prior": artifact.prior,
        "inputs": artifact.golden_inputs,
        "outputs": artifact.golden_outputs,
    }
    arrays: Any = {f"weights/{name}": array for name, array in artifact.weights.items()}
    arrays |= {f"golden/{name}": array for name, array in golden.items()}
    with (folder / WEIGHTS).open("wb") as file:
        np.savez(file, **arrays)
    said = {
        "manifest": dict(artifact.manifest),
        "config": artifact.config.to_json(),
        "target": artifact.target.to_json(),
        "encoding": None if artifact.encoding is None else artifact.encoding.to_json(),
    }
    (folder / JOB).write_text(json.dumps(said))


def _start(job: Path, number: int) -> subprocess.Popen[bytes]:
    """Start the process of that number; it sees the GPU of that number, of those that this process
    may use, and no other.
    """
    root = str(Path(__file__).resolve().parents[2])
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    environment = {
        **os.environ,
        "KERAS_BACKEND": keras.backend.backend(),
        "CUDA_VISIBLE_DEVICES": seen[number % len(seen)] if seen else str(number),
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
    }
    with (job / LOG).open("wb") as log:
        words = [sys.executable, "-m", "pipeline.inference.gpu_worker", str(job)]
        return subprocess.Popen(  # noqa: S603 - our own words
            words,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _wait(
    jobs: list[tuple[Path, int, int, subprocess.Popen[bytes]]], until: float | None, tell: Tell
) -> None:
    """Wait until all have ended or the time is up, and pass on what they tell."""
    read, done = (
        dict.fromkeys((job for job, *_ in jobs), 0),
        dict.fromkeys((job for job, *_ in jobs), 0),
    )
    end = math.inf if until is None else until
    going = True
    while going and time.monotonic() < end:
        # Asked before the lines are read: what a process wrote last is not lost.
        going = any(process.poll() is None for *_, process in jobs)
        for job in read:
            with (job / BROKEN).open("rb") as file:
                file.seek(read[job])
                for line in file:
                    if line.endswith(b"\n"):
                        read[job] += len(line)
                        said: dict[str, Any] = json.loads(line)
                        done[job] = said["done"]
                        tell(said["broken"], sum(done.values()))
        if going:
            time.sleep(POLL_SECONDS)


def _runs(rows: np.ndarray) -> list[range]:
    """Return consecutive rows as ranges.

    >>> _runs(np.array([3, 4, 5, 9]))
    [range(3, 6), range(9, 10)]
    """
    parts = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []
    return [range(int(part[0]), int(part[-1]) + 1) for part in parts]
