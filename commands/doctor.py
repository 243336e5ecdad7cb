"""The tasks that begin a competition, and look whether all is in place, and at Kaggle itself."""

from dataclasses import asdict

from commands import project
from commands.console import ROOT, Result, agreement, number, show, task
from commands.telling import Telling
from deploy.errors import Detached, Refused, UsageError

AGAIN = (
    "Nothing is lost; what --live made on Kaggle is deleted, unless a line above says otherwise. To"
    " begin again, run the same command."
)


@task(
    10,
    name="init",
    competition="its address, or the last part of that: leaf-diseases of"
    " kaggle.com/competitions/leaf-diseases",
    config="name of a config in pipeline/configs/; default: the one that is for the competition",
    infer_hours="hours that a code competition gives a notebook with a GPU; default: the config's",
)
def init_project(competition: str = "", config: str = "", infer_hours: str = "") -> Result:
    """Check a competition on Kaggle, and make its config the default of all tasks.

    Example: invoke init --competition leaf-diseases
    """
    from deploy import init
    from workbench.inspect import config_edits

    hours = number("infer-hours", infer_hours, 1 / 60, init.MOST_HOURS) if infer_hours else None
    stated = {name: init.Stated(*said) for name, said in config_edits.stated(config).items()}
    given: Result = {"config": config, "hours": hours, "show": show}
    return init.begin(ROOT, competition, stated, config_edits.put, **given)


@task(
    180,  # five CPU sessions, a TPU and a GPU, with their queues
    advice=AGAIN,
    minutes="timeout in minutes (default 180)",
    live="look at Kaggle itself: run small private notebooks there, and delete them",
    tpu="with --live: also a few minutes of TPU quota",
    gpu="with --live: also a few minutes of GPU quota",
    yes="spend without asking; for scripts",
)
def doctor(
    config: str = "",
    live: bool = False,
    tpu: bool = False,
    gpu: bool = False,
    yes: bool = False,
) -> Result:
    """Check everything that a relay needs, and spend nothing; --live looks how Kaggle behaves.

    Example: invoke doctor --live
    """
    from deploy import doctor
    from deploy.probe import Probe

    wanted = [name for name, does in {"tpu": tpu, "gpu": gpu}.items() if does]
    if not live:
        if wanted or yes:
            name = wanted[0] if wanted else "yes"
            raise UsageError(
                f"--{name} was given without --live; expected both.\ninvoke doctor --live --{name}"
            )
        rows = doctor.examine(ROOT, lambda: project.load(config), show=show)
        return {"rows": [asdict(row) for row in rows], "exit_code": doctor.exit_code(rows)}
    ask = agreement(yes or not wanted)  # before anything is made: it takes half an hour
    try:
        ours = project.load(config)
        probe = Probe(lambda: Telling().kaggle, ours.competition, show)
        result = probe.run(ours.runs / "live", wanted, lambda spends: ask(f"Spend {spends}?"))
    except KeyboardInterrupt:
        raise Detached(f"Interrupted. {AGAIN}") from None
    show(f"The facts, without names and keys, to attach to an issue: {result['file']}")
    show(f"A local Kaggle that behaves so: python -m localkaggle serve --facts {result['file']}")
    return {**result, "exit_code": Refused.exit_code if result["left"] else 0}
