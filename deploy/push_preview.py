"""What a push would change and cost, shown before anything is spent.

Reads  a bundle, the current version of its kernel, the journal's pushes, the quota
Gives  a `Preview`, or a refusal of what cannot work
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from deploy import rehearsed
from deploy.bundle import Bundle
from deploy.client import Kaggle
from deploy.errors import UNTOLD, NoQuota, NoSlot, NotFound, RelayError, Unknown, UsageError
from deploy.journal import DONE
from deploy.kernel_calls import ASKED, SOURCES
from deploy.last_runs import Pushes, started
from deploy.project import BENCH, PUSHED_BY, TRAIN, Project, with_letter
from deploy.push_and_watch import GoOn, look_at
from deploy.push_and_watch import accelerator as accelerator_of
from deploy.responses import OwnKernel, Quota, Source

WRITES = "%%writefile "
RUNNING = ("QUEUED", "RUNNING")
SESSIONS = {"TPU": 1, "GPU": 2, "CPU": 5}  # at a time, by Kaggle's limits
# Of a TPU, Kaggle's cap, which a push has to be below; of a GPU, what most competitions give.
SESSION_SECONDS = 9 * 3600 - 60
LOOK_BACK = 10  # pushes of which Kaggle is asked whether they still run
NOT_A_NOTEBOOK = (ValueError, TypeError, KeyError, RecursionError)


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
        hours_left: of that accelerator, this week; None if Kaggle does not say.
        active: our runs on that accelerator that have not ended: those of the journal, and of the
            newest of our other notebooks.
        unasked: what could not be asked about them, and why.
        beside: runs of this notebook that have not ended on another machine: {run: "QUEUED on
            TpuV5E8"}.
        rehearsed: how code and config were rehearsed as they stand, or that they never were and
            the command that does so.
        code_sha256: of the bundle.
        most: seconds that the session would ask for if there were quota enough.
        hours_reserved: of `hours_left`, that sessions which run may still take.
        paid: whether the account pays for what it uses beyond the week's quota.
    """

    kernel: str
    handle: str
    version: int
    unknown: str
    changes: Mapping[str, str]
    machine_shape: str
    accelerator: str
    hours_left: float | None
    active: tuple[str, ...]
    unasked: tuple[str, ...]
    beside: Mapping[str, str]
    rehearsed: str
    code_sha256: str
    most: int
    hours_reserved: float = 0.0
    paid: bool = False

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
        hours = self.hours_left
        left = "unknown" if hours is None else f"{hours:.1f} hours are left this week"
        if self.hours_reserved:
            left += f", {self.hours_reserved:.1f} of them reserved by what runs"
        if self.paid:
            left += "; beyond them Kaggle charges this account"
        if self.seconds < self.most:
            left += ", so the session asks for no more, and the run saves before their end"
        left = "none is needed" if self.accelerator == "CPU" else left
        changes = [f"{name}  {change}" for name, change in self.changes.items()]
        return [
            f"push        {self.handle}, version {self.version + 1}",
            *(f"unknown     {line}" for line in self.unknown.splitlines()),
            f"{self.accelerator} quota   {left}",
            f"rehearsed   {self.rehearsed}",
            *(f"active      {run}" for run in self.active),
            *(f"not asked   {what}" for what in self.unasked),
            *(line for run, state in self.beside.items() for line in _beside(run, state)),
            *(
                f"changes     {change}"
                for change in changes or [f"none since version {self.version}"]
                if self.version and not self.unknown
            ),
        ]


def look(
    kaggle: Kaggle,
    bundle: Bundle,
    pushes: Pushes,
    seconds: int = SESSION_SECONDS,
    go_on: GoOn = lambda unknown: False,
    *,
    again: bool = False,
) -> Preview:
    """Return what pushing the bundle would do.

    Args:
        seconds: that its session may take at most.
        go_on: as in `push_and_watch.look_at`.
        again: push although Kaggle calls as many sessions active as it allows: of one that has
            ended it may say so for ever.

    Raises:
        UsageError: if it would be a new notebook whose address begins with a digit.
        NoQuota: if no time is left this week and the account does not pay for more.
        NoSlot: if as many sessions are active as Kaggle allows. No call can stop one.
        Unknown: as `push_and_watch.look_at`.
    """
    accelerator = "TPU" if bundle.metadata["enable_tpu"] else "CPU"
    accelerator = "GPU" if bundle.metadata["enable_gpu"] else accelerator
    try:
        quota = kaggle.quota()
    except UNTOLD:
        quota = Quota(None, None)  # it may be pushed all the same
    left = {"TPU": quota.tpu_seconds, "GPU": quota.gpu_seconds}.get(accelerator)
    hidden: list[Unknown] = []  # why the current version is not known

    def noted(error: Unknown) -> bool:
        hidden.append(error)
        return go_on(error)

    current, unknown = look_at(kaggle, bundle.handle, noted), ""
    if hidden:
        unknown = (
            f"{str(hidden[0]).splitlines()[0]}\n"
            f"If {bundle.handle} is there, this makes a new version of it, which may be a second"
            f" run of the same. To look: {hidden[0].page}"
        )
    elif current is None:
        _require_letter(bundle.handle, pushes.project)
    changes: dict[str, str] = {}
    if current is not None:
        changes = {
            **_artifact(current.text, bundle.text, bundle, pushes),
            **_settings(current, bundle),
            **_changes(current.text, bundle.text),
        }
    rehearse = f"{pushes.project.command('dry-run')} --input DIR"
    if bundle.kernel == BENCH:
        rehearse = pushes.project.command("bench")
    preview = Preview(
        bundle.kernel,
        bundle.handle,
        current.version if current else pushes.newest_version(bundle.handle) if hidden else 0,
        unknown,
        changes,
        bundle.metadata["machine_shape"],
        accelerator,
        None if left is None else left / 3600,
        *_active(kaggle, pushes, bundle.handle, accelerator),
        rehearsed.how(pushes.project.runs, bundle) or f"never as it stands; to do so: {rehearse}",
        bundle.code_sha256,
        seconds,
        quota.reserved.get(accelerator, 0.0) / 3600,
        accelerator in quota.paid,
    )
    if left is not None and left <= 0 and not preview.paid:
        instead = ""
        if accelerator == "TPU" and bundle.kernel == TRAIN:
            command = pushes.project.elsewhere.command("push-train")
            instead = f"\nOr train on the pair of T4, which has a quota of its own:\n{command}"
        raise NoQuota(
            f"No {accelerator} time is left this week; {bundle.handle} needs some.\n"
            "Try again when Kaggle renews it. To see when:\n"
            f"{pushes.project.command('status')}{instead}"
        )
    allowed = SESSIONS[accelerator]
    if len(preview.active) >= allowed and not again:
        first = preview.active[0]
        raise NoSlot(
            f"Kaggle allows {allowed} {accelerator} session{'s' if allowed > 1 else ''} at a time;"
            f" active: {', '.join(preview.active)}.\n"
            f"Wait for its end:\n{pushes.command_on(first, 'watch')}\n"
            f"Or stop it on its page: {_page(first)}\n"
            "If it has ended and Kaggle calls it active for ever, push all the same:\n"
            f"{pushes.project.command(f'{PUSHED_BY[bundle.kernel]} --again')}"
        )
    return preview


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


def _beside(run: str, state: str) -> tuple[str, str]:
    """Return what becomes of a run of this notebook on another machine, as lines."""
    return (
        f"beside      {run} is {state}: it keeps its place, runs the code that it was pushed with,"
        " and costs quota as well. Kaggle may refuse a push while it waits",
        f"            No call can cancel it; its page can: {_page(run)}",
    )


def _page(run: str) -> str:
    """Return the address of a run's notebook."""
    return f"https://www.kaggle.com/code/{run.rpartition('/')[0]}"


def _active(
    kaggle: Kaggle, pushes: Pushes, handle: str, accelerator: str
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]:
    """Return our runs that have not ended, as `Preview` has them: active, unasked, beside."""
    active, unasked, beside = [], [], {}
    asked = set()
    for row in pushes.matching(outcome=DONE)[:LOOK_BACK]:
        other = accelerator_of(row["kernel"], row["machine_shape"] or "") != accelerator
        run = f"{row['handle']}/{row['version']}"
        if not row["version"] or run in asked or (other and row["handle"] != handle):
            continue
        asked.add(run)
        if row["status"] == "COMPLETE":
            continue
        try:
            status = kaggle.kernel_status(row["handle"], row["version"]).name
            status = started(kaggle, row, status)
        except NotFound:
            continue  # it is gone
        except RelayError as error:
            unasked.append(f"{run}: {str(error).splitlines()[0]}")
            continue
        if status in RUNNING and other:
            beside[run] = f"{status} on {row['machine_shape']}"
        elif status in RUNNING:
            active.append(run)
    try:
        for kernel in islice(kaggle.own_kernels(LOOK_BACK, kaggle.pace.first), LOOK_BACK):
            run = f"{kernel.handle}/{kernel.version}"
            if not kernel.version or run in asked or _accelerator_of(kernel) != accelerator:
                continue
            try:
                status = kaggle.kernel_status(kernel.handle, kernel.version).name
            except NotFound:
                continue  # it never ran
            refused = pushes.refused_after(kernel.handle)
            left = refused is not None and kernel.version > refused and status == "QUEUED"
            if status in RUNNING and not left:  # what a refused push left waits for ever
                active.append(run)
    except UNTOLD as error:
        unasked.append(f"runs that were started elsewhere: {str(error).splitlines()[0]}")
    return tuple(active), tuple(unasked), beside


def _accelerator_of(kernel: OwnKernel) -> str:
    """Return "TPU", "GPU" or "CPU": what a kernel of ours ran on last."""
    if kernel.machine_shape:
        return accelerator_of(kernel.handle, kernel.machine_shape)
    return "TPU" if kernel.tpu else "GPU" if kernel.gpu else "CPU"


def _artifact(before: str, after: str, bundle: Bundle, pushes: Pushes) -> dict[str, str]:
    """Return which artifact would be accepted and which was, if they differ.

    Each is named with the dataset version that we made of it. A training has in its place the
    checkpoint that it resumes from.
    """
    datasets = bundle.metadata.get("dataset_sources") or [""]

    def in_words(text: str) -> str:
        expect = _identity(text).get("expect")
        if not isinstance(expect, dict) or not expect:
            return "none"
        if "step" in expect:
            return f"step {expect['step']} of {expect.get('run_id')}"
        several, told = expect.get("members"), []
        for handle, one in zip(datasets, several or [expect], strict=False):
            run_id = str(one.get("run_id"))
            made = pushes.journal.last("publishes", handle=handle, run_id=run_id, outcome=DONE)
            version = f" in {made['handle']} version {made['version']}" if made else ""
            counts = f" x {one.get('weight')}" if several else ""
            told.append(f"{run_id}{counts}, weights {str(one.get('weights_sha256'))[:12]}{version}")
        return "; ".join(told)

    was, now = in_words(before), in_words(after)
    name = "artifact" if bundle.kernel.startswith("infer") else "resumes from"
    return {name: f"{now}; was {was}"} if was != now else {}


def _settings(current: Source, bundle: Bundle) -> dict[str, str]:
    """Return the settings and sources that would differ from now, as far as Kaggle says."""
    changes = {}
    for name in ASKED:
        was, now = current.asks.get(name), bundle.metadata.get(name)
        if was not in (None, "") and was != now:
            changes[name] = f"{now}; was {was}"
    for name in SOURCES:
        was, now = set(current.asks.get(name) or ()), set(bundle.metadata.get(name) or ())
        if was != now:
            names = [", ".join(sorted(sources)) or "none" for sources in (now, was)]
            changes[name] = "; was ".join(names)
    return changes


def _identity(text: str) -> dict[str, Any]:
    """Return what a bundle says of itself; {} if it is none of ours."""
    head = f"{WRITES}bundle.json\n"
    try:
        sources = _sources(text)
        held = next(cell.removeprefix(head) for cell in sources if cell.startswith(head))
        return dict(json.loads(held))
    except (*NOT_A_NOTEBOOK, StopIteration):
        return {}


def _changes(before: str, after: str) -> dict[str, str]:
    """Return what differs between the sources of two bundles, by name."""
    old, new = _parts(before), _parts(after)
    changes = {}
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            changes[name] = "new" if name in new else "gone"
        elif old[name] != new[name]:
            lines = list(difflib.ndiff(old[name].splitlines(), new[name].splitlines()))
            added, gone = (sum(line.startswith(sign) for line in lines) for sign in ("+ ", "- "))
            changes[name] = f"+{added} -{gone}"
    return changes


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
