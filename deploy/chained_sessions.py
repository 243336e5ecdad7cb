"""A training that is longer than a session, pushed again and again until it is complete.

Reads  the journal, and what each session saved
Gives  the complete run, pulled; or an error that says when and how to resume

It holds nothing in memory that the journal does not: killed at any moment, the same command
resumes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy import continuation, reconcile, relay
from deploy.client import Kaggle
from deploy.errors import NoQuota, NoSlot, NotMounted, RelayError, RunFailed, UsageError
from deploy.last_runs import Pushes
from deploy.project import TRAIN, Project
from deploy.push_and_watch import Run, Show
from deploy.push_preview import Preview
from deploy.relay import Agree

TRIES = 2  # sessions in a row that may get no further


@dataclass(frozen=True)
class CompleteTraining:
    """A complete training. `sessions`: how many versions this command has watched."""

    run: Run
    folder: Path
    sessions: int


def train(
    kaggle: Kaggle,
    project: Project,
    *,
    show: Show,
    agree: Agree | None = None,
    fresh: bool = False,
    pushed: Callable[[Run], object] = lambda run: None,
    follow: bool = True,
    command: str = "",
) -> CompleteTraining:
    """Push, watch and pull, from one session to the next, until the training is complete.

    Args:
        agree: is asked before the first push; those that follow are only shown.
        fresh: start over, whatever an earlier run saved. Whoever resumes later leaves it out.
        pushed: is called with each run that this command pushes.
        follow: whether a session that has not ended is the one, whatever was edited since;
            otherwise it is only if it holds what would be pushed.
        command: that resumes; by default `invoke push-train --until-done`.

    Raises:
        NoQuota: if no time is left this week; with the time at which the quota returns.
        NoSlot: if no session is free.
        RunFailed: if the first session fails and saves nothing, or if two in a row got no further;
            `NotMounted`, if two in a row found a source missing.
        Others: as push, watch and pull raise; the same command resumes.
    """
    command = command or project.command("push-train --until-done")
    sessions, last_error, last, agree = 0, "", None, _ask_once(agree, show)
    late = False  # whether the last session found a source missing
    while True:
        run = None
        if not fresh:
            pushes = Pushes(project)
            run = _active_run(kaggle, pushes, show) if follow else None
            if run is None:
                _require_progress(kaggle, pushes, last_error, command)
        if run is None:
            try:
                run = relay.push(kaggle, project, TRAIN, show=show, agree=agree, fresh=fresh)
            except NoSlot as error:
                raise NoSlot(f"{error}\nOnce a run has ended, resume:\n{command}") from error
            except NoQuota as error:
                raise NoQuota(f"{error}\n{_renewal(kaggle)}\nTo resume then:\n{command}") from error
            pushed(run)
        if run == last:
            raise RunFailed(
                f"{run} saved neither an artifact nor a checkpoint; expected one of them.\n"
                "Fix the notebook so that it trains, or run it once more:\n"
                f"{project.command('push-train --again')}"
            )
        last, fresh, sessions = run, False, sessions + 1
        failure = None
        try:
            status, late = relay.watch(kaggle, project, run, show=show), False
        except NotMounted as error:
            if late:
                raise
            late = True
            show(f"{error}\n{relay.ONCE_MORE}")
            continue
        except RunFailed as error:
            failure, last_error, status, late = error, str(error), "ERROR", False
        pushes = Pushes(project)  # with this run's, and what was noted of its end
        folder, found = continuation.saved_output(kaggle, pushes, run, status, show=show)
        if failure is not None:
            row = pushes.last(handle=run.handle, version=run.version)
            if found is None and not (row and row["base"]):
                raise failure  # the next session would be this one once more
            show(last_error)
        if found is not None and found.complete:
            folder = folder or relay.pull(kaggle, project, run, show=show)
            return CompleteTraining(run, folder, sessions)
        show(f"{run}: {found or 'it saved nothing to resume from'}. Starting the next session.")


def _active_run(kaggle: Kaggle, pushes: Pushes, show: Show) -> Run | None:
    """Return the run that has not ended, if there is one, whatever was edited since."""
    with reconcile.naming_again(pushes, TRAIN):
        state = continuation.find(kaggle, pushes, show=show)
    if state.run is None or state.status in continuation.ENDED:
        return None
    if continuation.waits_elsewhere(pushes.project, state):
        return None
    show(f"{state.run} is {state.status}; following it.")
    return state.run


def _ask_once(agree: Agree | None, show: Show) -> Agree:
    """Return what asks before the first push, and shows the later ones: one answer is for all.

    The answer for a run that was active already does not count: it was for one session.
    """
    asked = False

    def ask(preview: Preview) -> None:
        nonlocal asked
        if not asked and agree is not None:
            agree(preview)
            asked = True
            return
        for line in preview.lines():
            show(line)

    return ask


def _require_progress(kaggle: Kaggle, pushes: Pushes, last_error: str, command: str) -> None:
    rows = continuation.sessions_without_progress(kaggle, pushes)
    if len(rows) < TRIES:
        return
    runs = ", ".join(f"{row['handle']}/{row['version']}" for row in reversed(rows))
    where = f"the checkpoint of version {rows[0]['base']}"
    continuation.stop_counting(pushes, rows)
    ended = f"The last error was:\n{last_error}\n" if last_error else ""
    raise RunFailed(
        f"{len(rows)} sessions in a row got no further than {where}: {runs}. Expected each to save"
        " a later step; no more quota is spent.\n"
        f"{ended}If they ended as COMPLETE, session_hours is too short for one step. Fix the cause,"
        f" then resume:\n{command}"
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
            "--again repeats the last push, and --until-done resumes from it; expected one of them."
            "\nTo start the training over: --fresh --until-done"
        )
