"""A project: what is relayed, and where its records are. A kernel: one of its notebooks."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deploy.errors import UsageError

# Kaggle's name of each machine that a training may ask for, by the runtime's name in `invoke plan`.
PAIR = "gpu-t4x2"
SHAPES = {"tpu-v5e-8": "TpuV5E8", PAIR: "NvidiaTeslaT4"}
REHEARSAL = "rehearsal.json"  # in the folder of a dry run: its score, and of what
DEADLINE_SECONDS = 24 * 3600.0  # up to seven hours of waiting for a TPU, and the session itself


@dataclass(frozen=True)
class Kernel:
    """A notebook of the chain: the task that pushes it, and the seconds that its session asks for
    at most.
    """

    task: str
    seconds: int


# By the name of its folder in kernels/, which is also the end of its address.
PREPARE, TRAIN, INFER, BENCH = "prepare-cpu", "train-tpu", "infer-gpu", "bench"
# A minute below Kaggle's cap: of a CPU 12 hours, of a TPU 9. Most competitions give a GPU 9 hours.
KERNELS = {
    PREPARE: Kernel("push-prepare", 12 * 3600 - 60),
    TRAIN: Kernel("push-train", 9 * 3600 - 60),
    INFER: Kernel("push-infer", 9 * 3600 - 60),
    BENCH: Kernel("push-bench", 9 * 3600 - 60),
}
WITH_RUNTIME = ("push-train", "push-bench", "relay")  # the tasks that take --for
NO_TASKS = ("push-bench", "check")  # reached by `python -m commands`


def with_letter(competition: str) -> str:
    """Return what addresses may begin with, for a competition's slug that begins with a digit.

    >>> with_letter("2026-Leaves")
    'k-2026-leaves'
    """
    return f"k-{competition.lower()}"


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
        sample: the competition's file that shows what a submission looks like; None: it has none.
        needs: owner/slug of each dataset that the training reads.
        models: of Kaggle that the training reads, by owner/model/framework/variation/version.
        first_stage: what `init_from` of the config says; "": nothing.
        decoding: equal texts for configs whose images are decoded alike; "": nothing to prepare.
        slug: what the addresses of the notebooks begin with; "": the competition's slug.
        infer_hours: that the competition gives a notebook with a GPU; None: as many as Kaggle.
        runtime: that trains, one of `SHAPES`; "": the one in its kernel-metadata.json.
        mounts: whether the notebooks mount the competition.
        options: of a benchmark, by the names that its command has for them.

    Raises:
        UsageError: if there is no such runtime.
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
    sample: str | None = "sample_submission.csv"
    needs: Sequence[str] = ()
    models: Sequence[str] = ()
    first_stage: str = ""
    decoding: str = ""
    slug: str = ""
    infer_hours: float | None = None
    runtime: str = ""
    mounts: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.runtime and self.runtime not in SHAPES:
            raise UsageError(
                f"--for {self.runtime[:40]}: expected one of {', '.join(SHAPES)}.\n"
                "Correct it, or leave it out, for the machine in kernels/train-tpu/"
                "kernel-metadata.json."
            )

    def trained_on(self, machine_shape: str) -> "Project":
        """Return the project with its training on the pair of T4 if a run of it was there."""
        return replace(self, runtime=PAIR if machine_shape == SHAPES[PAIR] else self.runtime)

    @property
    def machine_shape(self) -> str:
        """Kaggle's name of the machine that trains; "": the one in its kernel-metadata.json."""
        return SHAPES[self.runtime] if self.runtime else ""

    @property
    def name(self) -> str:
        """The config's name in the journal."""
        return Path(self.config).stem

    @property
    def ours(self) -> dict[str, str]:
        """What the journal's entries of this config have, since a file of the same name in another
        folder may be for another competition."""
        return {"config": self.name, "competition": self.competition}

    def command(self, task: str) -> str:
        """Return the command that runs a task with this config, quoted for a shell.

        Args:
            task: its name and options, as "pull --run ann/digits-train-tpu/3".
        """
        name = task.partition(" ")[0]
        program = "python -m commands" if name in NO_TASKS else "invoke"
        words = [f"{program} {task} --config {shlex.quote(self.config)}"]
        words += [f"--for {self.runtime}"] if self.runtime and name in WITH_RUNTIME else []
        if name == KERNELS[BENCH].task:
            words += [f"--{option} {shlex.quote(value)}" for option, value in self.options.items()]
        return " ".join(words)
