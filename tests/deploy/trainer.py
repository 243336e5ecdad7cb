"""Sessions of a training that is longer than one of them.

They really resume, train and save, without a notebook.
"""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from localkaggle.sessions.session import Outcome
from localkaggle.sessions.session_log import Log
from pipeline.errors import PipelineError
from pipeline.runtime import provenance
from pipeline.session import checkpoint, resume
from pipeline.storage import checksums

STEPS, SHARE = 12, 5  # of the whole run, and of one session
SECONDS = 60.0  # of quota, a session


def stepped(state: np.ndarray, step: int) -> np.ndarray:
    """Return the state after a step; it depends on all that came before."""
    return state * np.uint64(6364136223846793005) + np.uint64(step + 1)


def unbroken() -> bytes:
    """Return the weights that one long session ends with."""
    state = np.zeros(4, np.uint64)
    for step in range(STEPS):
        state = stepped(state, step)
    return state.tobytes()


class Script:
    """What the sessions do, by version.

    They train (the default), or do one of "killed", "killed at once", "lost", "fails", "no step",
    "unmounted", "complete", which trains to the end, and "waits", which trains once `released` is
    set.

    Attributes:
        sources: what each session found mounted.
    """

    def __init__(self, **does: str) -> None:
        self.does = {int(name.removeprefix("v")): what for name, what in does.items()}
        self.sources: dict[int, list[str]] = {}
        self.released = threading.Event()

    def __call__(
        self, folder: Path, notebook: str, *, inputs: Mapping[str, Path], log: Log, **rest: Any
    ) -> "Trainer":
        """Return the session of a version."""
        number = int(folder.name.rpartition("v")[2])
        self.sources[number] = sorted(
            place for place in inputs if not place.startswith("competitions")
        )
        does = self.does.get(number, "")
        return Trainer(folder, notebook, inputs, log, does, self.released)


class Trainer:
    """One session, made and used like `localkaggle.sessions.session.Session`."""

    def __init__(
        self,
        folder: Path,
        notebook: str,
        inputs: Mapping[str, Path],
        log: Log,
        does: str,
        released: threading.Event,
    ) -> None:
        self.working, self._inputs = folder / "working", folder / "input"
        self._does, self._log, self._released = does, log, released
        self.working.mkdir(parents=True)
        for place, source in inputs.items():
            (self._inputs / place).parent.mkdir(parents=True, exist_ok=True)
            (self._inputs / place).symlink_to(source)
        cells = ("".join(cell["source"]) for cell in json.loads(notebook)["cells"])
        text = next(text for text in cells if text.startswith("%%writefile bundle.json"))
        (self.working / "bundle.json").write_text(text.partition("\n")[2])
        (self.working / "__notebook__.ipynb").write_text('{"cells": []}')

    def run(self) -> Outcome:
        """Begin or resume, and end as the script says."""
        self._log.start()
        if self._does == "waits":
            self._released.wait(60)
        try:
            return self._run()
        except PipelineError as error:
            self._log.add("stderr", f"{type(error).__name__}: {error}\n")
            return Outcome("exception", "The notebook threw an exception", SECONDS)

    def _run(self) -> Outcome:
        origin = provenance.from_bundle(self.working / "bundle.json")
        if self._does == "unmounted":
            self._log.add("stderr", "PipelineError: Kaggle has not mounted the notebook.\n")
            return Outcome("exception", "The notebook threw an exception", SECONDS)
        if self._does == "fails":
            self._log.add("stderr", "ValueError: the batch does not fit\n")
            return Outcome("exception", "The notebook threw an exception", SECONDS)
        resume.restore(origin.expect, self._inputs, self.working, show=lambda line: None)
        found = checkpoint.latest(self.working / "checkpoints")
        step, state, run_id = 0, np.zeros(4, np.uint64), f"digits-{os.urandom(3).hex()}"
        if found is not None:
            step, state, run_id = found.step, found.arrays["state"], found.details["run_id"]
        shares = {"killed at once": 0, "no step": 0, "killed": 3, "complete": STEPS}
        share = shares.get(self._does, SHARE)
        for _ in range(min(share, STEPS - step)):
            state, step = stepped(state, step), step + 1
            checkpoint.save(
                self.working / "checkpoints", step, {"state": state}, {"run_id": run_id}
            )
            line = json.dumps({"step": step, "steps": STEPS})
            self._log.add("stdout", line + "\n")
            with (self.working / "progress.jsonl").open("a") as file:
                file.write(line + "\n")
        if self._does == "lost":
            for path in sorted(self.working.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
        if self._does in ("killed", "killed at once", "lost"):
            return Outcome("killed", "The session was killed (exit code 137)", SECONDS)
        if step == STEPS:
            self._write_artifact(state.tobytes(), run_id, origin.bundle_sha256 or "")
        provenance.seal(self.working, "complete" if step == STEPS else "partial")
        return Outcome("", "", SECONDS)

    def _write_artifact(self, weights: bytes, run_id: str, bundle_sha256: str) -> None:
        folder = self.working / "artifact"
        folder.mkdir()
        (folder / "weights.npz").write_bytes(weights)
        digest = checksums.sha256(folder / "weights.npz")
        files = {"weights.npz": {"sha256": digest, "size": len(weights)}}
        manifest = {
            "run_id": run_id,
            "weights_sha256": digest,
            "bundle_sha256": bundle_sha256,
            "files": files,
        }
        (folder / "manifest.json").write_bytes(checksums.sealed(manifest))

    def cancel(self) -> None:
        """Do nothing: it is over before anybody could."""

    kill = cancel
