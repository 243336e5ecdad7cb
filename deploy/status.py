"""What was asked of Kaggle, what came of it, and how the last runs stand now.

Reads  the journal; and Kaggle, for the state of the last runs and the quota
Gives  plain values for a script, and lines for a person, which say of each command whether it made
or spent anything
"""

from collections.abc import Mapping, Sequence
from typing import Any

from deploy import continuation, next_steps
from deploy.client import Kaggle
from deploy.errors import CredentialError, Denied, RelayError, Unreachable
from deploy.journal import ABSENT, COLUMNS, DONE, GONE, INTENDED, NOT_MADE, Outcome
from deploy.last_runs import run_of, started
from deploy.project import INFER, PUSHED_BY, TRAIN, Project
from deploy.responses import Quota

Row = Mapping[str, Any]

NEWEST = 5
JOURNAL_COLUMNS = ("when (UTC)", "task", "what", "what came of it")
ACTIVE = ("QUEUED", "RUNNING")
TASKS = {"pushes": "push", "publishes": "publish", "submissions": "submit"}
# Why a command ended.
WHY = {
    INTENDED: "still running, or interrupted",
    Outcome.BAD_INPUT: "a check failed",
    Outcome.NO_CREDENTIALS: "no credentials",
    Outcome.DENIED: "no permission",
    Outcome.NOT_FOUND: "not found",
    Outcome.NO_QUOTA: "no quota was left",
    Outcome.NO_SLOT: "as many sessions ran as Kaggle allows",
    Outcome.REFUSED: "Kaggle refused",
    Outcome.SOURCES_REFUSED: "Kaggle refused one of its sources",
    Outcome.DISK: "the disk",
    Outcome.BAD_ANSWER: "Kaggle's answer could not be accepted",
    Outcome.NO_ANSWER: "no answer came",
    Outcome.UNREACHABLE: "Kaggle did not answer",
    Outcome.LATE: "its time was up",
    Outcome.INTERRUPTED: "interrupted",
    Outcome.FAILED: "the run failed",
    Outcome.OTHER_BYTES: "a file was not what it should be",
    Outcome.UNCLEAR: "an error ended it",
}


def journal(project: Project) -> dict[str, list[dict[str, Any]]]:
    """Return the journal's newest entries, by table, without asking Kaggle."""
    kept = project.journal()
    return {table: kept.recent(table, NEWEST, config=project.name) for table in COLUMNS}


def now(kaggle: Kaggle, project: Project) -> dict[str, Any]:
    """Return the state of the last run of each kernel, and the accelerator hours left this week.

    A question that fails is answered with its error, and does not hide the other answers.

    Raises:
        Unreachable: if Kaggle answers nothing: there are no other answers.
        CredentialError: if it does not know who asks: likewise.
    """
    runs: dict[str, str] = {}
    newest: dict[str, Any] = {}
    partial: Project | None = None
    for kernel in PUSHED_BY:
        row = project.journal().last("pushes", kernel=kernel, outcome=DONE, **project.ours)
        if row is None:
            continue
        run = run_of(row)
        newest = max(newest, row, key=lambda one: one.get("id", 0))
        try:
            state = started(kaggle, row, kaggle.kernel_status(run.handle, run.version).name)
            if kernel != INFER and state in continuation.ENDED:
                progress = row["left"] or continuation.progress_of(kaggle, run)
                short = progress.startswith("partial")
                state += f", {progress}" if short else ""
                if short and kernel == TRAIN:
                    partial = project.trained_on(run.machine_shape)
        except RelayError as error:
            _require_answers(kaggle, error)
            state = f"not known: {str(error).splitlines()[0]}"
        runs[str(run)] = state
    unknown = None
    try:
        quota = kaggle.quota()
    except RelayError as error:
        _require_answers(kaggle, error)
        quota, unknown = Quota(None, None), str(error).splitlines()[0]
    active = next((run for run, state in runs.items() if state in ACTIVE), "")
    following = project.command(f"watch --run {active}") if active else None
    if partial and not active:
        following = partial.command("push-train --until-done")
    elif newest and runs[str(run_of(newest))] == "COMPLETE":
        following = next_steps.after(project, newest) or None
    return {
        "runs": runs,
        "hours_left": _in_hours(TPU=quota.tpu_seconds, GPU=quota.gpu_seconds),
        "hours_allowed": _in_hours(TPU=quota.tpu_allowed, GPU=quota.gpu_allowed),
        "hours_unknown": unknown,
        "hours_reserved": _in_hours(**quota.reserved),
        "renewed": quota.renewed.isoformat() if quota.renewed else None,
        "next": following,
    }


def _require_answers(kaggle: Kaggle, error: RelayError) -> None:
    if isinstance(error, Unreachable) and not kaggle.answered:
        raise error
    if isinstance(error, CredentialError) and not isinstance(error, Denied):
        raise error


def _in_hours(**seconds: float | None) -> dict[str, float | None]:
    return {name: None if value is None else value / 3600 for name, value in seconds.items()}


def journal_lines(project: Project) -> list[str]:
    """Return what was asked of this Kaggle and what came of it, as lines for a person."""
    title, rows, notes = journal_table(project)
    return [title, *(_aligned([JOURNAL_COLUMNS, *rows]) if rows else []), *notes]


def journal_table(project: Project) -> tuple[str, list[tuple[str, ...]], list[str]]:
    """Return a title, a row for each of the newest entries, and notes about those of others.

    The columns are `JOURNAL_COLUMNS`.
    """
    rows: list[tuple[str, ...]] = [
        (row["at"][:16].replace("T", " "), TASKS[table], _what(table, row), outcome_of(table, row))
        for table, kept in journal(project).items()
        for row in kept
    ]
    whole, notes = project.journal(), []
    title = f"Asked of {whole.server}"
    if not rows:
        title += f" with the config {project.name}: nothing yet"
    for server, count in whole.elsewhere().items():
        one = count == 1
        entries = f"{count} {'entry' if one else 'entries'} of the journal"
        about = f"{'is' if one else 'are'} about another Kaggle, {server}"
        notes.append(f"{entries} {about}, and {'is' if one else 'are'} left out.")
    return title, rows, notes


def state_lines(found: Row) -> list[str]:
    """Return what `now` found, as lines for a person."""
    rows = [("now", run, state) for run, state in found["runs"].items()]
    for name, hours in found["hours_left"].items():
        reserved = found.get("hours_reserved", {}).get(name)
        told = f", {_hours(reserved)} of them reserved by what runs" if reserved else ""
        why = f": {found['hours_unknown']}" if found.get("hours_unknown") else ""
        left = f"not known{why}" if hours is None else _hours(hours)
        rows.append(("left this week", name, f"{left}{told}"))
    if found.get("renewed"):
        rows.append(("renewed", "at", found["renewed"][:16].replace("T", " ") + " UTC"))
    return [*_aligned(rows), *([f"Next: {found['next']}"] if found.get("next") else [])]


def outcome_of(table: str, row: Row) -> str:
    """Return in words what an entry of the journal made or spent, or that it made nothing."""
    describe = {"pushes": _pushed, "publishes": _published, "submissions": _submitted}[table]
    outcome = Outcome(row["outcome"])
    return describe(row, outcome, WHY.get(outcome, outcome))


def _pushed(row: Row, outcome: str, why: str) -> str:
    if outcome == DONE:
        adopted = row["before"] is None or (row["version"] or 0) <= row["before"]
        made = "was there already, nothing was sent" if adopted else "pushed"
        made += f", resuming from version {row['base']}" if row["base"] and not adopted else ""
        progress = row["left"] if row["left"] != "complete" else ""
        return "; ".join(filter(None, [made, row["status"], progress]))
    if outcome == ABSENT:
        return "made nothing: it never arrived"
    if outcome == GONE:
        return "is not at this Kaggle any more"
    if outcome == Outcome.SOURCES_REFUSED and row["version"]:
        return "; ".join(filter(None, ["pushed, and lacks one of its sources", row["status"]]))
    if outcome in NOT_MADE:
        return f"made no version to use: {why}"
    return f"not known: {why}; the next command finds out"


def _published(row: Row, outcome: str, why: str) -> str:
    if outcome == DONE:
        return "published" if row["before"] is not None else "was there already, nothing was sent"
    if row["before"] is None:
        return f"nothing was sent: {why}"
    if outcome in NOT_MADE:
        return f"made no version to use: {why}"
    return f"not known: {why}; the next publish finds out"


def _submitted(row: Row, outcome: str, why: str) -> str:
    if row["ref"]:
        hidden = "score hidden" if outcome == DONE else f"no score: {why}"
        scored = f"score {row['score']}" if row["score"] is not None else hidden
        words = f"submission {row['ref']}, {scored}"
        return words if row["sent"] else f"followed {words}; spent nothing"
    if not row["sent"]:
        return f"spent nothing: {why}"
    if outcome in NOT_MADE:
        return f"Kaggle took no submission: {why}"
    return f"not known whether one was spent: {why}; the next submit finds out"


def _what(table: str, row: Row) -> str:
    version = row["kernel_version" if table == "submissions" else "version"]
    return f"{row['handle']}/{version}" if version else str(row["handle"])


def _hours(hours: float) -> str:
    return "1.0 hour" if f"{hours:.1f}" == "1.0" else f"{hours:.1f} hours"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
