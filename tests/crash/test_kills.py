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
DYING_SECONDS = 0.4  # a life is killed within this time after its first checkpoint …
STARTING_SHARE, STARTING_SECONDS = 0.15, 1.5  # … or, this share of them, after its beginning,
SAVING_SHARE = 0.3  # … or, this share, as soon as it is seen to write one


def train(folder, epochs, feed, custom="", precision="auto", progressive=()):
    """Train with AdamW, averages, BatchNorm, dropout, augmentation and micro-batches, and save each
    step.

    Args:
        precision: in float16 the first third of the epochs trains the last layer alone, too.
        progressive: shares of 32 pixels, which a network of convolutions sees then.
        custom: a file of docs/custom-training.md, whose own model and optimizer are kept.
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
    shape = IMAGES, *config.data.shape
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    labels = np.arange(IMAGES, dtype=np.int32) % 10
    ids, target = tuple(map(str, range(IMAGES))), Target("classes", tuple("0123456789"))
    examples = Examples(ids, pixels, labels, target)
    training.train(config, folder, folder, examples=examples, show=str)


def step(folder):
    """Return the step of the newest checkpoint; 0 without one."""
    found = (folder / "checkpoints").glob("step-" + "[0-9]" * 8)
    return max((int(path.name.removeprefix("step-")) for path in found), default=0)


def digest(folder):
    """Return a sha256 over all arrays of the last checkpoint."""
    found = hashlib.sha256()
    for name, array in sorted(checkpoint.latest(folder / "checkpoints").arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return found.hexdigest()


def unfinished(folder):
    """Return the names of the checkpoints that a life has begun to write, or left so."""
    return {path.name for path in (folder / "checkpoints").glob(".step-*")}


def killed(folder, draw, *words):
    """Begin a life and kill it at a random moment; return whether it was saving."""
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "feed", "precision"),
    [(4, "auto", "auto"), (1, "device", "auto"), (2, "auto", "mixed_float16")],
)
def test_a_run_that_is_killed_anywhere_ends_with_the_bits_of_an_unbroken_one(
    runs, feed, precision, tmp_path, seed
):
    """The weights, and what the optimizer and the averages keep."""
    draw, saving = random.Random(seed), []  # noqa: S311 - no secret
    words = 40, feed, "", precision
    folders = [tmp_path / str(number) for number in range(runs + 1)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        saving += [killed(folder, draw, *words) for _ in range(6 if number else 0)]
        last = forked.begun(folder / "printed.txt", train, folder, *words)
        last.join()
        assert last.exitcode == 0, (folder / "printed.txt").read_text()[-2000:]

    whole, *broken = map(digest, folders)
    assert broken == [whole] * runs
    assert runs < 4 or set(saving) == {True, False}


@pytest.mark.slow
def test_a_run_that_is_killed_at_each_size_of_its_images_ends_with_the_bits_of_an_unbroken_one(
    tmp_path,
):
    """The sizes change after 90 and 180 of 270 steps."""
    words = 6, "auto", "", "auto", (0.5, 0.75)
    for name, kills in (("whole", ()), ("broken", (20, 110, 200))):
        folder = tmp_path / name
        folder.mkdir()
        for kill in kills:
            process = forked.begun(folder / "printed.txt", train, folder, *words)
            while step(folder) < kill and process.is_alive():
                time.sleep(0.01)
            process.kill()
            process.join()
            assert process.exitcode == -9, (folder / "printed.txt").read_text()[-2000:]
            assert kill <= step(folder) < kill + 70
        last = forked.begun(folder / "printed.txt", train, folder, *words)
        last.join()
        assert last.exitcode == 0, (folder / "printed.txt").read_text()[-2000:]

    assert digest(tmp_path / "broken") == digest(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_run_of_custom_functions_that_is_killed_ends_with_the_bits_of_an_unbroken_one(
    name, tmp_path, seed
):
    file, draw = tmp_path / f"{name}.py", random.Random(seed)  # noqa: S311 - no secret
    file.write_text(FILES[name].replace("pipeline.configs", "tests.configs"))
    for folder, lives in ((tmp_path / "whole", 0), (tmp_path / "broken", 2)):
        folder.mkdir()
        for _ in range(lives):
            killed(folder, draw, 5, "auto", str(file))
        last = forked.begun(folder / "printed.txt", train, folder, 5, "auto", str(file))
        last.join()
        assert last.exitcode == 0, (folder / "printed.txt").read_text()[-2000:]

    assert digest(tmp_path / "broken") == digest(tmp_path / "whole")
