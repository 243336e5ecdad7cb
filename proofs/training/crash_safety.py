"""A save that is interrupted at any moment, and any bit that flips in what it wrote, never make a
corrupt checkpoint look whole.
"""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import artifact
from pipeline import config as configs
from pipeline.data.labels import Target
from pipeline.errors import ArtifactError, CheckpointError
from pipeline.session import checkpoint
from proofs.shared import crash_states, disk_recorder
from proofs.shared.results_table import Row, Show

SEED = 20261121
FOLDER = "checkpoints"
# What a trainer gives: some large arrays, some small, and details with texts, numbers and nothing.
DETAILS = {
    "run_id": "proof",
    "origin": {"config": {"rate": 2e-3, "decay": None}},
    "metrics": {"loss": 0.25},
}

Save = Callable[[Path, int, Mapping[str, np.ndarray], Mapping[str, Any]], object]


@dataclass(frozen=True)
class Held:
    """A folder before a save: the checkpoints in it (step, mark), what `spoil` makes of them, and
    the step that is saved next.
    """

    name: str
    steps: tuple[tuple[int, int], ...]
    next: int
    spoil: Callable[[Path], object] = lambda folder: None


def _unfinished(folder: Path) -> None:
    shutil.copytree(folder / "step-00000002", folder / f"{checkpoint.UNFINISHED}old")


def _torn(folder: Path) -> None:
    path = folder / "step-00000003" / "state.npz"
    path.write_bytes(path.read_bytes()[:-100])


def _replaced(folder: Path) -> None:
    shutil.copytree(folder / "step-00000002", folder / "step-00000002.replaced")


BEFORE = (
    Held("a third step", ((1, 1), (2, 2)), 3),
    Held("the same step again", ((1, 1), (2, 2)), 2),
    Held("the first step of all", (), 1),
    Held("after a save that was killed", ((1, 1), (2, 2)), 3, _unfinished),
    Held("after a replacement that was killed", ((1, 1), (2, 2)), 2, _replaced),
    Held("in place of a torn one", ((2, 2), (3, 3)), 3, _torn),
)


@dataclass(frozen=True)
class Judged:
    """Crash states of one save: how many, and of those that are wrong what is."""

    states: int
    wrong: tuple[str, ...]


def rows(*, short: bool, show: Show, seed: int = SEED) -> Iterator[Row]:
    """Yield the rows; `short` tries a sample of the crash states and fewer bits."""
    yield crashes(short=short, show=show, seed=seed)
    yield flips(short=short, show=show, seed=seed)
    yield artifact_flips(short=short, show=show, seed=seed)


def crashes(*, short: bool, show: Show, seed: int = SEED) -> Row:
    """Return the row of every crash of a save."""
    most = 60 if short else None
    wanted = len(BEFORE) * 60 if short else 500
    found = []
    for held in BEFORE:
        judged = judge(checkpoint.save, held, seed=seed, most=most, randoms=3 if short else 12)
        show(f"      {judged.states} crash states of saving {held.name}")
        found.append(judged)
    states = sum(judged.states for judged in found)
    wrong = [text for judged in found for text in judged.wrong]
    return Row(
        "A save cut off anywhere, by a kill or a loss of power, leaves the new checkpoint or the "
        "one before it" + (" (a sample)" if short else ""),
        f"≥ {wanted} crash states; 0 torn, lost or older; after it returned always the new one; "
        "the next save goes through",
        f"{states} states of {len(BEFORE)} saves, {len(wrong)} wrong"
        + (f"; first: {wrong[0]}" if wrong else ""),
        states >= wanted and not wrong,
        seed,
    )


def judge(
    save: Save, held: Held, *, seed: int, most: int | None = None, randoms: int = 3
) -> Judged:
    """Return what is found after each crash of one save.

    Args:
        save: of the form of `checkpoint.save`. held: what the folder holds before. seed: of what is
            drawn.
        most: how many states to look at, drawn among all; None looks at all. randoms: as for
            `crash.states`.
    """
    with _scratch() as scratch:
        folder = scratch / "top" / FOLDER
        (scratch / "top").mkdir()
        for step, mark in held.steps:
            checkpoint.save(folder, step, arrays(mark), DETAILS)
        held.spoil(folder)
        before = checkpoint.latest(folder)

        def work() -> None:
            folder.mkdir(exist_ok=True)  # as training does before the first step
            save(folder, held.next, arrays(9), DETAILS)

        recording = disk_recorder.record(scratch / "top", work)
        found = list(crash_states.states(recording, seed, randoms))
        if most is not None:
            random.Random(seed).shuffle(found)  # noqa: S311 - a sample, not a secret
            del found[most:]
        wrong = []
        for number, (returned, tree) in enumerate(found):
            place = scratch / str(number)
            crash_states.write(tree, place)
            problem = _problem(place / FOLDER, held, before, returned=returned)
            if problem:
                when = "after it returned" if returned else "while it ran"
                there = ", ".join(sorted(tree)) or "nothing"
                wrong.append(f"{held.name}, {when}: {problem}; there was {there}")
            shutil.rmtree(place)
        return Judged(len(found), tuple(wrong))


def _problem(
    folder: Path, held: Held, before: checkpoint.Checkpoint | None, *, returned: bool
) -> str | None:
    """Return what is wrong with a crash state; None where all is well."""
    try:
        found = checkpoint.latest(folder)
    except CheckpointError as error:
        return f"refused: {str(error).splitlines()[0]}"
    if not _equal(found, held.next, 9):
        if returned:
            return f"step {found.step if found else None} came back; the save had returned"
        if found is None or before is None:
            if found is not before:
                return f"{'nothing' if found is None else f'step {found.step}'} came back"
        elif not _equal(found, before.step, dict(held.steps)[before.step]):
            return f"step {found.step} came back, torn or older than the newest before"
    checkpoint.save(folder, held.next + 1, arrays(10), DETAILS)
    after = checkpoint.latest(folder)
    return None if _equal(after, held.next + 1, 10) else "the next save did not come back"


def flips(*, short: bool, show: Show, seed: int = SEED) -> Row:
    """Return the row of single bits that turn in the newest of two checkpoints."""
    count = 100 if short else 1000
    show(f"      {count} bits of a checkpoint")
    with _scratch() as scratch:
        for step in (1, 2):
            newest = checkpoint.save(scratch / FOLDER, step, arrays(step), DETAILS)
        missed = [
            name
            for name in flipped(newest, count, seed)
            if not _comes_back(scratch / FOLDER, 1)  # the older one, whole
        ]
        unharmed = _comes_back(scratch / FOLDER, 2)
    return _row(
        "A bit that turns in the newest checkpoint: the one before is taken",
        count,
        missed,
        unharmed,
        seed,
    )


def artifact_flips(*, short: bool, show: Show, seed: int = SEED) -> Row:
    """Return the row of single bits that turn in an artifact."""
    count = 100 if short else 1000
    show(f"      {count} bits of an artifact")
    with _scratch() as scratch:
        folder = _artifact(scratch / "artifact")
        missed = []
        for name in flipped(folder, count, seed):
            try:
                artifact.load(folder)
            except ArtifactError:
                continue
            missed.append(name)
        unharmed = artifact.load(folder).manifest["run_id"] == "proof"
    return _row("A bit that turns in an artifact: it is refused", count, missed, unharmed, seed)


def flipped(folder: Path, count: int, seed: int) -> Iterator[str]:
    """Turn one bit of a file at a time, yield where, and turn it back; every file as often as the
    others, however short.
    """
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    for number in range(count):
        path = paths[number % len(paths)]
        whole = path.read_bytes()
        place, bit = draw.randrange(len(whole)), draw.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        try:
            yield f"{path.name}, byte {place}, bit {bit}"
        finally:
            path.write_bytes(whole)


def arrays(mark: int) -> dict[str, np.ndarray]:
    """Return the arrays of a state, other ones for another mark."""
    draw = np.random.default_rng(mark)
    return {
        "trainable/kernel": draw.standard_normal((60, 80)).astype(np.float32),
        "trainable/bias": draw.standard_normal(7).astype(np.float32),
        "optimizer/iteration": np.array(mark, np.int32),
        "empty": np.zeros((0, 3), np.float32),
    }


def _equal(found: checkpoint.Checkpoint | None, step: int, mark: int) -> bool:
    """Return whether a checkpoint is that of the step and of these arrays, to the bit."""
    if found is None or found.step != step or dict(found.details) != DETAILS:
        return False
    wanted = arrays(mark)
    return list(found.arrays) == list(wanted) and all(
        found.arrays[name].dtype == array.dtype
        and found.arrays[name].shape == array.shape
        and found.arrays[name].tobytes() == array.tobytes()
        for name, array in wanted.items()
    )


def _comes_back(folder: Path, step: int) -> bool:
    """Return whether this step is what is gone on from, saved with itself as its mark."""
    try:
        return _equal(checkpoint.latest(folder), step, step)
    except CheckpointError:
        return False


def _row(claim: str, count: int, missed: list[str], unharmed: bool, seed: int) -> Row:
    figure = f"{count - len(missed)} of {count}" + (f"; missed: {missed[0]}" if missed else "")
    if not unharmed:
        figure += "; and it is not taken where no bit turned"
    return Row(claim, f"{count} of {count}", figure, not missed and unharmed, seed)


@dataclass(frozen=True)
class _Weight:
    path: str
    value: np.ndarray
    name: str = "weight"

    def numpy(self) -> np.ndarray:
        return self.value


@dataclass(frozen=True)
class _Model:
    weights: tuple[_Weight, ...]

    def _flatten_layers(self, **words: bool) -> tuple[()]:
        return ()


def _artifact(folder: Path) -> Path:
    """Write an artifact as training does, of arrays that no model was trained for."""
    config = configs.load("digits")
    shape = (4, config.data.height, config.data.width, config.data.channels)
    details = dict.fromkeys(("git_commit", "bundle_sha256"), "0" * 40)
    artifact.save(
        folder,
        model=_Model(
            tuple(_Weight(name, array.astype(np.float32)) for name, array in arrays(1).items())
        ),
        config=config,
        target=Target("classes", tuple(str(label) for label in range(config.num_classes))),
        encoding=None,
        prior=np.full(config.num_classes, 1 / config.num_classes, np.float32),
        golden_inputs=np.zeros(shape, np.uint8),
        golden_outputs=np.full((4, config.num_classes), 1 / config.num_classes, np.float32),
        details={
            **details,
            "run_id": "proof",
            "status": "complete",
            "versions": {"keras": "3.15.0"},
            "metric": "accuracy",
            "metrics": {},
        },
    )
    return folder


@contextmanager
def _scratch() -> Iterator[Path]:
    """Give a fresh folder, in memory where there is such a place: thousands of saves are not to
    wear out a disk.
    """
    memory = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a name of its own there
    folder = Path(tempfile.mkdtemp(prefix="prove-saving-", dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
