"""The `init` and `doctor` tasks.

They choose a competition, check the setup and test how Kaggle behaves.
"""

from dataclasses import asdict

from commands import project
from commands.console import ROOT, Result, number, show, task
from commands.telling import Telling
from deploy.errors import Detached, Refused

AGAIN = (
    "Everything that --live created on Kaggle was deleted, unless a line above says otherwise. To"
    " start over, run the same command."
)


@task(
    10,
    name="init",
    competition="the competition's URL or the last part of it, such as leaf-diseases for"
    " kaggle.com/competitions/leaf-diseases",
    config="name of a config in pipeline/configs/ (default: this competition's config)",
    infer_hours="time limit, in hours, that a code competition sets for GPU notebooks (default: the"
    " config's)",
)
def init_project(competition: str = "", config: str = "", infer_hours: str = "") -> Result:
    """Check a competition on Kaggle, and make its config the default for all tasks.

    Example: invoke init --competition leaf-diseases
    """
    from deploy import init
    from workbench.inspect import config_file

    hours = number("infer-hours", infer_hours, 1 / 60, init.MOST_HOURS) if infer_hours else None
    stated = {name: init.Stated(*said) for name, said in config_file.stated(config).items()}
    given: Result = {"config": config, "hours": hours, "show": show}
    return init.begin(ROOT, competition, stated, config_file.put, **given)


@task(
    180,  # enough for three CPU sessions, including their time in the queue
    advice=AGAIN,
    minutes="time limit in minutes (default: 180)",
    live="test how Kaggle behaves by running small private notebooks there; they are deleted"
    " afterwards and use no quota",
)
def doctor(config: str = "", live: bool = False) -> Result:
    """Check that everything is ready for a relay, or test how Kaggle behaves (--live).

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
    show("To report these results, attach the following file to an issue. It contains no names or")
    show(f"keys: {result['file']}")
    show("To run a local Kaggle that behaves the same way:")
    show(f"python -m localkaggle serve --facts {result['file']}")
    return {**result, "exit_code": Refused.exit_code if result["left"] else 0}
