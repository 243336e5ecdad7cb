"""Sessions of a long training. They really resume, train and save, without a notebook."""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from localkaggle.sessions.session import Outcome
from pipeline.errors import PipelineError
from pipeline.runtime import mounts, provenance
from pipeline.train import checkpoint
from tests.faults.recorded_session import write_artifact
from tests.localkaggle.pushed_notebooks import Scripted

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


KILLED = Outcome("killed", "The session was killed (exit code 137)", SECONDS)
SHARES = {"no step": 0, "killed": 3, "complete": STEPS}


class Script:
    """What the sessions do, by version.

    They train (the default), or do one of "killed", "fails", "no step", "unmounted", "complete",
    which trains to the end, and "waits", which trains once `released` is set.

    Attributes:
        sources: what each session found mounted.
    """

    def __init__(self, **does: str) -> None:
        self.does = {int(name.removeprefix("v")): what for name, what in does.items()}
        self.sources: dict[int, list[str]] = {}
        self.released = threading.Event()

    def __call__(
        self, folder: Path, notebook: str, *, inputs: Mapping[str, Path], **rest: Any
    ) -> Scripted:
        """Return the session of a version."""
        self.sources[_version(folder)] = sorted(
            place for place in inputs if not place.startswith("competitions")
        )
        return Scripted(self._train, folder, notebook, inputs=inputs, **rest)

    def _train(self, session: Scripted) -> Outcome:
        """Begin or resume, and end as the script says."""
        session.log.start()
        session.seconds = SECONDS
        does = self.does.get(_version(session.working.parent), "")
        if does == "waits":
            self.released.wait(60)
        try:
            return _trained(session, does)
        except PipelineError as error:
            session.log.add("stderr", f"{type(error).__name__}: {error}\n")
            return Outcome("exception", "The notebook threw an exception", SECONDS)


def _version(folder: Path) -> int:
    return int(folder.name.rpartition("v")[2])


def _trained(session: Scripted, does: str) -> Outcome:
    working, mounted = session.working, session.working.parent / "input"
    for place, source in session.inputs.items():
        (mounted / place).parent.mkdir(parents=True, exist_ok=True)
        (mounted / place).symlink_to(source)
    cells = ("".join(cell["source"]) for cell in json.loads(session.notebook)["cells"])
    text = next(text for text in cells if text.startswith("%%writefile bundle.json"))
    (working / "bundle.json").write_text(text.partition("\n")[2])
    (working / "__notebook__.ipynb").write_text('{"cells": []}')
    origin = provenance.from_bundle(working / "bundle.json")
    unmounted = mounted / "unmounted" if does == "unmounted" else mounted
    mounts.competition(unmounted, "digits", "sample_submission.csv")
    if does == "fails":
        session.log.add("stderr", "ValueError: the batch does not fit\n")
        return Outcome("exception", "The notebook threw an exception", SECONDS)
    checkpoint.restore(origin.expect, mounted, working, show=lambda line: None)
    found = checkpoint.latest(working / "checkpoints")
    step, state, run_id = 0, np.zeros(4, np.uint64), f"digits-{os.urandom(3).hex()}"
    if found is not None:
        step, state, run_id = found.step, found.arrays["state"], found.details["run_id"]
    for _ in range(min(SHARES.get(does, SHARE), STEPS - step)):
        state, step = stepped(state, step), step + 1
        checkpoint.save(working / "checkpoints", step, {"state": state}, {"run_id": run_id})
        line = json.dumps({"step": step, "steps": STEPS}) + "\n"
        session.log.add("stdout", line)
        with (working / "progress.jsonl").open("a") as file:
            file.write(line)
    if does == "killed":
        return KILLED
    if step == STEPS:
        weights = {"weights.npz": state.tobytes()}
        write_artifact(working / "artifact", origin.bundle_sha256 or "", weights, run_id)
    provenance.seal(working, "complete" if step == STEPS else "partial")
    return Outcome("", "", SECONDS)
