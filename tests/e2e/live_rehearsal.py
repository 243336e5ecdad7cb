"""`doctor --live` against a local Kaggle that behaves in unkind ways, whole and killed."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, NamedTuple

from deploy import live, secrets, seen_facts
from deploy.client import Kaggle
from deploy.retries import Pace
from localkaggle import facts as local_facts
from localkaggle.competitions import Competition, accuracy
from localkaggle.facts import Facts
from localkaggle.fault_kinds import meanwhile
from localkaggle.server import LocalKaggle
from localkaggle.sessions.session import Session
from tests import forked
from tests.e2e.plain_session import Plain

HURRIED = Pace(first=0.05, most=0.25, patience=5)
TIMEOUTS = (60.0, 60.0)
QUICKLY_KILLED_SECONDS = 1.5
FREE = ("cpu", "dataset", "sources", "killed")  # steps whose facts every test shows
# How often each request that makes or deletes something comes, in a test without costly steps; and
# some that only ask.
CALLS = {
    "SaveKernel": 4,
    "StartBlobUpload": 4,
    "upload": 4,
    "CreateDataset": 1,
    "CreateDatasetVersion": 1,
    "DeleteKernel": 2,
    "DeleteDataset": 1,
    "GetSubmissionLimits": 1,
    "ListKernelSessionOutput": 3,
    "storage": 2,
}


class Kill(NamedTuple):
    """A kill at the nth request of an operation, before or after it has taken effect."""

    operation: str
    place: int
    after: bool


KILLS = [Kill(*each, end) for name in CALLS for each in [(name, n) for n in range(CALLS[name])]
         for end in (False, True)]  # fmt: skip


@contextmanager
def kaggle(
    behaviour: Mapping[str, Any], session: Callable[..., Any] = Session
) -> Iterator[LocalKaggle]:
    """Start a local Kaggle of this behaviour, which the environment of this process names."""
    options = {"queue_seconds": 0.3, "ready_seconds": 0.5, **behaviour}
    beside = {name: options.pop(name) for name in local_facts.OPTIONS if name in options}
    files = {"sample_submission.csv": b"id,label\na,0\nb,0\n"}
    hosted = Competition(
        "digits", "Digits", {}, files, files, {"label": {"a": "0", "b": "1"}}, accuracy,
        daily_submissions=1000,
    )  # fmt: skip
    before = dict(os.environ)
    with TemporaryDirectory(prefix="live-", ignore_cleanup_errors=True) as folder:
        try:
            with LocalKaggle(
                Path(folder, "kaggle"),
                competitions=[hosted],
                facts=Facts(**options),
                session=session,
                **beside,
            ) as local:
                os.environ.update(local.environment)
                yield local
        finally:
            secrets.forget()
            os.environ.clear()
            os.environ.update(before)


def smoke(folder: Path, pace: Pace = HURRIED, **more: Any) -> live.Result:
    """Take the smoke test on the Kaggle that the environment names."""
    given = {"wanted": (), "killed_seconds": QUICKLY_KILLED_SECONDS, **more}
    return live.smoke_test(Kaggle.connect(pace=pace, timeouts=TIMEOUTS), "digits", folder, **given)


def there(local: LocalKaggle) -> list[str]:
    """Return the handles of all kernels and datasets on a server."""
    return [*local.kernels.kernels, *local.datasets.datasets]


def killed(kill: Kill) -> tuple[int | None, list[str]]:
    """Kill a smoke test, give it again, and return how it ended, and what is wrong then."""
    with (
        kaggle({"queue_seconds": 0.01, "ready_seconds": 0.05}, Plain) as local,
        TemporaryDirectory(prefix="live-") as scratch,
    ):
        folder, log, started = Path(scratch, "live"), Path(scratch, "log"), Event()

        def strike() -> None:
            started.wait(TIMEOUTS[0])
            child.kill()

        kind = meanwhile(strike, after=kill.after)
        local.faults.say(kill.operation, [*[None] * kill.place, kind])
        child = forked.begun(log, smoke, folder)
        started.set()
        child.join()
        again = forked.begun(log, smoke, folder)
        again.join()
        wrong = [*duplicates(local), *(f"{handle} is left" for handle in there(local))]
        if again.exitcode:
            wrong.append(f"given again, it ended as {again.exitcode}: {log.read_text()[-500:]}")
        wrong += _lost(folder)
    return child.exitcode, wrong


def duplicates(local: LocalKaggle) -> list[str]:
    """Return what a server was made to make twice, by the calls that it answered."""
    made = Counter[str]()
    for method, asked, code, answer in local.journal:
        if method == "SaveKernel" and code == 200 and answer.get("versionNumber"):
            made[json.loads(asked["text"])["cells"][-1]["source"]] += 1
        elif method in ("CreateDataset", "CreateDatasetVersion") and code == 200:
            made[method] += answer["status"] == "ok"
    return [f"{count} times {text}" for text, count in made.items() if count > 1]


def _lost(folder: Path) -> list[str]:
    """Return what is wrong with the one file that a test should have left in a folder."""
    files = sorted(folder.iterdir())
    if len(files) != 1 or not files[0].name.startswith("facts-"):
        return [f"it left {[path.name for path in files]}"]
    held = json.loads(files[0].read_text())["facts"]
    # How long something took is not known where nobody looked meanwhile.
    wanted = [name for name, fact in seen_facts.FACTS.items() if fact.step in FREE]
    return [f"{name} is lost" for name in wanted if "_seconds" not in name and name not in held]
