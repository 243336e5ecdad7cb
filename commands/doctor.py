"""The tasks that choose a competition, check the setup, and examine Kaggle itself."""

from dataclasses import asdict

from commands import project
from commands.console import ROOT, Result, number, show, task
from commands.telling import Telling
from deploy.errors import Detached, Refused

AGAIN = (
    "What --live made on Kaggle is deleted, unless a line above says otherwise. To start over, run"
    " the same command."
)


@task(
    10,
    name="init",
    competition="its address, or the last part: leaf-diseases for"
    " kaggle.com/competitions/leaf-diseases",
    config="name of a config in pipeline/configs/; default: the one for this competition",
    infer_hours="hours that a code competition allows a GPU notebook; default: those of the config",
)
def init_project(competition: str = "", config: str = "", infer_hours: str = "") -> Result:
    """Check a competition on Kaggle, and make its config the default of all tasks.

    Example: invoke init --competition leaf-diseases
    """
    from deploy import init
    from workbench.inspect import config_file

    hours = number("infer-hours", infer_hours, 1 / 60, init.MOST_HOURS) if infer_hours else None
    stated = {name: init.Stated(*said) for name, said in config_file.stated(config).items()}
    given: Result = {"config": config, "hours": hours, "show": show}
    return init.begin(ROOT, competition, stated, config_file.put, **given)


@task(
    180,  # three CPU sessions, with their queues
    advice=AGAIN,
    minutes="timeout in minutes (default 180)",
    live="examine Kaggle itself: run small private notebooks there, and delete them; no quota",
)
def doctor(config: str = "", live: bool = False) -> Result:
    """Check everything that a relay needs, and spend nothing; --live tests how Kaggle behaves.

    Example: invoke doctor --live
    """
    from deploy import doctor
    from deploy.probe import Probe

    if not live:
        rows = doctor.examine(ROOT, lambda: project.load(config), show=show)
        return {"rows": [asdict(row) for row in rows], "exit_code": doctor.exit_code(rows)}
    try:
        ours = project.load(config)
        result = Probe(lambda: Telling().kaggle, ours.competition, show).run(ours.runs / "live")
    except KeyboardInterrupt:
        raise Detached(f"Interrupted. {AGAIN}") from None
    show(f"To report the facts, attach this file (no names, no keys) to an issue: {result['file']}")
    show(
        f"For a local Kaggle that behaves so: python -m localkaggle serve --facts {result['file']}"
    )
    return {**result, "exit_code": Refused.exit_code if result["left"] else 0}
