"""The two known failures that gave plausible scores of wrong weights, each run many times."""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from deploy.errors import RelayError, UsageError
from deploy.kernel import artifact_manifest as manifests
from deploy.kernel import output
from deploy.relay import relay
from localkaggle.fault_kinds import meanwhile
from proofs.kaggle.failure_fixtures import DATASET, another_run_s_version, artifact
from proofs.shared.results_table import Row
from tests.faults.world import PATIENT_SECONDS, ROOT, TASKS, World, temporary

SEED = 20261121


# K29: two artifacts in one dataset version


def hybrid(count: int, seed: int = SEED) -> Row:
    """Kill a publish between two uploads, replace the artifact by one of the same sizes and times,
    and publish again.
    """
    verdicts = [verdict for verdict, _ in hybrids(count, seed)]
    whole = sum(verdict == "" for verdict in verdicts)
    first = next((verdict for verdict in verdicts if verdict), "")
    return Row(
        "K29: kill -9 between two uploads, other bytes of the same sizes and times, publish again",
        f"{count} of {count} published whole",
        f"{whole} of {len(verdicts)}" + (f"; first: {first}" if first else ""),
        whole == len(verdicts) == count,
        seed,
    )


def hybrids(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield for each case what is wrong with it, or "", and where the publish was killed."""
    draw = random.Random(seed)  # noqa: S311 - varies the cases, guards nothing
    with (
        temporary("publish") as world,
        redirect_stdout(StringIO()),
        _starter(world) as starter,
    ):
        for _ in range(count):
            stamp = draw.randrange(10**9, 2 * 10**9)
            sizes = [draw.randrange(1, 50_000) for _ in range(draw.randrange(2, 5))]
            _write(artifact(world), sizes, draw, stamp)
            place = draw.choice(["StartBlobUpload", "upload"])
            number = draw.randrange(1, len(sizes) + 1)  # at least one upload has been made
            after = draw.random() < 0.5
            killed = _killed(world, starter, place, number, after=after)
            _write(artifact(world), sizes, draw, stamp)
            yield _again(world) if killed else "It ended before it was killed", f"{place} {number}"


def _write(folder: Path, sizes: list[int], draw: random.Random, stamp: int) -> None:
    """Write an artifact of these sizes and times, with other bytes and another run each time."""
    names = ["weights.npz", *(f"more-{place}.npz" for place in range(1, len(sizes)))]
    manifest = json.loads((folder / "manifest.json").read_text())
    for path in folder.iterdir():
        path.unlink()
    files = {}
    for name, size in zip(names, sizes, strict=True):
        content = draw.randbytes(size)
        (folder / name).write_bytes(content)
        files[name] = {"sha256": hashlib.sha256(content).hexdigest(), "size": size}
    run_id = f"digits-{draw.getrandbits(48):012x}"
    manifest |= {"run_id": run_id, "weights_sha256": files["weights.npz"]["sha256"], "files": files}
    (folder / "manifest.json").write_bytes(manifests.sealed(manifest))
    for path in folder.iterdir():
        os.utime(path, (stamp, stamp))


@contextlib.contextmanager
def _starter(world: World) -> Iterator["subprocess.Popen[str]"]:
    """Start a program that runs a publish in a new process for each line that it reads."""
    with subprocess.Popen(
        [sys.executable, "-m", "proofs.kaggle.forked_tasks", "publish", str(world.folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as starter:
        while _line(starter) != "ready":
            pass  # what a library printed
        yield starter
        starter.communicate()


def _line(starter: "subprocess.Popen[str]") -> str:
    line = starter.stdout.readline() if starter.stdout is not None else ""
    if not line:
        raise OSError(f"proofs.kaggle.forked_tasks ended: {starter.wait()}")
    return line.strip()


def _killed(
    world: World, starter: "subprocess.Popen[str]", place: str, number: int, *, after: bool
) -> bool:
    """Let the server kill a publish in a process of its own at that request, and return whether it
    did.
    """
    child: Future[int] = Future()
    kill = meanwhile(lambda: os.kill(child.result(PATIENT_SECONDS), signal.SIGKILL), after=after)
    world.local.faults.plan({})
    world.local.faults.say(place, [*[None] * number, kill])
    assert starter.stdin is not None  # noqa: S101 - it is a pipe
    starter.stdin.write("go\n")
    starter.stdin.flush()
    child.set_result(int(_line(starter)))
    ended = int(_line(starter))
    world.local.faults.plan({})
    return ended == -signal.SIGKILL


def _again(world: World) -> str:
    """Publish what is in the folder now, and return what is wrong with it."""
    try:
        made = TASKS["publish"].body(world, world.connect())
    except RelayError as error:
        return f"exit {error.exit_code}: {error}"
    held = world.local.datasets.datasets[DATASET]
    ours = {path.name: path.read_bytes() for path in artifact(world).iterdir()}
    there = {path.name: path.read_bytes() for path in held.versions[-1].folder.iterdir()}
    if ours != there:
        other = sorted(name for name in ours if ours[name] != there.get(name))
        return f"version {made.version} holds other bytes in {other}"
    last = made.version == held.current() == len(held.versions)
    return "" if last else f"version {made.version} is not the last"


# K23: the weights of another run


def stale(count: int, seed: int = SEED) -> Row:
    """Let the dataset's current version be another run's: push-infer must not push, and infer must
    notice what is mounted.
    """
    draw = random.Random(seed)  # noqa: S311 - varies the cases, guards nothing
    wrong: list[str] = []
    with temporary("push-infer") as world, redirect_stdout(StringIO()):
        expect = _expected(world)
        for _ in range(count):
            for _ in range(draw.randrange(1, 3)):
                another_run_s_version(world)
            wrong += _not_pushed(world)
            wrong += _not_inferred(world, expect, draw)
    return Row(
        "K23: the current dataset version is another run's",
        f"{count} of {count} refused by push-infer, {count} of {count} by infer",
        f"{2 * count - len(wrong)} of {2 * count} refused"
        + (f"; first: {wrong[0]}" if wrong else ""),
        not wrong,
        seed,
    )


def _expected(world: World) -> dict[str, str]:
    """Return what the inference's bundle.json accepts, built for the pulled artifact."""
    built = relay.build(world.project, relay.INFER, "rehearsal", artifact=artifact(world))
    cells = json.loads(built.notebook.read_text(encoding="utf-8"))["cells"]
    sources = (cell["source"] for cell in cells)
    text = next(text for text in sources if text.startswith("%%writefile bundle.json"))
    found: dict[str, str] = json.loads(text.partition("\n")[2])["expect"]
    return found


def _not_pushed(world: World) -> list[str]:
    before = world.counts()
    try:
        TASKS["push-infer"].body(world, world.connect())
    except UsageError as error:
        good = "invoke publish" in str(error) and world.counts() == before
        return [] if good else [f"push-infer: {error}"]
    except RelayError as error:
        return [f"push-infer: exit {error.exit_code}"]
    return ["push-infer: pushed for what is not mounted"]


def _not_inferred(world: World, expect: dict[str, str], draw: random.Random) -> list[str]:
    """Mount an older version by force, with its own run or the expected one, and let infer load
    it.
    """
    from pipeline import artifact as artifacts
    from pipeline.errors import ArtifactError
    from pipeline.runtime import mounts

    mounted = world.local.datasets.mounted(DATASET)
    inputs = world.folder / "input"
    places = f"datasets/{DATASET}", "digits-artifact", f"notebooks/{DATASET}/{output.ARTIFACT}"
    place = inputs / draw.choice(places)
    shutil.rmtree(inputs, ignore_errors=True)
    shutil.copytree(mounted or world.folder, place)
    manifest = dict.fromkeys(artifacts.KEYS, "")
    manifest |= json.loads((place / "manifest.json").read_text())
    if draw.random() < 0.5:  # somebody gave the old weights the new name
        manifest["run_id"] = expect["run_id"]
    (place / "manifest.json").write_bytes(manifests.sealed(manifest))
    try:
        artifacts.load(mounts.artifact(inputs, expect["run_id"]), expect)
    except ArtifactError as error:
        said = "version of the dataset is mounted"
        return [] if said in str(error) else [f"infer: {error}"]
    return ["infer: took the weights of another run"]
