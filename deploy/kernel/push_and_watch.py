"""Kernels: push a bundle, and watch exactly that version.

Reads  a bundle (deploy/bundle/bundle.py)
Gives  a `Run`: one execution of one kernel version, and how it ended

Nothing is ever "the latest": another browser tab may have made that.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deploy.bundle import gate
from deploy.bundle.bundle import Bundle
from deploy.client import credentials, failure_messages
from deploy.client.client import SOURCES, Kaggle
from deploy.client.responses import Source
from deploy.errors import (
    Ambiguous,
    CredentialError,
    DeadlinePassed,
    Denied,
    Detached,
    NoQuota,
    NotFound,
    Refused,
    RelayError,
    RunFailed,
    SourcesRefused,
    Unreachable,
    UsageError,
)
from deploy.kernel.log_stream import Live, clock

Show = Callable[[str], None]

TAIL_LINES = 40
LOOKS = 3  # at the versions, after a push whose answer was lost
NOT_YET = "NOT_THERE_YET"
OTHERS_AT_MOST = 10  # versions that others may have pushed since
ENDED_BADLY = ("ERROR", "CANCEL_REQUESTED", "CANCEL_ACKNOWLEDGED", "NEW_SCRIPT")


@dataclass(frozen=True)
class Run:
    """One execution of one kernel version.

    Attributes:
        url: its page, for a person; empty where there is none, or it is not known.
        bundle_sha256: empty where we did not push it ourselves.
    """

    handle: str
    version: int
    url: str
    bundle_sha256: str

    def __str__(self) -> str:
        return f"{self.handle}/{self.version}"


def parse(text: str) -> Run:
    """Return the run that `owner/slug/3` names. Raises `UsageError` for anything else.

    >>> parse("ann/digits-train-tpu/3").version
    3
    """
    match = re.fullmatch(r"([A-Za-z0-9_-]{1,50}/[A-Za-z0-9-]{1,100})/v?([1-9][0-9]{0,8})", text)
    if match is None:
        raise UsageError(
            f"--run {text[:80]!r} is not a run; expected owner/slug/version, as ann/digits-train-tpu/3."
            "\nCorrect it; `invoke report` takes a folder, too, that is there."
        )
    return Run(match[1], int(match[2]), "", "")


def push(
    kaggle: Kaggle,
    bundle: Bundle,
    *,
    timeout_seconds: int,
    again: bool = False,
    show: Show = lambda line: None,
) -> Run:
    """Push the bundle and return the run that Kaggle started for it; the run that holds it already,
    if there is one.

    Args:
        timeout_seconds: after which Kaggle stops the session; there is no call to stop one.
        again: push even if the current version holds this very bundle and has not failed.

    Raises:
        NoQuota: if Kaggle says that the week's accelerator time is used up, or that too many
            sessions run.
        Refused: if Kaggle says no; SourcesRefused, if it started the run without one of its
            sources.
        Ambiguous: if no answer came, and the version that is there now cannot be told to be ours or
            not.
    """
    before = kaggle.get_kernel(bundle.handle)
    run = None if again else _holding(kaggle, bundle, before)
    if run is not None:
        adopted(run, show)
        return run
    text = bundle.notebook.read_text(encoding="utf-8")
    gate.without_secrets(
        f"the bundle of {bundle.handle}", text
    )  # it may have been edited since it was built
    try:
        saved = kaggle.save_kernel(bundle.metadata, text, timeout_seconds=timeout_seconds)
    except Ambiguous as error:
        return _look_again(kaggle, bundle, before.version if before else 0, error)
    said = failure_messages.plain(saved.error)
    if said:
        kind = NoQuota if failure_messages.QUOTA.search(said) else Refused
        later = (
            "Try again later: invoke status"
            if kind is NoQuota
            else "Correct what it says and push again."
        )
        raise kind(
            f"Kaggle refused to run {bundle.handle}: {said}\nExpected a new version. {later}"
        )
    _require_sources(bundle, saved.version, saved.invalid)
    if saved.version < 1:
        raise Ambiguous(
            f"Kaggle took the push of {bundle.handle} and gave no version number; expected 1 or more.\n{failure_messages.LOOK}"
        )
    return Run(bundle.handle, saved.version, page(saved.url), bundle.sha256)


def page(url: str) -> str:
    """Return a page's address; none where this machine plays Kaggle, which has no pages."""
    return "" if credentials.environment() == "LOCALHOST" else url


def adopted(run: Run, show: Show) -> None:
    """Say that this run is taken in place of a push."""
    show(f"{run} holds this bundle already; nothing was sent. To run it once more: --again")


def holding(kaggle: Kaggle, bundle: Bundle) -> Run | None:
    """Return the run of the current version if it holds the bundle, with all it asks for, and has
    not failed.
    """
    return _holding(kaggle, bundle, kaggle.get_kernel(bundle.handle))


def _holding(kaggle: Kaggle, bundle: Bundle, source: Source | None) -> Run | None:
    if source is None or bundle.sha256 not in source.text or _missing(bundle, source):
        return None
    status = kaggle.kernel_status(bundle.handle, source.version).name
    return None if status in ENDED_BADLY else _run(bundle, source.version)


def _run(bundle: Bundle, version: int) -> Run:
    return Run(
        bundle.handle, version, page(f"https://www.kaggle.com/code/{bundle.handle}"), bundle.sha256
    )


def _missing(bundle: Bundle, source: Source) -> dict[str, tuple[str, ...]]:
    """Return what the bundle asks for and the version does not have, by kind."""
    lacking = {
        kind: tuple(sorted(set(bundle.metadata.get(kind, [])) - set(source.asks.get(kind) or ())))
        for kind in SOURCES
    }
    return {kind: names for kind, names in lacking.items() if names}


def _require_sources(bundle: Bundle, version: int, wrong: Mapping[str, tuple[str, ...]]) -> None:
    """Raise `SourcesRefused` if anything that the bundle asks for was not accepted."""
    named = [
        f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in wrong.items() if names
    ]
    if named:
        raise SourcesRefused(
            f"Kaggle did not accept all that {bundle.handle} asks for ({failure_messages.plain('; '.join(named))}).\n"
            f"{f'Version {version} runs without it, and its result is worth nothing. ' if version else ''}"
            "Expected the empty lists. Check on kaggle.com that they exist, are yours, and that you joined the competition.",
            version,
            tuple(kind for kind, names in wrong.items() if names),
        )


def _look_again(kaggle: Kaggle, bundle: Bundle, before: int, lost: Ambiguous) -> Run:
    """After a push whose answer was lost, return the run if a version is new and holds our source."""
    for _ in range(LOOKS):
        time.sleep(kaggle.pace.first)
        found = find(kaggle, bundle.handle, bundle.sha256, before)
        if found is not None:
            _require_sources(bundle, found.version, _missing(bundle, found))
            return _run(bundle, found.version)
    received = str(lost).splitlines()[0]
    known = failure_messages.poisoned(lost, bundle.metadata.get("dataset_sources", ()))
    raise Ambiguous(
        f"The answer to the push of {bundle.handle} was lost, and no new version holds our bundle.\n{received}\n{failure_messages.LOOK}{known}"
    ) from lost


def find(kaggle: Kaggle, handle: str, sha256: str, before: int) -> Source | None:
    """Return the version after `before` whose source holds this bundle, newest first; None if there
    is none.
    """
    newest = kaggle.get_kernel(handle)
    if newest is None:
        return None
    for version in range(newest.version, max(before, newest.version - OTHERS_AT_MOST), -1):
        source = newest if version == newest.version else kaggle.get_kernel(handle, version)
        if source is not None and sha256 in source.text:
            return source
    return None


def watch(
    kaggle: Kaggle,
    run: Run,
    *,
    deadline_seconds: float,
    show: Show,
    queue_seconds: float | None = None,
) -> str:
    """Follow that version until it ends, and return "COMPLETE".

    Args:
        deadline_seconds: for the run itself, from the moment it is seen running.
        queue_seconds: for it to begin; default: the same.
        show: is given a line whenever the status, or the run's progress, has changed.

    Raises:
        NotFound, Denied: if there is no such run, or not for this user.
        RunFailed: if it ended otherwise; with Kaggle's message, the failing cell, its error and
            what usually helps.
        DeadlinePassed: after the deadline; the run goes on, and the message says how to re-attach.
        Unreachable: if Kaggle stayed silent for `kaggle.pace.patience` seconds.
        Detached: on Ctrl-C; the message says how to re-attach.
    """
    attach = f"The run goes on. To follow it again: invoke watch --run {run}"
    began, running = time.monotonic(), 0.0
    pause, last = kaggle.pace.first, ""
    left = _quota_left(kaggle, run)
    try:
        with Live(kaggle, run.handle, run.version) as live:
            while True:
                now = time.monotonic()
                # One that somebody else pushed, if it is there at all, has been there for long.
                young = bool(run.bundle_sha256) and now - began < kaggle.pace.most
                name, failure = _look(kaggle, run, young=young, met=last not in ("", NOT_YET))
                if name == "RUNNING":
                    running = running or now
                seen = (
                    f"{name}  {live.line}{_projected(run, live, now - running, left)}".rstrip()
                    if running
                    else name
                )
                if name == "COMPLETE" or seen != last:
                    show(f"{run}  {clock(now - began)}  {seen if name == 'RUNNING' else name}")
                    # Something happened: look often again.
                    last, pause = seen, kaggle.pace.first
                if name == "COMPLETE":
                    return name
                if name in ("ERROR", "CANCEL_ACKNOWLEDGED", "NEW_SCRIPT"):
                    then = f"What it wrote until then, if anything: invoke pull --run {run}"
                    raise RunFailed(failed(kaggle, run, name, failure, then))
                end = (
                    running + deadline_seconds
                    if running
                    else began + (queue_seconds or deadline_seconds)
                )
                if now + pause > end:
                    waited = "running" if running else "waiting for a machine"
                    raise DeadlinePassed(
                        f"{run} is {name} after {clock(now - began)}, {waited}; expected its end by now.\n{attach}"
                    )
                time.sleep(pause)
                pause = min(pause * 1.5, kaggle.pace.most)
    except KeyboardInterrupt:
        raise Detached(f"Detached from {run}.\n{attach}") from None
    except (Unreachable, CredentialError) as error:
        if isinstance(error, Denied) and last in ("", NOT_YET):
            raise  # there is no run to go on
        raise type(error)(f"{error}\n{attach}") from error


def _quota_left(kaggle: Kaggle, run: Run) -> float | None:
    """Return the seconds that the week has left for this run's accelerator; None where Kaggle does
    not say.
    """
    try:
        quota = kaggle.quota(patience=0)
    except RelayError:
        return None  # only shown
    return quota.tpu_seconds if _accelerator(run) == "TPU" else quota.gpu_seconds


def _projected(run: Run, live: Live, seconds: float, left: float | None) -> str:
    """Return what the run will have taken at its end, of what the week had left when the watch
    began.
    """
    ahead = live.seconds_ahead
    if ahead is None or left is None:
        return ""
    hours = (seconds + ahead) / 3600
    used = "under 0.1" if hours < 0.1 else f"about {hours:.1f}"
    return f"  will use {used} of the {left / 3600:.1f} {_accelerator(run)} hours left this week"


def _accelerator(run: Run) -> str:
    return "TPU" if run.handle.endswith("tpu") else "GPU"


def _look(kaggle: Kaggle, run: Run, *, young: bool, met: bool) -> tuple[str, str]:
    """Return status and failure message. `met`: the run is known to be there."""
    try:
        status = kaggle.kernel_status(run.handle, run.version)
    except (NotFound, Denied) as error:
        if young:
            return NOT_YET, ""  # a new version is not found for some seconds
        if met:
            raise
        raise _missed(kaggle, run, error) from error
    return status.name, status.failure


def _missed(kaggle: Kaggle, run: Run, error: RelayError) -> RelayError:
    """Return what to say of a run that is not there. Of one's own, Kaggle's 403 means that too."""
    if run.handle.partition("/")[0] != kaggle.username:
        return type(error)(
            f"There is no run {run} that {kaggle.username} may see: it does not exist, or it belongs to somebody else.\n"
            "Expected owner/slug/version of a run. Correct --run."
        )
    try:
        current = kaggle.get_kernel(run.handle)
        there = (
            f"the newest version is {current.version}" if current else "there is no such notebook"
        )
    except RelayError:
        there = "Kaggle knows none"
    return NotFound(
        f"There is no run {run}: {there}.\n"
        "Expected owner/slug/version of a run that was pushed. Correct --run; what was pushed from here: invoke status"
    )


def failed(kaggle: Kaggle, run: Run, name: str, failure: str, then: str) -> str:
    """Return what is known of a run that ended as `name`: its message, its failing cell, its log;
    `then`: what to do next.
    """
    if name == "NEW_SCRIPT":
        return f"{run} was saved and not run; expected a run.\nPush again: invoke push-train or push-infer"
    try:
        # As one text: a key of several lines has its shape only whole.
        log = failure_messages.plain("\n".join(kaggle.kernel_log(run.handle, run.version)))
        lines = log.split("\n") if log else []
    except RelayError as error:
        lines = [f"(the log could not be read: {str(error).splitlines()[0]})"]
    errors = [
        line.strip()
        for line in lines
        if re.match(r"\s*[\w.]*(Error|Exception|Interrupt|Exit)\b\s*(:|$)", line)
    ]
    cells = re.findall(r'Exception encountered at "In \[(\d+)\]"', "\n".join(lines))
    parts = [f"{run} ended as {name}; expected COMPLETE.", failure_messages.plain(failure).strip()]
    if cells:
        parts.append(f"The failing cell is In [{cells[-1]}] of {run.url or run}.")
    if errors:
        parts.append(f"The failing cell said: {errors[-1]}")
    if lines:
        parts.append(
            f"The end of its log:\n{chr(10).join('  | ' + line for line in lines[-TAIL_LINES:])}"
        )
    known = failure_messages.crash("\n".join([failure, *lines[-TAIL_LINES:]]))
    parts.append(known or "Correct the cause and push again.")
    parts.append(then)
    return "\n".join(part for part in parts if part)
