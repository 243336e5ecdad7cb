"""The plan before a push: it stops what cannot fit, and warns of what would be regretted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands import other_image
from commands.console import ROOT, show
from commands.project import in_a_process
from deploy.errors import UsageError
from deploy.project import SHAPES, TRAIN
from formats import atomic_file

if TYPE_CHECKING:
    from deploy.preview import Preview

TPU = "tpu-v5e-8"  # the runtime of train-tpu, without --for
TWICE = 0.5  # the share of time that a TPU waits if it is input-bound by a factor of 2


class PushPlan:
    """The plan of a training, shown before a push asks for agreement.

    Args:
        config: as --config names it.
        agreed: asks a person before gigabytes are downloaded (`console.agreement`).
        runs: the folder of pulled runs.
    """

    def __init__(
        self, config: str, agreed: Callable[[str], bool], runs: Path = ROOT / "runs"
    ) -> None:
        self._config, self._agreed, self._runs = config, agreed, runs
        self._made: dict[str, Any] | None = None

    def show(self, costs: "Preview | None") -> None:
        """Show the plan of a training; nothing for other pushes.

        Args:
            costs: of the push; None: it is a submission.

        Raises:
            UsageError: if the config cannot work, a step does not fit according to the TPU's
                compiler, or the image for inference cannot build the model.
        """
        if costs is not None and costs.built.kernel == TRAIN:
            shape = costs.built.metadata["machine_shape"]
            if shape == SHAPES[TPU]:  # otherwise the same image trains and infers
                code = costs.built.code.sha256
                other_image.require(self._config, code, self._runs, self._agreed)
            runtime = next((name for name, held in SHAPES.items() if held == shape), TPU)
            self._made = planned(self._config, runtime, self._runs)
            if self._made is not None:
                judge(self._made, costs.hours_left, resumes="step" in costs.built.expect)

    def keep(self, run: str) -> None:
        """Keep the plan of a pushed run for its report."""
        from deploy import output
        from deploy.runs import parse
        from workbench.plan import plan_command

        if self._made is not None and self._made["images_basis"]:
            path = plan_command.beside(self._runs / output.folder_name(parse(run)))
            atomic_file.write(path, (json.dumps(self._made, indent=1) + "\n").encode())


def planned(
    config: str, runtime: str, runs: Path = ROOT / "runs", seconds: float | None = None
) -> dict[str, Any] | None:
    """Return the plan of a training, or show a warning and return None if there is none.

    Another process makes it, since a compiler cannot be interrupted. If the config does not state
    the number of examples, `images_basis` is "" and only the fit is known.

    Args:
        config: as --config names it.
        runtime: of the training.
        runs: the folder of pulled runs.
        seconds: time limit; None: no limit.

    Raises:
        UsageError: if the config cannot work.
    """
    from pipeline import config as configs
    from workbench.plan import probe

    config = str(Path(config).resolve()) if config.endswith(".py") else config
    words = ["plan", "--config", config, "--for", runtime]
    found = [str(one.folder) for one in probe.pulled(runs)]
    words += ["--probe", ",".join(found)] if found else []
    uncounted = configs.load(config).data.labelled is None
    if uncounted:
        words += ["--images", "1"]
        show("Checking whether a step fits; a large network takes minutes")
    quiet = uncounted or seconds is not None
    made = in_a_process("workbench", *words, quiet=quiet, seconds=seconds)
    if made.get("exit_code") == UsageError.exit_code:  # the config cannot work anywhere
        raise UsageError(made["error"])
    if "error" in made:
        show(f"Warning: there is no plan: {made['error']}")
        return None
    return made | {"images_basis": "" if uncounted else made["images_basis"]}


def judge(made: dict[str, Any], left: float | None, *, resumes: bool = False) -> None:
    """Show the plan of a training.

    Args:
        made: `workbench.plan.plan.Plan` as JSON, of one runtime; without `images_basis` no times
            are shown.
        left: hours of quota left this week; None: unknown.
        resumes: whether the training resumes, so that it has found what fits.

    Raises:
        UsageError: if a step does not fit according to the TPU's compiler.
    """
    from workbench.budget import shown
    from workbench.plan import outlook, plan, plan_table
    from workbench.plan.accelerators import RUNTIMES, cost

    one, noun = plan.from_json(made).outlooks[0], made["noun"]
    refused = one.total is None or (one.memory_basis == outlook.COMPILED and not resumes)
    if one.fits is False and refused:
        why = f"{'a step does not fit into memory: ' * (one.total is not None)}{one.why}"
        raise UsageError(f"{made['config']}: {why}; nothing was pushed.\nCorrect it in the config.")
    if one.total is None:
        show(f"plan        unknown: {one.why}")
        return
    if made["images_basis"]:
        fold = f" in each of {made['folds']} folds" if made["folds"] > 1 else ""
        rows = f"{made['images']:,} {noun} to train on{fold} ({made['images_basis']})"
        sessions = (one.spent and one.spent.sessions) or 1
        done = f", in {sessions} sessions" * (sessions > 1)
        done += ", of which a part is done" if resumes else ""
        done += ", or less, since images grow (progressive)" * bool(made["note"])
        show(f"plan        {plan_table.interval(one.total, shown)} in all{done}, with {rows}")
    else:
        show(
            f"plan        its time is unknown: the config does not state the number of {noun}. Set"
            " data.labelled to the number that `invoke plan --input DIR` counts"
        )
    if one.why and (one.fits is False or (one.input and one.input.waits > TWICE)):
        show(f"Warning: {'a step may not fit: ' * (one.fits is False)}{one.why}")
    runtime, spent = RUNTIMES[one.runtime], one.spent
    if spent and (weeks := cost(runtime, 3600 * spent.hours, left=left).weeks or 0) > 1:
        hours = runtime.weekly_hours if left is None else left
        show(
            f"Warning: it may take {spent.hours:.0f} hours, and {hours:.0f} are left this week:"
            f" {spent.sessions} sessions in {weeks} weeks, which relay and push-train --until-done"
            " push one after another"
        )
