"""Train with as little memory as the limit leaves: a script of test_step.py, since a limit holds
for a whole process.
"""

import json
import os
import resource
import sys
from dataclasses import replace
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import jax
import numpy as np

from pipeline import config as configs
from pipeline.training import train_step as step
from pipeline.training import training
from tests.pipeline import conftest


def main(folder: Path) -> None:
    """Print the run's lines and the micro-batch it came to, as one line of JSON."""
    digits = configs.load("digits")
    config = replace(
        digits,
        name="starved",
        num_classes=4,
        batch=256,
        epochs=1,
        warmup_epochs=0,
        data=replace(digits.data, height=128, width=128),
        model_options={"width": 2, "dropout": 0.0},
        optimizer=replace(digits.optimizer, base_batch=8),
    )
    compile_step = step.Step.compile

    def starved(self: step.Step, *given: object) -> None:
        # XLA ends the process where it cannot compile; a step that does not fit it refuses with
        # RESOURCE_EXHAUSTED.
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        compile_step(self, *given)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(
            resource.RLIMIT_AS, (size + int(os.environ["STARVED_BYTES"]), resource.RLIM_INFINITY)
        )
        found.append(self)

    def fed(self: step.Step, *given: object) -> object:
        # Only the first step is short of memory: what later ones find under such a limit is chance.
        after = jax.block_until_ready(train_step(self, *given))  # type: ignore[no-untyped-call]
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return after

    train_step = step.Step.train
    found: list[step.Step] = []
    step.Step.compile, step.Step.train = starved, fed  # type: ignore[method-assign]
    lines: list[str] = []
    drawn = conftest.draw
    conftest.draw = lambda label, random: np.kron(drawn(label, random), np.ones((16, 16), np.uint8))
    competition = conftest.write_competition(folder / "competition", train=288)
    training.train(config, competition, folder / "out", show=lines.append)
    print(json.dumps({"lines": lines, "micro_batch": found[-1].micro_batch, "batch": config.batch}))


main(Path(sys.argv[1]))
