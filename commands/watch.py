"""Watch: the tasks that look at runs on Kaggle and change nothing there."""

from pathlib import Path
from typing import Any

from invoke.context import Context

from commands.console import TWO_WEEKS, limited, number, reported, show, task, terminal
from commands.project import (
    CONFIG,
    JSON,
    KERNEL,
    RUN,
    connect,
    minutes,
    project,
    resolved_pushes,
    screen,
)


@task(
    help={
        **CONFIG,
        **JSON,
        **RUN,
        **KERNEL,
        "hours": "how long to wait for the end of the run, once it runs (default 13)",
        "json-lines": "print each change as one JSON object a line; the result is the last one",
        "queue-hours": "how long to wait until it gets a machine (default 12)",
    }
)
@reported
@limited(TWO_WEEKS)  # --hours and --queue-hours end a watch; this ends an answer that never does
def watch(
    c: Context,
    kernel: str = "train-tpu",
    run: str = "",
    config: str = "",
    hours: str = "13",
    queue_hours: str = "12",
    json: bool = False,
    json_lines: bool = False,
) -> dict[str, Any]:
    """Follow a run to its end; Ctrl-C does not stop it.

    Example: invoke watch --kernel infer-gpu
    """
    from deploy import continuation, next_steps, relay

    pushes = resolved_pushes(
        config,
        deadline_seconds=number("hours", hours, 1 / 60, 24 * 14) * 3600,
        queue_seconds=number("queue-hours", queue_hours, 1 / 60, 24 * 14) * 3600,
    )
    found, kaggle = pushes.find_run(run, kernel), connect()
    following = pushes.project.command(f"pull --run {found}")
    preparation = next_steps.kernel_of(pushes.project, found) == relay.PREPARE
    if preparation:  # nothing at home needs what it wrote
        following = next_steps.after_preparation(pushes.project, "complete")
    with screen(following):
        status = relay.watch(kaggle, pushes.project, found, show=show)
    left = continuation.progress_of(kaggle, found, show)
    if left.startswith("partial"):
        show(f"{found} is {left}")
    if preparation:
        following = next_steps.after_preparation(pushes.project, left)
    show(f"Next: {following}")
    return {"run": str(found), "status": status, "left": left}


@task(
    help={
        **CONFIG,
        **JSON,
        **minutes(5),
        "of": "path of a submission.csv: show where it came from, back to the commit",
    }
)
@reported
@limited(5)
def status(
    c: Context, of: str = "", config: str = "", minutes: str = "", json: bool = False
) -> dict[str, Any]:
    """Show what was asked of Kaggle, how it stands, and the quota.

    Example: invoke status
    """
    from deploy import lineage
    from deploy import status as states

    ours = project(config)
    if of:
        links = lineage.trace(ours, Path(of))
        for link in links:
            show(f"{link.what:16}{link.value}")
        return {"of": of, "links": [link.to_json() for link in links]}
    if terminal():
        from commands import drawing

        drawing.show_journal(*states.journal_table(ours))
        found = states.now(connect(), ours)
        drawing.show_states(found)
    else:
        for line in states.journal_lines(ours):
            show(line)
        found = states.now(connect(), ours)
        for line in states.state_lines(found):
            show(line)
    return {"journal": states.journal(ours), **found}
