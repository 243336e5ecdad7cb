"""Grids that are really trained here: complete, counted, cut, compared."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from pipeline import config as config_module
from pipeline.bench import bench_command, cells, images, measurement
from pipeline.bench.cells import FEEDS, FIT, GENERATOR, OURS, OWN_FEED, PATTERNS, WHOLE, Cell
from pipeline.bench.measurement import Measured
from pipeline.config import Config
from proofs.shared import module_process
from proofs.shared.results_table import Row, Show, last_json

SEED = images.SEED
COUNT, BATCHES, EPOCHS = 200, (16, 32, 64), 3  # images, images a step
BINDS = {"k": 2, "n": 1, "kernel_size": 3}  # a step of a batch of 64 takes 0.3 s on two cores
BINDS_COUNT, BINDS_BATCH, TURNS = 512, 64, 3


def rows(folder: Path, show: Show) -> Iterator[Row]:
    """Yield the rows of the whole grid, with a network of three 1x1 convolutions."""
    config = config_module.load("digits")
    config = replace(
        config, model="wide_resnet", model_options={"k": 1, "n": 0, "kernel_size": 1},
        batchnorm_batch=None, batch=BATCHES[0],
        optimizer=replace(config.optimizer, base_batch=BATCHES[0]),
    )  # fmt: skip
    given = {"images": str(COUNT), "batch": ",".join(map(str, BATCHES)), "epochs": str(EPOCHS)}
    made = bench_command.run(config, None, folder / "grid", given, show)
    found = {one.cell: one for one in map(measurement.of_json, made["cells"])}
    every = [
        Cell(FIT, number, feed, batch) for number in PATTERNS for feed in FEEDS for batch in BATCHES
    ]
    there = {cell for cell in every if cells.possible(cell)}
    trained = {cell for cell in there if cell in found and found[cell].times is not None}
    not_there = set(every) - there
    yield Row(
        f"Every combination of pattern and feed at batch {', '.join(map(str, BATCHES))}, in the way"
        " of 2018",
        "all that its loaders allow are trained, the others n/a",
        f"{len(trained)} of {len(there)} trained, {len(not_there)} n/a:"
        f" {len({(cell.pattern, cell.feed) for cell in not_there})} of {len(PATTERNS) * len(FEEDS)}"
        f" combinations; {sum(cell.way == OURS for cell in found)} of ours beside them",
        trained == there and not not_there & set(found),
        SEED,
    )
    yield _counted(found)
    yield _ragged(found)


def _counted(found: dict[Cell, Measured]) -> Row:
    wrong, missing = [], {}
    for cell, one in found.items():
        if one.times is None:
            wrong.append(f"{cell}: {one.reason}")
            continue
        counted = [epoch.images for epoch in one.times.epochs]
        if counted != (expected := _images(cell)):
            wrong.append(f"{cell}: {counted}, expected {expected}")
        missing[cell] = EPOCHS * COUNT - sum(counted)
    generator = [missing[cell] for cell in missing if cell.feed == GENERATOR]
    ours = [missing[cell] for cell in missing if cell.way == OURS]
    return Row(
        f"Images that the devices were given in {EPOCHS} epochs of {COUNT}, as they count them",
        "as follows from each feed, of every cell",
        f"{len(found) - len(wrong)} of {len(found)} right{': ' if wrong else ''}"
        f"{'; '.join(wrong[:3])}; the generator leaves out {min(generator)} to {max(generator)} of"
        f" {EPOCHS * COUNT}, ours {min(ours)} to {max(ours)} (below 0: more, by whole batches)",
        not wrong and min(generator) > 0 and max(ours) <= 0,
        SEED,
    )


def _images(cell: Cell) -> list[int]:
    """Return how many images each epoch has to have.

    A loader's pass ends with a ragged batch; an epoch has images // batch steps of those passes.
    With several workers Keras takes one batch before, to build the network, and never trains on it.
    """
    whole, rest = divmod(COUNT, cell.batch)
    if cell.feed == WHOLE:
        return [COUNT] * EPOCHS
    if cell.feed == OWN_FEED:
        ends = [-(-COUNT * number // cell.batch) * cell.batch for number in range(EPOCHS + 1)]
        return [last - first for first, last in pairwise(ends)]
    if cell.feed != GENERATOR:
        return [whole * cell.batch] * EPOCHS
    a_pass = [cell.batch] * whole + [rest] * bool(rest)
    taken = int(PATTERNS[cell.pattern].workers > 1)
    steps = (a_pass * EPOCHS)[taken:]
    return [sum(steps[whole * at : whole * (at + 1)]) for at in range(EPOCHS)]


def _ragged(found: dict[Cell, Measured]) -> Row:
    """Return the row of what the ragged batch costs: the step is compiled once more."""
    counted = {WHOLE: set[int](), "truncated": set[int](), OWN_FEED: set[int]()}
    for cell, one in found.items():
        if cell.pattern == 1 and cell.feed in counted and one.times is not None:
            names = [name for epoch in one.times.epochs for name in epoch.compiled]
            counted[cell.feed].add(sum(name != "jit(_evaluated)" for name in names))
    return Row(
        "Compilations of a training step, as the tool counts them",
        "2 with the ragged batch of fit, 1 without it, 1 of ours",
        ", ".join(f"{feed} {sorted(numbers)}" for feed, numbers in counted.items()),
        list(counted.values()) == [{2}, {1}, {1}],
        SEED,
    )


def killed(root: Path, folder: Path) -> Row:
    """Return the row of a grid that is killed while it trains its third cell."""
    output = folder / "killed"
    words = [sys.executable, "-m", "pipeline", "bench", "--config", "digits", "--images", "600"]
    words += ["--batch", "32", "--pattern", "1,3", "--output", str(output), "--json"]
    how = {"cwd": root, "env": module_process.environment(root)}
    with subprocess.Popen(words, **how, stdout=subprocess.DEVNULL) as first:  # type: ignore[call-overload]
        while len(_kept(output)) < 2 and first.poll() is None:
            time.sleep(0.05)
        time.sleep(0.5)  # in the middle of the third
        os.kill(first.pid, signal.SIGKILL)
    before = {path: path.stat().st_mtime_ns for path in _kept(output)}
    told = module_process.output(root, *words[2:])
    made = json.loads(told.splitlines()[-1])
    after = {path: path.stat().st_mtime_ns for path in _kept(output)}
    same = all(after[path] == at for path, at in before.items())
    new = len(after) - len(before)
    return Row(
        "kill -9 in the middle of the grid, and the same command again",
        "what was measured stays; the cell that was cut and those after it are measured",
        f"{len(before)} of {len(after)} cells were there and are {'the same' if same else 'others'}"
        f"; {new} measured; {made['left']} left; exit code {first.returncode}, then 0",
        same and first.returncode == -signal.SIGKILL and len(before) >= 2 and made["left"] == 0
        and new == len(made["cells"]) - len(before) > 0,
        SEED,
    )  # fmt: skip


def _kept(output: Path) -> list[Path]:
    return sorted(output.glob("cells/*/*.json"))


def feeds(folder: Path, show: Show) -> Row:
    """Return the row of our feed beside that of 2018, by turns, in this process."""
    config = _binding()
    made = images.made((32, 32, 3), 100).first(BINDS_COUNT)
    rates: dict[str, list[float]] = {}
    for turn in range(TURNS):
        for number in (1, 3):
            pattern = PATTERNS[number]
            pair = (
                Cell(FIT, number, pattern.feed, BINDS_BATCH),
                Cell(OURS, number, OWN_FEED, BINDS_BATCH),
            )
            for one in measurement.run(
                pair, config, made, folder / f"turn-{turn}", epochs=EPOCHS, show=show
            ):
                assert one.times is not None  # noqa: S101 - it was trained
                rates.setdefault(f"{one.cell.way}, {pattern}", []).append(one.times.rate)
    medians = {name: sorted(each)[len(each) // 2] for name, each in rates.items()}
    ratios = {
        str(PATTERNS[number]): medians[f"{OURS}, {PATTERNS[number]}"]
        / medians[f"{FIT}, {PATTERNS[number]}"]
        for number in (1, 3)
    }
    told = [f"{name} {rate:,.0f}" for name, rate in medians.items()]
    return Row(
        f"Our feed beside that of 2018 in one process, where computing binds: WideResNet k=2, n=1"
        f" on {BINDS_COUNT} images of 32x32, batch {BINDS_BATCH}, median of {TURNS} turns",
        "≥ 1.0 times as many images/s",
        f"{', '.join(f'{name} {ratio:.2f}' for name, ratio in ratios.items())}; images/s:"
        f" {'; '.join(told)} (made from a seed, for throughput only)",
        min(ratios.values()) >= 1.0,
        SEED,
    )


def _binding() -> Config:
    config = config_module.load("cifar100_wrn")
    optimizer = replace(config.optimizer, base_batch=BINDS_BATCH)
    return replace(
        config, model_options=BINDS, batch=BINDS_BATCH, batchnorm_batch=None, optimizer=optimizer
    )


def reduced(root: Path, folder: Path) -> Row:
    """Return the row of the grid that one command measures here, on real images."""
    output = folder / "reduced"
    words: Sequence[str] = ("invoke", "bench", "--output", str(output), "--json")
    began = time.monotonic()
    made = last_json(module_process.output(root, *words))
    minutes = (time.monotonic() - began) / 60
    found = [measurement.of_json(one) for one in made["cells"]]
    patterns = {one.cell.pattern for one in found if one.times}
    ways = sorted({one.cell.way for one in found if one.times})
    real = all(one.about["real"] for one in found)
    reached = len(made["reached"])
    return Row(
        "`invoke bench`: digits, a small WideResNet, every pattern, both ways in one process",
        "≤ 10 min, 8 patterns, all of the grid",
        f"{minutes:.1f} min, {len(patterns)} patterns, {made['left']} cells left, ways"
        f" {', '.join(ways)}; {reached} of {len(found)} trainings reached an accuracy of 0.5",
        minutes <= 10 and len(patterns) == len(PATTERNS) and not made["left"] and real
        and ways == sorted(cells.WAYS),
    )  # fmt: skip
