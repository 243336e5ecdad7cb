"""The task that looks whether all is in place, and at Kaggle itself."""

import shlex
from collections.abc import Mapping
from typing import Any

from invoke.context import Context

from commands.console import NOTHING_LOST, ROOT, agreement, limited, reported, show, task
from commands.project import CONFIG, JSON, connect, project

LIVE_MINUTES = 180  # five CPU sessions, a TPU and a GPU, with their queues
SPENDING = ("tpu", "gpu", "submit")


def _then(given: Mapping[str, Any]) -> str:
    """Return what to do if a command with these options has not ended."""
    from deploy import live

    return live.unfinished(_again(given)) if given.get("live") else NOTHING_LOST


def _again(given: Mapping[str, Any]) -> str:
    """Return the command that goes on with a smoke test that was begun with these options."""
    words = ["invoke", "doctor", "--live", "--config", str(given["config"])]
    return shlex.join([*words, *(f"--{name}" for name in (*SPENDING, "yes") if given.get(name))])


@task(
    help={
        **CONFIG,
        **JSON,
        "live": "look at Kaggle itself: run small private notebooks there, and delete them",
        "tpu": "with --live: also a few minutes of TPU quota",
        "gpu": "with --live: also a few minutes of GPU quota",
        "submit": "with --live: also one submission of the competition's sample",
        "yes": "spend without asking; for scripts",
        "minutes": f"timeout in minutes (default 10, with --live {LIVE_MINUTES}); rerun to resume",
    }
)
@reported
@limited(10, advice=_then, live=LIVE_MINUTES)
def doctor(
    c: Context,
    config: str = "",
    live: bool = False,
    tpu: bool = False,
    gpu: bool = False,
    submit: bool = False,
    yes: bool = False,
    minutes: str = "",
    json: bool = False,
) -> dict[str, Any]:
    """Check everything that a relay needs, and spend nothing; --live looks how Kaggle behaves.

    Example: invoke doctor --live
    """
    from deploy import check, doctor
    from deploy.errors import UsageError

    given = {"config": config, "tpu": tpu, "gpu": gpu, "submit": submit, "yes": yes}
    if live:
        return _live(given)
    alone = next((name for name in (*SPENDING, "yes") if given[name]), "")
    if alone:
        raise UsageError(
            f"--{alone} was given without --live; expected both, or none.\n"
            f"invoke doctor --live --{alone}"
        )
    rows = doctor.examine(ROOT, lambda: project(config), show=show)
    return {"rows": [row.to_json() for row in rows], "exit_code": check.exit_code(rows)}


def _live(given: Mapping[str, Any]) -> dict[str, Any]:
    from deploy import live

    wanted = [name for name in SPENDING if given[name]]
    ask = agreement(given["yes"] or not wanted)  # before anything is made: it takes half an hour
    ours = project(given["config"])
    result = live.smoke_test(
        connect(),
        ours.competition,
        ours.runs / "live",
        wanted=wanted,
        sample=ours.sample,
        agree=lambda step: ask(f"Spend {step.spends}?"),
        show=show,
        again=_again(given),
    )
    show(f"{'fact':20}{'assumed':12}seen")
    for line in [*result.rows, *result.notes]:
        show(str(line))
    for address in result.left:
        show(f"Still there, delete it by hand: {address}")
    show(f"All answers, without names, addresses and keys: {result.file}")
    show(f"A local Kaggle that behaves so: python -m localkaggle serve --facts {result.file}")
    return {**result.values(), "exit_code": live.LEFT if result.left else 0}
