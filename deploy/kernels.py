"""Kernels: push a bundle, watch exactly that version, pull what it wrote.

Reads  a bundle (deploy/bundle.py)
Gives  a `Run`: one execution of one kernel version; then a folder of its verified output

Nothing is ever "the latest": another browser tab may have made that.
"""

import json
import math
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from deploy import manifest, transfer, verdicts
from deploy.answers import log_lines
from deploy.bundle import Bundle
from deploy.client import Kaggle
from deploy.errors import (
    Ambiguous,
    BadAnswer,
    DeadlinePassed,
    Denied,
    Detached,
    DiskError,
    NoQuota,
    NotFound,
    Refused,
    RunFailed,
    Unreachable,
    Unverified,
    UsageError,
    writing,
)

Show = Callable[[str], None]

TAIL_LINES = 40
# How the numbers of a progress line are shown; a run may write more of them.
PROGRESS = {
    "step": "step {:.0f}",
    "steps": "of {:.0f}",
    "epoch": "epoch {:.1f}",
    "loss": "loss {:.4f}",
    "accuracy": "accuracy {:.3f}",
    "validation_accuracy": "validation {:.3f}",
    "images_per_second": "{:,.0f} images/s",
    "eta_seconds": "{:.0f} s to go",
}
LOOKS = 3  # at the current version, after a push whose answer was lost
ARTIFACT = "artifact"


@dataclass(frozen=True)
class Run:
    """One execution of one kernel version. `bundle_sha256` is empty where we did not push it ourselves."""

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
    match = re.fullmatch(r"([\w-]+/[\w-]+)/v?([1-9]\d*)", text)
    if match is None:
        raise UsageError(f"--run {text!r} is not a run; expected owner/slug/version.\nExample: ann/digits-train-tpu/3")
    return Run(match[1], int(match[2]), "", "")


def push(kaggle: Kaggle, bundle: Bundle, *, timeout_seconds: int) -> Run:
    """Push the bundle and return the run that Kaggle started for it.

    Args:
        timeout_seconds: after which Kaggle stops the session; there is no call to stop one.

    Raises:
        NoQuota: if the week's accelerator time is used up, or too many sessions run.
        Refused: if Kaggle says no, or would have started the run without one of its sources.
        Ambiguous: if no answer came, and the version that is there now cannot be told to be ours or not.
    """
    _require_quota(kaggle, bundle)
    before = kaggle.get_kernel(bundle.handle)
    text = bundle.notebook.read_text(encoding="utf-8")
    try:
        saved = kaggle.save_kernel(bundle.metadata, text, timeout_seconds=timeout_seconds)
    except Ambiguous as error:
        return _look_again(kaggle, bundle, before.version if before else 0, error)
    said = verdicts.plain(saved.error)
    if said:
        kind = NoQuota if verdicts.QUOTA.search(said) else Refused
        later = "Try again later: invoke status" if kind is NoQuota else "Correct what it says and push again."
        raise kind(f"Kaggle refused to run {bundle.handle}: {said}\nExpected a new version. {later}")
    wrong = [f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in saved.invalid.items() if names]
    if wrong:
        raise Refused(
            f"Kaggle did not accept all that {bundle.handle} asks for ({verdicts.plain('; '.join(wrong))}).\n"
            f"{f'Version {saved.version} runs without it, and its result is worth nothing. ' if saved.version else ''}"
            "Expected the empty lists. Check on kaggle.com that they exist, are yours, and that you joined the competition."
        )
    if saved.version < 1:
        raise Ambiguous(
            f"Kaggle took the push of {bundle.handle} and gave no version number; expected 1 or more.\n{verdicts.LOOK}"
        )
    return Run(bundle.handle, saved.version, saved.url, bundle.sha256)


def _require_quota(kaggle: Kaggle, bundle: Bundle) -> None:
    try:
        quota = kaggle.quota()
    except (Refused, Denied):
        return  # a convenience that Kaggle may take away; a push tells the same, later
    for name, needs, left in (
        ("TPU", bundle.metadata["enable_tpu"], quota.tpu_seconds),
        ("GPU", bundle.metadata["enable_gpu"], quota.gpu_seconds),
    ):
        if needs and left is not None and left <= 0:
            raise NoQuota(
                f"No {name} time is left this week; {bundle.handle} needs some.\nTry again when Kaggle renews it."
            )


def _look_again(kaggle: Kaggle, bundle: Bundle, before: int, lost: Ambiguous) -> Run:
    """After a push whose answer was lost, return the run if the current version is new and holds our source."""
    for _ in range(LOOKS):
        time.sleep(kaggle.pace.first)
        now = kaggle.get_kernel(bundle.handle)
        if now is not None and now.version > before:
            if bundle.sha256 in now.text:
                return Run(bundle.handle, now.version, f"https://www.kaggle.com/code/{bundle.handle}", bundle.sha256)
            raise Ambiguous(
                f"The answer to the push of {bundle.handle} was lost, and its version {now.version} is not ours.\n{verdicts.LOOK}"
            ) from lost
    raise Ambiguous(
        f"The answer to the push of {bundle.handle} was lost, and no new version has appeared.\n{verdicts.LOOK}"
    ) from lost


def watch(kaggle: Kaggle, run: Run, *, deadline_seconds: float, show: Show) -> str:
    """Follow that version until it ends, and return "COMPLETE".

    Args:
        show: is given a line whenever the status, or the last line of the log, has changed.

    Raises:
        RunFailed: if it ended otherwise; with Kaggle's message, the error of the failing cell and the tail of the log.
        DeadlinePassed: after `deadline_seconds`; the run goes on, and the message says how to re-attach.
        Unreachable: if Kaggle stayed silent for `kaggle.pace.patience` seconds.
        Detached: on Ctrl-C; the message says how to re-attach.
    """
    attach = f"The run goes on. To follow it again: invoke watch --run {run}"
    began = time.monotonic()
    pause, last = kaggle.pace.first, ""
    try:
        while True:
            elapsed = time.monotonic() - began
            name, failure, line = _look(kaggle, run, young=elapsed < kaggle.pace.most)
            seen = f"{name}  {line}".rstrip()
            if seen != last:
                show(f"{run}  {_clock(elapsed)}  {seen}")
                # Something happened: look often again.
                last, pause = seen, kaggle.pace.first
            if name == "COMPLETE":
                return name
            if name in ("ERROR", "CANCEL_ACKNOWLEDGED", "NEW_SCRIPT"):
                raise RunFailed(_failed(kaggle, run, name, failure))
            if elapsed + pause > deadline_seconds:
                raise DeadlinePassed(f"{run} is {name} after {_clock(elapsed)}; expected its end by now.\n{attach}")
            time.sleep(pause)
            pause = min(pause * 1.5, kaggle.pace.most)
    except KeyboardInterrupt:
        raise Detached(f"Detached from {run}.\n{attach}") from None
    except Unreachable as error:
        raise Unreachable(f"{error}\n{attach}") from error


def _look(kaggle: Kaggle, run: Run, *, young: bool) -> tuple[str, str, str]:
    """Return status, failure message and the last line of the log."""
    try:
        status = kaggle.kernel_status(run.handle, run.version)
    except (NotFound, Denied):
        if not young:
            raise
        return "NOT_THERE_YET", "", ""  # a new version is not found for some seconds
    line = ""
    if status.name == "RUNNING":
        try:
            line = _progress(kaggle.kernel_log(run.handle, run.version, stdout=True, patience=0))
        except (Refused, Denied, NoQuota, Unreachable):
            line = ""  # Kaggle may keep the log until the end; the status alone decides
    return status.name, status.failure, line


def _progress(log: list[str]) -> str:
    """Return how far the run is: its last line of progress (JSON with a step), or else the last line with a word."""
    lines = [verdicts.plain(text).strip() for text in log[-200:]]
    for text in reversed(lines):
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict) and "step" in value:
            numbers = {name: value.get(name) for name in PROGRESS}
            known = {name: number for name, number in numbers.items() if isinstance(number, (int, float))}
            return "  ".join(PROGRESS[name].format(number) for name, number in known.items())
    return next((text for text in reversed(lines) if any(map(str.isalpha, text))), "")[:160]


def _failed(kaggle: Kaggle, run: Run, name: str, failure: str) -> str:
    if name == "NEW_SCRIPT":
        return f"{run} was saved and not run; expected a run.\nPush again: invoke push-train or push-infer"
    try:
        lines = [verdicts.plain(line) for line in kaggle.kernel_log(run.handle, run.version)]
    except (Refused, Denied, Unreachable) as error:
        lines = [f"(the log could not be read: {str(error).splitlines()[0]})"]
    errors = [line.strip() for line in lines if re.match(r"\s*[\w.]*(Error|Exception|Interrupt|Exit)\b\s*(:|$)", line)]
    parts = [f"{run} ended as {name}; expected COMPLETE.", verdicts.plain(failure).strip()]
    if errors:
        parts.append(f"The failing cell said: {errors[-1]}")
    if lines:
        parts.append(f"The end of its log:\n{chr(10).join('  | ' + line for line in lines[-TAIL_LINES:])}")
    parts.append(
        "Correct the cause and push again. What it wrote until then, if anything: invoke pull --run " + str(run)
    )
    return "\n".join(part for part in parts if part)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.floor(seconds), 60)
    return f"{minutes // 60:d}:{minutes % 60:02d}:{rest:02d}"


def folder_name(run: Run) -> str:
    """Return the name of the folder that `pull` makes: `<slug>-v<N>`."""
    return f"{run.handle.partition('/')[2]}-v{run.version}"


def pull(kaggle: Kaggle, run: Run, into: Path) -> Path:
    """Download all that this version wrote into `into/<slug>-v<N>/`, verified, in one rename, and return that folder.

    Files go to a fresh folder first. If `artifact/manifest.json` is there, every file in `artifact/` must have the size
    and sha256 that it says, and its `bundle_sha256` must be the run's. An equal folder that is there already is kept.

    Raises:
        BadAnswer: if a name would leave the folder. Nothing is written then.
        Unverified: if the artifact is not what its manifest says.
        DiskError: if the disk is full, or another folder of that name is there.
    """
    target = into / folder_name(run)
    files, log = kaggle.kernel_output(run.handle, run.version)
    places = {name: safe(name) for name in files}
    folders = {str(parent) for place in places.values() for parent in place.parents}
    if folders & set(places):
        raise BadAnswer(
            f"{run} lists {sorted(folders & set(places))[0]!r} as a file and as a folder.\nNothing was written."
        )
    with writing(into):
        into.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=into))
    try:
        for name, place in places.items():
            path = fresh / place
            if not path.resolve().is_relative_to(fresh.resolve()):
                raise BadAnswer(f"{run} lists {name!r}, which lies outside of {target}; nothing was kept.")
            _download(kaggle, run, name, files[name], path)
        note = fresh / f"{run.handle.partition('/')[2]}.log"
        if log and not note.exists():
            with writing(note):
                note.write_text("\n".join(log_lines(log)) + "\n", encoding="utf-8")
        _verify(fresh / ARTIFACT, run)
        if target.exists():
            if _tree(target) != _tree(fresh):
                raise DiskError(
                    f"{target} exists and is not what {run} wrote; expected no folder, or an equal one.\n"
                    "Move it away and pull again."
                )
            return target
        with writing(target):
            fresh.chmod(0o755)
            fresh.rename(target)
        return target
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # after the rename there is nothing left to remove


def safe(name: str) -> PurePosixPath:
    """Return the server's name as a relative path that stays inside the folder it is put in.

    Raises:
        BadAnswer: if it is absolute, climbs, or is no plain name on some system.

    >>> str(safe("artifact/weights.npz"))
    'artifact/weights.npz'
    """
    parts = name.split("/")
    bad = (
        not name
        or any(
            part in ("", ".", "..") or len(part.encode(errors="replace")) > 200 or part.endswith(transfer.PARTIAL)
            for part in parts
        )
        or re.search(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:", name)
        or (not name.isascii() and not name.isprintable())
        or len(parts) > 20
    )
    if bad:
        raise BadAnswer(
            f"Kaggle lists an output file {name[:200]!r}; expected a plain name inside the folder.\n"
            "Nothing was written. Rename it in the notebook and run that again."
        )
    return PurePosixPath(name)


def _download(kaggle: Kaggle, run: Run, name: str, url: str, path: Path) -> None:
    try:
        kaggle.download(url, path)
    except (Denied, NotFound):
        # A signed address expires while the files before it are downloaded; one more listing renews it.
        renewed, _ = kaggle.kernel_output(run.handle, run.version)
        if name not in renewed:
            raise
        kaggle.download(renewed[name], path)


def _verify(artifact: Path, run: Run) -> None:
    if not (artifact / manifest.NAME).is_file():
        return
    found = manifest.verify(artifact)
    if run.bundle_sha256 and found.bundle_sha256 != run.bundle_sha256:
        raise Unverified(
            f"The artifact of {run} was made by bundle {found.bundle_sha256 or 'none'}; expected {run.bundle_sha256}.\n"
            "It is another run's. Push again."
        )


def _tree(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): manifest.sha256(path) for path in folder.rglob("*") if path.is_file()}
