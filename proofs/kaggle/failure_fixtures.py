"""What makes tasks fail in `proofs.kaggle.failure_cases`: answers, states of runs, and files."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kagglesdk.kernels.types.kernels_api_service import ApiSaveKernelRequest

from deploy.client.client import Kaggle
from deploy.kernel import artifact_manifest, push_and_watch
from deploy.relay import relay
from deploy.relay.last_runs import Pushes
from localkaggle.fault_kinds import Kind, meanwhile
from localkaggle.services.datasets import Dataset, DatasetVersion
from localkaggle.services.kernels import Kernel, Version
from localkaggle.services.protocol import ApiError, make
from localkaggle.sessions.session_log import Log
from tests.faults.recorded_session import write_artifact
from tests.faults.world import ROOT, User, World

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
    """Let somebody else publish the artifact of another run, which becomes current."""
    held = world.local.datasets.datasets.setdefault(
        DATASET, Dataset(1, "rehearsal", "digits-artifact", "Digits Artifact", "CC0-1.0", True)
    )
    folder = world.folder / "kaggle" / "datasets" / f"another-{len(held.versions) + 1}"
    write_artifact(folder, f"{len(held.versions):064d}")
    held.versions.append(DatasetVersion(folder, "", 0.0, 0.0))


def another_session(world: World) -> None:
    """Let a run that the journal knows nothing of have the one TPU."""
    other = Kernel(9, "rehearsal", "other", "Other")
    pushed = make(ApiSaveKernelRequest, is_private=True, enable_tpu=True, machine_shape="TpuV5E8")
    # Without its begin it would have run since the machine was started, and after 20 hours of that
    # the quota is gone.
    other.versions.append(
        Version(1, pushed, "TpuV5E8", world.folder, status="RUNNING", began=time.time())
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
            raise ApiError(500, "Internal error")
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


def over(world: User, kaggle: Kaggle) -> Any:
    """Start the training over while the first run goes."""
    return relay.push(kaggle, world.project, relay.TRAIN, fresh=True, show=world.shown.append)


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
        assert child.stdin and child.stdout and child.stderr  # noqa: S101 - pipes
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
