"""Evidence: what the answers of a smoke test say of a push, of its run, and of how long it took."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from deploy import responses
from deploy.look import ENDED
from deploy.raw_answers import Record, calls

Records = Sequence[Record]

# A state is seen to begin or end only by somebody who looked so many seconds before at most.
FRESH_SECONDS = 15.0
NOT_THERE = "NOT_THERE"  # the status of a version that Kaggle does not know
STARTED = ("RUNNING", "CANCEL_REQUESTED", *ENDED)


def pushes(records: Records, step: str) -> list[Record]:
    """Return the pushes of a step that made a version, in order."""
    return [
        record
        for record in calls(records, "SaveKernel", "adopted")
        if record["step"] == step and field(record, "versionNumber")
    ]


def field(record: Record, name: str) -> Any:
    """Return a field of an answer; None where there is none."""
    answer = record["answer"]
    return answer.get(name) if isinstance(answer, Mapping) else None


def address(push: Record) -> tuple[str, str]:
    """Return the slug of the kernel that a push made a version of, and the version's label."""
    given = responses.handle(field(push, "ref")) or responses.handle(field(push, "url"))
    slug = (given or str(push["asked"]["slug"])).rpartition("/")[2]
    return slug, f"v{field(push, 'versionNumber')}"


def of_kernel(records: Records, push: Record, call: str) -> list[Record]:
    """Return the answers of a call about a push, in its step: its version, or the newest."""
    slug, label = address(push)
    return [
        record
        for record in calls(records, call)
        if (record["asked"] or {}).get("kernelSlug") == slug
        and record["asked"].get("versionLabel", label) == label
        and record["step"] == push["step"]
        and record["at"] >= push["at"]
    ]


def word(record: Record) -> str:
    """Return the status in an answer, as the client's names have it."""
    if record["code"] in (403, 404):
        return NOT_THERE
    word = field(record, "status")  # the first status of each kind is left out of an answer
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(word or "QUEUED")).upper()


def statuses(records: Records, push: Record) -> list[tuple[Record, str]]:
    """Return each answer about the status of a push, with its word."""
    found = of_kernel(records, push, "GetKernelSessionStatus")
    return [(record, word(record)) for record in found if record["code"] in (200, 403, 404)]


def ran(records: Records, step: str) -> Record | None:
    """Return the last push of a step that was run."""
    for push in reversed(pushes(records, step)):
        if any(word in STARTED for _, word in statuses(records, push)):
            return push
    return None


def line(records: Records, push: Record, about: str) -> dict[str, Any] | None:
    """Return what a session printed about something."""
    for record in reversed(of_kernel(records, push, "ListKernelSessionOutput")):
        if found := said(str(field(record, "log") or ""), about):
            return found
    return None


def said(log: str, about: str) -> dict[str, Any] | None:
    """Return the line of a log, as Kaggle stores it, in which a session spoke about something."""
    for text in responses.log_lines(log):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue  # other programs print, too, and Kaggle may cut a log anywhere
        if isinstance(found, dict) and found.get("about") == about:
            return found
    return None


def listed(records: Records, push: Record) -> set[str]:
    """Return the names of the files in a version's output, of all pages."""
    found = of_kernel(records, push, "ListKernelSessionOutput")
    return {file["fileName"] for record in found for file in field(record, "files") or ()}


def lasted(looks: Sequence[tuple[float, float, bool]], start: float) -> float | None:
    """Return how many seconds after `start` something was still seen; None: nobody looked in time.

    Args:
        looks: (from when, until when, whether it was so) of each answer, in order.
        start: when it may have begun.
    """
    until = [last for _, last, so in looks if so]
    if until:
        return round(max(max(until) - start, 0.0), 1)
    return 0.0 if looks and looks[0][0] - start <= FRESH_SECONDS else None


def began(looks: Sequence[tuple[Record, bool]]) -> float | None:
    """Return when something was first seen to be so, if somebody had looked shortly before."""
    before = None
    for look, so in looks:
        if so:
            fresh = before is not None and look["at"] - before <= FRESH_SECONDS
            return float(look["at"]) if fresh else None
        before = look["until"]
    return None
