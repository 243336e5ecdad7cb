"""Measure how long a session takes to start training, and how much time checkpoints take.

A second session reuses the programs that the first one compiled. Each start is measured in a
separate process: `python -m benchmarks.starts FOLDER` prints how many seconds pass after the data
has been read until the first step is complete.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import loop
from benchmarks.measure import Table, in_process, write

STARTS, RUNS = 7, 5


def main() -> None:
    begun = time.perf_counter()
    taken: dict[str, list[float]] = {"second session": [], "first session": []}
    for turn in range(STARTS):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("first session", "second session"):  # this order is required
                taken[name].append(in_process("benchmarks.starts", folder))
        print(f"  turn {turn + 1} of {STARTS}", file=sys.stderr, flush=True)
    kept: dict[str, list[float]] = {"without checkpoints": [], "with checkpoints": []}
    for seconds, whole in (saved() for _ in range(RUNS)):
        kept["without checkpoints"].append(whole - seconds)
        kept["with checkpoints"].append(whole)
    tables = [
        Table("From the end of reading data to the end of the first step (CNN, 16x16)", "s", taken),
        Table("Two epochs, with 2.4 million parameters and their optimizer state", "s", kept),
    ]
    write("starts", "Starts and checkpoints", tables, begun)


def start(folder: Path) -> float:
    """Train for one step in this process, and return the seconds that it takes."""
    from pipeline.train import training

    found, config = loop.images(600), loop.settings(32, 64, epochs=40)
    begun = time.monotonic()
    run = training.train(
        config, folder, folder, examples=found, max_steps=1, fresh=True, show=lambda line: None
    )
    # Exclude the checkpoint at the end, because it is saved after the step.
    return time.monotonic() - begun - run.seconds["checkpoints"]


def saved() -> tuple[float, float]:
    """Train in this process, and return the seconds for all checkpoints and for the run."""
    from pipeline.train.session import Session

    with tempfile.TemporaryDirectory() as folder:
        config = loop.settings(128, 16, checkpoint_seconds=None, epochs=2)
        run = loop.made(config, loop.images(6_000), Path(folder) / "run")
        with Session(None, run.output) as session:
            run.run(loop.ORIGIN, session, max_steps=2)  # compiles the step
            run.seconds.clear()
            begun = time.monotonic()
            run.run(loop.ORIGIN, session, max_steps=None)
        return run.seconds["checkpoints"], time.monotonic() - begun


if __name__ == "__main__":
    os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="2")
    if len(sys.argv) > 1:
        print(json.dumps(start(Path(sys.argv[1]))))
    else:
        main()
