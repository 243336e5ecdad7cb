"""What a push would change and cost, shown before anything is spent.

Reads  a bundle, the current version of its kernel, the journal's pushes, the quota
Gives  a `Preview`, or a refusal of what cannot work
"""

import difflib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from deploy import bundle
from deploy.bundle import Bundle
from deploy.calls import ASKED, SOURCES, OwnKernel, Quota, Source
from deploy.client import Kaggle
from deploy.errors import UNTOLD, NoQuota, NoSlot, NotFound, RelayError, Unknown, UsageError
from deploy.journal import PUBLISH, PUSH, State
from deploy.project import BENCH, INFER, KERNELS, TRAIN, Project, with_letter
from deploy.push import started
from deploy.records import Records, run_of
from deploy.runs import accelerator

WRITES = "%%writefile "
RUNNING = ("QUEUED", "RUNNING")
AT_A_TIME = {"TPU": 1, "GPU": 2, "CPU": 5}  # sessions, by Kaggle's limits
INFER_AT_MOST = 12 * 3600 - 60  # seconds, below Kaggle's cap for a GPU
LOOK_BACK = 10  # pushes of which Kaggle is asked whether they still run
NOT_A_NOTEBOOK = (ValueError, TypeError, KeyError, RecursionError)


@dataclass(frozen=True)
class Active:
    """Our runs that have not ended.

    Attributes:
        here: on the accelerator that is asked for: those of the journal, and of the newest of our
            other notebooks.
        beside: of this notebook on another machine: {run: "QUEUED on TpuV5E8"}.
        unasked: what could not be asked about them, and why.
    """

    here: tuple[str, ...]
    beside: Mapping[str, str]
    unasked: tuple[str, ...]


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
        active: our runs that have not ended.
        rehearsed: how code and config were rehearsed as they stand, or that they never were and
            the command that does so.
        code_sha256: of the bundle.
        most: seconds that the session would ask for if there were quota enough.
    """

    kernel: str
    handle: str
    version: int
    unknown: str
    changes: Mapping[str, str]
    machine_shape: str
    accelerator: str
    quota: Quota
    active: Active
    rehearsed: str
    code_sha256: str
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
        changes = [f"changes     {name}  {change}" for name, change in self.changes.items()]
        if not self.version or self.unknown:
            changes = []
        elif not changes:
            changes = [f"changes     none since version {self.version}"]
        return [
            f"push        {self.handle}, version {self.version + 1}",
            *(f"unknown     {line}" for line in self.unknown.splitlines()),
            f"{self.accelerator} quota   {self._quota_in_words()}",
            f"rehearsed   {self.rehearsed}",
            *(f"active      {run}" for run in self.active.here),
            *(f"not asked   {what}" for what in self.active.unasked),
            *(
                f"beside      {run} is {state}: it keeps its place and costs quota as well."
                " Kaggle may refuse a push while it waits; no call can cancel it, and its page can:"
                f" {_page(run)}"
                for run, state in self.active.beside.items()
            ),
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
        UsageError: if it would be a new notebook whose address begins with a digit.
        NoQuota: if no time is left this week and the account does not pay for more.
        NoSlot: if as many sessions are active as Kaggle allows. No call can stop one.
    """
    project = records.project
    asked = "TPU" if built.metadata["enable_tpu"] else "CPU"
    asked = "GPU" if built.metadata["enable_gpu"] else asked
    version, unknown = current.version if current else 0, ""
    if hidden is not None:
        version = records.newest_version(built.handle)
        unknown = (
            f"{str(hidden).splitlines()[0]}\n"
            f"If {built.handle} is there, this makes a new version of it, which may be a second"
            f" run of the same. To look: {hidden.page}"
        )
    elif current is None:
        _require_letter(built.handle, project)
    try:
        quota = kaggle.quota()
    except UNTOLD:
        quota = Quota(None, None)  # it may be pushed all the same
    rehearse = f"{project.command('dry-run')} --input DIR"
    if built.kernel == BENCH:
        words = ["--config", project.config, "--output", "bench"]
        words += ["--input", "DIR"] if project.mounts else []
        rehearse = f"python -m workbench bench {shlex.join(words)}"
    made = Preview(
        built.kernel,
        built.handle,
        version,
        unknown,
        _changes(current, built, records) if current is not None else {},
        built.metadata["machine_shape"],
        asked,
        quota,
        _active(kaggle, records, built.handle, asked),
        bundle.how_rehearsed(project.runs, built) or f"never as it stands; to do so: {rehearse}",
        built.code.sha256,
        _most_seconds(built.kernel, project),
    )
    _require_quota(made, project)
    if not again:
        _require_slot(made, records)
    return made


def _most_seconds(kernel: str, project: Project) -> int:
    if kernel == INFER and project.infer_hours is not None:
        return max(min(int(3600 * project.infer_hours), INFER_AT_MOST), 1)
    return KERNELS[kernel].seconds


def _require_quota(made: Preview, project: Project) -> None:
    if made.hours_left is None or made.hours_left > 0 or made.paid:
        return
    instead = ""
    if made.accelerator == "TPU" and made.kernel == TRAIN:
        command = project.elsewhere.command("push-train")
        instead = f"\nOr train on the pair of T4, which has a quota of its own:\n{command}"
    raise NoQuota(
        f"No {made.accelerator} time is left this week; {made.handle} needs some.\n"
        f"Try again when Kaggle renews it. To see when:\n{project.command('status')}{instead}"
    )


def _require_slot(made: Preview, records: Records) -> None:
    allowed, active = AT_A_TIME[made.accelerator], made.active.here
    if len(active) < allowed:
        return
    raise NoSlot(
        f"Kaggle allows {allowed} {made.accelerator} session{'s' if allowed > 1 else ''} at a time;"
        f" active: {', '.join(active)}.\n"
        f"Wait for its end:\n{records.command_on(active[0], 'watch')}\n"
        f"Or stop it on its page: {_page(active[0])}\n"
        "If it has ended and Kaggle calls it active for ever, push all the same:\n"
        f"{records.project.command(f'{KERNELS[made.kernel].task} --again')}"
    )


def _require_letter(handle: str, project: Project) -> None:
    """Raise `UsageError` if the address of a new notebook begins with a digit."""
    slug = handle.partition("/")[2]
    if slug[:1].isdigit():
        raise UsageError(
            f"Nothing was sent: {handle} would be a new notebook, and its address begins with a"
            ' digit. Kaggle answers that with "Notebook not found"; expected a letter first.\n'
            "Write into relay.toml:\n[slugs]\n"
            f'{project.competition} = "{with_letter(project.competition)}"'
        )


def _page(run: str) -> str:
    """Return the address of a run's notebook."""
    return f"https://www.kaggle.com/code/{run.rpartition('/')[0]}"


# What runs already


def _active(kaggle: Kaggle, records: Records, handle: str, wanted: str) -> Active:
    """Return our runs that have not ended; `wanted` is the accelerator."""
    here, unasked, beside = [], [], {}
    asked = set()
    for row in [row for row in records.journal.requests(PUSH) if row.is_made][:LOOK_BACK]:
        run = str(run_of(row))
        other = accelerator(row.kernel, row.machine_shape) != wanted
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
            unasked.append(f"{run}: {str(error).splitlines()[0]}")
            continue
        if status in RUNNING and other:
            beside[run] = f"{status} on {row.machine_shape}"
        elif status in RUNNING:
            here.append(run)
    try:
        here += _started_elsewhere(kaggle, records, wanted, asked)
    except UNTOLD as error:
        unasked.append(f"runs that were started elsewhere: {str(error).splitlines()[0]}")
    return Active(tuple(here), beside, tuple(unasked))


def _started_elsewhere(
    kaggle: Kaggle, records: Records, wanted: str, asked: set[str]
) -> Iterator[str]:
    """Yield the runs of our newest notebooks that have not ended, but for those `asked` about."""
    for kernel in islice(kaggle.own_kernels(kaggle.pace.first), LOOK_BACK):
        run = f"{kernel.handle}/{kernel.version}"
        if not kernel.version or run in asked or _accelerator_of(kernel) != wanted:
            continue
        try:
            status = kaggle.kernel_status(kernel.handle, kernel.version).name
        except NotFound:
            continue  # it never ran
        refused = records.refused_after(kernel.handle)
        left = refused is not None and kernel.version > refused and status == "QUEUED"
        if status in RUNNING and not left:  # what a refused push left waits for ever
            yield run


def _accelerator_of(kernel: OwnKernel) -> str:
    """Return "TPU", "GPU" or "CPU": what a kernel of ours ran on last."""
    if kernel.machine_shape:
        return accelerator(kernel.handle, kernel.machine_shape)
    return "TPU" if kernel.tpu else "GPU" if kernel.gpu else "CPU"


# What would change


def _changes(current: Source, built: Bundle, records: Records) -> dict[str, str]:
    """Return what would differ from the current version, by name."""
    changes = {}
    was, now = (_accepts(text, built, records) for text in (current.text, built.text))
    if was != now:
        name = "artifact" if built.kernel == INFER else "resumes from"
        changes[name] = f"{now}; was {was}"
    for name in ASKED:
        before, after = current.asks.get(name), built.metadata.get(name)
        if before not in (None, "") and before != after:
            changes[name] = f"{after}; was {before}"
    for name in SOURCES:
        before, after = set(current.asks.get(name) or ()), set(built.metadata.get(name) or ())
        if before != after:
            names = (", ".join(sorted(sources)) or "none" for sources in (after, before))
            changes[name] = "; was ".join(names)
    old, new = _parts(current.text), _parts(built.text)
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            changes[name] = "new" if name in new else "gone"
        elif old[name] != new[name]:
            lines = difflib.unified_diff(old[name].splitlines(), new[name].splitlines(), n=0)
            signs = [line[0] for line in lines][2:]
            changes[name] = f"+{signs.count('+')} -{signs.count('-')}"
    return changes


def _accepts(text: str, built: Bundle, records: Records) -> str:
    """Return which artifact a bundle accepts, with the dataset version that we made of it; of a
    training, the checkpoint that it resumes from.
    """
    expect = _identity(text).get("expect")
    if not isinstance(expect, dict) or not expect:
        return "none"
    if "step" in expect:
        return f"step {expect['step']} of {expect.get('run_id')}"
    several, told = expect.get("members"), []
    datasets = built.metadata.get("dataset_sources") or [""]
    for handle, one in zip(datasets, several or [expect], strict=False):
        run_id = str(one.get("run_id"))
        made = records.journal.last(PUBLISH, handle=handle, run_id=run_id, state=State.ENDED)
        version = f" in {made.handle} version {made.number}" if made else ""
        counts = f" x {one.get('weight')}" if several else ""
        told.append(f"{run_id}{counts}, weights {str(one.get('weights_sha256'))[:12]}{version}")
    return "; ".join(told)


def _identity(text: str) -> dict[str, Any]:
    """Return what a bundle says of itself; {} if it is none of ours."""
    head = f"{WRITES}bundle.json\n"
    try:
        held = (cell.removeprefix(head) for cell in _sources(text) if cell.startswith(head))
        return dict(json.loads(next(held, "{}")))
    except NOT_A_NOTEBOOK:
        return {}


def _parts(text: str) -> dict[str, str]:
    """Return {module or "notebook": source} of a bundle; one "notebook" if it is none of ours."""
    try:
        sources = _sources(text)
    except NOT_A_NOTEBOOK:
        return {"notebook": text}
    parts, rest = {}, []
    for source in sources[1:]:  # the first has the commit and the hash, which always differ
        if source.startswith(WRITES):
            name, _, body = source.removeprefix(WRITES).partition("\n")
            parts[name] = body
        else:
            rest.append(source)
    parts.pop("bundle.json", None)
    return {**parts, "notebook": "\n".join(rest)}


def _sources(text: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
