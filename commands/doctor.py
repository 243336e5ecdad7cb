"""The tasks that begin a competition, and look whether all is in place, and at Kaggle itself."""

import shlex
from dataclasses import asdict

from commands.console import (
    NOTHING_LOST,
    ROOT,
    Limit,
    Result,
    agreement,
    asking,
    limit,
    number,
    show,
    task,
)
from commands.project import connect, project
from commands.telling import Telling

LIVE_MINUTES = 180  # five CPU sessions, a TPU and a GPU, with their queues
SPENDING = ("tpu", "gpu", "submit")


@task(
    limit(10),
    name="init",
    competition="its address, or the last part of that: leaf-diseases of"
    " kaggle.com/competitions/leaf-diseases",
    config="name of a config in pipeline/configs/; default: the one that is for the competition",
    user="your name on Kaggle, if there are no credentials that say it",
    infer_hours="hours that a code competition gives a notebook with a GPU; default: asked for on a"
    " terminal",
)
def init_project(
    competition: str = "", config: str = "", user: str = "", infer_hours: str = ""
) -> Result:
    """Check a competition on Kaggle, and make its config the default of all tasks.

    Example: invoke init --competition leaf-diseases
    """
    from deploy import init
    from workbench.inspect import config_edits

    hours = number("infer-hours", infer_hours, 1 / 60, init.MOST_HOURS) if infer_hours else asking()
    return init.begin(
        ROOT,
        competition,
        {name: init.Stated(*said) for name, said in config_edits.stated(config).items()},
        config_edits.put,
        config=config,
        user=user,
        hours=hours,
        show=show,
    )


def _then(given: Result) -> str:
    """Return what to do if a command with these options has not ended."""
    if not given.get("live"):
        return NOTHING_LOST
    words = ["invoke", "doctor", "--live", "--config", str(given["config"])]
    again = shlex.join([*words, *(f"--{name}" for name in (*SPENDING, "yes") if given.get(name))])
    return (
        "The probe is unfinished. What it made on Kaggle is deleted, unless a line above says"
        f" otherwise. To begin another:\n{again}"
    )


@task(
    Limit(
        10,
        {"live": LIVE_MINUTES},
        _then,
        f"timeout in minutes (default 10, with --live {LIVE_MINUTES})",
    ),
    live="look at Kaggle itself: run small private notebooks there, and delete them",
    tpu="with --live: also a few minutes of TPU quota",
    gpu="with --live: also a few minutes of GPU quota",
    submit="with --live: also one submission of the competition's sample",
    yes="spend without asking; for scripts",
)
def doctor(
    config: str = "",
    live: bool = False,
    tpu: bool = False,
    gpu: bool = False,
    submit: bool = False,
    yes: bool = False,
) -> Result:
    """Check everything that a relay needs, and spend nothing; --live looks how Kaggle behaves.

    Example: invoke doctor --live
    """
    from deploy import doctor
    from deploy.errors import Detached, UsageError

    given = {"live": live, "config": config, "tpu": tpu, "gpu": gpu, "submit": submit, "yes": yes}
    if live:
        try:
            return _live(given)
        except KeyboardInterrupt:
            raise Detached(f"Interrupted. {_then(given)}") from None
    alone = next((name for name in (*SPENDING, "yes") if given[name]), "")
    if alone:
        raise UsageError(
            f"--{alone} was given without --live; expected both, or none.\n"
            f"invoke doctor --live --{alone}"
        )
    rows = doctor.examine(ROOT, lambda: project(config), show=show)
    return {"rows": [asdict(row) for row in rows], "exit_code": doctor.exit_code(rows)}


def _live(given: Result) -> Result:
    from deploy.errors import Refused
    from deploy.probe import Probe

    wanted = [name for name in SPENDING if given[name]]
    ask = agreement(given["yes"] or not wanted)  # before anything is made: it takes half an hour
    ours = project(given["config"])
    probe = Probe(lambda: connect(Telling()), ours.competition, ours.sample, show)
    result = probe.run(ours.runs / "live", wanted, lambda spends: ask(f"Spend {spends}?"))
    show(f"The facts, without names and keys, to attach to an issue: {result['file']}")
    show(f"A local Kaggle that behaves so: python -m localkaggle serve --facts {result['file']}")
    return {**result, "exit_code": Refused.exit_code if result["left"] else 0}
