"""Chain: a training that is longer than a session, pushed again and again until it is complete.

Reads  the journal, and what each session left
Gives  the complete run, pulled; or an error that says when and how it goes on

It holds nothing in memory that the journal does not: killed at any moment, the same command goes
on.
"""

from dataclasses import dataclass
from pathlib import Path

from deploy.client.client import Kaggle
from deploy.errors import NoQuota, RelayError, RunFailed, UsageError
from deploy.kernel.push_and_watch import Run, Show
from deploy.project import TRAIN, Project
from deploy.relay import continuation, relay
from deploy.relay.push_preview import Preview
from deploy.relay.relay import Agree

TRIES = 2  # sessions in a row that may get no further


@dataclass(frozen=True)
class Done:
    """A complete training. `sessions`: how many versions this command has watched."""

    run: Run
    folder: Path
    sessions: int


def train(
    kaggle: Kaggle, project: Project, *, show: Show, agree: Agree | None = None, fresh: bool = False
) -> Done:
    """Push, watch and pull, from one session to the next, until the training is complete.

    Args:
        agree: is asked before the first push; those that follow are only shown.
        fresh: begin again, whatever an earlier run left. Whoever goes on later leaves it out.

    Raises:
        NoQuota: if no time is left this week, or no session is free; with the time at which the
            quota returns.
        RunFailed: if two sessions in a row got no further.
        Others: as push, watch and pull raise; the same command goes on.
    """
    command = f"invoke push-train --until-done --config {project.config}"
    sessions, said, last, agree = 0, "", None, _once(agree, show)
    while True:
        run = None if fresh else _going(kaggle, project, show)
        if run is None:
            if not fresh:
                _require_progress(kaggle, project, said, command)
            try:
                run = relay.push(kaggle, project, TRAIN, show=show, agree=agree, fresh=fresh)
            except NoQuota as error:
                raise NoQuota(f"{error}\n{_renewal(kaggle)}\nTo go on then: {command}") from error
        if run == last:
            raise RunFailed(
                f"{run} left neither an artifact nor a checkpoint, and is taken as it is; expected one of them.\n"
                f"Let the notebook train, or run it once more: invoke push-train --again --config {project.config}"
            )
        last, fresh, sessions = run, False, sessions + 1
        try:
            status = relay.watch(kaggle, project, run, show=show)
        except RunFailed as error:
            said, status = str(error), "ERROR"
            show(said)
        folder, found = continuation.look(kaggle, project, run, status, show=show)
        if found is not None and found.complete:
            folder = folder or relay.pull(kaggle, project, run, show=show)
            return Done(run, folder, sessions)
        show(f"{run}: {found or 'it left nothing to go on from'}. The next session goes on.")


def _going(kaggle: Kaggle, project: Project, show: Show) -> Run | None:
    """Return the run that has not ended, if there is one, whatever was edited since."""
    now = continuation.point(kaggle, project, show=show)
    if now.run is None or now.status in continuation.ENDED:
        return None
    show(f"{now.run} is {now.status}; following it.")
    return now.run


def _once(agree: Agree | None, show: Show) -> Agree:
    """Return what asks before the first push, and shows the later ones: the first answer was for
    all of them.

    A run that was going already was agreed to as one session, and not as the first of many.
    """
    asked = False

    def ask(seen: Preview) -> None:
        nonlocal asked
        if not asked and agree is not None:
            agree(seen)
            asked = True
            return
        for line in seen.lines():
            show(line)

    return ask


def _require_progress(kaggle: Kaggle, project: Project, said: str, command: str) -> None:
    rows = continuation.stuck(kaggle, project)
    if len(rows) < TRIES:
        return
    runs = ", ".join(f"{row['handle']}/{row['version']}" for row in reversed(rows))
    base = rows[0]["base"]
    where = f"the checkpoint of version {base}" if base else "the beginning"
    continuation.give_up(project, rows)
    ended = f"The last one said:\n{said}\n" if said else ""
    raise RunFailed(
        f"{len(rows)} sessions in a row got no further than {where}: {runs}. Expected each to save a later step; no more quota is spent.\n"
        f"{ended}If they ended as COMPLETE, session_hours is too short for one step. Correct the cause, then: {command}"
    )


def _renewal(kaggle: Kaggle) -> str:
    try:
        renewed = kaggle.quota().renewed
    except RelayError:
        renewed = None
    if renewed is None:
        return "Kaggle does not say when the week's quota returns; to ask again: invoke status"
    return f"The week's quota returns at {renewed:%Y-%m-%d %H:%M} UTC."


def refuse_both(again: bool, until_done: bool) -> None:
    """Raise `UsageError` for two options that contradict each other."""
    if again and until_done:
        raise UsageError(
            "--again pushes once more what is there, and --until-done goes on from it; expected one of them.\n"
            "To begin the training again: --fresh --until-done"
        )
