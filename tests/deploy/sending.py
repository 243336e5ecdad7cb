"""What is sent to Kaggle without a chain: steps run to their end, and runs that were pulled."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from deploy import output
from deploy.events import Ask, Event, Note, Steps, completed
from deploy.records import Records
from deploy.runs import Run
from tests.faults.recorded_session import write_artifact

T = TypeVar("T")
TRAINING = "rehearsal/digits-train-tpu"


def done(steps: Steps[T], shown: list[str], agree: Callable[[Ask], bool] = lambda ask: True) -> T:
    """Run steps to their end, note each line that they show, and return what they return."""

    def tell(event: Event) -> bool | None:
        if isinstance(event, Ask):
            shown.extend(event.lines)
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
