"""The task that makes the template a competition's own."""

from typing import Any

from invoke.context import Context

from commands.console import ROOT, asking, limited, number, reported, show, task
from commands.project import JSON


@task(
    name="init",
    help={
        **JSON,
        "competition": "the last part of its address: leaf-diseases of"
        " kaggle.com/competitions/leaf-diseases",
        "config": "name of the new config; default: the competition's, with underscores for"
        " hyphens",
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
    """Make the template your competition's own.

    Example: invoke init --competition leaf-diseases
    """
    from deploy.setup import init

    names = {"config": config, "user": user}
    hours = number("infer-hours", infer_hours, 1 / 60, init.MOST_HOURS) if infer_hours else None
    return init.begin(ROOT, competition, **names, hours=hours, ask=asking(), show=show).values()
