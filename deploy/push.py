"""Push a bundle once, and find out what came of a push that had no answer.

Reads  the journal's pushes, and the versions that Kaggle has
Gives  the run that a push made, or the one that holds its bundle already

Nothing here takes "the latest" version: another browser tab may have made that.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from deploy import failures
from deploy.bundle import Bundle
from deploy.calls import SOURCES, Saved, Source
from deploy.client import Kaggle
from deploy.errors import (
    UNTOLD,
    Ambiguous,
    BadAnswer,
    NotFound,
    Refused,
    RelayError,
    Renamed,
    SourcesRefused,
    Unknown,
)
from deploy.events import Note, Steps
from deploy.journal import PUSH, Absent, Journal, Made, Request, Sending, State
from deploy.project import KERNELS
from deploy.records import Records, run_of
from deploy.runs import ENDED_BADLY, SAVED, Run, page

OTHERS_AT_MOST = 10  # versions that others may have pushed after ours
NO_NOTEBOOK = re.compile(r"(notebook|kernel) not found", re.IGNORECASE)


# The one call that must not be made twice


def send(
    kaggle: Kaggle, journal: Journal, request: Request, built: Bundle, before: int, seconds: int
) -> Steps[Run]:
    """Push a bundle, record the version that Kaggle gave, and return its run.

    Args:
        request: of the journal, which intends this.
        before: the current version; 0 if there is none.
        seconds: after which Kaggle ends the session; no call can end one.

    Raises:
        NoQuota: if the week's accelerator time is used up, or too many sessions run.
        Refused: if Kaggle refuses; `SourcesRefused`, if the run started without one of its sources.
        BadAnswer: if Kaggle names a kernel of somebody else.
        Ambiguous: if the answer was lost, and no version can be identified as ours.
    """
    with journal.ended_by_errors(request):
        request = journal.record(request, Sending(before))
        try:
            saved = kaggle.save_kernel(built.metadata, built.text, timeout_seconds=seconds)
        except Ambiguous as error:
            run = yield from _lost(kaggle, built, before, error)
        except (NotFound, Refused) as error:
            raise _first_refused(built, before, str(error).splitlines()[0], error) from error
        else:
            _require_version(built, before, saved)
            handle = _address(kaggle, built, saved)
            if handle != built.handle:
                yield Note(
                    f"Kaggle gave {built.handle} another address, {handle}. It is watched there,"
                    " and the next push goes there."
                )
            shape = built.metadata["machine_shape"]
            url = page(saved.url)
            run = Run(handle, saved.version, url, built.sha256, shape, saved.kernel_id)
        known = {"handle": run.handle, "url": run.url, "kernel_id": run.kernel_id}
        journal.record(request, Made(run.version, known))
    return run


def _first_refused(built: Bundle, before: int, said: str, error: Refused) -> Refused:
    """Return the error for the refusal of a new notebook; of any other it is the one given."""
    if before:
        return error
    if isinstance(error, NotFound) or NO_NOTEBOOK.search(said):
        why = "Its first push may have been refused, so that it has an address and no version."
        return Refused(failures.without_version(built.handle, f"{said}\n{why}"))
    if failures.IN_USE.search(said):
        return Refused(
            f"{said}\nExpected {built.handle} to be free. Delete by hand what has that title, and"
            f" push again. Or {failures.OTHER_ADDRESS}"
        )
    return error


def _require_version(built: Bundle, before: int, saved: Saved) -> None:
    """Raise unless Kaggle's answer to a push says that a version runs, with all of its sources."""
    said = failures.plain(saved.error).rstrip(".")
    if said:
        heading = f"Kaggle refused to run {built.handle}: {said}."
        refusal = failures.refusal(heading, said)
        if isinstance(refusal, Refused):
            raise _first_refused(built, before, heading, refusal)
        raise refusal
    _require_sources(built, saved.version, saved.invalid)
    if saved.version < 1:
        raise Ambiguous(
            f"Kaggle accepted the push of {built.handle} but gave no version number; expected 1 or"
            f" more.\n{failures.LOOK}"
        )


def _address(kaggle: Kaggle, built: Bundle, saved: Saved) -> str:
    """Return the handle of the kernel that a push made: what Kaggle says, or the bundle's."""
    if not saved.handle or saved.handle.lower() == built.handle.lower():
        return built.handle
    if saved.handle.partition("/")[0].lower() != kaggle.username.lower():
        raise BadAnswer(
            f"Kaggle answered the push of {built.handle} with {saved.handle}, a notebook of"
            f" somebody else; expected one of {kaggle.username}.\n"
            "Nothing is watched. Look on kaggle.com which version holds the bundle"
            f" {built.sha256[:12]}, or run:\ninvoke status"
        )
    return saved.handle


def _lost(kaggle: Kaggle, built: Bundle, before: int, lost: Ambiguous) -> Steps[Run]:
    """Return the run of a push whose answer was lost, if a new version holds the bundle."""
    seconds = kaggle.pace.unseen
    yield Note(
        f"The answer to the push was lost. Looking for its version for up to {seconds:.0f} s."
    )
    unseen = "no new version holds it"
    try:
        found = _find(kaggle, built.handle, built.sha256, before, seconds)
    except RelayError as error:  # it says nothing of the push
        found, unseen = None, f"its version cannot be looked for: {str(error).splitlines()[0]}"
    if found is not None:
        _require_sources(built, found.version, _missing(built, found))
        return _run(built, found.version)
    advice = failures.lost_push_advice(
        lost, built.metadata.get("dataset_sources", ()), "" if before else built.handle
    )
    raise Ambiguous(
        f"The answer to the push of {built.handle} was lost, and {unseen.rstrip('.')}.\n"
        f"{str(lost).splitlines()[0]}\n{advice}{failures.LOOK}"
    ) from lost


def _run(built: Bundle, version: int) -> Run:
    url = page(f"https://www.kaggle.com/code/{built.handle}")
    return Run(built.handle, version, url, built.sha256, built.metadata["machine_shape"])


# Which version holds a bundle


def _missing(built: Bundle, source: Source) -> dict[str, tuple[str, ...]]:
    """Return the sources of the bundle that a version lacks, by kind."""
    lacking = {
        kind: tuple(sorted(set(built.metadata.get(kind, [])) - set(source.asks.get(kind) or ())))
        for kind in SOURCES
    }
    return {kind: names for kind, names in lacking.items() if names}


def _require_sources(built: Bundle, version: int, wrong: Mapping[str, tuple[str, ...]]) -> None:
    """Raise `SourcesRefused` if Kaggle did not accept a source of the bundle."""
    wrong = {kind: names for kind, names in wrong.items() if names}
    if wrong:
        named = "; ".join(
            f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in wrong.items()
        )
        runs = f"Version {version} runs without it, so its result is worthless. " if version else ""
        raise SourcesRefused(
            f"Kaggle did not accept all sources of {built.handle}"
            f" ({failures.plain(named)}).\n"
            f"{runs}Expected all of them. Check on kaggle.com that they exist and are shared"
            " with you, and that you joined the competition.",
            version,
            tuple(wrong),
        )


def _find(kaggle: Kaggle, handle: str, sha256: str, before: int, seconds: float) -> Source | None:
    """Return the newest version after `before` that holds a bundle; look for so many seconds, once
    at least.

    Raises:
        Unknown: if Kaggle does not tell at the end.
    """
    end, pause = time.monotonic() + seconds, kaggle.pace.first
    while True:
        over = time.monotonic() + pause > end
        try:
            found = _find_now(kaggle, handle, sha256, before)
        except Unknown:  # a new kernel may be hidden for some seconds
            if over:
                raise
            found = None
        if found is not None or over:
            return found
        time.sleep(pause)
        pause = min(pause * 1.5, kaggle.pace.most)


def _find_now(kaggle: Kaggle, handle: str, sha256: str, before: int) -> Source | None:
    newest = kaggle.get_kernel(handle)
    if newest is None:
        return None
    for version in range(newest.version, max(before, newest.version - OTHERS_AT_MOST), -1):
        source = newest if version == newest.version else kaggle.get_kernel(handle, version)
        if source is not None and sha256 in source.text:
            return source
    return None


# What is there already


def adopted(run: Run, status: str) -> Note:
    """Return the line that says that a run is used in place of a push."""
    machine = run.machine_shape or run.accelerator
    return Note(
        f"{run} holds this bundle already, {status} on {machine}; nothing was sent. To run it once"
        f" more: `{run.push_task} --again`"
    )


def recorded(kaggle: Kaggle, records: Records, built: Bundle) -> Steps[tuple[Run, str] | None]:
    """Return the run that holds a bundle by the journal, and its status, unless it failed or is
    gone.
    """
    journal = records.journal
    rows = journal.requests(PUSH, handle=built.handle, bundle_sha256=built.sha256)
    ours = next((row for row in rows if row.state != State.REFUSED), None)
    if ours is None or not ours.is_made:
        return None
    status = yield from status_of(kaggle, ours)
    if status is None:
        journal.record(ours, Absent())
        yield Note(
            f"The journal has {run_of(ours)}, and {journal.server} does not: the version was"
            " deleted, its notebook was renamed, or that Kaggle was restarted. It no longer counts."
        )
    return None if status is None or status in ENDED_BADLY else (run_of(ours), status)


def holding(
    kaggle: Kaggle, records: Records, built: Bundle, current: Source | None
) -> tuple[Run, str] | None:
    """Return the run of the current version, and its status, if it holds the bundle with its
    sources and did not fail: another machine may have pushed it.
    """
    if current is None or built.sha256 not in current.text or _missing(built, current):
        return None
    status = kaggle.kernel_status(built.handle, current.version).name
    # What a refused push left waits for a machine for ever.
    refused = records.refused_after(built.handle, bundle_sha256=built.sha256)
    left = refused is not None and current.version > refused and status == "QUEUED"
    return None if left or status in ENDED_BADLY else (_run(built, current.version), status)


def status_of(kaggle: Kaggle, row: Request, *, again: bool = False) -> Steps[str | None]:
    """Return the status of our own version; None if Kaggle does not have it.

    A new version is not found for some seconds, and a 403 may pass, so Kaggle is asked again for
    that long.

    Args:
        again: return "" where Kaggle does not tell, and say so: whoever says --again pushes all
            the same.

    Raises:
        Unknown: if Kaggle does not tell: the version may be there.
        Renamed: as `require_address`.
    """
    end = 0.0
    while True:
        try:
            return started(kaggle, row, kaggle.kernel_status(row.handle, row.number).name)
        except (NotFound, Unknown) as error:
            patience = 0.0 if again and isinstance(error, Unknown) else kaggle.pace.most
            end = end or time.monotonic() + max(patience, kaggle.pace.unseen - row.age)
            if time.monotonic() >= end:
                try:
                    if not isinstance(error, NotFound):
                        raise
                    require_address(kaggle, run_of(row))
                    return None
                except (Renamed, Unknown) as untold:
                    if not again:
                        raise
                    why = str(untold).splitlines()[0]
                    yield Note(f"{why}\n--again: {run_of(row)} does not count.")
                    return ""
            time.sleep(kaggle.pace.first)


def started(kaggle: Kaggle, row: Request, status: str) -> str:
    """Return the status of our own version; QUEUED where it may only not be queued yet."""
    return "QUEUED" if status == SAVED and row.age < kaggle.pace.unstarted else status


def require_address(kaggle: Kaggle, run: Run) -> None:
    """Find a run that is not found, by the number of its notebook, in the list of what is ours.

    A rename is not followed: submissions and bundles name the address.

    Raises:
        Renamed: if the notebook has another address.
        Unknown: if that list does not answer: the notebook may have one.
    """
    if not run.kernel_id:
        return
    try:
        own = kaggle.own_kernels()
        now = next((one.handle for one in own if one.kernel_id == run.kernel_id), run.handle)
    except UNTOLD as error:
        url = page(run.url or f"https://www.kaggle.com/code/{run.handle}")
        why = str(error).partition("\n")[0]
        raise Unknown(
            f"Kaggle does not find {run}, and does not show whether its notebook was renamed:"
            f" {why}\nNothing was sent, and no record was changed. Look at {url}",
            url,
            None,
        ) from error
    if now.lower() != run.handle.lower():
        raise Renamed(
            f"The notebook of {run} was renamed on Kaggle: its address is {now} now. Expected"
            f" {run.handle}, which its submissions and what mounts it are known by.\n"
            "Nothing was sent. Give it back the title that makes that address, at"
            f" https://www.kaggle.com/code/{now} and run the same command again."
        )


@contextmanager
def noticing_renames(kaggle: Kaggle, run: Run) -> Iterator[None]:
    """Raise `Renamed` where a run is not found whose notebook was renamed."""
    try:
        yield
    except NotFound:
        with suppress(Unknown):
            require_address(kaggle, run)
        raise


# What came of a push without an answer


@contextmanager
def naming_again(records: Records, kernel: str) -> Iterator[None]:
    """Name the command that pushes all the same, where Kaggle does not tell of our notebook."""
    command = records.project.command(f"{KERNELS[kernel].task} --again")
    try:
        yield
    except Renamed as error:
        error.args = (f"{error} To leave it, and push a new notebook:\n{command}",)
        raise
    except Unknown as error:
        if command not in str(error) and "/code/" in error.page:
            error.args = (
                f"{error}\nThen run the same command again. To push it once more, whatever runs"
                f" there:\n{command}",
            )
        raise


def resolve(kaggle: Kaggle, records: Records, *, again: bool = False) -> Steps[None]:
    """Look at Kaggle for the version that holds the bundle of each unclear push, and record it.

    Args:
        again: leave a push unclear of which Kaggle does not tell, and say so.

    Raises:
        Unknown: if Kaggle does not tell.
    """
    for row in records.unclear():
        try:
            with naming_again(records, row.kernel):
                seconds = kaggle.pace.unseen - row.age
                found = _find(kaggle, row.handle, row.bundle_sha256, row.before or 0, seconds)
        except Unknown as error:
            if not again:
                raise
            yield Note(
                f"{str(error).splitlines()[0]}\n--again: what the last push of {row.kernel} made"
                " does not count."
            )
            continue
        if found is None:
            records.journal.record(row, Absent())
            yield Note(
                f"The last push of {row.kernel} had no answer, and no version of {row.handle} holds"
                " its bundle."
            )
        else:
            url = page(f"https://www.kaggle.com/code/{row.handle}")
            records.journal.record(row, Made(found.version, {"url": url}))
            yield Note(
                f"The last push of {row.kernel} had no answer; it became"
                f" {row.handle}/{found.version}."
            )
