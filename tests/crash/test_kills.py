"""A training that is killed by SIGKILL and started again ends with the bits of an unbroken one."""

import hashlib
import os
import random
import time
from dataclasses import replace

import numpy as np
import pytest

from pipeline import config as configs
from pipeline.data.dataset import Examples
from pipeline.data.labels import Target
from pipeline.train import checkpoint, training
from tests import forked
from tests.e2e.test_worked_examples import FILES
from tests.shipped import shipped

IMAGES, BATCH = 800, 16  # 45 steps an epoch, 11 a call
DYING_SECONDS = 0.4  # a run is killed within this time after its first checkpoint,
STARTING_SHARE, STARTING_SECONDS = 0.15, 1.5  # or this share of runs, soon after the start,
SAVING_SHARE = 0.3  # or this share, as soon as it writes a checkpoint


def train(folder, epochs, feed, custom="", precision="auto", progressive=(), soft=False):
    """Train with AdamW, averages, BatchNorm, dropout, augmentation and micro-batches, and save each
    step.

    Args:
        precision: in float16 the first third of the epochs also trains the last layer alone.
        progressive: shares of 32 pixels, for a convolutional network.
        custom: a file of docs/custom-training.md, with its own model and optimizer.
        soft: whether labels are random probabilities.
    """
    os.chdir(folder)  # where a custom log goes
    digits = configs.load(custom) if custom else shipped("digits")
    config = replace(
        digits, batch=BATCH, batchnorm_batch=None, epochs=epochs, warmup_epochs=1,
        checkpoint_seconds=0, progress_seconds=0.05, feed=feed,
        optimizer=replace(digits.optimizer, base_batch=BATCH if custom else 4),
    )  # fmt: skip
    if not custom:
        optimizer = replace(config.optimizer, name="adamw", weight_decay=0.05, ema_momentum=0.99)
        config = replace(
            config, name="lives", data=replace(digits.data, flip=True), optimizer=optimizer,
            model="mlp", model_options={"width": 16, "depth": 1, "dropout": 0.3},
            micro_batch=BATCH // 2, keep="best",
        )  # fmt: skip
    if precision != "auto":
        config = replace(config, precision=precision, frozen_epochs=epochs // 3)
    if progressive:
        data, options = replace(config.data, height=32, width=32), {"width": 4, "dropout": 0.3}
        config = replace(config, data=data, model="strided_resnet", model_options=options)
        config = replace(config, progressive=progressive)
    names = tuple("0123456789")
    if soft:
        config = replace(config, data=replace(config.data, label_column=names), num_classes=0)
    shape = IMAGES, *config.data.shape
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    labels = np.arange(IMAGES, dtype=np.int32) % 10
    if soft:
        labels = np.random.default_rng(1).dirichlet(np.ones(10), IMAGES).astype(np.float32)
    ids, target = tuple(map(str, range(IMAGES))), Target("classes", names)
    examples = Examples(ids, pixels, labels, target)
    training.train(config, folder, folder, examples=examples, show=str)


def step(folder):
    """Return the step of the newest checkpoint, or 0."""
    found = (folder / "checkpoints").glob("step-" + "[0-9]" * 8)
    return max((int(path.name.removeprefix("step-")) for path in found), default=0)


def digest(folder):
    """Return a sha256 over all arrays of the last checkpoint."""
    found = hashlib.sha256()
    for name, array in sorted(checkpoint.latest(folder / "checkpoints").arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return found.hexdigest()


def unfinished(folder):
    """Return the names of unfinished checkpoints."""
    return {path.name for path in (folder / "checkpoints").glob(".step-*")}


def killed(folder, draw, *words):
    """Start a run and kill it at a random moment; return whether it was saving."""
    before, left = step(folder), unfinished(folder)
    process = forked.begun(folder / "printed.txt", train, folder, *words)
    share = draw.random()
    if share < STARTING_SHARE:
        time.sleep(draw.uniform(0.05, STARTING_SECONDS))
    elif share < STARTING_SHARE + SAVING_SHARE:
        while unfinished(folder) <= left and process.is_alive():
            pass
    else:
        while step(folder) == before and process.is_alive():
            time.sleep(0.01)
        time.sleep(draw.uniform(0, DYING_SECONDS))
    process.kill()
    process.join()
    assert process.exitcode == -9, (folder / "printed.txt").read_text()[-2000:]
    return bool(unfinished(folder))


def written(name, folder):
    """Write an example of docs/custom-training.md, and return its path."""
    file = folder / f"{name}.py"
    file.write_text(FILES[name].replace("pipeline.configs", "tests.configs"))
    return str(file)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "lives", "words"),
    [
        (4, 6, (40, "auto")),
        (1, 6, (40, "device")),
        (2, 6, (40, "auto", "", "mixed_float16")),
        # The sizes of images change after 270 and 540 of 810 steps.
        pytest.param(1, 8, (18, "auto", "", "auto", (0.5, 0.75)), id="progressive"),
        pytest.param(1, 4, (12, "auto", "", "auto", (), True), id="soft labels"),
        *(pytest.param(1, 2, (5, "auto", name), id=name) for name in FILES),
    ],
)
def test_a_run_that_is_killed_anywhere_ends_with_the_bits_of_an_unbroken_one(
    runs, lives, words, tmp_path, seed
):
    """The weights, and the state of the optimizer and of the averages."""
    draw, saving = random.Random(seed), []  # noqa: S311 - no secret
    words = [written(word, tmp_path) if word in FILES else word for word in words]
    folders = [tmp_path / str(number) for number in range(runs + 1)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        saving += [killed(folder, draw, *words) for _ in range(lives if number else 0)]
        last = forked.begun(folder / "printed.txt", train, folder, *words)
        last.join()
        assert last.exitcode == 0, (folder / "printed.txt").read_text()[-2000:]

    whole, *broken = map(digest, folders)
    assert broken == [whole] * runs
    assert runs < 4 or set(saving) == {True, False}
