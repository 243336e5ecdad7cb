"""What a push would change and cost, shown before anything is spent.

Reads  a bundle, the current version of its kernel, the journal's pushes, the quota
Gives  a `Preview`, or a refusal of what cannot work
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deploy import bundle
from deploy.bundle import Bundle
from deploy.calls import ASKED, SOURCES, Quota, Source
from deploy.client import Kaggle
from deploy.decoding import MALFORMED
from deploy.errors import UNTOLD, NoQuota, NoSlot, NotFound
from deploy.models import pages
from deploy.project import BENCH, INFER, KERNELS, PAIR, TRAIN, Project
from deploy.push import started
from deploy.records import Records, run_of
from deploy.runs import accelerator

WRITES, IDENTITY = "%%writefile ", "bundle.json"
RUNNING = ("QUEUED", "RUNNING")
AT_A_TIME = {"TPU": 1, "GPU": 2, "CPU": 5}  # sessions, by Kaggle's limits
INFER_AT_MOST = 12 * 3600 - 60  # seconds, below Kaggle's cap for a GPU
LOOK_BACK = 10  # the newest pushes, whose runs may still be active


@dataclass(frozen=True)
class Preview:
    """What a push would do.

    Attributes:
        built: the bundle to push.
        version: the current version, as far as it is known; 0 before the first push.
        changes: what differs from the current version: files, "notebook" for the rest of the
            code, and settings with their values.
        accelerator: "TPU", "GPU" or "CPU".
        quota: of this week.
        active: the runs pushed from here that have not ended on that accelerator.
        beside: runs of this notebook that have not ended on another accelerator.
        unknown: why Kaggle did not report whether a run has ended; "" if it did.
        rehearsed: how this code and config were rehearsed, or the command that rehearses them.
        most: the seconds that the session would get with enough quota.
    """

    built: Bundle
    version: int
    changes: Sequence[str]
    accelerator: str
    quota: Quota
    active: Sequence[str]
    beside: Sequence[str]
    unknown: str
    rehearsed: str
    most: int

    @property
    def hours_left(self) -> float | None:
        """Hours left this week on that accelerator; None if Kaggle does not say."""
        left = {"TPU": self.quota.tpu_seconds, "GPU": self.quota.gpu_seconds}.get(self.accelerator)
        return None if left is None else left / 3600

    @property
    def hours_reserved(self) -> float:
        """The part of `hours_left` that running sessions may still use."""
        return self.quota.reserved.get(self.accelerator, 0.0) / 3600

    @property
    def paid(self) -> bool:
        """Whether the account pays for time beyond the week's quota."""
        return self.accelerator in self.quota.paid

    @property
    def seconds(self) -> int:
        """The length of the session to request: `most`, or what is left of the quota.

        Kaggle may refuse a session that could take more than that. If all of it is reserved, the
        request is for all of it, and Kaggle decides.
        """
        if self.hours_left is None or self.paid:
            return self.most
        free = self.hours_left - self.hours_reserved
        return max(1, min(self.most, int(3600 * (free if free > 0 else self.hours_left))))

    def lines(self) -> list[str]:
        """Return the preview as lines for a person."""
        changes = [f"changes     {change}" for change in self.changes]
        if self.version and not changes:
            changes = [f"changes     nothing that is known of version {self.version}"]
        return [
            f"push        {self.built.handle}, version {self.version + 1}",
            f"{self.accelerator} quota   {self._quota_in_words()}",
            f"rehearsed   {self.rehearsed}",
            *(
                f"mounts      the model {name}: {pages([name])}"
                for name in self.built.metadata["model_sources"]
            ),
            *(f"active      {run}" for run in self.active),
            *(f"beside      {run}: it keeps its place and uses quota too" for run in self.beside),
            *([f"unknown     what else runs: {self.unknown}"] if self.unknown else []),
            *changes,
        ]

    def _quota_in_words(self) -> str:
        if self.accelerator == "CPU":
            return "none is needed"
        hours = self.hours_left
        left = "unknown" if hours is None else f"{hours:.1f} hours are left this week"
        if self.hours_reserved:
            left += f", {self.hours_reserved:.1f} of them reserved by running sessions"
        if self.paid:
            left += "; Kaggle charges this account for more"
        if self.seconds < self.most:
            left += "; the session asks for no more, and the run saves before they end"
        return left


def look(
    kaggle: Kaggle,
    records: Records,
    built: Bundle,
    current: Source | None,
    version: int,
    *,
    again: bool = False,
) -> Preview:
    """Return what pushing a bundle would do.

    Args:
        current: the current version of its kernel; None if there is none, or it is unknown.
        version: its number; 0 if there is none.
        again: push even if as many sessions are active as Kaggle allows: it may report a session
            that has ended as active for ever.

    Raises:
        NoQuota: if no time is left this week and the account does not pay for more.
        NoSlot: if as many sessions are active as Kaggle allows. No call can stop one.
    """
    project = records.project
    shape = built.metadata["machine_shape"]
    wanted = accelerator(built.handle, shape) if shape else "CPU"
    try:
        quota = kaggle.quota()
    except UNTOLD:
        quota = Quota(None, None)  # the push may work all the same
    rehearse = f"{project.command('dry-run')}, with --input DIR for a folder"
    if built.kernel == BENCH:
        words = f"--config {shlex.quote(project.config)} --output bench"
        where = " --input DIR" if project.mounts else ""
        rehearse = f"python -m workbench bench {words}{where}"
    made = Preview(
        built,
        version,
        _changes(current, built) if current is not None else [],
        wanted,
        quota,
        *_active(kaggle, records, built.handle, wanted),
        bundle.how_rehearsed(project.runs, built) or f"never as it stands; to do so: {rehearse}",
        KERNELS[built.kernel].seconds,
    )
    if built.kernel == INFER and project.infer_hours is not None:
        made = replace(made, most=min(int(3600 * project.infer_hours), INFER_AT_MOST))
    _require_quota(made, project)
    if not again:
        _require_slot(made, project)
    return made


def _require_quota(made: Preview, project: Project) -> None:
    if made.hours_left is None or made.hours_left > 0 or made.paid:
        return
    instead, when, at = "", "Try again next week.", made.quota.renewed
    if at is not None:
        when = f"The week's quota returns at {at:%Y-%m-%d %H:%M} UTC."
    if made.accelerator == "TPU" and made.built.kernel == TRAIN:
        command = replace(project, runtime=PAIR).command("push-train")
        instead = f"\nOr train on two T4 GPUs, which have their own quota:\n{command}"
    raise NoQuota(
        f"No {made.accelerator} time is left this week; {made.built.handle} needs some.\n"
        f"{when}{instead}"
    )


def _require_slot(made: Preview, project: Project) -> None:
    allowed, active = AT_A_TIME[made.accelerator], made.active
    if len(active) < allowed:
        return
    raise NoSlot(
        f"Kaggle allows {allowed} {made.accelerator} session{'s' if allowed > 1 else ''} at a time;"
        f" active: {', '.join(active)}.\n"
        f"Wait for its end:\n{project.command(f'watch --run {active[0]}')}\n"
        f"Or stop it on its page: https://www.kaggle.com/code/{active[0].rpartition('/')[0]}\n"
        "If it has ended and Kaggle still reports it as active, push anyway:\n"
        f"{project.command(f'{KERNELS[made.built.kernel].task} --again')}"
    )


def _active(
    kaggle: Kaggle, records: Records, handle: str, wanted: str
) -> tuple[list[str], list[str], str]:
    """Return the runs pushed from here that have not ended on the accelerator `wanted`, those of
    the same notebook on another one, and why others are unknown, or "".

    Kaggle itself refuses a push while a session that was started elsewhere takes the last slot.
    """
    active, beside, unknown = dict[str, None](), dict[str, None](), ""
    for row in records.made()[:LOOK_BACK]:
        run = run_of(row)
        elsewhere = run.accelerator != wanted
        if row.status == "COMPLETE" or (elsewhere and run.handle != handle):
            continue
        try:
            status = started(kaggle, row, kaggle.kernel_status(run.handle, run.version).name)
        except NotFound:  # it was deleted, or never ran
            continue
        except UNTOLD as error:
            unknown = str(error).splitlines()[0]
            continue
        if status in RUNNING:
            (beside if elsewhere else active)[str(run)] = None
    return [*active], [*beside], unknown


# What would change


def _changes(current: Source, built: Bundle) -> list[str]:
    """Return what differs from the current version: files by name, settings and sources with
    their values.
    """
    old, new = _parts(current.text), _parts(built.text)
    changes = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    for name in (*ASKED, *SOURCES):
        before, after = current.asks[name], built.metadata.get(name)
        if name in SOURCES:
            before, after = (", ".join(sorted(names or ())) or "none" for names in (before, after))
        if before not in ("", after):
            changes.append(f"{name}: {after}")
    return changes


def _parts(text: str) -> dict[str, Any]:
    """Return {file or "notebook": source} of a bundle, and what it "expects" of what it mounts.

    A notebook that is not one of ours is one part: it may have been edited on Kaggle.
    """
    try:
        sources = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    except (*MALFORMED, RecursionError):
        return {"notebook": text}
    parts, rest = dict[str, Any](), []
    for source in sources[1:]:  # the first has the commit and the hash, which always differ
        if source.startswith(WRITES):
            name, _, parts[name] = source.removeprefix(WRITES).partition("\n")
        else:
            rest.append(source)
    try:
        expected = json.loads(parts.pop(IDENTITY, "{}"))["expect"] or None
    except (*MALFORMED, RecursionError):
        expected = None
    return {**parts, "notebook": rest, "the model or checkpoint": expected}
