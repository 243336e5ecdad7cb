"""Train with too little memory for a whole batch: a script of test_train_step.py, since a limit
holds for a whole process.
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
        batchnorm_batch=None,
        epochs=1,
        warmup_epochs=0,
        data=replace(digits.data, validation_fraction=0.1),
        model="mlp",  # one wide layer: much memory, and little to compile
        model_options={"width": 65536, "depth": 1, "dropout": 0.0},
        optimizer=replace(digits.optimizer, base_batch=8),
    )
    compile_step = step.Step.compile

    def starved(self: step.Step, *given: object) -> None:
        # XLA ends the process where it cannot compile; a step that does not fit it refuses with
        # RESOURCE_EXHAUSTED.
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        compile_step(self, *given)
        found.append(self)
        needed.append(self._program.memory_analysis().temp_size_in_bytes)
        if len(found) > 1:
            return  # what else XLA takes beside half of the memory is its own affair
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        # Three quarters of what XLA says that the whole batch needs on this machine. What is mapped
        # and free is small beside the last one.
        limit = size + needed[0] * 3 // 4
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

    def fed(self: step.Step, *given: object) -> object:
        # Only the first step is short of memory: what later ones find under such a limit is chance.
        after = jax.block_until_ready(train_step(self, *given))  # type: ignore[no-untyped-call]
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return after

    train_step = step.Step.train
    found: list[step.Step] = []
    needed: list[int] = []
    step.Step.compile, step.Step.train = starved, fed  # type: ignore[method-assign]
    lines: list[str] = []
    competition = conftest.write_competition(folder / "competition", train=284)
    training.train(config, competition, folder / "out", show=lines.append)
    print(json.dumps({"lines": lines, "micro_batch": found[-1].micro_batch, "needed": needed}))


main(Path(sys.argv[1]))
