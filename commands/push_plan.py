"""The plan before a push: what cannot fit is stopped, and what would be regretted is said."""

import json
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from commands.console import ROOT, show
from commands.project import in_a_process
from commands.telling import Telling

TPU = "tpu-v5e-8"  # what train-tpu runs on, unless --for says another
TWICE = 0.5  # of the time that a TPU waits: it is input-bound by a factor of 2


def images_file(config: str) -> Path:
    """Return where `invoke plan` keeps what it counted of a config's folder."""
    return ROOT / "runs" / f"counted-{Path(config).stem}.json"


def keep_images(config: str, made: dict[str, Any]) -> None:
    """Keep how many images a plan was made for, for the plan before a push."""
    from formats import atomic_file

    text = json.dumps({"images": made["labelled"], "basis": made["images_basis"]}) + "\n"
    atomic_file.write(images_file(config), text.encode())


def hours_left() -> dict[str, float]:
    """Return the hours of quota that are left this week, by "TPU" and "GPU"; {} where nobody is
    logged in, or Kaggle does not say.
    """
    from commands.project import connect
    from deploy.errors import RelayError

    try:
        quota = connect(Telling()).quota(patience=0)
    except RelayError as error:
        show(f"The whole week's quota is taken as left: {str(error).splitlines()[0]}")
        return {}
    seconds = {"TPU": quota.tpu_seconds, "GPU": quota.gpu_seconds}
    return {name: value / 3600 for name, value in seconds.items() if value is not None}


class PushPlan:
    """The plan of a training, shown before a push asks whether to push.

    Args:
        config: as --config names it.
        runs: where pulled runs lie.
    """

    def __init__(self, config: str, runs: Path = ROOT / "runs") -> None:
        self._config, self._runs = config, runs
        self._made: dict[str, Any] | None = None

    def show(self, costs: Any) -> None:
        """Show the plan of what would be pushed, if it is a training.

        Args:
            costs: `deploy.preview.Preview`, or what a submission spends.

        Raises:
            UsageError: if the config cannot work, or a step does not fit, as the TPU's compiler
                says.
        """
        from deploy.preview import Preview
        from deploy.project import TRAIN

        if isinstance(costs, Preview) and costs.kernel == TRAIN:
            self._made = self._plan(costs.machine_shape)
            if self._made is not None:
                resumes = "resumes from" in costs.changes
                judge(self._made, costs.hours_left, self._config, resumes=resumes)

    def keep(self, run: str) -> None:
        """Keep the plan of a run that was pushed, for its report."""
        from deploy import output
        from deploy.runs import parse
        from formats import atomic_file
        from workbench.plan import plan_command

        if self._made is not None and self._made["images_basis"]:
            path = plan_command.beside(self._runs / output.folder_name(parse(run)))
            atomic_file.write(path, (json.dumps(self._made, indent=1) + "\n").encode())

    def _plan(self, shape: str) -> dict[str, Any] | None:
        """Return the plan, made by a process of its own, since a compiler cannot be interrupted;
        None, and a word about it, where it fails: a push needs none. Its `images_basis` is "" where
        nobody has counted the examples: what it then says of memory is that of the step alone.

        Raises:
            UsageError: if the config cannot work.
        """
        from deploy.errors import UsageError
        from deploy.project import SHAPES
        from pipeline import config as configs
        from workbench.plan import speed_records

        config = self._config
        if config.endswith(".py"):
            config = str(Path(config).resolve())
        runtime = next((name for name, held in SHAPES.items() if held == shape), TPU)
        words = ["plan", "--config", config, "--for", runtime, "--json"]
        runs = [str(one.folder) for one in speed_records.pulled(self._runs)]
        words += ["--probe", ",".join(runs)] if runs else []
        known: dict[str, Any] = {}
        if configs.load(config).data.labelled is None:
            known = {"images": 1, "basis": ""}
            with suppress(OSError, ValueError, LookupError, TypeError):  # it can be counted again
                held = json.loads(images_file(config).read_bytes())
                known = {"images": int(held["images"]), "basis": str(held["basis"])}
            words += ["--images", str(known["images"])]
        uncounted = known.get("basis") == ""  # of what it says, the fit alone is known
        if uncounted:
            show("Checking whether a step fits; a large network takes minutes")
        # What it says meanwhile is for people.
        done = in_a_process("workbench", *words, stderr=subprocess.PIPE if uncounted else None)
        made: dict[str, Any] = {}
        with suppress(ValueError):
            made = dict(json.loads((done.stdout.strip().splitlines() or ["{}"])[-1]))
        if "outlooks" not in made:
            why = made.get("error") or (done.stderr or "").strip()[-2000:] or "see above"
            if done.returncode == UsageError.exit_code:  # the config cannot work anywhere
                raise UsageError(why)
            show(f"Warning: there is no plan: {why}")
            return None
        return made | {"images_basis": known.get("basis", made["images_basis"])}


def judge(made: dict[str, Any], left: float | None, config: str, *, resumes: bool = False) -> None:
    """Show what a plan says of a training.

    Args:
        made: `workbench.plan.plan.Plan` as JSON, of that runtime alone; where its `images_basis` is
            "", nothing is said of times.
        left: hours of quota that are left this week; None: Kaggle does not say.
        config: as --config names it.
        resumes: a training that has found what fits.

    Raises:
        UsageError: if the TPU's compiler says that a step does not fit.
    """
    from deploy.errors import UsageError
    from workbench.budget import shown
    from workbench.plan.outlook import COMPILED

    (one,), noun = made["outlooks"], made["noun"]
    if one["total"] is None:
        if one["fits"] is False:
            raise UsageError(f"{one['why']}; nothing was pushed.\nCorrect it in the config.")
        show(f"plan        unknown: {one['why']}")
        return
    if made["images_basis"]:
        least, usual, most = (shown(one["total"][name]) for name in ("least", "usual", "most"))
        range_ = f" ({least} to {most})" if least != most else ""
        fold = f" in each of {made['folds']} folds" if made["folds"] > 1 else ""
        rows = f"{made['images']:,} {noun} to train on{fold} ({made['images_basis']})"
        sessions = (one["spent"] or {}).get("sessions") or 1
        done = f", in {sessions} sessions" if sessions > 1 else ""
        done += ", of which a part is done" if resumes else ""
        show(f"plan        {usual}{range_} in all{done}, with {rows}")
    else:
        count = shlex.join(["invoke", "plan", "--config", config])
        show(
            f"plan        how long it takes is not known: how many {noun} there are is not known"
            f" here\n            To count them: {count} --input DIR (or --images N)"
        )
    if one["fits"] is False and one["memory_basis"] == COMPILED and not resumes:
        raise UsageError(
            f"A step of {made['config']} does not fit into a TPU core's memory, as its compiler"
            f" says; nothing was pushed.\n{_edit(one, noun)}, in the config."
        )
    for warning in _warnings(one, left, noun):
        show(f"Warning: {warning}")


def _edit(one: dict[str, Any], noun: str) -> str:
    if one["micro_batch"]:
        return f"Set micro_batch={one['micro_batch']}, which changes no result"
    return f"Take {'smaller images or ' * (noun == 'images')}a smaller model"


def _warnings(one: dict[str, Any], left: float | None, noun: str) -> list[str]:
    from workbench.plan import cost
    from workbench.plan.accelerators import RUNTIMES

    found, hours, runtime = [], one["spent"]["hours"], RUNTIMES[one["runtime"]]
    if one["fits"] is False:
        core = "TPU core" if runtime.quota == "TPU" else "GPU"
        found.append(f"a step may not fit into a {core}'s memory (estimated). {_edit(one, noun)}")
    weeks = cost.of(runtime, 3600 * hours, left=left).weeks
    if weeks is not None and weeks > 1:
        quota = runtime.weekly_hours if left is None else left
        found.append(
            f"it may take {hours:.0f} hours, and {quota:.0f} are left this week:"
            f" {one['spent']['sessions']} sessions in {weeks} weeks, which relay and push-train"
            " --until-done push one after another"
        )
    if one["input"] and one["input"]["waits"] > TWICE:
        found.append(one["why"])
    return found
