"""Catalogue: every known way in which a client and Kaggle fail each other ends as documented; two
of them tried many times.

The rows are in `proofs.kaggle.failure_cases`. `rows` tries each once; `hybrid` and `stale` are for
those that gave plausible scores of wrong weights.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from deploy.client.deadline import within
from deploy.errors import RelayError, UsageError
from deploy.kernel import artifact_manifest as manifests
from deploy.kernel import output
from deploy.relay import relay
from localkaggle.faults import meanwhile
from proofs.kaggle.failure_cases import CASES, DATASET, Case, another_run_s_version, artifact
from proofs.kaggle.world import ROOT, TASKS, World
from proofs.shared.results_table import Row

SEED = 20261121
ROWS = tuple(f"K{number:02d}" for number in range(1, 51))
CASE_SECONDS = 8.0  # for one case; longer is a hang
READS = ("watch", "pull", "submit")  # tasks after which the same world serves another case
# Rows that no command at home meets: why, and the test that shows them.
ELSEWHERE = {
    "K24": (
        "The notebook finds its mounts",
        "tests/pipeline/runtime/test_mounts.py::test_an_artifact_is_found_wherever_it_is_mounted",
    ),
    "K42": (
        "The notebook builds the model from shared code",
        "tests/pipeline/inference/test_inference.py::test_a_model_that_answers_otherwise_than_when_it_was_trained_is_refused",
    ),
    "K43": (
        "The notebook alone asks whether it is on Kaggle, and never by KAGGLE_*",
        "tests/pipeline/runtime/test_mounts.py::test_the_root_is_kaggle_s_own_unless_the_local_kaggle_says_otherwise",
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What came of one row. `expected`, `got`: exit code and words, or the test that shows it."""

    id: str
    what: str
    expected: str
    got: str
    passed: bool


def rows() -> list[Outcome]:
    """Try every row, in the order of its number."""
    found = [
        *outcomes(CASES),
        *(elsewhere(name, *told) for name, told in ELSEWHERE.items()),
        _hybrid_outcome(),
    ]
    return sorted(found, key=lambda outcome: outcome.id)


def outcomes(cases: Iterable[Case]) -> list[Outcome]:
    """Try these cases."""
    with _Worlds() as worlds, redirect_stdout(StringIO()):
        return [_outcome(case, worlds.fitting(case)) for case in cases]


def elsewhere(name: str, why: str, test: str) -> Outcome:
    """Look whether there is that test, `path::function`."""
    path, _, function = test.partition("::")
    there = (ROOT / path).is_file() and f"\ndef {function}(" in (ROOT / path).read_text(
        encoding="utf-8"
    )
    return Outcome(name, why, test, test if there else "There is no such test", there)


class _Worlds:
    """Worlds, each made when a case needs it. Those that only read share one."""

    def __enter__(self) -> "_Worlds":
        self._folder, self._environment = (
            Path(tempfile.mkdtemp(prefix="prove-catalogue-")),
            dict(os.environ),
        )
        self._stack = contextlib.ExitStack()
        self._kept: dict[str, World] = {}
        self._count = 0
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        os.environ.clear()
        os.environ.update(self._environment)
        shutil.rmtree(self._folder, ignore_errors=True)

    def fitting(self, case: Case) -> World:
        """Return a world in which the case's task can be given; the environment leads to its
        Kaggle.
        """
        stage = "pull" if case.task == "watch" else case.task
        shared = stage in READS and not case.own
        world = self._kept.get(stage) if shared else None
        if world is None:
            os.environ.clear()
            os.environ.update(self._environment)
            self._count += 1
            world = self._stack.enter_context(World(self._folder / str(self._count)))
            TASKS[stage].before(world)
            if shared:
                self._kept[stage] = world
        os.environ.clear()
        os.environ.update({**self._environment, **world.local.environment})
        return world


def _outcome(case: Case, world: World) -> Outcome:
    """Give the case's task in this world, and leave the world as it was if it serves others too."""
    versions = [
        version for kernel in world.local.kernels.kernels.values() for version in kernel.versions
    ]
    kept, patience = (
        [(version, version.status, version.log) for version in versions],
        world.deadline_seconds,
    )
    world.local.faults.plan({})
    case.arrange(world)
    world.shown.clear()
    before = len(world.local.faults.seen)
    code, told = case.child(world) if case.child else _given(case, world)
    made, so = world.counts(), case.so(world)
    alone = not case.child and case.code != 2 and len(world.local.faults.seen) == before
    world.local.faults.plan({})
    for version, status, log in kept:
        version.status, version.log = status, log
    world.deadline_seconds = patience
    wrong = [
        words
        for words, wanted in (
            (f"exit {code}", code == case.code),
            (f"without {case.word!r}: {told[:400]!r}", case.word in told),
            (f"made {made}", made == case.made),
            ("something else is not so", so),
            ("nobody was asked", not alone),
        )
        if not wanted
    ]
    expected = f"exit {case.code}, {case.word!r}"
    return Outcome(case.id, case.what, expected, "; ".join(wrong) or expected, not wrong)


def _given(case: Case, world: World) -> tuple[int, str]:
    """Give the task as `tasks.py` does; return its exit code, and its message or what it showed."""
    task = TASKS[case.task]
    try:
        with within(CASE_SECONDS, "It hangs."):
            result = (case.body or task.body)(world, world.connect())
    except RelayError as error:
        return error.exit_code, str(error)
    if case.body is None and not task.truth(world, result):
        return 0, "It said success, and it is not so"
    return 0, "\n".join([*world.shown, str(result)])


# K29: two artifacts in one dataset version


def hybrid(count: int, seed: int = SEED) -> Row:
    """Kill a publish between two uploads, exchange the artifact for one of the same sizes and
    times, publish again.
    """
    verdicts = [verdict for verdict, _ in _hybrids(count, seed)]
    whole = sum(verdict == "" for verdict in verdicts)
    first = next((verdict for verdict in verdicts if verdict), "")
    return Row(
        "K29: kill -9 between two uploads, other bytes of the same sizes and times, publish again",
        f"{count} of {count} published whole",
        f"{whole} of {len(verdicts)}" + (f"; first: {first}" if first else ""),
        whole == len(verdicts) == count,
        seed,
    )


def _hybrid_outcome() -> Outcome:
    ((verdict, killed),) = _hybrids(1, SEED)
    expected = "exit 0, the new artifact whole"
    what = f"an upload killed ({killed}), and other bytes of the same sizes and times"
    return Outcome("K29", what, expected, verdict or expected, not verdict)


def _hybrids(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield for each case what is wrong about it, "" if nothing is, and where it was killed."""
    draw = random.Random(seed)  # noqa: S311 - varies the cases, guards nothing
    with contextlib.ExitStack() as stack, _one_world() as world, redirect_stdout(StringIO()):
        TASKS["publish"].before(world)
        nursery = stack.enter_context(_nursery(world))
        for _ in range(count):
            stamp = draw.randrange(10**9, 2 * 10**9)
            sizes = [draw.randrange(1, 50_000) for _ in range(draw.randrange(2, 5))]
            _write(artifact(world), sizes, draw, stamp)
            place = draw.choice(["StartBlobUpload", "upload"])
            number = draw.randrange(1, len(sizes) + 1)  # at least one upload has been made
            after = draw.random() < 0.5
            killed = _killed(world, nursery, place, number, after=after)
            _write(artifact(world), sizes, draw, stamp)
            yield _again(world) if killed else "It ended before it was killed", f"{place} {number}"


@contextlib.contextmanager
def _one_world() -> Iterator[World]:
    """Give one world to many cases."""
    folder, environment = Path(tempfile.mkdtemp(prefix="prove-cases-")), dict(os.environ)
    try:
        with World(folder / "world") as world:
            yield world
    finally:
        os.environ.clear()
        os.environ.update(environment)
        shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, sizes: list[int], draw: random.Random, stamp: int) -> None:
    """Write an artifact of these sizes, with other bytes and another run each time, all at the same
    time.
    """
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
def _nursery(world: World) -> Iterator["subprocess.Popen[str]"]:
    """Give what starts a publish in a process of its own for every line that is written to it."""
    with subprocess.Popen(
        [sys.executable, "-m", "proofs.kaggle.forked_tasks", "publish", str(world.folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as nursery:
        while _line(nursery) != "ready":
            pass  # what a library had to say
        yield nursery
        nursery.communicate()


def _line(nursery: "subprocess.Popen[str]") -> str:
    line = nursery.stdout.readline() if nursery.stdout is not None else ""
    if not line:
        raise OSError(f"The nursery ended: {nursery.wait()}")
    return line.strip()


def _killed(
    world: World, nursery: "subprocess.Popen[str]", place: str, number: int, *, after: bool
) -> bool:
    """Let a publish in a process of its own be killed by the server at that request; return whether
    it was.
    """
    child: Future[int] = Future()
    kill = meanwhile(lambda: os.kill(child.result(5), signal.SIGKILL), after=after)
    world.local.faults.plan({})
    world.local.faults.say(place, [*[None] * number, kill])
    assert nursery.stdin is not None  # noqa: S101 - it is a pipe
    nursery.stdin.write("go\n")
    nursery.stdin.flush()
    child.set_result(int(_line(nursery)))
    ended = int(_line(nursery))
    world.local.faults.plan({})
    return ended == -signal.SIGKILL


def _again(world: World) -> str:
    """Publish what is in the folder now, and return what is wrong about it."""
    try:
        made = TASKS["publish"].body(world, world.connect())
    except RelayError as error:
        return f"exit {error.exit_code}: {error}"
    held = world.local.datasets.datasets[DATASET]
    ours = {path.name: path.read_bytes() for path in artifact(world).iterdir()}
    there = {path.name: path.read_bytes() for path in held.versions[-1].folder.iterdir()}
    if ours != there:
        return f"version {made.version} holds other bytes in {sorted(k for k in ours if ours[k] != there.get(k))}"
    return (
        ""
        if made.version == held.current() == len(held.versions)
        else f"version {made.version} is not the last"
    )


# K23: the weights of another run


def stale(count: int, seed: int = SEED) -> Row:
    """Let the dataset's current version be another run's: no inference is pushed; and one that was
    finds out what is mounted.
    """
    draw = random.Random(seed)  # noqa: S311 - varies the cases, guards nothing
    wrong: list[str] = []
    with _one_world() as world, redirect_stdout(StringIO()):
        TASKS["push-infer"].before(world)
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
    """Return what the inference's bundle.json tells it to accept, built for the pulled artifact."""
    built = relay.build(world.project, relay.INFER, "rehearsal", artifact=artifact(world))
    cells = json.loads(built.notebook.read_text(encoding="utf-8"))["cells"]
    told = next(
        cell["source"] for cell in cells if cell["source"].startswith("%%writefile bundle.json")
    )
    found: dict[str, str] = json.loads(told.partition("\n")[2])["expect"]
    return found


def _not_pushed(world: World) -> list[str]:
    before = world.counts()
    try:
        TASKS["push-infer"].body(world, world.connect())
    except UsageError as error:
        return (
            []
            if "invoke publish" in str(error) and world.counts() == before
            else [f"push-infer: {error}"]
        )
    except RelayError as error:
        return [f"push-infer: exit {error.exit_code}"]
    return ["push-infer: pushed for what is not mounted"]


def _not_inferred(world: World, expect: dict[str, str], draw: random.Random) -> list[str]:
    """Mount an older version by force, under the name of the expected run or its own, and let infer
    look at it.
    """
    from pipeline import artifact as artifacts
    from pipeline.errors import ArtifactError
    from pipeline.runtime import mounts

    mounted = world.local.datasets.mounted(DATASET)
    inputs = world.folder / "input"
    place = inputs / draw.choice(
        [f"datasets/{DATASET}", "digits-artifact", f"notebooks/{DATASET}/{output.ARTIFACT}"]
    )
    shutil.rmtree(inputs, ignore_errors=True)
    shutil.copytree(mounted or world.folder, place)
    manifest = {
        **dict.fromkeys(artifacts.KEYS, ""),
        **json.loads((place / "manifest.json").read_text()),
    }
    if draw.random() < 0.5:  # somebody gave the old weights the new name
        manifest["run_id"] = expect["run_id"]
    (place / "manifest.json").write_bytes(manifests.sealed(manifest))
    try:
        artifacts.load(mounts.artifact(inputs, expect["run_id"]), expect)
    except ArtifactError as error:
        said = "An old dataset version is mounted"
        return [] if said in str(error) else [f"infer: {error}"]
    return ["infer: took the weights of another run"]
