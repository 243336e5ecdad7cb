"""The task that prepares a training's images without an accelerator."""

from typing import Any

from invoke.context import Context

from commands.console import confirmation, limited, reported, show, task
from commands.project import AGAIN, CONFIG, JSON, YES, connect, minutes, resolved_pushes, show_push


@task(
    help={
        **CONFIG,
        **JSON,
        **AGAIN,
        **YES,
        **minutes(120),
        "fresh": "start over, whatever an earlier preparation saved",
    }
)
@reported
@limited(120)  # what a killed session saved may have to be pulled first
def push_prepare(
    c: Context,
    config: str = "",
    again: bool = False,
    fresh: bool = False,
    yes: bool = False,
    minutes: str = "",
    json: bool = False,
) -> dict[str, Any]:
    """Decode the training images on Kaggle's CPU, once; costs no quota, and resumes.

    Example: invoke push-prepare --config leaves
    """
    from deploy import relay
    from pipeline import config as configs
    from pipeline.data import preparation

    preparation.require_images(configs.load(config))
    agree = confirmation(yes)
    ours = resolved_pushes(config, again=again or fresh).project
    run = relay.push(
        connect(), ours, relay.PREPARE, again=again, fresh=fresh, show=show, agree=agree
    )
    return show_push(run, ours.command("watch --kernel prepare-cpu"))
