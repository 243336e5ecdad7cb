"""A project: what is relayed, and where its records are."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.journal import Journal

PREPARE, TRAIN, INFER = "prepare-cpu", "train-tpu", "infer-gpu"
DEADLINE_SECONDS = 24 * 3600.0  # up to seven hours of waiting for a TPU, and the session itself
InWords = Callable[[Mapping[str, Any]], str]


def no_words(line: Mapping[str, Any]) -> str:
    """Say nothing about a line of progress."""
    return ""


@dataclass(frozen=True)
class Project:
    """What is relayed, and where its records are.

    Attributes:
        root: of the repository.
        config: a name in pipeline/configs/, or the path of a .py file.
        competition: its slug, as the config says.
        handoff: "dataset" or "kernel", as the config says.
        runs: the folder of the journal and of pulled runs.
        builds: the folder of bundles.
        kernels: the folder of the notebooks; by default root/kernels.
        deadline_seconds: for each wait: for a run, a dataset or a score.
        queue_seconds: for a run to get a machine; 0: as `deadline_seconds`.
        sample: the competition's file that shows what a submission looks like.
        needs: owner/slug of a dataset that the training reads; "": none.
        first_stage: what `init_from` of the config says; "": nothing.
        in_words: what a line of the run's progress says to a person.
        decoding: equal texts for configs whose images are decoded alike; "": nothing to prepare.
        infer_hours: that the competition gives a notebook with a GPU; None: as many as Kaggle.
    """

    root: Path
    config: str
    competition: str
    handoff: str
    runs: Path
    builds: Path
    kernels: Path | None = None
    deadline_seconds: float = DEADLINE_SECONDS
    queue_seconds: float = 0.0
    sample: str = "sample_submission.csv"
    needs: str = ""
    first_stage: str = ""
    in_words: InWords = no_words
    decoding: str = ""
    infer_hours: float | None = None

    @property
    def name(self) -> str:
        """The config's name in the journal."""
        return Path(self.config).stem

    def journal(self) -> Journal:
        """Return the journal in `runs`, for the Kaggle that this process speaks to."""
        return Journal(self.runs / "journal.sqlite")

    def command(self, task: str) -> str:
        """Return the command that runs a task with this config, quoted for a shell.

        Args:
            task: its name and options, as "pull --run ann/digits-train-tpu/3".
        """
        return f"invoke {task} --config {shlex.quote(self.config)}"
