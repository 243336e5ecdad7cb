"""Rehearses `doctor --live` against a local Kaggle that behaves in unkind ways, and kills it.

Run as a program, FOLDER: one smoke test on the Kaggle that the environment names, to be killed.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from deploy.client import secrets
from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.live import live, seen_facts
from localkaggle import facts as local_facts
from localkaggle.facts import Facts
from localkaggle.fault_kinds import Kind, edited, meanwhile
from localkaggle.server import LocalKaggle
from localkaggle.sessions.session import Session
from proofs.shared.results_table import Later, Row, Rows, Show
from proofs.site.plain_session import Plain
from tests.faults.canaries import canaries
from tests.faults.world import ROOT, competition

PACE = Pace(first=0.1, most=1.0, patience=10)
HURRIED = Pace(first=0.05, most=0.25, patience=5)
TIMEOUTS = (60.0, 60.0)
WORKERS = 2  # kills at the same time; a session begins later where there are more
KILLED_SECONDS = 12.0  # a notebook on a busy machine has begun by then
QUICKLY_KILLED_SECONDS = 1.5
LATE_SECONDS = 1.0  # by which a poll may miss the end of something
SLOW_SECONDS = 20.0  # of sessions, between two pushes that may mount a dataset
FREE = ("cpu", "dataset", "sources", "killed")  # steps whose facts every test shows
# Each mode: what the local Kaggle does, and which costly steps show it. The names are those of
# `Facts` and of `LocalKaggle`.
MODES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "as assumed": ({}, ("tpu", "gpu", "submit")),
    "the old places of inputs": ({"layout": "flat"}, ()),
    "both places, names with prefixes": ({"layout": "both", "prefixes": True}, ()),
    "no own output, none after a kill": ({"own_output": False, "killed_output": False}, ()),
    "no internet, an output listed late": ({"internet": False, "listing_seconds": 2.0}, ()),
    "a dataset that is ready and mounted late": ({"ready_seconds": 3.0, "mount_seconds": 4.0}, ()),
    "a push that is saved only": ({"default_execution": "saved"}, ()),
    "a push that is called saved, and waits": (
        {"new_script_seconds": 2.0, "queue_seconds": 4.0},
        (),
    ),
    "versions that are not known at once": ({"versions_seconds": 1.2}, ()),
    "another address, and none with a digit": ({"other_slug": "-x", "leading_digit": False}, ()),
    "files that are lost or rewritten": (
        {"hidden_files": False, "empty_files": False, "rewritten": ("table.csv",)},
        (),
    ),
    "a refused push that leaves a shell": ({"refused_push": "shell"}, ("tpu",)),
    "a refused push that leaves its source": (
        {"refused_push": "source", "reserves": True},
        ("tpu",),
    ),
    "no TPU, one GPU, no score": (
        {"verified": False, "gpus": 1, "scores": False},
        ("tpu", "gpu", "submit"),
    ),
}
# How often each request that makes or deletes something comes, in a test without costly steps; and
# some that only ask.
MAKING = {
    "SaveKernel": 4,
    "StartBlobUpload": 4,
    "upload": 4,
    "CreateDataset": 1,
    "CreateDatasetVersion": 1,
    "DeleteKernel": 2,
    "DeleteDataset": 1,
}
ASKING = {"GetSubmissionLimits": 1, "ListKernelSessionOutput": 3, "storage": 2}
# Answers that a test gets, and in which secrets can be planted.
PLANTED_IN = (
    *("GetAcceleratorQuotaStatistics", "ListDataFiles", "GetSubmissionLimits", "SaveKernel"),
    *("GetKernel", "GetKernelSessionStatus", "ListKernelSessionOutput", "GetDatasetStatus"),
    *("GetDataset", "ListDatasetFiles"),
)


@dataclass
class Seen:
    """The result of one mode.

    Attributes:
        wrong: facts that the table says otherwise than they are, or not at all.
        left: what is still there.
        facts: how many the table says.
    """

    mode: str
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    facts: int = 0


def rows(show: Show) -> Rows:
    """Yield the rows of all rehearsals."""
    yield Later("`doctor --live` in", partial(_modes, show))
    yield Later("Secrets planted in the answers", partial(secrets_row, 0))
    yield Later("`doctor --live` killed", partial(_kills, show))


def _modes(show: Show) -> Iterator[Row]:
    found = []
    for name in MODES:
        show(f"      {name}")
        found.append(rehearsed(name))
    wrong = [f"{one.mode}: {text}" for one in found for text in one.wrong]
    left = [text for one in found for text in one.left]
    yield Row(
        f"`doctor --live` in {len(found)} modes of the local Kaggle: the table says what is so",
        "every fact",
        f"{sum(one.facts for one in found)} facts, {len(wrong)} wrong" + first(wrong),
        not wrong,
    )
    yield Row(
        f"`doctor --live` in {len(found)} modes: what is left on Kaggle",
        "nothing",
        f"{len(left)} things" + first(left),
        not left,
    )


def rehearsed(name: str) -> Seen:
    """Take the smoke test in one mode, with real sessions, and compare with the truth what a second
    Kaggle would do that reads its file.
    """
    unkind, wanted = MODES[name]
    found = Seen(name)
    truth = {**truths(), **unkind}
    with kaggle(unkind) as local, tempfile.TemporaryDirectory(prefix="prove-live-") as folder:
        result = smoke(Path(folder), PACE, wanted, KILLED_SECONDS)
        found.left = there(local)
        said = local_facts.read(result.file)
    said |= vars(said.pop("facts"))
    steps = {*FREE, *wanted}
    for row in result.rows:
        if row.step not in steps or not _is_shown(row.fact, truth):
            continue
        if not row.seen:
            found.wrong.append(f"{row.fact} is not seen")
        elif not agrees(row.fact, said[row.fact], truth[row.fact]):
            found.wrong.append(f"{row.fact} seen as {row.seen}, is {truth[row.fact]}")
        found.facts += 1
    return found


def _is_shown(fact: str, truth: Mapping[str, Any]) -> bool:
    """Return whether a session can show this fact: no TPU refuses a second one where none is."""
    return truth["verified"] or fact not in ("refused_push", "reserves")


def agrees(fact: str, seen: Any, truth: Any) -> bool:
    """Return whether a table says the truth: seconds as far as polls can tell."""
    if not fact.endswith("_seconds"):
        return bool(seen == truth)
    if fact == "mount_seconds" and truth:
        return bool(truth <= seen <= truth + SLOW_SECONDS)
    return bool(abs(seen - truth) <= LATE_SECONDS and (seen or truth <= LATE_SECONDS))


def truths() -> dict[str, Any]:
    """Return all facts of a local Kaggle as it comes in this proof."""
    return {**local_facts.OPTIONS, **vars(Facts()), "queue_seconds": 0.3, "ready_seconds": 0.5}


@contextmanager
def kaggle(
    unkind: Mapping[str, Any], session: Callable[..., Any] = Session
) -> Iterator[LocalKaggle]:
    """Make a local Kaggle of this behaviour, which the environment of this process names."""
    options = {"queue_seconds": 0.3, "ready_seconds": 0.5, **unkind}
    beside = {name: options.pop(name) for name in local_facts.OPTIONS if name in options}
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="prove-live-", ignore_cleanup_errors=True) as folder:
        try:
            with LocalKaggle(
                Path(folder, "kaggle"),
                competitions=[competition()],
                facts=Facts(**options),
                session=cast("Callable[..., Session]", session),
                **beside,
            ) as local:
                os.environ.update(local.environment)
                yield local
        finally:
            secrets.forget()
            os.environ.clear()
            os.environ.update(environment)


def smoke(folder: Path, pace: Pace, wanted: Sequence[str], killed_seconds: float) -> live.Result:
    """Take the smoke test on the Kaggle that the environment names."""
    connection = Kaggle.connect(pace=pace, timeouts=TIMEOUTS)
    return live.smoke_test(
        connection, "digits", folder, wanted=wanted, killed_seconds=killed_seconds
    )


def there(local: LocalKaggle) -> list[str]:
    """Return the handles of all kernels and datasets on a server."""
    return [*local.kernels.kernels, *local.datasets.datasets]


def first(wrong: Sequence[str]) -> str:
    """Return the first of these as the end of a figure."""
    return f"; first: {wrong[0]}" if wrong else ""


# Secrets


def secrets_row(seed: int) -> Row:
    """Plant twenty secrets in the answers of Kaggle, and look for them in what is written."""
    planted = canaries(seed)
    with (
        kaggle({"ready_seconds": 0.05}, Plain) as local,
        tempfile.TemporaryDirectory(prefix="prove-live-") as folder,
    ):
        for place, operation in enumerate(PLANTED_IN):
            texts = [canary.text for canary in planted[2 * place : 2 * place + 2]]
            local.faults.say(operation, itertools.repeat(edited(remark=texts)))
        smoke(Path(folder), HURRIED, (), QUICKLY_KILLED_SECONDS)
        struck = {operation for _, _, operation in local.faults.struck}
        written = b"".join(
            path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()
        )
    held = sum(canary.is_in(written) for canary in planted)
    met = 2 * len(struck & set(PLANTED_IN))
    return Row(
        f"Secrets planted in the answers of {len(PLANTED_IN)} calls of `doctor --live`",
        "20 of 20 answered, 0 in the file",
        f"{met} of {len(planted)} answered, {held} in the file",
        met == len(planted) == 20 and not held,
        seed=seed,
    )


# Kills


@dataclass(frozen=True)
class Kill:
    """One kill: at the nth request of an operation, before or after it has taken effect."""

    operation: str
    place: int
    after: bool

    def __str__(self) -> str:
        return f"{self.operation} {self.place + 1}, {'after' if self.after else 'before'}"


def kills() -> list[Kill]:
    """Return each kill: before and after each call that makes something, and between."""
    return [
        Kill(operation, place, after)
        for operation, count in {**MAKING, **ASKING}.items()
        for place in range(count)
        for after in (False, True)
    ]


def _kills(show: Show) -> Row:
    wanted, wrong, struck = kills(), list[str](), 0
    with ProcessPoolExecutor(WORKERS) as pool:
        for place, (hit, found) in enumerate(pool.map(killed, wanted), 1):
            struck += hit
            wrong += [f"{wanted[place - 1]}: {text}" for text in found]
            if place % 10 == 0:
                show(f"      {place} of {len(wanted)} kills")
    return Row(
        f"`doctor --live` killed at {len(wanted)} calls, and given again",
        "all struck; 0 duplicates, 0 left behind, 0 lost",
        f"{struck} struck, {len(wrong)} wrong" + first(wrong),
        struck == len(wanted) and not wrong,
    )


def killed(kill: Kill) -> tuple[bool, list[str]]:
    """Kill a smoke test, give it again, and return whether it was struck, and what is wrong."""
    with (
        kaggle({"queue_seconds": 0.01, "ready_seconds": 0.05}, Plain) as local,
        tempfile.TemporaryDirectory(prefix="prove-live-") as folder,
        _child(folder) as child,
    ):
        strike = meanwhile(lambda: child.send_signal(signal.SIGKILL), after=kill.after)
        planned: list[Kind | None] = [*[None] * kill.place, strike]
        local.faults.say(kill.operation, planned)
        code = child.wait(10 * TIMEOUTS[0])
        with _child(folder, stderr=subprocess.PIPE) as again:
            _, said = again.communicate(timeout=10 * TIMEOUTS[0])
        wrong = [*duplicates(local), *(f"{handle} is left" for handle in there(local))]
        if again.returncode:
            wrong.append(f"given again, it ended as {again.returncode}: {said[-500:]}")
        wrong += lost(Path(folder))
    return code == -signal.SIGKILL, wrong


def _child(folder: str, **more: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "proofs.site.live_rehearsal", folder], cwd=ROOT, text=True, **more
    )


def duplicates(local: LocalKaggle) -> list[str]:
    """Return what a server was made to make twice, by the calls that it answered."""
    made = Counter[str]()
    for method, asked, code, answer in local.journal:
        if method == "SaveKernel" and code == 200 and answer.get("versionNumber"):
            made[json.loads(asked["text"])["cells"][-1]["source"]] += 1
        elif method in ("CreateDataset", "CreateDatasetVersion") and code == 200:
            made[method] += answer["status"] == "ok"
    return [f"{count} times {text}" for text, count in made.items() if count > 1]


def lost(folder: Path) -> list[str]:
    """Return what is wrong with the one file that a test should have left in a folder."""
    files = sorted(folder.iterdir())
    if len(files) != 1 or not files[0].name.startswith("facts-"):
        return [f"it left {[path.name for path in files]}"]
    held = json.loads(files[0].read_text(encoding="utf-8"))
    # How long something took is not known where nobody looked meanwhile.
    steps = {name: fact.step for name, fact in seen_facts.FACTS.items()}
    wanted = {name for name, step in steps.items() if step in FREE and "_seconds" not in name}
    return [f"the fact {name} is lost" for name in sorted(wanted - held["facts"].keys())]


if __name__ == "__main__":
    smoke(Path(sys.argv[1]), HURRIED, (), QUICKLY_KILLED_SECONDS)
