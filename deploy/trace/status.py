"""Standing: what was asked of Kaggle, what came of it, and how it stands now, for a person and for
a script.

Reads  the journal; and Kaggle, for the state of the last runs and the quota
Gives  plain values, and a table of them that says of each command whether it made or spent anything
"""

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.client.client import Kaggle
from deploy.errors import RelayError
from deploy.journal import ABSENT, COLUMNS, DONE, GONE, INTENDED, NOT_MADE
from deploy.kernel.push_and_watch import Run
from deploy.project import INFER, TRAIN, Project
from deploy.relay import continuation

Row = Mapping[str, Any]

NEWEST = 5
ONE = {"pushes": "push", "publishes": "publish", "submissions": "submit"}
# Why a command ended, by the kind of its error, in words.
WHY = {
    "Ambiguous": "no answer came",
    "BadAnswer": "Kaggle's answer could not be accepted",
    "CredentialError": "no credentials",
    "DeadlinePassed": "its time was over",
    "Denied": "no permission",
    "Detached": "interrupted",
    "DiskError": "the disk",
    "KeyboardInterrupt": "interrupted",
    "NoQuota": "no quota was left",
    "NotFound": "not found",
    "Refused": "Kaggle refused",
    "SourcesRefused": "Kaggle refused one of its sources",
    "RunFailed": "the run failed",
    "Unreachable": "Kaggle did not answer",
    "Unverified": "a file was not what it should be",
    "TimeUp": "its time was over",
    "UsageError": "a check failed",
    "SubmissionError": "the file was not valid",
    INTENDED: "it goes on, or was cut off",
}


def journal(project: Project) -> dict[str, list[dict[str, Any]]]:
    """Return the journal's newest entries, by table; nobody has to be asked for that."""
    kept = project.journal()
    return {table: kept.recent(table, NEWEST, config=project.name) for table in COLUMNS}


def now(kaggle: Kaggle, project: Project) -> dict[str, Any]:
    """Return how the last run of each kernel stands now, and the accelerator hours that are left
    this week.

    What one question meets is told in its place, and does not hide the others' answers.
    """
    kept, runs, partial, renewed = project.journal(), {}, False, None
    for kernel in (TRAIN, INFER):
        found = kept.last("pushes", kernel=kernel, config=project.name, outcome=DONE)
        if found:
            name = f"{found['handle']}/{found['version']}"
            try:
                runs[name] = kaggle.kernel_status(found["handle"], found["version"]).name
                if kernel == TRAIN and runs[name] in continuation.ENDED:
                    told = found["left"] or continuation.glance(
                        kaggle, Run(found["handle"], found["version"], "", "")
                    )
                    runs[name] += f", {told}" if told.startswith("partial") else ""
                    partial = told.startswith("partial")
            except RelayError as error:
                runs[name] = f"not known: {str(error).splitlines()[0]}"
    try:
        quota = kaggle.quota()
        seconds = {"TPU": quota.tpu_seconds, "GPU": quota.gpu_seconds}
        renewed = quota.renewed
    except RelayError:
        seconds = {"TPU": None, "GPU": None}
    return {
        "runs": runs,
        "hours_left": {
            name: None if left is None else left / 3600 for name, left in seconds.items()
        },
        "renewed": renewed.isoformat() if renewed else None,
        "next": f"invoke push-train --until-done --config {project.config}" if partial else None,
    }


def asked(project: Project) -> list[str]:
    """Return what was asked of this Kaggle and what came of it, as lines for a person."""
    rows = [
        (row["at"][:16].replace("T", " "), ONE[table], _what(table, row), came_of(table, row))
        for table, kept in journal(project).items()
        for row in kept
    ]
    kept = project.journal()
    head = f"Asked of {kept.server}" + (
        "" if rows else f" with the config {project.name}: nothing yet"
    )
    lines = (
        [head, *_aligned([("when (UTC)", "task", "what", "what came of it"), *rows])]
        if rows
        else [head]
    )
    for server, count in kept.elsewhere().items():
        entries, speak = ("1 entry", "speaks") if count == 1 else (f"{count} entries", "speak")
        if server:
            lines.append(
                f"{entries} of the journal {speak} of another Kaggle, {server}, and {'is' if count == 1 else 'are'} left out."
            )
        else:
            lines.append(
                f"{entries} of the journal {'does' if count == 1 else 'do'} not say of which Kaggle; no command goes by"
                f" {'it' if count == 1 else 'them'}. To take up such a run: --run owner/slug/version"
            )
    return lines


def stands(found: Row) -> list[str]:
    """Return what `now` found, as lines for a person."""
    rows = [("now", run, state) for run, state in found["runs"].items()]
    for name, hours in found["hours_left"].items():
        rows.append(("left this week", name, "not known" if hours is None else _hours(hours)))
    if found.get("renewed"):
        rows.append(("renewed", "at", found["renewed"][:16].replace("T", " ") + " UTC"))
    return [*_aligned(rows), *([f"Next: {found['next']}"] if found.get("next") else [])]


def came_of(table: str, row: Row) -> str:
    """Return in words what an entry of the journal made or spent, or that it made nothing."""
    return {"pushes": _pushed, "publishes": _published, "submissions": _submitted}[table](row)


def _pushed(row: Row) -> str:
    outcome, why = row["outcome"], WHY.get(row["outcome"], row["outcome"])
    if outcome == DONE:
        adopted = row["before"] is None or (row["version"] or 0) <= row["before"]
        made = "was there already, nothing was sent" if adopted else "pushed"
        made += f", going on from version {row['base']}" if row["base"] and not adopted else ""
        told = [
            made,
            *filter(None, [row["status"], row["left"] if row["left"] != "complete" else None]),
        ]
        return "; ".join(told)
    if outcome == ABSENT:
        return "made nothing: it never arrived"
    if outcome == GONE:
        return "is not at this Kaggle any more"
    if outcome in NOT_MADE:
        return f"made no version to go on with: {why}"
    return f"not known: {why}; the next command finds out"


def _published(row: Row) -> str:
    outcome, why = row["outcome"], WHY.get(row["outcome"], row["outcome"])
    if row["before"] is None:
        return (
            "was there already, nothing was sent" if outcome == DONE else f"nothing was sent: {why}"
        )
    if outcome == DONE:
        return "published"
    if outcome in NOT_MADE:
        return f"made no version to go on with: {why}"
    return f"not known: {why}; the next publish finds out"


def _submitted(row: Row) -> str:
    outcome, why = row["outcome"], WHY.get(row["outcome"], row["outcome"])
    if row["ref"]:
        told = f"submission {row['ref']}"
        told += f", score {row['score']}" if row["score"] is not None else f", no score: {why}"
        return told if row["sent"] else f"followed {told}; spent nothing"
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
    """Return the rows with their columns below each other."""
    widths = (
        [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    )
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
