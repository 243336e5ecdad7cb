"""The task that begins a competition."""

from typing import Any

from invoke.context import Context

from commands.console import ROOT, asking, limited, number, reported, show, task
from commands.project import JSON


@task(
    name="init",
    help={
        **JSON,
        "competition": "its address, or the last part of that: leaf-diseases of"
        " kaggle.com/competitions/leaf-diseases",
        "config": "name of a config in pipeline/configs/; default: the one that is for the"
        " competition",
        "user": "your name on Kaggle, if there are no credentials that say it",
        "infer-hours": "hours that a code competition gives a notebook with a GPU; default: asked"
        " for on a terminal",
    },
)
@reported
@limited(10)
def init_project(
    c: Context,
    competition: str = "",
    config: str = "",
    user: str = "",
    infer_hours: str = "",
    json: bool = False,
) -> dict[str, Any]:
    """Check a competition on Kaggle, and make its config the default of all tasks.

    Example: invoke init --competition leaf-diseases
    """
    from deploy import init
    from workbench.inspect import config_edits

    hours = number("infer-hours", infer_hours, 1 / 60, init.MOST_HOURS) if infer_hours else None
    configs = {name: init.Stated(*said) for name, said in config_edits.stated(config).items()}
    return init.begin(
        ROOT,
        competition,
        configs,
        config_edits.put,
        config=config,
        user=user,
        hours=hours,
        ask=asking(),
        show=show,
    ).values()
