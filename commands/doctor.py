"""The task that looks whether all is in place, and at Kaggle itself."""

from typing import Any

from invoke.context import Context

from commands.console import ROOT, limited, reported, show, task
from commands.project import CONFIG, JSON, connect, project

LIVE_MINUTES = 180  # five CPU sessions, a TPU and a GPU, with their queues


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
@limited(10, live=LIVE_MINUTES)
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
    from deploy.errors import UsageError
    from deploy.setup import check, doctor

    wanted = {"tpu": tpu, "gpu": gpu, "submit": submit}
    if live:
        return _live(config, [name for name in wanted if wanted[name]], yes=yes)
    alone = next((name for name in (*wanted, "yes") if {**wanted, "yes": yes}[name]), "")
    if alone:
        raise UsageError(
            f"--{alone} was given without --live; expected both, or none.\n"
            f"invoke doctor --live --{alone}"
        )
    rows = doctor.examine(ROOT, lambda: project(config), show=show)
    return {"rows": [row.to_json() for row in rows], "exit_code": check.exit_code(rows)}


def _live(config: str, wanted: list[str], *, yes: bool) -> dict[str, Any]:
    from deploy.live import live

    ours = project(config)
    result = live.smoke_test(
        connect(),
        ours.competition,
        ours.runs / "live",
        wanted=wanted,
        sample=ours.sample,
        agree=_agree(yes),
        show=show,
    )
    show(f"{'fact':20}{'assumed':12}seen")
    for line in [*result.rows, *result.notes]:
        show(str(line))
    for address in result.left:
        show(f"Still there, delete it by hand: {address}")
    show(f"All answers, without names, addresses and keys: {result.file}")
    show(f"A local Kaggle that behaves so: python -m localkaggle serve --facts {result.file}")
    return {**result.values(), "exit_code": live.LEFT if result.left else 0}


def _agree(yes: bool) -> Any:
    """Return what asks before a step that spends something; with `yes` it agrees."""
    import sys

    from deploy.errors import UsageError

    def agree(step: Any) -> bool:
        if yes:
            return True
        if not sys.stdin.isatty():
            raise UsageError(
                f"There is no terminal to ask whether to spend {step.spends}; expected one, or the"
                " answer.\nAdd --yes."
            )
        try:
            answer = input(f"Spend {step.spends}? [y/N] ")
        except EOFError:  # Ctrl-D
            answer = ""
        return answer.strip().lower() in ("y", "yes")

    return agree
