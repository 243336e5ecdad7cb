"""Report our requests to Kaggle, the status of the latest runs, and the remaining quota.

Requests are read from the journal, and the report shows what each request created or used up. All
results are available as plain values for scripts and as lines of text for users.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from deploy import chain, sessions
from deploy.calls import Quota
from deploy.client import Kaggle
from deploy.errors import CredentialError, Denied, RelayError, Unreachable
from deploy.events import completed
from deploy.journal import PUBLISH, PUSH, SUBMIT, Request, State
from deploy.project import INFER, KERNELS, TRAIN
from deploy.push import started
from deploy.records import Records, run_of
from deploy.runs import ENDED

NEWEST = 5
JOURNAL_COLUMNS = ("when (UTC)", "task", "what", "result")
ACTIVE = ("QUEUED", "RUNNING")
# Result of a request that was not sent yet, because the command is still running or was killed.
INTENDED = "still running, or interrupted"
THERE = "already existed, so nothing was sent"


def journal(records: Records) -> dict[str, list[dict[str, Any]]]:
    return {
        kind: [asdict(row) for row in _newest(records, kind)] for kind in (PUSH, PUBLISH, SUBMIT)
    }


def _newest(records: Records, kind: str) -> list[Request]:
    return records.journal.requests(kind, config=records.project.name)[:NEWEST]


def now(kaggle: Kaggle, records: Records) -> dict[str, Any]:
    """Return the status of each kernel's latest run, and this week's remaining accelerator hours.

    If a call fails, its error is shown alongside the other results.

    Raises:
        Unreachable: if Kaggle does not respond to any call.
        CredentialError: if the credentials are invalid.
    """
    ours, runs = records.project.ours, dict[str, str]()
    rows = [row for kernel in KERNELS for row in records.made(kernel=kernel, **ours)[:1]]
    for row in rows:
        try:
            runs[str(run_of(row))] = _state(kaggle, row)
        except RelayError as error:
            runs[str(run_of(row))] = f"unknown: {_untold(kaggle, error)}"
    quota, unknown = Quota(None, None), None
    try:
        quota = kaggle.quota()
    except RelayError as error:
        unknown = _untold(kaggle, error)
    newest = max(rows, key=lambda row: row.id, default=None)
    return {
        "runs": runs,
        "hours_left": _in_hours(TPU=quota.tpu_seconds, GPU=quota.gpu_seconds),
        "hours_allowed": _in_hours(TPU=quota.tpu_allowed, GPU=quota.gpu_allowed),
        "hours_unknown": unknown,
        "hours_reserved": _in_hours(**quota.reserved),
        "renewed": quota.renewed.isoformat() if quota.renewed else None,
        "next": _next(records, newest, runs[str(run_of(newest))]) if newest else None,
    }


def _next(records: Records, row: Request, state: str) -> str | None:
    if state in ACTIVE:
        return records.project.command(f"watch --run {run_of(row)}")
    if row.kernel == TRAIN and ", partial" in state:
        on = records.project.trained_on(row.machine_shape)
        return on.command("push-train --until-done")
    return chain.after_complete(records, row) or None if state == "COMPLETE" else None


def _state(kaggle: Kaggle, row: Request) -> str:
    status = started(kaggle, row, kaggle.kernel_status(row.handle, row.number).name)
    if row.kernel == INFER or status not in ENDED:
        return status
    steps = sessions.progress_of(kaggle, run_of(row))
    progress = row.left or completed(steps, lambda event: None)
    return f"{status}, {progress}" if progress.startswith("partial") else status


def _untold(kaggle: Kaggle, error: RelayError) -> str:
    silent = isinstance(error, Unreachable) and not kaggle.answered
    if silent or (isinstance(error, CredentialError) and not isinstance(error, Denied)):
        raise error
    return str(error).splitlines()[0]


def _in_hours(**seconds: float | None) -> dict[str, float | None]:
    return {name: None if value is None else value / 3600 for name, value in seconds.items()}


def journal_lines(records: Records) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (row.at[:16].replace("T", " "), kind, _what(row), what_came(row))
        for kind in (PUSH, PUBLISH, SUBMIT)
        for row in _newest(records, kind)
    ]
    title = f"Sent to {records.journal.server}"
    if not rows:
        title += f" with the config {records.project.name}: nothing yet"
    return [title, *(aligned([JOURNAL_COLUMNS, *rows]) if rows else [])]


def state_lines(found: Mapping[str, Any]) -> list[str]:
    rows = [("now", run, state) for run, state in found["runs"].items()]
    for name, hours in found["hours_left"].items():
        reserved = found["hours_reserved"].get(name)
        more = f", of which running sessions reserve {reserved:.1f} hours" if reserved else ""
        why = f": {found['hours_unknown']}" if found["hours_unknown"] else ""
        left = f"unknown{why}" if hours is None else f"{hours:.1f} hours"
        rows.append(("left this week", name, f"{left}{more}"))
    if found["renewed"]:
        rows.append(("renewed", "at", found["renewed"][:16].replace("T", " ") + " UTC"))
    return [*aligned(rows), *([f"Next: {found['next']}"] if found["next"] else [])]


def what_came(row: Request) -> str:
    why = row.why or (INTENDED if row.state in (State.INTENDED, State.SENT) else "")
    if row.kind == SUBMIT:
        return _submitted(row, why)
    if row.is_made and (row.kind == PUSH or row.state == State.ENDED):
        made = ("pushed" if row.kind == PUSH else "published") if row.is_ours else THERE
        made += f", resuming from version {row.base}" if row.base and row.is_ours else ""
        parts = [made, row.status, row.left] if row.kind == PUSH else [made]
        return "; ".join(part for part in parts if part not in ("", "complete"))
    return {
        State.GONE: "no longer exists on this Kaggle server",
        State.ABSENT: "created nothing: the request was never received",
        State.REFUSED: f"created nothing: {why}",
        State.INTENDED: f"nothing was sent: {why}",
        State.NOT_SENT: f"nothing was sent: {why}",
        State.INCOMPLETE: f"pushed, but one of its sources is missing; {row.status}".rstrip("; "),
    }.get(row.state, f"unknown ({why.rstrip('.') or INTENDED}); the next command will check it")


def _submitted(row: Request, why: str) -> str:
    if row.number:
        hidden = "score hidden" if row.status == "COMPLETE" else f"no score: {why or row.status}"
        scored = f"score {row.score}" if row.score is not None else hidden
        words = f"submission {row.number}, {scored}"
        return words if row.before is not None else f"followed {words}; spent nothing"
    if row.before is None or row.state == State.REFUSED:
        return f"spent nothing: {why}"
    return f"may have spent a submission ({why.rstrip('.')}); the next submit will check it"


def _what(row: Request) -> str:
    version = row.kernel_version if row.kind == SUBMIT else row.number
    return f"{row.handle}/{version}" if version else row.handle


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
