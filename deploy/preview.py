"""What a push would change and cost, shown before anything is spent.

Reads  a bundle, the current version of its kernel, the journal's pushes, the quota
Gives  a `Preview`, or a refusal of what cannot work
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from deploy import bundle
from deploy.bundle import Bundle
from deploy.calls import ASKED, SOURCES, Quota, Source
from deploy.client import Kaggle
from deploy.decoding import MALFORMED
from deploy.errors import UNTOLD, NoQuota, NoSlot, NotFound
from deploy.journal import Request
from deploy.models import pages
from deploy.project import BENCH, INFER, KERNELS, PAIR, TRAIN, Project
from deploy.push import started
from deploy.records import Records, run_of
from deploy.runs import Run, accelerator

WRITES, IDENTITY = "%%writefile ", "bundle.json"
RUNNING = ("QUEUED", "RUNNING")
AT_A_TIME = {"TPU": 1, "GPU": 2, "CPU": 5}  # sessions, by Kaggle's limits
INFER_AT_MOST = 12 * 3600 - 60  # seconds, below Kaggle's cap for a GPU
LOOK_BACK = 10  # pushes of which Kaggle is asked whether they still run


@dataclass(frozen=True)
class Preview:
    """What a push would do.

    Attributes:
        built: what is pushed.
        version: the current one, as far as is known; 0 before the first.
        changes: what differs from the current version: the files, "notebook" for the rest of the
            code, and settings with their values.
        accelerator: "TPU" or "GPU"; "CPU" if none is asked for.
        quota: of this week.
        active: our runs on that accelerator that have not ended: those of the journal, and of the
            newest of our other notebooks.
        beside: runs of this notebook on another accelerator that have not ended.
        not_asked: why it is not known what else runs; "" if it is.
        rehearsed: how code and config were rehearsed as they stand, or that they never were and
            the command that does so.
        most: seconds that the session would ask for if there were quota enough.
    """

    built: Bundle
    version: int
    changes: Sequence[str]
    accelerator: str
    quota: Quota
    active: Sequence[str]
    beside: Sequence[str]
    not_asked: str
    rehearsed: str
    most: int

    @property
    def hours_left(self) -> float | None:
        """Hours of that accelerator that are left this week; None if Kaggle does not say."""
        left = {"TPU": self.quota.tpu_seconds, "GPU": self.quota.gpu_seconds}.get(self.accelerator)
        return None if left is None else left / 3600

    @property
    def hours_reserved(self) -> float:
        """Those of `hours_left` that sessions which run may still take."""
        return self.quota.reserved.get(self.accelerator, 0.0) / 3600

    @property
    def paid(self) -> bool:
        """Whether the account pays for what it uses beyond the week's quota."""
        return self.accelerator in self.quota.paid

    @property
    def seconds(self) -> int:
        """How long a session to ask for: `most`, or what is left of the quota.

        Kaggle may refuse a session that could take more. Whether it counts what others reserve, if
        that is all, its answer tells.
        """
        if self.hours_left is None or self.paid:
            return self.most
        free = self.hours_left - self.hours_reserved
        return max(1, min(self.most, int(3600 * (free if free > 0 else self.hours_left))))

    def lines(self) -> list[str]:
        """Return it as lines for a person."""
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
            *(f"beside      {run}: it keeps its place and costs quota, too" for run in self.beside),
            *([f"not asked   what else runs: {self.not_asked}"] if self.not_asked else []),
            *changes,
        ]

    def _quota_in_words(self) -> str:
        if self.accelerator == "CPU":
            return "none is needed"
        hours = self.hours_left
        left = "unknown" if hours is None else f"{hours:.1f} hours are left this week"
        if self.hours_reserved:
            left += f", {self.hours_reserved:.1f} of them reserved by what runs"
        if self.paid:
            left += "; beyond them Kaggle charges this account"
        if self.seconds < self.most:
            left += ", so the session asks for no more, and the run saves before their end"
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
        current: the current version of its kernel; None: there is none, or it is not known.
        version: its number; 0: there is none.
        again: push although Kaggle calls as many sessions active as it allows: of one that has
            ended it may say so for ever.

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
        quota = Quota(None, None)  # it may be pushed all the same
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
        instead = f"\nOr train on the pair of T4, which has a quota of its own:\n{command}"
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
        "If it has ended and Kaggle calls it active for ever, push all the same:\n"
        f"{project.command(f'{KERNELS[made.built.kernel].task} --again')}"
    )


# What runs already


def _active(
    kaggle: Kaggle, records: Records, handle: str, wanted: str
) -> tuple[list[str], list[str], str]:
    """Return our runs that have not ended on the accelerator that is `wanted`, those of the same
    notebook on another one, and why it is not known what else runs, or "".
    """
    active, beside, asked, untold = list[str](), list[str](), set[str](), ""
    try:
        for run, ran_on, row in _newest(kaggle, records):
            if str(run) in asked or (ran_on != wanted and run.handle != handle):
                continue
            asked.add(str(run))
            try:
                runs = _runs(kaggle, records, run, row)
            except UNTOLD as error:
                untold = str(error).splitlines()[0]
                continue
            if runs:
                (active if ran_on == wanted else beside).append(str(run))
    except UNTOLD as error:  # of the list
        untold = str(error).splitlines()[0]
    return active, beside, untold


def _runs(kaggle: Kaggle, records: Records, run: Run, row: Request | None) -> bool:
    """Return whether a run has not ended."""
    if row is not None and row.status == "COMPLETE":
        return False
    try:
        status: str = kaggle.kernel_status(run.handle, run.version).name
    except NotFound:  # it is gone, or never ran
        return False
    if row is not None:
        status = started(kaggle, row, status)
    elif records.stored_by_refusal(run.handle, status):
        return False
    return status in RUNNING


def _newest(kaggle: Kaggle, records: Records) -> Iterator[tuple[Run, str, Request | None]]:
    """Yield the newest runs that were pushed from here, and then those of our newest notebooks,
    which may have been started elsewhere; each with its accelerator, and our push.
    """
    yield from (
        (run, run.accelerator, row) for row in records.made()[:LOOK_BACK] for run in [run_of(row)]
    )
    for kernel in islice(kaggle.own_kernels(kaggle.pace.first), LOOK_BACK):
        usual = "TPU" if kernel.tpu else "GPU" if kernel.gpu else "CPU"
        shape = kernel.machine_shape
        if kernel.version:
            run = Run(kernel.handle, kernel.version)
            yield run, accelerator(kernel.handle, shape) if shape else usual, None


# What would change


def _changes(current: Source, built: Bundle) -> list[str]:
    """Return what differs from the current version: files by their names, settings and sources with
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
    """Return {file or "notebook": source} of a bundle, and what it "expects" of what it mounts; one
    "notebook" if it is none of ours: it may have been edited on Kaggle.
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
        told = json.loads(parts.pop(IDENTITY, "{}"))["expect"] or None
    except (*MALFORMED, RecursionError):
        told = None
    return {**parts, "notebook": rest, "the model or checkpoint": told}
