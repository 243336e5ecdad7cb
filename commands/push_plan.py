"""The plan that is shown before a training run is pushed.

A run whose training step does not fit in memory is rejected. A warning is printed if a run would
waste quota.
"""

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

TPU = "tpu-v5e-8"  # the default runtime of train-tpu
TWICE = 0.5  # fraction of time that a TPU waits if the host is half as fast as the TPU


class PushPlan:
    """The plan of a training run, which is shown before the user confirms the push.

    `agreed` asks the user before several gigabytes are downloaded. `runs` contains pulled runs.
    """

    def __init__(
        self, config: str, agreed: Callable[[str], bool], runs: Path = ROOT / "runs"
    ) -> None:
        self._config, self._agreed, self._runs = config, agreed, runs
        self._made: dict[str, Any] | None = None

    def show(self, costs: "Preview | None") -> None:
        """Show the plan before a training run is pushed.

        Other pushes are ignored, and so are submissions, for which `costs` is None.

        Raises:
            UsageError: if the config is invalid, if the TPU's compiler reports that a training step
                does not fit in memory, or if the inference image cannot build the model.
        """
        if costs is not None and costs.built.kernel == TRAIN:
            shape = costs.built.metadata["machine_shape"]
            if shape == SHAPES[TPU]:  # otherwise, training and inference use the same image
                code = costs.built.code.sha256
                other_image.require(self._config, code, self._runs, self._agreed)
            runtime = next((name for name, held in SHAPES.items() if held == shape), TPU)
            self._made = planned(self._config, runtime, self._runs)
            if self._made is not None:
                judge(self._made, costs.hours_left, resumes="step" in costs.built.expect)

    def keep(self, run: str) -> None:
        # The run's report shows the plan.
        from deploy import output
        from deploy.runs import parse
        from workbench.plan import plan_command

        if self._made is not None and self._made["images_basis"]:
            path = plan_command.beside(self._runs / output.folder_name(parse(run)))
            atomic_file.write(path, (json.dumps(self._made, indent=1) + "\n").encode())


def planned(
    config: str, runtime: str, runs: Path = ROOT / "runs", seconds: float | None = None
) -> dict[str, Any] | None:
    """Return the plan of a training run. If it cannot be made, print a warning and return None.

    The plan is made in a separate process, because compilation cannot be interrupted. If the config
    does not set the number of examples, the plan only predicts whether a training step fits in
    memory. Its `images_basis` is then "". An invalid config raises `UsageError`.
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
        show("Checking whether a training step fits in memory. This can take several minutes.")
    quiet = uncounted or seconds is not None
    made = in_a_process("workbench", *words, quiet=quiet, seconds=seconds)
    if made.get("exit_code") == UsageError.exit_code:  # the config is invalid
        raise UsageError(made["error"])
    if "error" in made:
        show(f"Warning: could not make a plan: {made['error']}")
        return None
    return made | {"images_basis": "" if uncounted else made["images_basis"]}


def judge(made: dict[str, Any], left: float | None, *, resumes: bool = False) -> None:
    """Show the plan of a training run, and warn the user if it would waste quota.

    Args:
        made: a `workbench.plan.plan.Plan` for a single runtime, as JSON. Times are not shown if
            `images_basis` is "".
        left: hours left of this week's quota, or None if unknown.
        resumes: whether the run resumes, so that an earlier session has shown that a step fits in
            memory.

    Raises:
        UsageError: if the TPU's compiler reports that a training step does not fit in memory.
    """
    from workbench.budget import shown
    from workbench.plan import outlook, plan, plan_table
    from workbench.plan.accelerators import RUNTIMES, cost

    one, noun = plan.from_json(made).outlooks[0], made["noun"]
    refused = one.total is None or (one.memory_basis == outlook.COMPILED and not resumes)
    if one.fits is False and refused:
        why = f"{'a step does not fit in memory: ' * (one.total is not None)}{one.why}"
        raise UsageError(f"{made['config']}: {why}; nothing was pushed.\nChange the config.")
    if one.total is None:
        show(f"plan        unknown: {one.why}")
        return
    if made["images_basis"]:
        fold = f" in each of {made['folds']} folds" if made["folds"] > 1 else ""
        rows = f"{made['images']:,} {noun} to train on{fold} ({made['images_basis']})"
        sessions = (one.spent and one.spent.sessions) or 1
        done = f", in {sessions} sessions" * (sessions > 1)
        done += ", part of which is done" if resumes else ""
        done += ", or less because images start small (progressive)" * bool(made["note"])
        show(f"plan        {plan_table.interval(one.total, shown)} in all{done}, with {rows}")
    else:
        show(
            f"plan        The time cannot be predicted because the config has no number of {noun}."
            " Set data.labelled to the number that `invoke plan --input DIR` reports."
        )
    if one.why and (one.fits is False or (one.input and one.input.waits > TWICE)):
        show(f"Warning: {'a step may not fit: ' * (one.fits is False)}{one.why}")
    runtime, spent = RUNTIMES[one.runtime], one.spent
    if spent and (weeks := cost(runtime, 3600 * spent.hours, left=left).weeks or 0) > 1:
        hours = runtime.weekly_hours if left is None else left
        show(
            f"Warning: this may take {spent.hours:.0f} hours, but only {hours:.0f} are left this"
            f" week. The run needs {spent.sessions} sessions in {weeks} weeks. The tasks relay and"
            " push-train --until-done push all sessions one after another."
        )
