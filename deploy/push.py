"""Push a bundle exactly once, and resolve pushes that got no response.

The version of such a push is found by the bundle's SHA-256. This module never uses "the latest"
version, because another browser tab may have created it.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from deploy import failures, models
from deploy.bundle import Bundle
from deploy.calls import SOURCES, Saved, Source
from deploy.client import Kaggle
from deploy.errors import (
    Ambiguous,
    Denied,
    NotFound,
    Refused,
    RelayError,
    SourcesRefused,
    Unknown,
)
from deploy.events import Note, Steps
from deploy.journal import PUSH, Journal, Request, State
from deploy.project import KERNELS
from deploy.records import Records, run_of
from deploy.runs import ENDED_BADLY, SAVED, Run, page

T = TypeVar("T")
OTHERS_AT_MOST = 10  # maximum number of versions that others may have pushed after ours
NO_NOTEBOOK = re.compile(r"(notebook|kernel) not found", re.IGNORECASE)


# The call that must never be repeated


def send(
    kaggle: Kaggle, journal: Journal, request: Request, built: Bundle, before: int, seconds: int
) -> Steps[Run]:
    """Push a bundle, record the version that Kaggle returns, and return its run.

    `before` is the current version, or 0 if the kernel has no versions. Kaggle stops the session
    after `seconds`. The API does not provide a way to stop it earlier.

    Raises:
        NoQuota: if this week's accelerator time is used up, or too many sessions are running.
        Refused: if Kaggle refuses the push. `SourcesRefused` is raised if the run started without a
            source.
        Ambiguous: if the response was lost and no version can be identified as ours.
    """
    with journal.ended_by_errors(request):
        request = journal.record(request, State.SENT, before=before)
        try:
            saved = kaggle.save_kernel(built.metadata, built.text, timeout_seconds=seconds)
            run = _answered(built, saved)
        except Ambiguous as error:
            run = yield from _lost(kaggle, built, before, error)
        except Denied as error:
            if error.gate != failures.LICENCE:
                raise
            pages = models.pages(built.metadata["model_sources"])
            raise Denied(f"{error}\n{pages}", error.gate) from error
        except Refused as error:
            if not before and (why := _refused_first(built, str(error).splitlines()[0], error)):
                raise Refused(why) from error
            raise
        if run.handle != built.handle:
            yield Note(
                f"Kaggle changed {built.handle} to {run.handle}. Later commands use the new name."
            )
        known = {"number": run.version, "handle": run.handle, "url": run.url}
        journal.record(request, State.VERSION, **known)
    return run


def _answered(built: Bundle, saved: Saved) -> Run:
    if said := failures.plain(saved.error).rstrip("."):
        raise failures.refusal(f"Kaggle refused to run {built.handle}: {said}.", said)
    _require_sources(built, saved.version, saved.invalid)
    if saved.version < 1:
        raise Ambiguous(
            f"Kaggle accepted the push of {built.handle} but did not return a version number."
        )
    handle = saved.handle or built.handle
    handle = built.handle if handle.lower() == built.handle.lower() else handle
    return _run(built, handle, saved.version)


def _refused_first(built: Bundle, heading: str, error: Refused) -> str:
    if isinstance(error, NotFound) or NO_NOTEBOOK.search(heading):
        why = "An earlier first push may have been refused, which leaves a notebook without any"
        why += " versions. Another possible cause is a notebook name that starts with a digit."
        return failures.without_version(built.handle, f"{heading}\n{why}")
    if failures.IN_USE.search(heading):
        return (
            f"{heading}\n{built.handle} is already in use. Delete the item with that title by hand,"
            f" and push again. Or {failures.OTHER_ADDRESS}"
        )
    return ""


def _lost(kaggle: Kaggle, built: Bundle, before: int, lost: Ambiguous) -> Steps[Run]:
    seconds = kaggle.pace.unseen
    yield Note(
        f"The response to the push was lost. Looking for its version for up to {seconds:.0f} s."
    )
    look = partial(_find, kaggle, built.handle, built.sha256, before)
    try:
        found = _patiently(kaggle, seconds, look)
    except NotFound:
        unseen = "no new version contains its bundle"
    except RelayError as error:  # this error is not about the push
        unseen = f"its version cannot be determined: {str(error).splitlines()[0]}"
    else:
        _require_sources(built, found.version, _missing(built, found))
        return _run(built, built.handle, found.version)
    advice = failures.lost_push_advice(
        lost, built.metadata.get("dataset_sources", ()), "" if before else built.handle
    )
    raise Ambiguous(
        f"The response to the push of {built.handle} was lost, and {unseen.rstrip('.')}.\n"
        f"{str(lost).splitlines()[0]}\n{advice}{failures.LOOK}"
    ) from lost


def _run(built: Bundle, handle: str, version: int) -> Run:
    shape = built.metadata["machine_shape"]
    return Run(handle, version, page(handle), built.sha256, shape)


# Finding the version of a bundle


def _missing(built: Bundle, source: Source) -> dict[str, tuple[str, ...]]:
    wanted = {kind: set(built.metadata.get(kind, ())) for kind in SOURCES}
    lacking = {kind: wanted[kind].difference(source.asks[kind]) for kind in SOURCES}
    return {kind: tuple(sorted(names)) for kind, names in lacking.items() if names}


def _require_sources(built: Bundle, version: int, wrong: Mapping[str, tuple[str, ...]]) -> None:
    wrong = {kind: names for kind, names in wrong.items() if names}
    if wrong:
        named = "; ".join(
            f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in wrong.items()
        )
        runs = f"Version {version} runs without them and is useless. " if version else ""
        pages = failures.plain(models.pages(wrong.get("model_sources", ())))
        licence = f"\nIf a model has a licence, accept it on its page:\n{pages}" if pages else ""
        raise SourcesRefused(
            f"Kaggle did not accept all sources of {built.handle}"
            f" ({failures.plain(named)}).\n"
            f"{runs}Check on kaggle.com that all of them exist and are shared with you, and that"
            f" you have joined the competition.{licence}",
            version,
            tuple(wrong),
        )


def _patiently(kaggle: Kaggle, seconds: float, ask: Callable[[], T]) -> T:
    """Call the function `ask`, and retry after `NotFound` and `Unknown`.

    A new version may not be visible at first, and a 403 may be temporary. The retries end when the
    pauses between them add up to `seconds`. Only pauses count, so slow responses do not reduce the
    number of attempts.
    """
    left, pause = seconds, kaggle.pace.first
    while True:
        try:
            return ask()
        except (NotFound, Unknown):
            if pause > left:
                raise
        time.sleep(pause)
        left -= pause
        pause = min(pause * 1.5, kaggle.pace.most)


def _find(kaggle: Kaggle, handle: str, sha256: str, before: int) -> Source:
    newest = kaggle.get_kernel(handle)
    last = newest.version if newest is not None else 0
    for version in range(last, max(before, last - OTHERS_AT_MOST), -1):
        source = newest if version == last else kaggle.get_kernel(handle, version)
        if source is not None and sha256 in source.text:
            return source
    raise NotFound(f"No version of {handle} contains the bundle {sha256[:12]}.")


# Earlier pushes of the same bundle


def recorded(kaggle: Kaggle, records: Records, built: Bundle) -> Steps[tuple[Run, str] | None]:
    """Return the run of a bundle according to the journal, and the run's status.

    Return None if the journal does not contain such a run, or if the run failed or no longer
    exists.
    """
    journal = records.journal
    rows = journal.requests(PUSH, handle=built.handle, bundle_sha256=built.sha256)
    ours = next((row for row in rows if row.state != State.REFUSED), None)
    if ours is None or not ours.is_made:
        return None
    status = status_of(kaggle, ours)
    if status is None:
        journal.record(ours, State.ABSENT)
        yield Note(
            f"{journal.server} cannot find {run_of(ours)}, so this run is ignored. The version"
            " was deleted, its notebook was renamed, or that Kaggle server was restarted. Its page:"
            f" https://www.kaggle.com/code/{ours.handle}"
        )
    return None if status is None or status in ENDED_BADLY else (run_of(ours), status)


def holding(
    kaggle: Kaggle, records: Records, built: Bundle, current: Source | None
) -> tuple[Run, str] | None:
    """Return the run and status of the current version if it contains the bundle and its sources.

    Return None if the version does not contain them or has failed. It may have been pushed from
    another machine.
    """
    if current is None or built.sha256 not in current.text or _missing(built, current):
        return None
    status = kaggle.kernel_status(built.handle, current.version).name
    if status in ENDED_BADLY or records.stored_by_refusal(built.handle, status):
        return None
    return _run(built, built.handle, current.version), status


def status_of(kaggle: Kaggle, row: Request) -> str | None:
    ask = partial(kaggle.kernel_status, row.handle, row.number)
    try:
        found = _patiently(kaggle, max(kaggle.pace.most, kaggle.pace.unseen - row.age), ask)
    except NotFound:
        return None
    return started(kaggle, row, found.name)


def started(kaggle: Kaggle, row: Request, status: str) -> str:
    """Return a version's status. A draft that may still be queued is reported as QUEUED."""
    return "QUEUED" if status == SAVED and row.age < kaggle.pace.unstarted else status


# Pushes without a response


def resolve(kaggle: Kaggle, records: Records, kernels: Iterable[str] = KERNELS) -> Steps[None]:
    """For each push that got no response, record the version that contains its bundle."""
    for row in records.unclear(kernels):
        look = partial(_find, kaggle, row.handle, row.bundle_sha256, row.before or 0)
        try:
            found = _patiently(kaggle, kaggle.pace.unseen - row.age, look)
        except NotFound:
            records.journal.record(row, State.ABSENT)
            yield Note(
                f"The last push of {row.kernel} got no response, and no version of {row.handle}"
                " contains its bundle."
            )
        else:
            known = {"number": found.version, "url": page(row.handle)}
            records.journal.record(row, State.VERSION, **known)
            yield Note(
                f"The last push of {row.kernel} got no response, but created"
                f" {row.handle}/{found.version}."
            )
