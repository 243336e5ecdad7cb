"""Projects and their kernels. A kernel is a notebook that runs on Kaggle."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deploy.errors import UsageError

# Kaggle's names for the machines that can train, keyed by the runtime's name in `invoke plan`.
PAIR = "gpu-t4x2"
SHAPES = {"tpu-v5e-8": "TpuV5E8", PAIR: "NvidiaTeslaT4"}
REHEARSAL = "rehearsal.json"  # a dry run's result, in its folder
DEADLINE_SECONDS = 24 * 3600.0  # up to seven hours in the TPU queue, plus the session itself


@dataclass(frozen=True)
class Kernel:
    """A kernel's push task, and the maximum length of its sessions in seconds."""

    task: str
    seconds: int


# Keyed by the name of the folder in kernels/, which is also the last part of the URL.
PREPARE, TRAIN, INFER, BENCH = "prepare-cpu", "train-tpu", "infer-gpu", "bench"
# One minute below Kaggle's limits: 12 hours on CPUs, 9 on TPUs, and usually 9 on GPUs.
KERNELS = {
    PREPARE: Kernel("push-prepare", 12 * 3600 - 60),
    TRAIN: Kernel("push-train", 9 * 3600 - 60),
    INFER: Kernel("push-infer", 9 * 3600 - 60),
    BENCH: Kernel("push-bench", 9 * 3600 - 60),
}
WITH_RUNTIME = ("push-train", "push-bench", "relay")  # tasks that accept --for
NO_TASKS = ("push-bench", "check")  # commands of `python -m commands`


def with_letter(competition: str) -> str:
    """Return the first part of the URLs for a competition whose slug starts with a digit.

    >>> with_letter("2026-Leaves")
    'k-2026-leaves'
    """
    return f"k-{competition.lower()}"


@dataclass(frozen=True)
class Project:
    """A config with its competition and the folders that commands use.

    Attributes:
        root: path to the repository.
        config: name of a config in pipeline/configs/, or path to a .py file.
        handoff: "dataset" or "kernel", from the config.
        runs: folder for the journal and pulled runs.
        builds: folder for bundles.
        kernels: folder of the notebooks. Defaults to root/kernels.
        deadline_seconds: timeout for each wait for a run, a dataset or a score.
        queue_seconds: timeout for the wait for a machine, or 0 to use `deadline_seconds`.
        sample: the competition's sample submission, or None if there is none.
        needs: owner/slug of each dataset used for training.
        models: Kaggle models used for training, as owner/model/framework/variation/version.
        earlier: datasets from earlier runs that training reads, keyed by the config's field:
            `init_from` or `pseudo_labels.teacher`.
        decoding: text that is the same for all configs that decode images in the same way, or "" if
            there is nothing to prepare.
        slug: first part of the notebook URLs, or "" for the competition's slug.
        infer_hours: the competition's time limit for GPU notebooks, or None to use Kaggle's limit.
        runtime: machine for training, one of `SHAPES`, or "" for the one in kernel-metadata.json.
        mounts: whether the notebooks mount the competition.
        options: options of a benchmark, keyed by the names of its command-line options.
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
    earlier: Mapping[str, str] = field(default_factory=dict)
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
                "Correct it, or omit it to use the machine set in kernels/train-tpu/"
                "kernel-metadata.json."
            )

    def trained_on(self, machine_shape: str) -> "Project":
        """Return this project, but train on two T4 GPUs if `machine_shape` requests them."""
        return replace(self, runtime=PAIR if machine_shape == SHAPES[PAIR] else self.runtime)

    @property
    def machine_shape(self) -> str:
        return SHAPES[self.runtime] if self.runtime else ""

    @property
    def name(self) -> str:
        return Path(self.config).stem

    @property
    def ours(self) -> dict[str, str]:
        """Columns that identify this config's journal entries.

        A config with the same name in another folder may be for another competition.
        """
        return {"config": self.name, "competition": self.competition}

    def command(self, task: str) -> str:
        """Return the command that runs a task with this config, quoted for the shell.

        `task` includes options, such as "pull --run ann/digits-train-tpu/3".
        """
        name = task.partition(" ")[0]
        program = "python -m commands" if name in NO_TASKS else "invoke"
        words = [f"{program} {task} --config {shlex.quote(self.config)}"]
        words += [f"--for {self.runtime}"] if self.runtime and name in WITH_RUNTIME else []
        if name == KERNELS[BENCH].task:
            words += [f"--{option} {shlex.quote(value)}" for option, value in self.options.items()]
        return " ".join(words)
