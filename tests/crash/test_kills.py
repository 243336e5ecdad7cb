"""A training that is killed by SIGKILL and started again ends with the bits of an unbroken one."""

import hashlib
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import config as configs
from pipeline.data.dataset import Examples
from pipeline.data.labels import Target
from pipeline.session import checkpoint
from pipeline.training import training
from pipeline.training.feed import Feed
from pipeline.training.train_step import Step

IMAGES, BATCH = 800, 16  # 45 steps an epoch
DYING_SECONDS = 0.4  # a life is killed within this time after its first step …
STARTING_SHARE, STARTING_SECONDS = 0.15, 1.5  # … or, this share of them, after its beginning


@dataclass
class Run:
    """What came of a run: the steps at which it was killed, whether a checkpoint was being written,
    a hash of each step's batch, and of all arrays of the last checkpoint.
    """

    kills: list[tuple[int, bool]] = field(default_factory=list)
    batches: dict[str, str] = field(default_factory=dict)
    weights: str = ""


def digest(arrays: Any) -> str:
    """Return a sha256 over some arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {array.shape} ".encode() + np.asarray(array).tobytes())
    return found.hexdigest()


def settings(epochs: int, feed: str) -> Any:
    """Return a config with AdamW, averages, BatchNorm, dropout, augmentation and micro-batches."""
    digits = configs.load("digits")
    optimizer = replace(
        digits.optimizer, name="adamw", weight_decay=0.05, ema_momentum=0.99, base_batch=4
    )
    return replace(
        digits, name="lives", batchnorm_batch=None, data=replace(digits.data, flip=True),
        optimizer=optimizer, model="mlp", model_options={"width": 16, "depth": 1, "dropout": 0.3},
        batch=BATCH, micro_batch=BATCH // 2, epochs=epochs, warmup_epochs=1, keep="best",
        checkpoint_seconds=0, progress_seconds=0.05, feed=feed,
    )  # fmt: skip


def live(folder: Path, told: Any, *words: Any) -> None:
    """Train, and send (what, step, hash) for each step and checkpoint; a process of its own."""
    quiet = os.open(folder / "errors.txt", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    save, of_call, train, latest = checkpoint.save, Feed._call, Step.train, checkpoint.latest
    hashes, at = dict[int, str](), [0]

    def saved(into: Path, step: int, *rest: Any) -> Path:
        told.send(("saving", step, ""))
        path = save(into, step, *rest)
        told.send(("saved", step, ""))
        return path

    def resumed(into: Path) -> Any:
        loaded = latest(into)
        at[0] = loaded.step if loaded else 0
        told.send(("from", at[0], ""))
        return loaded

    def fed(self: Any, step: int, *rest: Any) -> tuple[Any, ...]:
        made: tuple[Any, ...] = of_call(self, step, *rest)
        images = made[0] if not self.held else np.asarray(self.held[0])[np.asarray(made[0])]
        hashes[step] = digest([images, *made[1:]])
        return made

    def stepped(self: Any, *given: Any) -> Any:
        result = train(self, *given)
        told.send(("step", at[0] + 1, hashes[at[0]]))
        at[0] += 1
        return result

    checkpoint.save, checkpoint.latest, Feed._call, Step.train = saved, resumed, fed, stepped
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (IMAGES, 8, 8, 1), np.uint8)
    classes = Target("classes", tuple(map(str, range(10))))
    labels = np.arange(IMAGES, dtype=np.int32) % 10
    examples = Examples(tuple(f"i{number}" for number in range(IMAGES)), pixels, labels, classes)
    training.train(settings(*words), folder, folder, examples=examples, show=lambda line: None)


@pytest.fixture(autouse=True)
def outlived(monkeypatch):
    """Let multiprocessing keep its socket where it is still found when pytest has ended."""
    monkeypatch.setattr(tempfile, "tempdir", str(Path(tempfile.gettempdir()).parent))


def life(
    folder: Path, words: tuple[int, str], wait: float | None
) -> tuple[int, list[tuple[str, int, str]]]:
    """Return the exit code of a life and what it told.

    Args:
        wait: seconds until it is killed, from the first step on; from the beginning if negative.
    """
    context = multiprocessing.get_context("forkserver")  # it imports once, and has no threads
    context.set_forkserver_preload([__name__])
    reads, writes = context.Pipe(duplex=False)
    process = context.Process(target=live, args=(folder, writes, *words))
    process.start()
    writes.close()
    told = list[tuple[str, int, str]]()
    if wait is not None:
        while wait >= 0 and (not told or told[-1][0] != "step"):
            told.append(reads.recv())
        time.sleep(abs(wait))
        process.kill()
    try:
        while True:
            told.append(reads.recv())
    except EOFError:
        process.join()
    assert process.exitcode is not None
    return process.exitcode, told


def run(folder: Path, words: tuple[int, str], wait: Callable[[Run], float | None]) -> Run:
    """Kill a run as often as `wait` says, let it end, and return what came of it."""
    folder.mkdir(parents=True)
    result, committed, code = Run(), 0, -9
    while code == -9:
        code, told = life(folder, words, wait(result))
        saving, step = False, committed
        for what, number, hashed in told:
            assert what != "from" or number >= committed, "it resumed from an older checkpoint"
            step = number if what in ("from", "step") else step
            saving = what == "saving" or (saving and what != "saved")
            committed = max(committed, number if what == "saved" else 0)
            if what == "step":
                assert result.batches.setdefault(str(number), hashed) == hashed
        if code == -9:
            result.kills.append((step, saving))
    assert code == 0, (folder / "errors.txt").read_text()[-2000:]
    found = checkpoint.latest(folder / "checkpoints")
    assert found is not None
    result.weights = digest(array for _, array in sorted(found.arrays.items()))
    return result


@pytest.mark.parametrize(
    ("runs", "kills", "epochs", "feed"),
    [
        pytest.param(1, 2, 1, "auto", id="a sample"),
        pytest.param(6, 6, 3, "auto", id="fed by the host", marks=pytest.mark.slow),
        pytest.param(1, 6, 3, "device", id="fed by devices", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_killed_anywhere_ends_with_the_bits_of_an_unbroken_one(
    runs, kills, epochs, feed, tmp_path, seed
):
    """The weights, what the optimizer and the averages keep, and each step's batch."""
    draw = random.Random(seed)  # noqa: S311 - no secret

    def wait(so_far: Run) -> float | None:
        if len(so_far.kills) == kills:
            return None
        early = draw.random() < STARTING_SHARE
        return -draw.uniform(0.05, STARTING_SECONDS) if early else draw.uniform(0, DYING_SECONDS)

    whole = run(tmp_path / "whole", (epochs, "auto"), lambda so_far: None)
    broken = [run(tmp_path / str(one), (epochs, feed), wait) for one in range(runs)]

    assert len(whole.batches) == -(-IMAGES * 9 // 10 * epochs // BATCH)
    for one in broken:
        assert len(one.kills) == kills
        assert (one.batches, one.weights) == (whole.batches, whole.weights)
    if runs > 1:
        assert {saving for one in broken for _, saving in one.kills} == {True, False}
