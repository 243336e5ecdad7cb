"""What is sent to Kaggle without a chain: steps run to their end, and runs that were pulled."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from deploy import output
from deploy.client import Kaggle
from deploy.events import Ask, Event, Note, Steps, completed
from deploy.journal import PUSH, Made, Request
from deploy.project import INFER
from deploy.records import Records
from deploy.runs import Run
from localkaggle.server import LocalKaggle
from tests.deploy.small import metadata
from tests.faults.recorded_session import write_artifact

T = TypeVar("T")
TRAINING = "rehearsal/digits-train-tpu"
ARTIFACT = "rehearsal/digits-artifact"


def done(steps: Steps[T], shown: list[str], agree: Callable[[Ask], bool] = lambda ask: True) -> T:
    """Run steps to their end, note each line that they show, and return what they return."""

    def tell(event: Event) -> bool | None:
        if isinstance(event, Ask):
            shown.extend(event.costs.lines())
            return agree(event)
        assert isinstance(event, Note)
        shown.append(event.text)
        return None

    return completed(steps, tell)


def trained(
    records: Records, version: int = 1, weights: bytes = b"weights", by: str = ""
) -> tuple[Run, Path]:
    """Return a training, and a folder with what a pull of it would have left.

    Args:
        by: the bundle that wrote the folder, if not the run's.
    """
    run = Run(TRAINING, version, "", f"b{version}")
    folder = records.project.runs / output.folder_name(run)
    write_artifact(folder / output.ARTIFACT, by or run.bundle_sha256, {"weights.npz": weights})
    (folder / output.BUNDLE).write_text(json.dumps({"bundle_sha256": by or run.bundle_sha256}))
    return run, folder


def inferred(local: LocalKaggle, kaggle: Kaggle, records: Records) -> tuple[Run, Path]:
    """Push an inference, which runs to its end; return it, and its output as a pull leaves it."""
    sha256 = hashlib.sha256(b"bundle").hexdigest()
    cell = f'%%writefile bundle.json\n{{"kernel": "{INFER}", "bundle_sha256": "{sha256}"}}'
    notebook: dict[str, Any] = {"cells": [{"cell_type": "code", "source": cell}]}
    handle = f"{kaggle.username}/digits-{INFER}"
    described = {**metadata(INFER), "id": handle, "title": "Digits Infer Gpu"}
    described["competition_sources"] = [records.project.competition]
    saved = kaggle.save_kernel(described, json.dumps(notebook), timeout_seconds=3600)
    version = local.kernels.version(handle, saved.version)
    assert version is not None and version.done.wait(60)
    run = Run(handle, saved.version, "", sha256)
    folder = records.project.runs / output.folder_name(run)
    shutil.copytree(version.working, folder)
    pushed = Request(PUSH, records.project.name, handle, "digits", kernel=INFER)
    pushed = records.journal.intend(pushed)
    records.journal.record(pushed, Made(run.version, {"bundle_sha256": sha256}))
    return run, folder
