"""The tasks that start a competition, and check whether everything is in place."""

from dataclasses import asdict

from commands import project
from commands.console import ROOT, Result, number, show, task


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
    from workbench.inspect import config_file

    hours = number("infer-hours", infer_hours, 1 / 60, init.MOST_HOURS) if infer_hours else None
    stated = {name: init.Stated(*said) for name, said in config_file.stated(config).items()}
    given: Result = {"config": config, "hours": hours, "show": show}
    return init.begin(ROOT, competition, stated, config_file.put, **given)


@task(10)
def doctor(config: str = "") -> Result:
    """Check everything that a relay needs, and spend nothing.

    Example: invoke doctor
    """
    from deploy import doctor

    rows = doctor.examine(ROOT, lambda: project.load(config), show=show)
    return {"rows": [asdict(row) for row in rows], "exit_code": doctor.exit_code(rows)}
