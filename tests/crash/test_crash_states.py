"""A save that is interrupted anywhere, by a kill or a loss of power, leaves the older or the newer
state whole, and the next save goes through.
"""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pipeline import artifact
from pipeline.data import samples
from pipeline.data.labels import Target
from pipeline.errors import ArtifactError, CheckpointError
from pipeline.infer import submission
from pipeline.train import checkpoint
from tests.crash import disk
from tests.shipped import shipped

SAMPLED = 15  # states of each save in the default run
CHECKPOINTS = "checkpoints"
# As of a trainer: arrays large and small, and details with texts, numbers and nothing.
DETAILS = {"run_id": "crash", "origin": {"rate": 2e-3, "decay": None}, "metrics": {"loss": 0.25}}


@pytest.fixture(scope="session")
def memory():
    """Return a folder, in memory if possible: thousands of saves wear out a disk."""
    place = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a name of its own there
    folder = Path(tempfile.mkdtemp(prefix="relay-crash-", dir=place if place.is_dir() else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def arrays(mark: int) -> dict[str, np.ndarray]:
    """Return the arrays of a state, which depend on the mark."""
    draw = np.random.default_rng(mark)
    return {
        "params/kernel": draw.standard_normal((60, 80)).astype(np.float32),
        "params/bias": draw.standard_normal(7).astype(np.float32),
        "opt_state/iteration": np.array(mark, np.int32),
        "empty": np.zeros((0, 3), np.float32),
    }


def saved(folder: Path, step: int, mark: int) -> Path:
    """Save a checkpoint like a training, which creates the folder before its first step."""
    folder.mkdir(exist_ok=True, parents=True)
    return checkpoint.save(folder, step, arrays(mark), DETAILS)


@dataclass(frozen=True)
class Checkpoints:
    """A save of step `next` in a folder with some (step, mark), damaged by `spoil`."""

    held: tuple[tuple[int, int], ...]
    next: int
    spoil: tuple[str, str] | None = None  # a copy of one folder under another name

    def prepare(self, top: Path) -> None:
        """Write what is there before."""
        for step, mark in self.held:
            saved(top / CHECKPOINTS, step, mark)
        if self.spoil:
            source, target = (top / CHECKPOINTS / name for name in self.spoil)
            shutil.copytree(source, target, dirs_exist_ok=True)

    def work(self, top: Path) -> None:
        """Make the save that may crash."""
        saved(top / CHECKPOINTS, self.next, 9)

    def problem(self, top: Path, returned: bool) -> str | None:
        """Return the problem of the state after a crash, or None."""
        try:
            found = checkpoint.latest(top / CHECKPOINTS)
        except CheckpointError as error:
            return f"refused: {error}"
        whole = [(step, mark) for step, mark in self.held if not self.torn(step)]
        allowed = [(self.next, 9)] + ([] if returned else [*whole[-1:]])
        if found is None:
            if returned or whole:
                return "nothing came back"
        elif not any(found.step == step and same(found, mark) for step, mark in allowed):
            return f"step {found.step} came back, torn or older than the newest before"
        saved(top / CHECKPOINTS, self.next + 1, 10)
        after = checkpoint.latest(top / CHECKPOINTS)
        whole_after = after is not None and after.step == self.next + 1 and same(after, 10)
        return None if whole_after else "the next save did not come back"

    def torn(self, step: int) -> bool:
        """Return whether a checkpoint was overwritten by another one."""
        return self.spoil is not None and self.spoil[1] == f"step-{step:08d}"


def same(found: checkpoint.Checkpoint, mark: int) -> bool:
    """Return whether a checkpoint holds these arrays, to the bit."""
    wanted = arrays(mark)
    return (found.details, list(found.arrays)) == (DETAILS, list(wanted)) and all(
        (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
        for one, two in zip(found.arrays.values(), wanted.values(), strict=True)
    )


@dataclass(frozen=True)
class Artifact:
    """A save of an artifact, in place of an older one or not."""

    older: bool

    def prepare(self, top: Path) -> None:
        """Write what is there before."""
        if self.older:
            self.save(top, "older")

    def work(self, top: Path) -> None:
        """Make the save that may crash."""
        self.save(top, "newer")

    def save(self, top: Path, run: str) -> None:
        """Save an artifact of that run."""
        config = shipped("digits")
        names = tuple(str(label) for label in range(config.num_classes))
        even = np.full((4, len(names)), 1 / len(names), np.float32)
        images = np.zeros((4, *config.data.shape), np.uint8)
        details, target = {"run_id": run, "metrics": {}}, Target("classes", names)
        made = artifact.Artifact(details, config, target, None, even[0], {}, images, even)
        artifact.save(top / "artifact", made)

    def problem(self, top: Path, returned: bool) -> str | None:
        """Return what is wrong with what a crash left."""
        there = [self.run(top / name) for name in ("artifact", ".artifact-old")]
        allowed = {"newer"} | ({"older"} if self.older and not returned else set())
        if returned and there[0] != "newer":
            return f"the artifact is {there[0]}"
        if (self.older or returned) and not allowed & set(there):
            return f"the artifacts are {there}"
        self.save(top, "next")
        if self.run(top / "artifact") != "next" or len(list(top.iterdir())) > 1:
            return f"the next save left {[path.name for path in top.iterdir()]}"
        return None

    def run(self, folder: Path) -> str:
        """Return the run of a valid artifact, or ""."""
        try:
            return str(artifact.load(folder).manifest["run_id"])
        except ArtifactError:
            return ""


@dataclass(frozen=True)
class Submission:
    """A submission that is written, in place of an older one or not."""

    older: bool

    def prepare(self, top: Path) -> None:
        """Write what is there before."""
        (top / "sample.csv").write_text("id,label\na,0\nb,0\n")
        if self.older:
            self.write(top, "1")

    def work(self, top: Path) -> None:
        """Make the save that may crash."""
        self.write(top, "2")

    def write(self, top: Path, label: str) -> None:
        """Write a submission of that label."""
        columns = {"label": [label] * 2}
        sample = samples.read(top / "sample.csv")
        submission.write(top / "submission.csv", sample, ["b", "a"], columns)

    def problem(self, top: Path, returned: bool) -> str | None:
        """Return what is wrong with what a crash left."""
        path = top / "submission.csv"
        found = path.read_text() if path.exists() else ""
        newer = f"id,label\na,{2}\nb,{2}\n"
        # The rename is not flushed, so that a loss of power may undo a submission that returned.
        if found not in (newer, newer.replace("2", "1") if self.older else ""):
            return f"the submission is {found!r}"
        self.write(top, "3")
        left = sorted(file.name for file in top.iterdir())
        return None if left == ["sample.csv", "submission.csv"] else f"the next one left {left}"


TWO = ((1, 1), (2, 2))
SAVES = {
    "a third checkpoint": Checkpoints(TWO, 3),
    "the first checkpoint": Checkpoints((), 1),
    "after a save that was killed": Checkpoints(TWO, 3, ("step-00000002", ".step-00000003-abc")),
    "in place of a corrupt one": Checkpoints(
        ((2, 2), (3, 3)), 3, ("step-00000002", "step-00000003")
    ),
    "the first artifact": Artifact(False),
    "an artifact in place of an older one": Artifact(True),
    "the first submission": Submission(False),
    "a submission in place of an older one": Submission(True),
}


def recorded(save, folder: Path) -> disk.Recording:
    """Return the changes of a save to a prepared disk."""
    folder.mkdir(parents=True)
    save.prepare(folder)
    return disk.record(folder, lambda: save.work(folder))


def wrong(save, states, folder: Path) -> Iterator[str]:
    """Yield the problem of each invalid state of the disk."""
    for number, (returned, tree) in enumerate(states):
        top = disk.write(tree, folder / f"state-{number}")
        if problem := save.problem(top, returned):
            when = "after it returned" if returned else "while it ran"
            yield f"{when}: {problem}; there was {sorted(tree)}"
        shutil.rmtree(top)


@pytest.mark.parametrize(
    "size", [pytest.param("sample", id="sample"), pytest.param("all", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("save", SAVES.values(), ids=SAVES)
def test_a_crash_at_any_moment_of_a_save_leaves_the_older_or_the_newer(save, size, memory, seed):
    folder = memory / f"{id(save)}-{size}"
    randoms = 3 if size == "sample" else 12
    states = list(disk.states(recorded(save, folder / "top"), seed, randoms))
    assert len(states) > 10
    if size == "sample":
        states = states[seed % 7 :: -(-len(states) // SAMPLED)]

    assert list(wrong(save, states, folder)) == []


@pytest.mark.parametrize(
    "save",
    [
        SAVES["the first checkpoint"],
        pytest.param(SAVES["a third checkpoint"], marks=pytest.mark.slow),
    ],
)
def test_each_fsync_of_a_save_is_needed(save, memory, seed):
    """A crash model that needs no fsync would prove nothing."""
    folder = memory / f"fsync-{id(save)}"
    recording = recorded(save, folder / "top")
    syncs = [change for change in recording.changes if isinstance(change, disk.Sync)]
    assert len(syncs) == 5

    for change in syncs[: 5 if save.next == 1 else 4]:  # the fifth is of a new folder's name
        without = [other for other in recording.changes if other is not change]
        states = list(disk.states(disk.Recording(recording.before, without), seed))
        # What is lost after the save had returned comes last.
        assert next(wrong(save, reversed(states), folder / str(change)), None), change
