"""Push a bundle, and watch exactly the version that the push made.

Nothing here takes "the latest" version: another browser tab may have made that.
"""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from deploy import bundle_versions, crash_advice, credentials, failure_messages
from deploy.bundle import Bundle
from deploy.client import Kaggle
from deploy.errors import (
    Ambiguous,
    BadAnswer,
    Cancelled,
    CredentialError,
    DeadlinePassed,
    Denied,
    Detached,
    NotFound,
    NotMounted,
    Refused,
    RelayError,
    RunFailed,
    Unknown,
    Unreachable,
    UsageError,
)
from deploy.log_stream import LogStream
from deploy.look import Look, clock
from deploy.project import InWords, no_words
from deploy.responses import Saved, Source

Show = Callable[[str], None]
GoOn = Callable[[Unknown], bool]
"""Returns whether to push although Kaggle does not tell of the notebook."""

TAIL_LINES = 40
PROGRESS_PAUSES = 5  # the longest pauses between two lines of a pipe that tell progress alone
NOT_YET = "NOT_THERE_YET"
SAVED = "NEW_SCRIPT"  # Kaggle's word for a version that is saved and does not run, or not yet
NO_NOTEBOOK = re.compile(r"(notebook|kernel) not found", re.IGNORECASE)
CANCELLED = "CANCEL_ACKNOWLEDGED"  # in a browser, or by Kaggle when its time was up
ENDED_BADLY = ("ERROR", "CANCEL_REQUESTED", CANCELLED, SAVED)


@dataclass(frozen=True)
class Run:
    """One execution of one kernel version.

    Attributes:
        handle: owner/slug of the kernel.
        version: of the kernel.
        url: of its page; "": none, or unknown.
        bundle_sha256: "" if we did not push it.
        machine_shape: Kaggle's name of the machine that it asked for; "": unknown.
        kernel_id: of the kernel, which keeps it when it is renamed; 0: unknown.
    """

    handle: str
    version: int
    url: str
    bundle_sha256: str
    machine_shape: str = field(default="", compare=False)
    kernel_id: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.handle}/{self.version}"

    @property
    def accelerator(self) -> str:
        """What it runs on: "TPU", "GPU" or "CPU"."""
        return accelerator(self.handle, self.machine_shape)


def accelerator(kernel: str, machine_shape: str = "") -> str:
    """Return "TPU", "GPU" or "CPU": of the machine, or else by the end of the kernel's name.

    >>> accelerator("digits-train-tpu"), accelerator("digits-train-tpu", "NvidiaTeslaT4")
    ('TPU', 'GPU')
    """
    if machine_shape:
        return "TPU" if machine_shape.startswith("Tpu") else "GPU"
    kinds = re.findall(r"-(tpu|cpu|gpu)(?=-|$)", kernel)
    if not kinds and kernel.endswith("bench"):  # which asks for each machine by its shape
        return "CPU"
    return kinds[-1].upper() if kinds else "GPU"


def parse(text: str) -> Run:
    """Return the run that `owner/slug/3` names. Raises `UsageError` for anything else.

    >>> parse("ann/digits-train-tpu/3").version
    3
    """
    match = re.fullmatch(r"([A-Za-z0-9_-]{1,50}/[A-Za-z0-9-]{1,100})/v?([1-9][0-9]{0,8})", text)
    if match is None:
        raise UsageError(
            f"--run {text[:80]!r} is not a run; expected owner/slug/version, as"
            " ann/digits-train-tpu/3; for `invoke report`, also an existing folder.\n"
            "Correct it, or leave it out: the default is the last run that was pushed from here."
        )
    return Run(match[1], int(match[2]), "", "")


def push(
    kaggle: Kaggle,
    bundle: Bundle,
    *,
    timeout_seconds: int,
    again: bool = False,
    refused_after: int | None = None,
    go_on: GoOn = lambda unknown: False,
    show: Show = lambda line: None,
) -> Run:
    """Push a bundle and return its run; one that already holds the bundle is not pushed again.

    Args:
        timeout_seconds: after which Kaggle ends the session; no call can end one.
        again: push even if the current version holds this bundle and has not failed.
        refused_after: as in `holding`.
        go_on: as in `look_at`.
        show: is given a line if nothing was pushed, or if Kaggle chose another address.

    Returns:
        The run, at the address that Kaggle gave: it may be another one than the bundle's.

    Raises:
        NoQuota: if the week's accelerator time is used up, or too many sessions run.
        Refused: if Kaggle refuses; `SourcesRefused`, if the run started without one of its sources.
        BadAnswer: if Kaggle names a kernel of somebody else.
        Unknown: as `look_at`.
        Ambiguous: if the answer was lost, and no version can be identified as ours.
    """
    before = look_at(kaggle, bundle.handle, go_on)
    found = None if again else _holding(kaggle, bundle, before, refused_after)
    if found is not None:
        adopted(*found, show)
        return found[0]
    try:
        saved = kaggle.save_kernel(bundle.metadata, bundle.text, timeout_seconds=timeout_seconds)
    except Ambiguous as error:
        return _look_again(kaggle, bundle, before.version if before else 0, error, show)
    except NotFound as error:
        if before is not None:
            raise
        raise _no_notebook(bundle, str(error).splitlines()[0]) from error
    except Refused as error:
        heading = str(error).splitlines()[0]
        if not _is_taken(before, heading):
            raise
        raise _taken(bundle, heading) from error
    said = failure_messages.plain(saved.error).rstrip(".")
    if before is None and NO_NOTEBOOK.search(said):
        raise _no_notebook(bundle, f"Kaggle refused to run {bundle.handle}: {said}.")
    if said:
        heading = f"Kaggle refused to run {bundle.handle}: {said}."
        if _is_taken(before, said):
            raise _taken(bundle, heading)
        raise failure_messages.refusal(heading, said)
    bundle_versions.require_sources(bundle, saved.version, saved.invalid)
    if saved.version < 1:
        raise Ambiguous(
            f"Kaggle accepted the push of {bundle.handle} but gave no version number; expected 1 or"
            f" more.\n{failure_messages.LOOK}"
        )
    handle = _given_address(kaggle, bundle, saved, show)
    shape = bundle.metadata["machine_shape"]
    return Run(handle, saved.version, page(saved.url), bundle.sha256, shape, saved.kernel_id)


def _no_notebook(bundle: Bundle, heading: str) -> Refused:
    """Return the error for a push that Kaggle answers as if it were of a kernel that is gone."""
    why = "Its first push may have been refused, so that it has an address and no version."
    return Refused(failure_messages.without_version(bundle.handle, f"{heading}\n{why}"))


def _is_taken(before: Source | None, said: str) -> bool:
    """Return whether the title of a new notebook belongs to something else, by Kaggle's words."""
    return before is None and bool(failure_messages.IN_USE.search(said))


def _taken(bundle: Bundle, heading: str) -> Refused:
    """Return the error for a new notebook whose title belongs to something else."""
    return Refused(
        f"{heading}\nExpected {bundle.handle} to be free. Delete by hand what has that title, and"
        f" push again. Or {failure_messages.OTHER_ADDRESS}"
    )


def _given_address(kaggle: Kaggle, bundle: Bundle, saved: Saved, show: Show) -> str:
    """Return the handle of the kernel that a push made: what Kaggle says, or the bundle's."""
    if not saved.handle or saved.handle.lower() == bundle.handle.lower():
        return bundle.handle
    if saved.handle.partition("/")[0].lower() != kaggle.username.lower():
        raise BadAnswer(
            f"Kaggle answered the push of {bundle.handle} with {saved.handle}, a notebook of"
            f" somebody else; expected one of {kaggle.username}.\n"
            "Nothing is watched. Look on kaggle.com which version holds the bundle"
            f" {bundle.sha256[:12]}, or run:\ninvoke status"
        )
    show(
        f"Kaggle gave {bundle.handle} another address, {saved.handle}. It is watched there, and"
        " the next push goes there."
    )
    return saved.handle


def page(url: str) -> str:
    """Return a page's address; "" for a local Kaggle, which has no pages."""
    return "" if credentials.environment() == "LOCALHOST" else url


def adopted(run: Run, status: str, show: Show) -> None:
    """Show that a run is used in place of a push."""
    machine = run.machine_shape or run.accelerator
    show(
        f"{run} holds this bundle already, {status} on {machine}; nothing was sent. To run it once"
        f" more: `{crash_advice.task(run.handle, run.machine_shape)} --again`"
    )


def look_at(kaggle: Kaggle, handle: str, go_on: GoOn) -> Source | None:
    """Return the current version of a kernel of ours; None if there is none.

    Args:
        go_on: is asked where Kaggle does not tell; None is returned if it says yes.

    Raises:
        Unknown: if it says no.
    """
    try:
        return kaggle.get_kernel(handle)
    except Unknown as error:
        if not go_on(error):
            raise
        return None


def holding(
    kaggle: Kaggle,
    bundle: Bundle,
    refused_after: int | None = None,
    go_on: GoOn = lambda unknown: False,
) -> tuple[Run, str] | None:
    """Return the current version's run and its status, if it holds the bundle and its sources, and
    did not fail.

    Args:
        go_on: as in `look_at`.
        refused_after: the version before a push of this bundle that Kaggle refused to run. A later
            one may be what that push left: if it waits for a machine, it waits for ever.
    """
    return _holding(kaggle, bundle, look_at(kaggle, bundle.handle, go_on), refused_after)


def _holding(
    kaggle: Kaggle, bundle: Bundle, source: Source | None, refused_after: int | None
) -> tuple[Run, str] | None:
    if (
        source is None
        or bundle.sha256 not in source.text
        or bundle_versions.missing(bundle, source)
    ):
        return None
    status = kaggle.kernel_status(bundle.handle, source.version).name
    left = refused_after is not None and source.version > refused_after and status == "QUEUED"
    return None if left or status in ENDED_BADLY else (_run(bundle, source.version), status)


def _run(bundle: Bundle, version: int) -> Run:
    url = page(f"https://www.kaggle.com/code/{bundle.handle}")
    return Run(bundle.handle, version, url, bundle.sha256, bundle.metadata["machine_shape"])


def _look_again(kaggle: Kaggle, bundle: Bundle, before: int, lost: Ambiguous, show: Show) -> Run:
    """Return the run of a push whose answer was lost, if a new version holds the bundle."""
    seconds = kaggle.pace.unseen
    show(f"The answer to the push was lost. Looking for its version for up to {seconds:.0f} s.")
    unseen = "no new version holds it"
    try:
        found = bundle_versions.find_patiently(
            kaggle, bundle.handle, bundle.sha256, before, seconds
        )
    except RelayError as error:  # it says nothing of the push
        found, unseen = None, f"its version cannot be looked for: {str(error).splitlines()[0]}"
    if found is not None:
        bundle_versions.require_sources(
            bundle, found.version, bundle_versions.missing(bundle, found)
        )
        return _run(bundle, found.version)
    advice = failure_messages.lost_push_advice(
        lost, bundle.metadata.get("dataset_sources", ()), "" if before else bundle.handle
    )
    raise Ambiguous(
        f"The answer to the push of {bundle.handle} was lost, and {unseen.rstrip('.')}.\n"
        f"{str(lost).splitlines()[0]}\n{advice}{failure_messages.LOOK}"
    ) from lost


def watch(
    kaggle: Kaggle,
    run: Run,
    *,
    deadline_seconds: float,
    show: Show,
    queue_seconds: float | None = None,
    pushed_seconds: float | None = None,
    in_words: InWords = no_words,
) -> str:
    """Watch a run until it ends, and return "COMPLETE".

    Args:
        deadline_seconds: for the run itself, from the moment it is seen running.
        show: is given the line of a `Look` when the status or the progress has changed. The
            progress is looked at more often than Kaggle is asked for the status.
        queue_seconds: for the run to start; by default `deadline_seconds`.
        pushed_seconds: since the run was pushed; None: unknown.
        in_words: what a line of its progress says to a person.

    Raises:
        NotFound, Denied: if there is no such run, or not for this user.
        RunFailed: if it failed; with Kaggle's message, the failing cell, its error and advice;
            `NotMounted`, if it found a source missing; `Cancelled`, if it was ended from outside.
        DeadlinePassed: after the deadline; the message says how to re-attach.
        Unreachable: if Kaggle stayed silent for `kaggle.pace.patience` seconds.
        BadAnswer: if its answers, several in a row, could not be read.
        Detached: on Ctrl-C; the message says how to re-attach.
    """
    attach = f"The run continues. To watch it again:\ninvoke watch --run {run}"
    began, running = time.monotonic(), 0.0
    pause, last, said, said_at = kaggle.pace.first, "", "", -math.inf
    quota = _quota(kaggle, run)
    try:
        with LogStream(kaggle, run.handle, run.version, in_words) as log:

            def tell(name: str) -> None:
                nonlocal said, said_at
                now = time.monotonic()
                look = Look(
                    str(run),
                    name,
                    now - began + (pushed_seconds or 0.0),
                    now - running if running else None,
                    log.line,
                    log.progress,
                    run.accelerator,
                    *quota,
                    pushed=pushed_seconds is not None,
                    often=name == last and now < said_at + PROGRESS_PAUSES * kaggle.pace.most,
                )
                if look.state == said and name != "COMPLETE":
                    return
                show(look.line)
                if name == last and not look.often:
                    said_at = now
                said = look.state

            while True:
                now = time.monotonic()
                # Kaggle may not find a version after its push, and then call it saved only.
                since = now - began if run.bundle_sha256 else math.inf
                new = since < kaggle.pace.unseen
                name, failure = _look(kaggle, run, new=new, seen=last not in ("", NOT_YET))
                if name == "RUNNING":
                    running = running or now
                tell(name)
                if name != last:  # after a change, poll often again; a log changes all the time
                    last, pause = name, kaggle.pace.first
                if name == "COMPLETE":
                    return name
                only_saved = name == SAVED and since >= kaggle.pace.unstarted
                if only_saved or name in ("ERROR", CANCELLED):
                    then = (
                        f"To pull what it wrote until then, if anything:\ninvoke pull --run {run}"
                    )
                    message = failed(kaggle, run, name, failure, then)
                    if name == CANCELLED:
                        raise Cancelled(message)
                    late = NotMounted.words in message
                    raise (NotMounted if late else RunFailed)(message)
                allowed = deadline_seconds if running else queue_seconds or deadline_seconds
                if now + pause > (running or began) + allowed:
                    waited = "running" if running else "waiting for a machine"
                    raise DeadlinePassed(
                        f"{run} is {name} after {clock(now - began)}, {waited}; expected its end by"
                        f" now.\n{attach}"
                    )
                while (left := now + pause - time.monotonic()) > 0:
                    time.sleep(min(left, kaggle.pace.first))
                    tell(name)
                pause = min(pause * 1.5, kaggle.pace.most)
    except KeyboardInterrupt:
        raise Detached(f"Detached from {run}.\n{attach}") from None
    except (Unreachable, CredentialError, BadAnswer) as error:
        known = isinstance(error, Unknown) or last not in ("", NOT_YET)
        if isinstance(error, Denied) and not known:
            raise  # there is no run
        error.args = (f"{error}\n{attach}",)
        raise


def _quota(kaggle: Kaggle, run: Run) -> tuple[float | None, float | None]:
    """Return the seconds left and allowed this week for a run's accelerator; None: unknown."""
    if run.accelerator == "CPU":
        return None, None
    try:
        quota = kaggle.quota(patience=0)
    except RelayError:
        return None, None  # it is only shown
    if run.accelerator == "TPU":
        return quota.tpu_seconds, quota.tpu_allowed
    return quota.gpu_seconds, quota.gpu_allowed


def _look(kaggle: Kaggle, run: Run, *, new: bool, seen: bool) -> tuple[str, str]:
    """Return status and failure message. `new`: just pushed; `seen`: Kaggle found it before."""
    try:
        status = kaggle.kernel_status(run.handle, run.version)
    except (NotFound, Denied) as error:
        if new:
            return NOT_YET, ""
        if seen or isinstance(error, Unknown):
            raise
        raise _not_found(kaggle, run, error) from error
    return status.name, status.failure


def of_another(kaggle: Kaggle, run: Run, error: RelayError) -> RelayError | None:
    """Return the error for a run of another account that Kaggle does not show; None: it is ours."""
    owner, user = run.handle.partition("/")[0], kaggle.username
    if owner.lower() == user.lower():
        return None
    return type(error)(
        f"There is no run {run} that {user} may see: you are logged in as {user}, and the run is"
        f" {owner}'s.\nLog in as {owner}, or name a run of {user}'s: --run owner/slug/version. To"
        " see who is logged in:\ninvoke doctor"
    )


def _not_found(kaggle: Kaggle, run: Run, error: RelayError) -> RelayError:
    """Return the error for a run that does not exist. Kaggle answers 403 for one of our own too."""
    if (theirs := of_another(kaggle, run, error)) is not None:
        return theirs
    try:
        current = kaggle.get_kernel(run.handle)
        why = f"the newest version is {current.version}" if current else "there is no such notebook"
    except Unknown as denied:
        return denied
    except RelayError:
        why = "Kaggle knows none"
    return NotFound(
        f"There is no run {run}: {why}.\nExpected owner/slug/version of a run that was pushed. If"
        " its notebook was renamed on Kaggle, name it by its address now: --run owner/slug/version;"
        f" your notebooks: https://www.kaggle.com/{kaggle.username}/code\n"
        "To see what was pushed from here:\ninvoke status"
    )


def failed(kaggle: Kaggle, run: Run, name: str, failure: str, then: str) -> str:
    """Return the message about a run that failed.

    Args:
        name: of its status.
        failure: Kaggle's message about it.
        then: the last lines: what to do next.
    """
    push = crash_advice.task(run.handle, run.machine_shape)
    if name == SAVED:
        return (
            f"{run} was saved and not run; expected a run. Kaggle also says so of a version that"
            f" was pushed minutes ago. If its page shows no run, push it again:\ninvoke {push}"
        )
    try:
        # As one text: a key of several lines is recognized only whole.
        log = failure_messages.plain("\n".join(kaggle.kernel_log(run.handle, run.version)))
        lines = log.split("\n") if log else ["(it is empty)"]
    except RelayError as error:
        lines = [f"(the log could not be read: {str(error).splitlines()[0]})"]
    shape = re.compile(r"\s*[\w.]*(Error|Exception|Interrupt|Exit)\b\s*(:|$)")
    errors = [line.strip() for line in lines if shape.match(line)]
    cells = re.findall(r'Exception encountered at "In \[(\d+)\]"', "\n".join(lines))
    end = "\n".join([failure, *lines[-TAIL_LINES:]])
    stopped = name == CANCELLED and not re.search(crash_advice.TIME_UP, end)
    how = "was cancelled on kaggle.com" if stopped else f"ended as {name}"
    parts = [f"{run} {how}; expected COMPLETE.", failure_messages.plain(failure).strip()]
    parts += [f"The failing cell is In [{cell}] of {run.url or run}." for cell in cells[-1:]]
    parts += [f"The failing cell said: {error}" for error in errors[-1:]]
    parts += ["The end of its log:", *(f"  | {line}" for line in lines[-TAIL_LINES:])]
    # What a run printed that was stopped is no cause.
    advice = "To run it again:" if stopped else crash_advice.crash_advice(end)
    if advice.endswith(":"):
        advice += f"\ninvoke {push}"
    parts += [advice or "Fix the cause and push again.", then]
    return "\n".join(part for part in parts if part)
