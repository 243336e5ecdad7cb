"""Cases: the rows K01 to K50 of what goes wrong between a client and Kaggle, each as a fixture.

A case says what Kaggle answers or what is on the disk, the task that meets it, its documented exit
code, a word of its message, and what the server holds then. The rows that no command at home can
meet are in `proofs.kaggle.known_failures`, with the test that shows them.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploy.bundle import bundle
from deploy.client.client import Kaggle
from deploy.kernel import artifact_manifest, push_and_watch
from deploy.relay import relay
from deploy.relay.last_runs import Pushes
from localkaggle.faults import Kind, edited, instead, meanwhile
from localkaggle.services.datasets import Dataset, DatasetVersion
from localkaggle.services.kernels import Kernel, Version
from localkaggle.services.protocol import Fault
from localkaggle.sessions.session_log import Log
from proofs.kaggle.world import ROOT, User, World, write_artifact

Arrange = Callable[[World], None]
KERNEL, DATASET = "rehearsal/digits-train-tpu", "rehearsal/digits-artifact"
LONG = "a-competition-whose-name-is-longer-than-an-address-on-kaggle-may-be-2026"
# A process of its own, for what happens while the client is imported. `console` gives the exit
# code, as in every task.
CHILD = """
import sys
if sys.argv[1] == "without six":
    sys.modules["six"] = None
from commands import console
from deploy.client.client import Kaggle
from deploy.client.retries import Pace

def ask(context):
    console.show(f"hours: {Kaggle.connect(pace=Pace(0.02, 0.06, 0.4)).quota()}")
    return {}

console.reported(ask)(None)
"""


def _nothing(world: World) -> None:
    """Arrange nothing."""


def _so(world: World) -> bool:
    return True


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        id, what: of the row. task: as in `proofs.kaggle.world.TASKS`; its preparation comes first.
        code, word: how it ends; the word is in the message, or in what a success showed.
        made: how many kernel versions, dataset versions and submissions there are then.
        arrange: what goes wrong. body: instead of the task's own. child: instead of both, in a
            process of its own.
        so: what else is true then. own: whether the world cannot be used for another case.
    """

    id: str
    what: str
    task: str
    code: int
    word: str
    made: tuple[int, int, int]
    arrange: Arrange = _nothing
    body: Callable[[User, Kaggle], Any] | None = None
    child: Callable[[World], tuple[int, str]] | None = None
    so: Callable[[World], bool] = _so
    own: bool = False


def say(operation: str, *kinds: str | Kind | None, ever: bool = False) -> Arrange:
    """Return what lets the next requests of an operation go wrong in these ways; `ever`: again and
    again.
    """
    return lambda world: world.local.faults.say(
        operation, itertools.cycle(kinds) if ever else kinds
    )


def both(*arranges: Arrange) -> Arrange:
    """Return what arranges all of these."""

    def arrange(world: World) -> None:
        for each in arranges:
            each(world)

    return arrange


def asked(operation: str, count: int) -> Callable[[World], bool]:
    """Return whether the task asked that often."""
    return lambda world: world.local.faults.seen.count(operation) == count


def soon(world: World) -> None:
    """Let the task's own patience end soon."""
    world.deadline_seconds = 0.3


def version(world: World, number: int = 1) -> Version:
    """Return that version of the training."""
    found = world.local.kernels.version(KERNEL, number)
    assert found is not None  # noqa: S101 - it was pushed
    return found


def state(name: str, *lines: str) -> Arrange:
    """Return what lets the run be in that state, with these lines in its log."""

    def arrange(world: World) -> None:
        run, log = version(world), Log()
        for line in lines:
            log.add("stdout", f"{line}\n")
        log.end()
        run.status, run.log = name, log

    return arrange


def failed(line: str) -> Arrange:
    """Return what lets the run have failed with this at the end of its log."""
    return state("ERROR", 'Exception encountered at "In [3]":', line)


def artifact(world: World) -> Path:
    """Return the pulled artifact."""
    return Pushes(world.project).last_artifact()


def more_files(*names: str) -> Arrange:
    """Return what adds such files to the pulled artifact, and to its manifest."""

    def arrange(world: World) -> None:
        folder = artifact(world)
        told = json.loads((folder / "manifest.json").read_text())
        digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of nothing
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(b"")
            told["files"][name] = {"sha256": digest, "size": 0}
        (folder / "manifest.json").write_bytes(artifact_manifest.sealed(told))

    return arrange


def another_run_s_version(world: World) -> None:
    """Let somebody else, or a browser, publish the artifact of another run, which becomes current."""
    held = world.local.datasets.datasets.setdefault(
        DATASET, Dataset(1, "rehearsal", "digits-artifact", "Digits Artifact", "CC0-1.0", True)
    )
    folder = world.folder / "kaggle" / "datasets" / f"another-{len(held.versions) + 1}"
    write_artifact(folder, f"{len(held.versions):064d}")
    held.versions.append(DatasetVersion(folder, "", 0.0, 0.0))


def another_session(world: World) -> None:
    """Let a run that the journal knows nothing of have the one TPU."""
    other = Kernel(9, "rehearsal", "other", "Other")
    # Without its begin it would have run since the machine was started, and after 20 hours of that
    # the quota is gone.
    other.versions.append(
        Version(1, None, "", "TpuV5E8", world.folder, status="RUNNING", began=time.monotonic())
    )
    world.local.kernels.kernels["rehearsal/other"] = other


def converted(world: World) -> Kind:
    """Return the way in which Kaggle changes a file of the published version while it says how far
    it is.
    """

    def happens() -> None:
        for held in world.local.datasets.datasets.values():
            path = held.versions[-1].folder / "weights.npz"
            path.write_bytes(path.read_bytes()[:100] + b"\r\n")

    return meanwhile(happens)


def exchanged(world: World) -> Kind:
    """Return the way in which a download is cut off while another object comes to its address."""
    path = version(world).working / "artifact" / "weights.npz"
    return meanwhile(lambda: path.write_bytes(path.read_bytes()[::-1]), cut=0.5)


def poisoned(world: World) -> None:
    """Let no push be taken that mounts a dataset, ever."""
    take = world.local.kernels.SaveKernel

    def save(request: Any, user: str) -> Any:
        if request.dataset_data_sources:
            raise Fault(500, "Internal error")
        return take(request, user)

    world.local.kernels.SaveKernel = save  # type: ignore[method-assign]  # this one server's


def mounts_the_output(world: World) -> bool:
    """Do what the message advises: mount the training's output; return whether that is pushed."""
    ours = replace(world.project, handoff="kernel")
    run = relay.push(
        world.connect(), ours, relay.INFER, artifact=artifact(world), show=world.shown.append
    )
    return world.local.kernels.version(run.handle, run.version) is not None


def second_run_failed(world: World) -> None:
    """Leave a version 2 that failed behind a version 1 that is complete."""
    relay.push(world.connect(), world.project, relay.TRAIN, again=True, show=world.shown.append)
    world.ended()
    version(world, 2).status = "ERROR"


def pinned(world: User, kaggle: Kaggle) -> Any:
    """Push a notebook whose metadata pins an image."""
    folder = world.folder / "kernels"
    shutil.copytree(ROOT / "kernels", folder)
    path = folder / relay.TRAIN / "kernel-metadata.json"
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "docker_image": "gcr.io/kaggle-images/python"})
    )
    return relay.push(
        kaggle, replace(world.project, kernels=folder), relay.TRAIN, show=world.shown.append
    )


def padded(world: User, kaggle: Kaggle) -> Any:
    """Push a config of a megabyte."""
    path = world.folder / "padded.py"
    path.write_text(f"# {'x' * 10**6}\n")
    return relay.push(
        kaggle, replace(world.project, config=str(path)), relay.TRAIN, show=world.shown.append
    )


def long_name(world: User, kaggle: Kaggle) -> Any:
    """Push for a competition whose name does not fit into an address."""
    return relay.push(
        kaggle, replace(world.project, competition=LONG), relay.TRAIN, show=world.shown.append
    )


def hosted_long(world: World) -> None:
    """Let there be such a competition."""
    world.local.competitions.add(replace(world.local.competitions["digits"], slug=LONG))


def again(world: User, kaggle: Kaggle) -> Any:
    """Push once more while the first run goes."""
    return relay.push(kaggle, world.project, relay.TRAIN, again=True, show=world.shown.append)


def somebody_else_s(world: User, kaggle: Kaggle) -> Any:
    """Watch a run that is not ours, or is not there."""
    return relay.watch(
        kaggle, world.project, push_and_watch.parse("ann/other/3"), show=world.shown.append
    )


def in_child(*arguments: str, **environment: str) -> Callable[[World], tuple[int, str]]:
    """Return what signs in and asks for the quota in a process of its own, and tells its exit code
    and all that it printed.
    """

    def child(world: World) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, *(arguments or ("as it is",))],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        told = done.stdout + done.stderr
        if world.local.key in told:
            return done.returncode, "The key was printed"
        return done.returncode, told

    return child


def interrupted(world: World) -> tuple[int, str]:
    """Give `watch` to a process of its own, send it what Ctrl-C sends once it has asked, and tell
    its exit code and message.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "proofs.kaggle.task_process", "watch", str(world.folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None  # noqa: S101 - pipes
        while child.stdout.readline() not in ("ready\n", ""):
            pass  # what a library had to say
        child.stdin.write("go\n")
        child.stdin.flush()
        end = time.monotonic() + 20
        while "GetKernelSessionStatus" not in world.local.faults.seen and time.monotonic() < end:
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        told = child.stderr.read()
        return child.wait(20), told


REFUSED = instead(403, {"code": 403, "message": "Permission 'datasets.get' was denied"})
ABSENT = instead(404, {"code": 404, "message": "Not found"})
HASTY = tuple(
    instead(429, {"code": 429, "message": "Too many requests"}, Retry_After=text)
    for text in ("-5", "NaN", "1e9")
)
STATUS, SAVE = "GetKernelSessionStatus", "SaveKernel"
NONE, PUSHED, PUBLISHED, DONE = (0, 0, 0), (1, 0, 0), (1, 1, 0), (2, 1, 1)

CASES = (
    Case("K01", "a refusal in an answer of 200", "push-train", 4, "Notebook not found", NONE,
         say(SAVE, instead(200, {"error": "Notebook not found"}))),
    Case("K02", "a source that is not there", "push-train", 4, "competition sources: digits", PUSHED,
         say(SAVE, edited(invalidCompetitionSources=["digits"]))),
    Case("K03", "a model source dropped in silence", "push-train", 4, "model sources: a/b/jax/1", PUSHED,
         say(SAVE, edited(invalidModelSources=["a/b/jax/1"]))),
    Case("K04", "a push that happened, its answer lost", "push-train", 0, "is pushed", PUSHED,
         say(SAVE, "reset after"), so=asked(SAVE, 1)),
    Case("K05", "a dataset version that happened, its answer lost", "publish", 0, "checksum verified", (1, 2, 0),
         both(another_run_s_version, say("CreateDatasetVersion", "reset after", "reset after")),
         so=asked("CreateDatasetVersion", 1)),
    Case("K06", "no byte, ever", "watch", 6, "invoke watch --run", PUSHED, say(STATUS, "silence", ever=True)),
    Case("K07", "Ctrl-C, in a process of its own", "watch", 130, "invoke watch --run", PUSHED, state("RUNNING"),
         child=interrupted),
    Case("K08", "502, 503, a reset and half an answer", "watch", 0, "COMPLETE", PUSHED,
         say(STATUS, "502", "503, Retry-After 0", "reset", "cut off")),
    Case("K09", "Retry-After that is negative, no number, or years", "watch", 0, "COMPLETE", PUSHED,
         say(STATUS, *HASTY[:2], "429, Retry-After nonsense", HASTY[2])),
    Case("K10", "429 for as long as one waits", "watch", 6, "429", PUSHED,
         say(STATUS, "429, Retry-After 0", ever=True)),
    Case("K11", "no status at all, which the SDK reads as QUEUED", "watch", 5, "waiting for a machine", PUSHED,
         both(soon, say(STATUS, instead(200, {}), ever=True))),
    Case("K12", "version 1 complete, ours failed", "watch", 1, "/2 ended as ERROR", (2, 0, 0), second_run_failed, own=True),
    Case("K13", "queued for ever", "watch", 5, "waiting for a machine", PUSHED, both(soon, state("QUEUED")),
         so=asked(SAVE, 0)),
    Case("K14", "a second push while the first runs: nothing can stop one", "watch", 7, "Wait for its end", PUSHED,
         state("RUNNING"), again, so=asked(SAVE, 0), own=True),
    Case("K15", "the one TPU session is taken", "push-train", 7, "session count of 1", PUSHED, another_session),
    Case("K16", "the week's quota is gone", "push-train", 7, "No TPU time is left", NONE,
         lambda world: world.local.kernels.used_seconds.update(TPU=1e6), so=asked(SAVE, 0)),
    Case("K17", "an image is pinned: a CPU in place of the TPU", "push-train", 2, "docker_image", NONE, body=pinned),
    Case("K18", "the address is made from the title", "push-train", 0, "is pushed", PUSHED, hosted_long, long_name,
         so=lambda world: list(world.local.kernels.kernels) == [bundle.kernel_handle("rehearsal", LONG, relay.TRAIN)]),
    Case("K19", "403 for what is not there, or not ours", "watch", 3, "belongs to somebody else", PUSHED,
         body=somebody_else_s),
    Case("K20", "a notebook without kernelspec", "watch", 1, "invoke build", PUSHED,
         failed("ValueError: No kernel name found in notebook and no override provided.")),
    Case("K21", "a source of a megabyte", "push-train", 2, "fewer than 900,000", NONE, body=padded),
    Case("K22", "403, READY too early, an earlier stage, 404", "publish", 0, "checksum verified", PUBLISHED,
         say("GetDatasetStatus", REFUSED, instead(200, {"status": "READY"}), instead(200, {"status": "BLOBS_RECEIVED"}),
             ABSENT)),
    Case("K23", "the current version is another run's", "push-infer", 2, "invoke publish", (1, 2, 0),
         another_run_s_version, so=asked(SAVE, 0)),
    Case("K25", "a new dataset is not found for a while", "publish", 0, "checksum verified", PUBLISHED,
         say("GetDataset", *[ABSENT] * 6), so=asked("CreateDataset", 1)),
    Case("K26", "a dataset refused in an answer of 200", "publish", 4, "already in use", PUSHED,
         say("CreateDataset", instead(200, {"status": "error", "error": "The requested title is already in use"}))),
    Case("K27", "an upload that is not taken", "publish", 4, "refused to upload", PUSHED,
         say("upload", None, instead(400, {}), ever=True), so=asked("CreateDataset", 0)),
    Case("K28", "a folder in the artifact", "publish", 2, "flat", PUSHED, more_files("folder/array.npz"),
         so=asked("CreateDataset", 0)),
    Case("K30", "a file that Kaggle converted", "publish", 1, "other bytes", PUBLISHED,
         lambda world: say("GetDatasetStatus", converted(world), ever=True)(world)),
    Case("K31", "too many files", "publish", 2, "at most 20 files", PUSHED,
         more_files(*(f"part-{number}.npz" for number in range(25))), so=asked("CreateDataset", 0)),
    Case("K32", "pages without an end", "pull", 4, "repeats the page", PUSHED,
         say("ListKernelSessionOutput", instead(200, {"files": [], "nextPageToken": "again"}), ever=True)),
    Case("K33", "an address that has expired", "pull", 0, "digits-train-tpu-v1", PUSHED, say("storage", "an expired address")),
    Case("K34", "half a body", "pull", 0, "digits-train-tpu-v1", PUSHED, say("storage", None, "cut off", None, "cut off")),
    Case("K35", "another object between two halves", "pull", 1, "not what the run wrote", PUSHED,
         lambda world: say("storage", None, exchanged(world))(world), own=True),
    Case("K36", "a name that climbs", "pull", 4, "plain name", PUSHED,
         say("ListKernelSessionOutput", "a name that climbs", ever=True)),
    Case("K37", "the session's time ended", "watch", 1, "The session's time ended", PUSHED,
         state("CANCEL_ACKNOWLEDGED", "Your notebook exceeded the maximum allowed execution time")),
    Case("K38", "a failed run, its log cut off", "watch", 1, "invoke pull --run", PUSHED,
         both(state("ERROR"), say("ListKernelSessionOutput", edited(log='[{"data": "half a li'), ever=True))),
    Case("K39", "the working folder is full", "watch", 1, "/kaggle/working is full", PUSHED,
         failed("OSError: [Errno 28] No space left on device")),
    Case("K40", "memory ran out", "watch", 1, "its memory ran out", PUSHED,
         failed("nbclient.exceptions.DeadKernelError: Kernel died")),
    Case("K41", "a download without the internet", "watch", 1, "reached for the internet", PUSHED,
         failed("socket.gaierror: [Errno -3] Temporary failure in name resolution")),
    Case("K44", "no score, ever", "submit", 5, "without spending another", DONE,
         both(soon, say("GetSubmission", instead(200, {"status": "COMPLETE"}), ever=True))),
    Case("K45", "a submission that happened, its answer lost", "submit", 0, "is there", DONE,
         say("CreateCodeSubmission", "reset after"), so=asked("CreateCodeSubmission", 1), own=True),
    Case("K46", "the rerun's rows are not the hidden sample's", "submit", 1, "rows, ids or types", DONE,
         say("GetSubmission", edited(status="ERROR", errorDescription="Submission Scoring Error: 3048 rows"), ever=True)),
    Case("K47", "the client cannot be imported", "watch", 2, "cannot be imported", PUSHED, child=in_child("without six")),
    Case("K48", "an environment that the client would ignore", "watch", 2, "expected LOCALHOST, PROD", PUSHED,
         lambda world: os.environ.update(KAGGLE_API_ENVIRONMENT="TEST")),
    Case("K49", "VERBOSE, which prints the key", "watch", 0, "hours: Quota(", PUSHED,
         child=in_child(VERBOSE="1", VERBOSE_OUTPUT="1")),
    Case("K50", "500 for this one, for ever", "push-infer", 6, 'write handoff="kernel"', PUBLISHED, poisoned,
         so=lambda world: asked(SAVE, 1)(world) and mounts_the_output(world)),
)  # fmt: skip
