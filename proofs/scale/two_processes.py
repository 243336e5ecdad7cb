"""Two processes of four devices each train one model, by the command line.

They are compared with one process of eight, killed at any moment, and moved.
"""

import json
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from localkaggle import competitions
from pipeline import config as configs
from pipeline.session import checkpoint
from pipeline.storage import npz
from proofs.shared import module_process, perturbed_start
from proofs.shared.results_table import Row

SEED = 20261123
KILLS = 20
MOVES = 13, 30  # steps, within the second epoch and the fourth
MOST_SECONDS = 60.0  # until the other process has ended
TIMES, EPS, NEAR = 10, float(np.finfo(np.float32).eps), 1e-4  # as in `prove training`
# No function of it has a corner, at which a last bit becomes a jump.
CONFIG = """from dataclasses import replace
import keras
from pipeline.configs.digits import CONFIG as digits

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


@dataclass
class Bench:
    """Where the trainings run, and what they need.

    Attributes:
        here: train what one process does in this one, which has eight devices.
    """

    root: Path
    folder: Path
    epochs: int
    here: bool = False

    def prepare(self) -> None:
        """Write the config and the competition."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file.write_text(CONFIG.format(epochs=self.epochs))
        competitions.EMBEDDED["digits"]().write(self.folder / "digits")

    @property
    def file(self) -> Path:
        """The config."""
        return self.folder / "two_processes.py"

    def start(self, output: str, devices: int, *more: object) -> "subprocess.Popen[bytes]":
        """Start a training, or its part in one."""
        options: dict[object, object] = {
            "--config": self.file, "--input": self.folder / "digits",
            "--output": self.folder / output,
        }  # fmt: skip
        options |= dict(zip(more[::2], more[1::2], strict=True))
        words = ["pipeline", "train", *(word for pair in options.items() for word in pair)]
        flags = f"--xla_force_host_platform_device_count={devices} {module_process.UNOPTIMIZED}"
        compiled = self.folder / "compiled"
        return subprocess.Popen(
            [sys.executable, "-m", *map(str, words)],
            cwd=self.root,
            env=module_process.environment(self.root, flags=flags, compiled=compiled),
            stdout=(self.folder / f"{output}.out").open("wb"),
            stderr=(self.folder / f"{output}.err").open("ab"),
        )

    def one(self, output: str, max_steps: int | None = None) -> None:
        """Train with one process of eight devices."""
        if self.here:
            from pipeline.training import training  # imports Keras, which counts devices

            config, into = configs.load(str(self.file)), self.folder / output
            data, quiet = self.folder / "digits", lambda line: None
            training.train(config, data, into, max_steps=max_steps, show=quiet)
            return
        more = ("--max-steps", max_steps) if max_steps else ()
        self._ended(output, [self.start(output, 8, *more)])

    def both(self, output: str, *more: object) -> list["subprocess.Popen[bytes]"]:
        """Start two processes of four devices each."""
        host = f"127.0.0.1:{_free_port()}"
        words = ("--processes", 2, "--coordinator", host, *more, "--process-id")
        return [self.start(output, 4, *words, place) for place in (0, 1)]

    def apart(self, output: str, *second: object) -> tuple[list[int], str]:
        """Start two processes, the second one with other options as well, and return their exit
        codes and what they said.
        """
        host = f"127.0.0.1:{_free_port()}"
        words = ("--processes", 2, "--coordinator", host, "--process-id")
        pair = [self.start(output, 4, *words, 0), self.start(output, 4, *words, 1, *second)]
        codes = [process.wait(timeout=300) for process in pair]
        return codes, (self.folder / f"{output}.err").read_text(errors="replace")

    def two(self, output: str, *more: object) -> None:
        """Train with two processes of four devices each."""
        self._ended(output, self.both(output, *more))

    def _ended(self, output: str, started: Sequence["subprocess.Popen[bytes]"]) -> None:
        codes = [process.wait(timeout=300) for process in started]
        if any(codes):
            said = (self.folder / f"{output}.err").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"The trainings of {output} ended with {codes}:\n{said}")

    def weights(self, output: str) -> dict[str, np.ndarray]:
        """Return the weights of an artifact."""
        return npz.read(self.folder / output / "artifact" / "weights.npz")

    def met(self, output: str) -> bool:
        """Return whether the first process has said something, which it does when all are there."""
        return (self.folder / f"{output}.out").stat().st_size > 0

    def steps(self, output: str) -> int:
        """Return the newest checkpoint's step, 0 without one."""
        names = (self.folder / output / "checkpoints").glob("step-*")
        return max((int(path.name.removeprefix("step-")) for path in names), default=0)


def apart(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    """Return the largest relative distance between arrays of one name."""
    return max(
        float(np.linalg.norm(ours[name].astype(float) - theirs[name]))
        / max(float(np.linalg.norm(theirs[name].astype(float))), EPS)
        for name in theirs
    )


def nudged(bench: Bench, source: str, target: str) -> None:
    """Copy a run's newest checkpoint, with each weight moved by one unit in the last place."""
    found = checkpoint.latest(bench.folder / source / "checkpoints")
    assert found is not None  # noqa: S101 - the proof's own
    draw, arrays = np.random.default_rng(SEED), dict(found.arrays)
    for name in [name for name in arrays if name.startswith("trainable/")]:
        arrays[name] = perturbed_start.neighbours(arrays[name], draw)
    folder = bench.folder / target / "checkpoints"
    folder.mkdir(parents=True)
    checkpoint.save(folder, found.step, arrays, found.details)


def beside_one(bench: Bench) -> Row:
    """Return the row of two processes beside one, both from the first step of a run on."""
    bench.one("eight")
    bench.one("first", 1)
    nudged(bench, "first", "nudged")
    bench.one("nudged")
    bench.two("two")
    whole = bench.weights("eight")
    return near(
        f"Two processes of four devices beside one of eight: weights after {bench.epochs} epochs",
        apart(bench.weights("two"), whole),
        apart(bench.weights("nudged"), whole),
    )


def moved(bench: Bench) -> Row:
    """Return the row of a run that moves to two processes and back; `beside_one` comes first."""
    bench.one("moved", MOVES[0])
    bench.two("moved", "--max-steps", MOVES[1])
    at = bench.steps("moved")
    bench.one("moved")
    whole = bench.weights("eight")
    row = near(
        f"One process, two from step {MOVES[0]} on, one from step {MOVES[1]} on, each in the middle"
        " of an epoch: weights at the end",
        apart(bench.weights("moved"), whole),
        apart(bench.weights("nudged"), whole),
    )
    if at != MOVES[1]:
        return Row(row.claim, row.target, f"stopped at step {at}", False, SEED)
    return row


def refused(bench: Bench) -> Row:
    """Return the row of processes that were not asked for the same."""
    other, data = bench.folder / "other.py", bench.folder / "relabelled"
    changed = {"two_processes": "other", f"epochs={bench.epochs}": f"epochs={bench.epochs + 1}"}
    text = bench.file.read_text()
    for before, after in changed.items():
        text = text.replace(before, after)
    other.write_text(text)
    shutil.copytree(bench.folder / "digits", data)
    table = (data / "train.csv").read_text().splitlines()
    ids, labels = zip(*(line.split(",") for line in table[1:]), strict=True)
    rows = [",".join(pair) for pair in zip(ids, labels[1:] + labels[:1], strict=True)]
    (data / "train.csv").write_text("\n".join([table[0], *rows]) + "\n")
    cases = {
        "epochs": ("--config", other),
        "data": ("--input", data),
        "--max-steps": ("--max-steps", 5),
        "--output": ("--output", bench.folder / "elsewhere"),
    }
    told = []
    for name, words in cases.items():
        output = f"differ-{name.strip('-')}"
        codes, said = bench.apart(output, *words)
        named = re.search(rf"^Error: The processes differ in .*{name}", said, re.MULTILINE)
        if codes == [2, 2] and named and not bench.steps(output):
            continue
        told.append(f"{name}: codes {codes}, {' '.join(said.split())[-200:]}")
    return Row(
        f"Two processes with another {', '.join(cases)}: refused",
        f"{len(cases)} of {len(cases)}: both end with code 2 and name it, and nothing is trained",
        f"{len(cases) - len(told)} of {len(cases)}{': ' * bool(told)}{'; '.join(told)}",
        not told,
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def near(claim: str, distance: float, unit: float) -> Row:
    """Return the row of a distance, beside the one that a unit in the last place makes."""
    return Row(
        claim,
        f"at most {TIMES} times what one unit in the last place of the weights makes instead, or an"
        f" eps of float32 if that is more; that is below {NEAR:g}",
        f"{distance:.1e}, one unit {unit:.1e}",
        distance <= TIMES * max(unit, EPS) and 0 < unit < NEAR,
        SEED,
    )


def killed(bench: Bench, kills: int) -> dict[str, Any]:
    """Kill one of two processes again and again, until the run is complete.

    Returns:
        Of each kill: which process, the exit code of the other, its seconds, and the newest saved
        step; and whether the weights are those of a run that nobody killed.
    """
    draw = random.Random(SEED)  # noqa: S311 - a proof's
    bench.two("unbroken")
    ends = list[tuple[int, int, float, int]]()
    while len(ends) < kills:
        before, victim, wait = bench.steps("killed"), draw.randrange(2), draw.uniform(0.0, 3.0)
        pair = bench.both("killed")
        # Each other one is killed after it has saved, so that the run gets on; the rest at any
        # moment from where the processes have met.
        while all(process.poll() is None for process in pair) and not (
            bench.steps("killed") > before if len(ends) % 2 else bench.met("killed")
        ):
            time.sleep(0.02)
        time.sleep(wait)
        if any(process.poll() is not None for process in pair):
            raise RuntimeError(f"The run ended, or broke, after {len(ends)} kills")
        pair[victim].send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
        pair[victim].wait()
        try:
            code = pair[1 - victim].wait(timeout=2 * MOST_SECONDS)
        except subprocess.TimeoutExpired:
            pair[1 - victim].kill()
            code = pair[1 - victim].wait()
        seconds = time.monotonic() - killed_at
        ends.append((victim, code, seconds, bench.steps("killed")))
    bench.two("killed")
    ours, theirs = bench.weights("killed"), bench.weights("unbroken")
    same = ours.keys() == theirs.keys() and all(
        np.array_equal(ours[name], theirs[name]) for name in theirs
    )
    return {"ends": ends, "same": same}


def judged(found: dict[str, Any], kills: int) -> Row:
    """Return the row of the kills."""
    ends = found["ends"]
    victims = [sum(victim == place for victim, *_ in ends) for place in (0, 1)]
    slowest = max((seconds for _, _, seconds, _ in ends), default=0.0)
    codes = sorted({code for _, code, _, _ in ends})
    steps = [step for *_, step in ends]
    return Row(
        f"kill -9 of either of two processes at {kills} instants, then the same commands",
        "weights bit-identical to the unbroken run's; the other process ends with code 1 within"
        f" {MOST_SECONDS:.0f} s",
        f"{len(ends)} kills ({victims[0]} of the first process, {victims[1]} of the second), at"
        f" saved steps {json.dumps(steps)}; weights {'equal' if found['same'] else 'differ'}; codes"
        f" {codes}, slowest {slowest:.0f} s",
        len(ends) == kills
        and found["same"]
        and codes == [1]
        and slowest <= MOST_SECONDS
        and min(victims) > 0
        and steps == sorted(steps),
        SEED,
    )
