"""A training run that is killed with SIGKILL several times before it ends, and the same run without
a kill.

`python -m proofs.training.killed_runs` imports the libraries once, and forks for each life of a run
before JAX has threads.
"""

import hashlib
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from proofs.shared import own_functions, perturbed_start

SEED = 20261121
IMAGES, EPOCHS, BATCH = 1600, 5, 16  # 90 steps an epoch
EPOCHS_SHORT = 2
DYING_SECONDS = 0.4  # a life is killed within this time after its first step …
STARTING_SHARE, STARTING_SECONDS = 0.15, 1.5  # … or, this share of them, after its beginning
LIVES_AT_MOST = 60


@dataclass
class Run:
    """The result of one run.

    Attributes:
        kills: (step, whether a checkpoint was being written) of each.
        weights: sha256 of every array of the last checkpoint, optimizer and averages included.
        batches: sha256 of the images and labels of each step; None where two lives differ.
        lost: lives that resumed from an older step than the last committed one.
        unrecoverable: errors of lives that were not killed.
    """

    kills: list[tuple[int, bool]] = field(default_factory=list)
    weights: str = ""
    batches: dict[str, str | None] = field(default_factory=dict)
    lost: int = 0
    unrecoverable: list[str] = field(default_factory=list)


def settings(epochs: int) -> Any:
    """Return a config with AdamW, averages, BatchNorm, dropout, augmentation and micro-batches."""
    from pipeline import config as configs

    digits = configs.load("digits")
    optimizer = replace(
        digits.optimizer, name="adamw", weight_decay=0.05, ema_momentum=0.99, base_batch=4
    )
    base = replace(
        digits,
        name="lives",
        batchnorm_batch=None,
        data=replace(digits.data, flip=True),
        optimizer=optimizer,
        model_options={"width": 4, "dropout": 0.3},
        batch=BATCH,
        micro_batch=4,
        epochs=epochs,
        warmup_epochs=1,
        keep="best",
        checkpoint_seconds=0,
        progress_seconds=0.05,
    )
    return own_functions.used(base)


def images() -> Any:
    """Return images of noise with labels."""
    from pipeline.data.dataset import Examples
    from pipeline.data.labels import Target

    draw = np.random.default_rng(SEED)
    labels = np.arange(IMAGES, dtype=np.int32) % 10
    pixels = draw.integers(0, 256, (IMAGES, 8, 8, 1), np.uint8)
    classes = Target("classes", tuple(map(str, range(10))))
    return Examples(tuple(f"i{number}" for number in range(IMAGES)), pixels, labels, classes)


def live(folder: Path, report: int, epochs: int, feed: str = "auto") -> None:
    """Train in this process, and write a line for each step and checkpoint to the pipe `report`."""
    from pipeline.session import checkpoint
    from pipeline.training import training
    from pipeline.training.feed import Feed
    from pipeline.training.train_step import Step

    def tell(*words: object) -> None:
        os.write(report, (" ".join(map(str, words)) + "\n").encode())

    save, of_call, train, latest = checkpoint.save, Feed._call, Step.train, checkpoint.latest
    hashes: dict[int, str] = {}
    begun = -1

    def saved(into: Path, step: int, *rest: Any) -> Path:
        tell("saving", step)
        path = save(into, step, *rest)
        tell("saved", step)
        return path

    def found(into: Path) -> Any:
        nonlocal begun
        loaded = latest(into)
        begun = loaded.step if loaded else 0
        tell("from", begun)
        return loaded

    def batch(self: Any, step: int, *rest: Any) -> tuple[Any, ...]:
        made: tuple[Any, ...] = of_call(self, step, *rest)
        arrays = [np.asarray(array) for array in made]
        if self.held:  # the numbers of images
            arrays[0] = np.asarray(self.held[0])[arrays[0]]
        content = b"".join(array.tobytes() for array in arrays)
        hashes[step] = hashlib.sha256(content).hexdigest()
        return made

    def stepped(self: Any, *given: Any) -> Any:
        nonlocal begun
        result = train(self, *given)
        tell("step", begun, hashes[begun])
        begun += 1
        return result

    watched: Any = ((checkpoint, "save", saved), (Feed, "_call", batch))
    watched += ((Step, "train", stepped), (checkpoint, "latest", found))
    for place, name, function in watched:
        setattr(place, name, function)
    config = replace(settings(epochs), feed=feed)
    training.train(config, folder, folder, examples=images(), show=lambda line: None)


def fork(
    folder: Path,
    killed: Callable[[], float] | None,
    lines: list[str],
    epochs: int,
    feed: str = "auto",
) -> int:
    """Return the exit status of a life, as `os.waitpid` gives it.

    Args:
        folder: of the run.
        killed: gives the seconds until the kill: from the beginning if negative, else from the
            first step. None does not kill it.
        lines: takes the lines that it writes.
        epochs: of the run. feed: as in a config.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        quiet = os.open(folder / "errors.txt", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            live(folder, writes, epochs, feed)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writes)
    wait = killed() if killed else float("inf")
    end = time.monotonic() - wait if wait < 0 else float("inf")
    told = b""
    while True:
        ready, _, _ = select.select([reads], [], [], max(min(end - time.monotonic(), 60), 0))
        if ready:
            part = os.read(reads, 65536)
            if not part:
                break
            told += part
            if end == float("inf") and wait >= 0 and b"\nstep " in told:
                end = time.monotonic() + wait
        if time.monotonic() >= end:
            os.kill(child, signal.SIGKILL)
            end = float("inf")
    os.close(reads)
    lines += told.decode().splitlines()
    return os.waitpid(child, 0)[1]


def run(folder: Path, kills: int, seed: int, epochs: int, feed: str = "auto") -> Run:
    """Kill a run that often, let it end, and return the result."""
    folder.mkdir(parents=True)
    draw, result, committed = random.Random(seed), Run(), 0  # noqa: S311 - no secret

    def when() -> float:
        if draw.random() < STARTING_SHARE:
            return -draw.uniform(0.05, STARTING_SECONDS)
        return draw.uniform(0.0, DYING_SECONDS)

    for _ in range(LIVES_AT_MOST):
        lines: list[str] = []
        status = fork(folder, when if len(result.kills) < kills else None, lines, epochs, feed)
        saving, step = False, committed
        for words in (line.split() for line in lines):
            if words[0] == "from":
                result.lost += int(words[1]) < committed
                step = int(words[1])
            elif words[0] == "step":
                step = int(words[1]) + 1
                if result.batches.setdefault(words[1], words[2]) != words[2]:
                    result.batches[words[1]] = None
            else:
                saving = words[0] == "saving"
                committed = max(committed, 0 if saving else int(words[1]))
        if os.WIFSIGNALED(status):
            result.kills.append((step, saving))
        elif status:
            result.unrecoverable.append((folder / "errors.txt").read_text()[-1000:])
            break
        else:
            result.weights = _digest(folder / "checkpoints")
            break
    return result


def _digest(folder: Path) -> str:
    """Return a sha256 over every array of the newest checkpoint, by name."""
    from pipeline.session import checkpoint

    found = checkpoint.latest(folder)
    if found is None:
        return "none"
    digest = hashlib.sha256()
    for name, array in sorted(found.arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


def main(folder: Path, runs: int, kills: int, seed: int, epochs: int, feed: str = "auto") -> None:
    """Print one JSON line a run: first one without a kill, then those that are killed, which are
    fed in the given way.
    """
    from pipeline.training import training  # noqa: F401 - once for all lives

    for number in range(runs + 1):
        way, often = (feed, kills) if number else ("auto", 0)
        result = run(folder / str(number), often, seed * 1000 + number, epochs, way)
        print(json.dumps(asdict(result)), flush=True)


if __name__ == "__main__":
    perturbed_start.install()
    given, *numbers = sys.argv[1:6]
    runs, kills, seed, epochs = map(int, numbers)
    ways = [word for word in sys.argv[6:] if not word.startswith(own_functions.WORD)]
    main(Path(given), runs, kills, seed, epochs, *ways)
