"""Push a bundle once, and find out what came of a push that had no answer.

Reads  the journal's pushes, and the versions that Kaggle has
Gives  the run that a push made, or the one that holds its bundle already

Nothing here takes "the latest" version: another browser tab may have made that.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

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
from deploy.project import KERNELS, Project
from deploy.records import Records, run_of
from deploy.runs import ENDED_BADLY, SAVED, Run, page

T = TypeVar("T")
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
            run = _answered(kaggle, built, saved)
        except Ambiguous as error:
            run = yield from _lost(kaggle, built, before, error)
        except Refused as error:
            if not before and (told := _refused_first(built, str(error).splitlines()[0], error)):
                raise Refused(told) from error
            raise
        if run.handle != built.handle:
            yield Note(
                f"Kaggle gave {built.handle} another address, {run.handle}. It is watched there,"
                " and the next push goes there."
            )
        known = {"handle": run.handle, "url": run.url, "kernel_id": run.kernel_id}
        journal.record(request, Made(run.version, known))
    return run


def _answered(kaggle: Kaggle, built: Bundle, saved: Saved) -> Run:
    """Return the run that Kaggle's answer to a push names. All of its sources have to be there."""
    if said := failures.plain(saved.error).rstrip("."):
        raise failures.refusal(f"Kaggle refused to run {built.handle}: {said}.", said)
    _require_sources(built, saved.version, saved.invalid)
    if saved.version < 1:
        raise Ambiguous(
            f"Kaggle accepted the push of {built.handle} but gave no version number; expected one."
        )
    handle = saved.handle or built.handle
    if handle.lower() == built.handle.lower():
        handle = built.handle
    elif handle.partition("/")[0].lower() != kaggle.username.lower():
        raise BadAnswer(
            f"Kaggle answered the push of {built.handle} with {handle}, a notebook of somebody"
            f" else; expected one of {kaggle.username}.\nLook on kaggle.com which version holds"
            f" the bundle {built.sha256[:12]}, or run:\ninvoke status"
        )
    return _run(built, handle, saved.version, saved.kernel_id)


def _refused_first(built: Bundle, said: str, error: Refused) -> str:
    """Return what Kaggle's refusal of a new notebook means; "": what it says."""
    if isinstance(error, NotFound) or NO_NOTEBOOK.search(said):
        why = "Its first push may have been refused, so that it has an address and no version; or"
        why += " its address begins with a digit."
        return failures.without_version(built.handle, f"{said}\n{why}")
    if failures.IN_USE.search(said):
        return (
            f"{said}\nExpected {built.handle} to be free. Delete by hand what has that title, and"
            f" push again. Or {failures.OTHER_ADDRESS}"
        )
    return ""


def _lost(kaggle: Kaggle, built: Bundle, before: int, lost: Ambiguous) -> Steps[Run]:
    """Return the run of a push whose answer was lost, if a new version holds the bundle."""
    seconds = kaggle.pace.unseen
    yield Note(
        f"The answer to the push was lost. Looking for its version for up to {seconds:.0f} s."
    )
    unseen = "no new version holds it"
    try:
        look = partial(_find, kaggle, built.handle, built.sha256, before)
        found = _patiently(kaggle, seconds, look)
    except RelayError as error:  # it says nothing of the push
        found, unseen = None, f"its version cannot be looked for: {str(error).splitlines()[0]}"
    if found is not None:
        _require_sources(built, found.version, _missing(built, found))
        return _run(built, built.handle, found.version)
    advice = failures.lost_push_advice(
        lost, built.metadata.get("dataset_sources", ()), "" if before else built.handle
    )
    raise Ambiguous(
        f"The answer to the push of {built.handle} was lost, and {unseen.rstrip('.')}.\n"
        f"{str(lost).splitlines()[0]}\n{advice}{failures.LOOK}"
    ) from lost


def _run(built: Bundle, handle: str, version: int, kernel_id: int = 0) -> Run:
    shape = built.metadata["machine_shape"]
    return Run(handle, version, page(handle), built.sha256, shape, kernel_id)


# Which version holds a bundle


def _missing(built: Bundle, source: Source) -> dict[str, tuple[str, ...]]:
    """Return the sources of the bundle that a version lacks, by kind."""
    wanted = {kind: set(built.metadata.get(kind, ())) for kind in SOURCES}
    lacking = {kind: wanted[kind].difference(source.asks[kind]) for kind in SOURCES}
    return {kind: tuple(sorted(names)) for kind, names in lacking.items() if names}


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


def _patiently(
    kaggle: Kaggle,
    seconds: float,
    ask: Callable[[], T | None],
    passes: tuple[type[RelayError], ...] = (NotFound, Unknown),
) -> T | None:
    """Return the first answer; ask for so many seconds, once at least: a new version may be hidden
    for some.

    Args:
        passes: the errors after which it is asked again.

    Raises:
        NotFound, Unknown: as the last question did.
    """
    end, pause = time.monotonic() + seconds, kaggle.pace.first
    while True:
        over = time.monotonic() + pause > end
        try:
            found = ask()
        except passes:
            if over:
                raise
            found = None
        if found is not None or over:
            return found
        time.sleep(pause)
        pause = min(pause * 1.5, kaggle.pace.most)


def _find(kaggle: Kaggle, handle: str, sha256: str, before: int) -> Source | None:
    """Return the newest version after `before` that holds a bundle.

    Raises:
        Unknown: if Kaggle does not tell.
    """
    newest = kaggle.get_kernel(handle)
    if newest is None:
        return None
    for version in range(newest.version, max(before, newest.version - OTHERS_AT_MOST), -1):
        source = newest if version == newest.version else kaggle.get_kernel(handle, version)
        if source is not None and sha256 in source.text:
            return source
    return None


# What is there already


def adopted(project: Project, kernel: str, run: Run, status: str) -> Note:
    """Return the line that says that a run is used in place of a push."""
    machine = run.machine_shape or run.accelerator
    return Note(
        f"{run} holds this bundle already, {status} on {machine}; nothing was sent. To run it once"
        f" more: {project.command(f'{KERNELS[kernel].task} --again')}"
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
    where = built.handle, current.version
    left = records.left_by_refusal(*where, status, bundle_sha256=built.sha256)
    return None if left or status in ENDED_BADLY else (_run(built, *where), status)


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
    run, hidden = run_of(row), kaggle.pace.unseen - row.age
    try:
        ask = partial(kaggle.kernel_status, row.handle, row.number)
        # A 404 has to stay, whoever says --again: by it the version counts as deleted.
        passes = (NotFound,) if again and hidden <= 0 else (NotFound, Unknown)
        found = _patiently(kaggle, max(kaggle.pace.most, hidden), ask, passes)
        return started(kaggle, row, found.name) if found is not None else None
    except (NotFound, Unknown) as error:
        try:
            if isinstance(error, Unknown):
                raise
            require_address(kaggle, run)
            return None
        except (Renamed, Unknown) as untold:
            if not again:
                raise
            yield Note(f"{str(untold).splitlines()[0]}\n--again: {run} does not count.")
            return ""


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
        url = f"https://www.kaggle.com/code/{run.handle}"
        raise Unknown(
            f"Kaggle does not find {run}, and does not show whether its notebook was renamed:"
            f" {str(error).splitlines()[0]}\nNothing was sent. Look at {url}",
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
    except (Renamed, Unknown) as error:
        of_dataset = isinstance(error, Unknown) and "/code/" not in error.page
        if command not in str(error) and not of_dataset:
            error.args = (f"{error}\nTo push it once more, whatever runs there:\n{command}",)
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
                look = partial(_find, kaggle, row.handle, row.bundle_sha256, row.before or 0)
                found = _patiently(kaggle, kaggle.pace.unseen - row.age, look)
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
            records.journal.record(row, Made(found.version, {"url": page(row.handle)}))
            yield Note(
                f"The last push of {row.kernel} had no answer; it became"
                f" {row.handle}/{found.version}."
            )
