"""A project: a config, its competition and its folders. A kernel: one of its notebooks."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deploy.errors import UsageError

# Kaggle's name of each machine that a training may use, by the runtime's name in `invoke plan`.
PAIR = "gpu-t4x2"
SHAPES = {"tpu-v5e-8": "TpuV5E8", PAIR: "NvidiaTeslaT4"}
REHEARSAL = "rehearsal.json"  # in the folder of a dry run: its result
DEADLINE_SECONDS = 24 * 3600.0  # up to seven hours in the TPU's queue, and the session itself


@dataclass(frozen=True)
class Kernel:
    """A notebook of the chain: the task that pushes it, and the longest session in seconds."""

    task: str
    seconds: int


# By the name of its folder in kernels/, which is also the end of its address.
PREPARE, TRAIN, INFER, BENCH = "prepare-cpu", "train-tpu", "infer-gpu", "bench"
# A minute below Kaggle's limits: 12 hours on a CPU, 9 on a TPU, and in most competitions on a GPU.
KERNELS = {
    PREPARE: Kernel("push-prepare", 12 * 3600 - 60),
    TRAIN: Kernel("push-train", 9 * 3600 - 60),
    INFER: Kernel("push-infer", 9 * 3600 - 60),
    BENCH: Kernel("push-bench", 9 * 3600 - 60),
}
WITH_RUNTIME = ("push-train", "push-bench", "relay")  # the tasks that take --for
NO_TASKS = ("push-bench", "check")  # commands of `python -m commands`


def with_letter(competition: str) -> str:
    """Return the start of the addresses for a competition whose slug begins with a digit.

    >>> with_letter("2026-Leaves")
    'k-2026-leaves'
    """
    return f"k-{competition.lower()}"


@dataclass(frozen=True)
class Project:
    """A config, its competition and its folders.

    Attributes:
        root: of the repository.
        config: a name in pipeline/configs/, or the path of a .py file.
        competition: the competition's slug in the config.
        handoff: "dataset" or "kernel", from the config.
        runs: the folder of the journal and of pulled runs.
        builds: the folder of bundles.
        kernels: the folder of the notebooks; by default root/kernels.
        deadline_seconds: of each wait for a run, a dataset or a score.
        queue_seconds: of the wait for a machine; 0 for `deadline_seconds`.
        sample: the competition's sample submission; None if it has none.
        needs: owner/slug of each dataset that the training reads.
        models: Kaggle's models that the training reads: owner/model/framework/variation/version.
        first_stage: `init_from` of the config.
        decoding: a text that is equal for configs whose images are decoded equally; "" if there is
            nothing to prepare.
        slug: the start of the notebooks' addresses; "" for the competition's slug.
        infer_hours: the competition's limit for a GPU notebook; None for Kaggle's.
        runtime: the machine that trains, one of `SHAPES`; "" for that in kernel-metadata.json.
        mounts: whether the notebooks mount the competition.
        options: of a benchmark, by the names of its command's options.

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
                "Correct it, or leave it out for the machine in kernels/train-tpu/"
                "kernel-metadata.json."
            )

    def trained_on(self, machine_shape: str) -> "Project":
        """Return the project with its training on two T4 if a run of it used them."""
        return replace(self, runtime=PAIR if machine_shape == SHAPES[PAIR] else self.runtime)

    @property
    def machine_shape(self) -> str:
        """Kaggle's name of the machine that trains; "" for that in kernel-metadata.json."""
        return SHAPES[self.runtime] if self.runtime else ""

    @property
    def name(self) -> str:
        """The config's name in the journal."""
        return Path(self.config).stem

    @property
    def ours(self) -> dict[str, str]:
        """The columns of this config's entries in the journal. A file of the same name in another
        folder may be for another competition."""
        return {"config": self.name, "competition": self.competition}

    def command(self, task: str) -> str:
        """Return the command that runs a task with this config, quoted for a shell.

        Args:
            task: its name and options, such as "pull --run ann/digits-train-tpu/3".
        """
        name = task.partition(" ")[0]
        program = "python -m commands" if name in NO_TASKS else "invoke"
        words = [f"{program} {task} --config {shlex.quote(self.config)}"]
        words += [f"--for {self.runtime}"] if self.runtime and name in WITH_RUNTIME else []
        if name == KERNELS[BENCH].task:
            words += [f"--{option} {shlex.quote(value)}" for option, value in self.options.items()]
        return " ".join(words)
