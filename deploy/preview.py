"""Show what a push would change and cost, before any quota is used.

If the push cannot succeed, for example because no quota is left, an error is raised instead.
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
AT_A_TIME = {"TPU": 1, "GPU": 2, "CPU": 5}  # Kaggle's limits on concurrent sessions
INFER_AT_MOST = 12 * 3600 - 60  # seconds; Kaggle's limit for GPUs is higher
LOOK_BACK = 10  # latest pushes to check for active runs


@dataclass(frozen=True)
class Preview:
    """The effects of a push.

    Attributes:
        version: current version, if known, or 0 before the first push.
        changes: names of changed files, "notebook" if any other code has changed, and changed
            settings with their new values.
        accelerator: "TPU", "GPU" or "CPU".
        active: active runs on that accelerator that were pushed from this project.
        beside: active runs of this notebook on another accelerator.
        unknown: why Kaggle did not report whether a run has ended, or "".
        rehearsed: how this code and config were rehearsed, or the command to rehearse them.
        most: session length in seconds if there is enough quota.
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
        """This week's remaining hours on that accelerator, or None if unknown."""
        left = {"TPU": self.quota.tpu_seconds, "GPU": self.quota.gpu_seconds}.get(self.accelerator)
        return None if left is None else left / 3600

    @property
    def hours_reserved(self) -> float:
        return self.quota.reserved.get(self.accelerator, 0.0) / 3600

    @property
    def paid(self) -> bool:
        return self.accelerator in self.quota.paid

    @property
    def seconds(self) -> int:
        """Session length to request, in seconds: the lesser of `most` and the remaining quota.

        Kaggle may refuse sessions that exceed the unreserved quota. If all of it is reserved, the
        whole remaining quota is requested, and Kaggle decides whether to accept the session.
        """
        if self.hours_left is None or self.paid:
            return self.most
        free = self.hours_left - self.hours_reserved
        return max(1, min(self.most, int(3600 * (free if free > 0 else self.hours_left))))

    def lines(self) -> list[str]:
        changes = [f"changes     {change}" for change in self.changes]
        if self.version and not changes:
            changes = [f"changes     no known changes since version {self.version}"]
        return [
            f"push        {self.built.handle}, version {self.version + 1}",
            f"{self.accelerator} quota   {self._quota_in_words()}",
            f"rehearsed   {self.rehearsed}",
            *(
                f"mounts      the model {name}: {pages([name])}"
                for name in self.built.metadata["model_sources"]
            ),
            *(f"active      {run}" for run in self.active),
            *(f"beside      {run}: it stays active and uses quota, too" for run in self.beside),
            *([f"unknown     other active runs: {self.unknown}"] if self.unknown else []),
            *changes,
        ]

    def _quota_in_words(self) -> str:
        if self.accelerator == "CPU":
            return "not needed"
        hours = self.hours_left
        left = "unknown" if hours is None else f"{hours:.1f} hours are left this week"
        if self.hours_reserved:
            left += f", of which running sessions reserve {self.hours_reserved:.1f}"
        if self.paid:
            left += "; Kaggle charges this account for additional time"
        if self.seconds < self.most:
            left += "; the session is limited to this time, and the run saves before the time is up"
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
    """Return the effects of pushing a bundle.

    Args:
        current: the kernel's current version, or None if it does not exist or is unknown.
        version: number of the current version, or 0 if the kernel has no versions.
        again: push even if the maximum number of sessions is active, because Kaggle may keep
            reporting an ended session as active.

    Raises:
        NoQuota: if no time is left this week, and the account cannot pay for additional time.
        NoSlot: if the maximum number of sessions is active. The API cannot stop sessions.
    """
    project = records.project
    shape = built.metadata["machine_shape"]
    wanted = accelerator(built.handle, shape) if shape else "CPU"
    try:
        quota = kaggle.quota()
    except UNTOLD:
        quota = Quota(None, None)  # the push may still work
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
        bundle.how_rehearsed(project.runs, built) or f"not this version; to do so: {rehearse}",
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
        when = f"The weekly quota resets at {at:%Y-%m-%d %H:%M} UTC."
    if made.accelerator == "TPU" and made.built.kernel == TRAIN:
        command = replace(project, runtime=PAIR).command("push-train")
        instead = f"\nOr train on two T4 GPUs, which have a separate quota:\n{command}"
    raise NoQuota(
        f"No {made.accelerator} time is left this week, but {made.built.handle} requires"
        f" {made.accelerator} time.\n{when}{instead}"
    )


def _require_slot(made: Preview, project: Project) -> None:
    allowed, active = AT_A_TIME[made.accelerator], made.active
    if len(active) < allowed:
        return
    raise NoSlot(
        f"Kaggle allows {allowed} {made.accelerator} session{'s' if allowed > 1 else ''} at a time;"
        f" active: {', '.join(active)}.\n"
        f"Wait until it ends:\n{project.command(f'watch --run {active[0]}')}\n"
        f"Or stop it on its page: https://www.kaggle.com/code/{active[0].rpartition('/')[0]}\n"
        "If it has ended but Kaggle still reports it as active, push anyway:\n"
        f"{project.command(f'{KERNELS[made.built.kernel].task} --again')}"
    )


def _active(
    kaggle: Kaggle, records: Records, handle: str, wanted: str
) -> tuple[list[str], list[str], str]:
    """Find active runs that were pushed from this project.

    If a session that was started elsewhere occupies the last slot, Kaggle itself refuses the push.

    Returns:
        The active runs on the accelerator `wanted`, the active runs of this notebook on a different
        accelerator, and an empty string. If Kaggle did not report whether a run is active, the last
        item is the reason.
    """
    active, beside, unknown = dict[str, None](), dict[str, None](), ""
    for row in records.made()[:LOOK_BACK]:
        run = run_of(row)
        elsewhere = run.accelerator != wanted
        if row.status == "COMPLETE" or (elsewhere and run.handle != handle):
            continue
        try:
            status = started(kaggle, row, kaggle.kernel_status(run.handle, run.version).name)
        except NotFound:  # it was deleted or never ran
            continue
        except UNTOLD as error:
            unknown = str(error).splitlines()[0]
            continue
        if status in RUNNING:
            (beside if elsewhere else active)[str(run)] = None
    return [*active], [*beside], unknown


# Changes


def _changes(current: Source, built: Bundle) -> list[str]:
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
    """Return {file name or "notebook": source} for a bundle, and what the bundle expects.

    A bundle expects the model or checkpoint that Kaggle mounts. Any other notebook is returned as a
    single part, because it may have been edited on Kaggle.
    """
    try:
        sources = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    except (*MALFORMED, RecursionError):
        return {"notebook": text}
    parts, rest = dict[str, Any](), []
    for source in sources[1:]:  # skip the first cell, whose commit and hash always differ
        if source.startswith(WRITES):
            name, _, parts[name] = source.removeprefix(WRITES).partition("\n")
        else:
            rest.append(source)
    try:
        expected = json.loads(parts.pop(IDENTITY, "{}"))["expect"] or None
    except (*MALFORMED, RecursionError):
        expected = None
    return {**parts, "notebook": rest, "the model or checkpoint": expected}
