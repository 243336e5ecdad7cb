"""What a push would change and cost, shown before anything is spent.

Reads  a bundle, the current version of its kernel, the journal's pushes, the quota
Gives  a `Preview`, or a refusal of what cannot work
"""

import difflib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from deploy import bundle
from deploy.bundle import Bundle
from deploy.calls import ASKED, SOURCES, Quota, Source
from deploy.client import Kaggle
from deploy.decoding import MALFORMED
from deploy.errors import UNTOLD, NoQuota, NoSlot, NotFound, RelayError, Unknown
from deploy.project import BENCH, INFER, KERNELS, PAIR, TRAIN, Project
from deploy.push import started
from deploy.records import Records, run_of
from deploy.runs import accelerator

WRITES, IDENTITY = "%%writefile ", "bundle.json"
RUNNING = ("QUEUED", "RUNNING")
AT_A_TIME = {"TPU": 1, "GPU": 2, "CPU": 5}  # sessions, by Kaggle's limits
INFER_AT_MOST = 12 * 3600 - 60  # seconds, below Kaggle's cap for a GPU
LOOK_BACK = 10  # pushes of which Kaggle is asked whether they still run


@dataclass(frozen=True)
class Preview:
    """What a push would do.

    Attributes:
        kernel: the folder that it is built from.
        handle: its address.
        version: the current one, as far as is known; 0 before the first.
        unknown: why the current version is not known; "" if it is.
        changes: {name: "new", "gone" or "+3 -1" lines} by the names of the modules, and "notebook"
            for the rest of the code; {name: "this; was that"} for a setting, and for the "artifact"
            that an inference accepts.
        machine_shape: Kaggle's name of the machine; "" of a CPU.
        accelerator: "TPU" or "GPU"; "CPU" if none is asked for.
        quota: of this week.
        active: our runs on that accelerator that have not ended: those of the journal, and of the
            newest of our other notebooks.
        notes: lines about runs of this notebook on another machine, and about what could not be
            asked.
        rehearsed: how code and config were rehearsed as they stand, or that they never were and
            the command that does so.
        code_sha256: of the bundle.
        most: seconds that the session would ask for if there were quota enough.
        resumes: whether it is a training that resumes an earlier session.
    """

    kernel: str
    handle: str
    version: int
    unknown: str
    changes: Mapping[str, str]
    machine_shape: str
    accelerator: str
    quota: Quota
    active: Sequence[str]
    notes: Sequence[str]
    rehearsed: str
    code_sha256: str
    most: int
    resumes: bool

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
        changes = [f"changes     {name}  {change}" for name, change in self.changes.items()]
        if self.version and not self.unknown and not changes:
            changes = [f"changes     none since version {self.version}"]
        return [
            f"push        {self.handle}, version {self.version + 1}",
            *(f"unknown     {line}" for line in self.unknown.splitlines()),
            f"{self.accelerator} quota   {self._quota_in_words()}",
            f"rehearsed   {self.rehearsed}",
            *(f"active      {run}" for run in self.active),
            *self.notes,
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
    hidden: Unknown | None,
    *,
    again: bool = False,
) -> Preview:
    """Return what pushing a bundle would do.

    Args:
        current: the current version of its kernel; None: there is none, or it is `hidden`.
        hidden: why the current version is not known; None: it is.
        again: push although Kaggle calls as many sessions active as it allows: of one that has
            ended it may say so for ever.

    Raises:
        NoQuota: if no time is left this week and the account does not pay for more.
        NoSlot: if as many sessions are active as Kaggle allows. No call can stop one.
    """
    project = records.project
    shape = built.metadata["machine_shape"]
    wanted = accelerator(built.handle, shape) if shape else "CPU"
    version, unknown = current.version if current else 0, ""
    if hidden is not None:
        version = records.newest_version(built.handle)
        unknown = (
            f"{str(hidden).splitlines()[0]}\n"
            f"If {built.handle} is there, this makes a new version of it, which may be a second"
            f" run of the same. To look: {hidden.page}"
        )
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
        built.kernel,
        built.handle,
        version,
        unknown,
        _changes(current, built) if current is not None else {},
        shape,
        wanted,
        quota,
        *_active(kaggle, records, built.handle, wanted),
        bundle.how_rehearsed(project.runs, built) or f"never as it stands; to do so: {rehearse}",
        built.code.sha256,
        KERNELS[built.kernel].seconds,
        "step" in built.expect,
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
    instead = ""
    if made.accelerator == "TPU" and made.kernel == TRAIN:
        command = replace(project, runtime=PAIR).command("push-train")
        instead = f"\nOr train on the pair of T4, which has a quota of its own:\n{command}"
    raise NoQuota(
        f"No {made.accelerator} time is left this week; {made.handle} needs some.\n"
        f"Try again when Kaggle renews it. To see when:\n{project.command('status')}{instead}"
    )


def _require_slot(made: Preview, project: Project) -> None:
    allowed, active = AT_A_TIME[made.accelerator], made.active
    if len(active) < allowed:
        return
    raise NoSlot(
        f"Kaggle allows {allowed} {made.accelerator} session{'s' if allowed > 1 else ''} at a time;"
        f" active: {', '.join(active)}.\n"
        f"Wait for its end:\n{project.command(f'watch --run {active[0]}')}\n"
        f"Or stop it on its page: {_page(active[0])}\n"
        "If it has ended and Kaggle calls it active for ever, push all the same:\n"
        f"{project.command(f'{KERNELS[made.kernel].task} --again')}"
    )


def _page(run: str) -> str:
    """Return the address of a run's notebook."""
    return f"https://www.kaggle.com/code/{run.rpartition('/')[0]}"


# What runs already


def _active(
    kaggle: Kaggle, records: Records, handle: str, wanted: str
) -> tuple[list[str], list[str]]:
    """Return our runs that have not ended on the accelerator that is `wanted`, and the `notes`."""
    active, notes, asked = list[str](), list[str](), set[str]()
    for row in records.made()[:LOOK_BACK]:
        run, other = str(run_of(row)), run_of(row).accelerator != wanted
        if run in asked or (other and row.handle != handle):
            continue
        asked.add(run)
        if row.status == "COMPLETE":
            continue
        try:
            status = started(kaggle, row, kaggle.kernel_status(row.handle, row.number).name)
        except NotFound:
            continue  # it is gone
        except RelayError as error:
            notes.append(f"not asked   {run}: {str(error).splitlines()[0]}")
            continue
        if status in RUNNING and other:
            notes.append(
                f"beside      {run} is {status} on {row.machine_shape}: it keeps its place and"
                " costs quota as well. Kaggle may refuse a push while it waits; no call can cancel"
                f" it, and its page can: {_page(run)}"
            )
        elif status in RUNNING:
            active.append(run)
    try:
        active += _started_elsewhere(kaggle, records, wanted, asked)
    except UNTOLD as error:
        why = str(error).splitlines()[0]
        notes.append(f"not asked   runs that were started elsewhere: {why}")
    return active, notes


def _started_elsewhere(
    kaggle: Kaggle, records: Records, wanted: str, asked: set[str]
) -> Iterator[str]:
    """Yield the runs of our newest notebooks that have not ended, but for those `asked` about."""
    for kernel in islice(kaggle.own_kernels(kaggle.pace.first), LOOK_BACK):
        run = f"{kernel.handle}/{kernel.version}"
        usual = "TPU" if kernel.tpu else "GPU" if kernel.gpu else "CPU"
        ran_on = accelerator(kernel.handle, kernel.machine_shape) if kernel.machine_shape else usual
        if not kernel.version or run in asked or ran_on != wanted:
            continue
        try:
            status = kaggle.kernel_status(kernel.handle, kernel.version).name
        except NotFound:
            continue  # it never ran
        left = records.left_by_refusal(kernel.handle, kernel.version, status)
        if status in RUNNING and not left:
            yield run


# What would change


def _changes(current: Source, built: Bundle) -> dict[str, str]:
    """Return what would differ from the current version, by name."""
    changes = {}
    old, new = _parts(current.text), _parts(built.text)
    was, now = (_accepts(parts.pop(IDENTITY, "{}")) for parts in (old, new))
    if was != now:
        changes["artifact" if built.kernel == INFER else "resumes from"] = f"{now}; was {was}"
    for name in ASKED:
        before, after = current.asks[name], built.metadata.get(name)
        if before != "" and before != after:
            changes[name] = f"{after}; was {before}"
    for name in SOURCES:
        sources = set(built.metadata.get(name, ())), set(current.asks[name])
        if sources[0] != sources[1]:
            changes[name] = "; was ".join(", ".join(sorted(names)) or "none" for names in sources)
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            changes[name] = "new" if name in new else "gone"
        elif old[name] != new[name]:
            lines = difflib.unified_diff(old[name].splitlines(), new[name].splitlines(), n=0)
            signs = [line[0] for line in lines][2:]
            changes[name] = f"+{signs.count('+')} -{signs.count('-')}"
    return changes


def _accepts(identity: str) -> str:
    """Return which artifact a bundle accepts, or which checkpoint it resumes from, by its
    bundle.json, which may have been edited on Kaggle.
    """
    try:
        expect, told = json.loads(identity).get("expect"), []
        if not expect:
            return "none"
        if "step" in expect:
            return f"step {expect['step']} of {expect['run_id']}"
        for one in expect.get("members", [expect]):
            counts = f" x {one['weight']}" if "weight" in one else ""
            told.append(f"{one['run_id']}{counts}, weights {one['weights_sha256'][:12]}")
        return "; ".join(told)
    except (*MALFORMED, RecursionError):
        return "unknown"


def _parts(text: str) -> dict[str, str]:
    """Return {file or "notebook": source} of a bundle; one "notebook" if it is none of ours."""
    try:
        sources = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    except (*MALFORMED, RecursionError):
        return {"notebook": text}
    parts, rest = {}, []
    for source in sources[1:]:  # the first has the commit and the hash, which always differ
        if source.startswith(WRITES):
            name, _, body = source.removeprefix(WRITES).partition("\n")
            parts[name] = body
        else:
            rest.append(source)
    return {**parts, "notebook": "\n".join(rest)}
