"""Two processes with four devices each train the same model as one process with eight."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from formats import npz
from localkaggle import competitions
from pipeline import config as configs
from pipeline.train import checkpoint, training
from tests.pipeline.one_ulp import SEEDS, TIMES, apart, nudged

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
EPOCHS, KILLED_EPOCHS, KILLS = 8, 200, 4
MOVES = 13, 30  # steps, within the second epoch and the fourth
# No function of it has a corner, at which a last bit becomes a jump.
CONFIG = """from dataclasses import replace
import keras
from tests.configs.digits import CONFIG as digits

def smooth(images, num_classes, batchnorm_momentum):
    x = keras.layers.Flatten(name="flat")(images)
    x = keras.layers.Dense(64, use_bias=False, name="dense")(x)
    x = keras.layers.BatchNormalization(momentum=batchnorm_momentum, name="norm")(x)
    x = keras.layers.Dropout(0.3, name="drop")(keras.activations.gelu(x))
    return keras.layers.Dense(num_classes, dtype="float32", name="logits")(x)

CONFIG = replace(
    digits, name="two_processes", model="smooth", model_options={{}}, batchnorm_batch=8,
    epochs={epochs}, warmup_epochs=1, checkpoint_seconds=0.2, progress_seconds=0,
    optimizer=replace(digits.optimizer, name="sgd", base_rate=0.01, base_batch=128),
)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the competition, where a run is a folder."""
    folder = tmp_path_factory.mktemp("processes")
    competitions.EMBEDDED["digits"]().write(folder / "digits")
    return folder


def written(folder, epochs):
    """Write the config, and return its file."""
    path = folder / f"{epochs}" / "two_processes.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(CONFIG.format(epochs=epochs))
    return path


def started(folder, output, epochs, both=(), second=()):
    """Start two processes with additional (option, value): for both, and for the second."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    given = {
        "--config": written(folder, epochs), "--input": folder / "digits",
        "--output": folder / output, "--processes": 2, "--coordinator": f"127.0.0.1:{port}",
    }  # fmt: skip
    flags = re.sub(r"(device_count)=\d+", r"\1=4", os.environ["XLA_FLAGS"])
    for place, more in ((0, [both]), (1, [both, second])):
        options = given | {"--process-id": place} | dict(pair for pair in more if pair)
        with (folder / f"{output}.err").open("ab") as said:
            yield subprocess.Popen(
                [sys.executable, "-m", "pipeline", "train", *map(str, chain(*options.items()))],
                cwd=ROOT,
                env={**os.environ, "XLA_FLAGS": flags},
                stdout=(folder / f"{output}.out").open("wb"),
                stderr=said,
            )


def by_two(folder, output, epochs, both=()):
    """Train with two processes, and return the weights of the artifact."""
    codes = [process.wait(timeout=300) for process in [*started(folder, output, epochs, both)]]
    assert codes == [0, 0], (folder / f"{output}.err").read_text(errors="replace")[-2000:]
    return weights(folder / output)


def by_one(folder, output, epochs, max_steps=None):
    """Train in this process, which has eight devices, and return the weights of the artifact."""
    config = configs.load(str(written(folder, epochs)))
    training.train(config, folder / "digits", folder / output, max_steps=max_steps, show=str)
    return weights(folder / output)


def weights(output):
    """Return the weights of an artifact, if there is one."""
    path = output / "artifact" / "weights.npz"
    return npz.read(path) if path.exists() else {}


def step_of(output):
    """Return the newest checkpoint's step, 0 without one."""
    found = (output / "checkpoints").glob("step-*")
    return max((int(path.name.removeprefix("step-")) for path in found), default=0)


@pytest.fixture(scope="module")
def whole(folder):
    """Return the final weights of one process, and the allowed difference for two."""
    whole = by_one(folder, "eight", EPOCHS)
    by_one(folder, "first", EPOCHS, 1)
    found, distances = checkpoint.latest(folder / "first" / "checkpoints"), []
    for seed in SEEDS:
        names = [name for name in found.arrays if name.startswith("params/")]
        moved = nudged({name: found.arrays[name] for name in names}, seed)
        output = folder / f"nudged-{seed}"
        checkpoint.save(output / "checkpoints", found.step, found.arrays | moved, found.details)
        distances.append(apart(by_one(folder, output.name, EPOCHS), whole))
    assert max(distances) < 1e-4
    return whole, TIMES * max(distances)


def test_a_run_moves_from_one_process_to_two_and_back(folder, whole):
    by_one(folder, "moved", EPOCHS, MOVES[0])
    by_two(folder, "moved", EPOCHS, ("--max-steps", MOVES[1]))
    assert step_of(folder / "moved") == MOVES[1]

    assert apart(by_one(folder, "moved", EPOCHS), whole[0]) < whole[1]


@pytest.mark.parametrize("name", ["epochs", "data", "--max-steps", "--output"])
def test_processes_that_are_asked_for_different_things_end_with_code_2(name, folder):
    other = folder / "relabelled"
    if name == "data":
        shutil.copytree(folder / "digits", other)
        head, *rows = (other / "train.csv").read_text().splitlines()
        ids, labels = zip(*(row.split(",") for row in rows), strict=True)
        rows = [f"{one},{label}" for one, label in zip(ids, labels[1:] + labels[:1], strict=True)]
        (other / "train.csv").write_text("\n".join([head, *rows]) + "\n")
    second = {
        "epochs": ("--config", written(folder, EPOCHS + 1)),
        "data": ("--input", other),
        "--max-steps": ("--max-steps", 5),
        "--output": ("--output", folder / "elsewhere"),
    }[name]
    output = f"differ-{name.strip('-')}"

    pair = list(started(folder, output, EPOCHS, second=second))

    assert [process.wait(timeout=300) for process in pair] == [2, 2]
    said = (folder / f"{output}.err").read_text(errors="replace")
    assert re.search(rf"^Error: The processes differ in .*{name}", said, re.MULTILINE)
    assert step_of(folder / output) == 0


def test_a_pair_of_which_one_is_killed_ends_and_resumes_to_the_same_bits(folder, seed):
    """Either one, at any time; the other one ends with code 1."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    unbroken, output = by_two(folder, "unbroken", KILLED_EPOCHS), folder / "killed"
    for number in range(KILLS):
        before, victim = step_of(output), number % 2
        pair = list(started(folder, "killed", KILLED_EPOCHS))

        # Each other one is killed after it has saved, so that the run gets on; the rest at any
        # moment from where the processes have met.
        def ready(before=before, saved=number % 4 > 1):
            met = (folder / "killed.out").stat().st_size > 0
            return step_of(output) > before if saved else met

        while not ready():
            assert [process.poll() for process in pair] == [None, None]
            time.sleep(0.02)
        time.sleep(draw.uniform(0, 0.5))
        pair[victim].send_signal(signal.SIGKILL)
        codes = [process.wait(timeout=120) for process in pair]
        assert codes[victim] == -signal.SIGKILL and codes[1 - victim] == 1
        assert step_of(output) >= before

    ended = by_two(folder, "killed", KILLED_EPOCHS)

    assert ended.keys() == unbroken.keys()
    assert all(np.array_equal(ended[name], unbroken[name]) for name in unbroken)
