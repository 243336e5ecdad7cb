"""What `plan --for cpu` says of 16 trainings on this machine, beside these trainings.

`python -m proofs.plan.runs_here CONFIG DATA OUT` trains, and prints one JSON object: bytes above
those before a step, the seconds of each later epoch, and how much the devices waited.
"""

import gc
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

from pipeline.session.progress_log import INPUT_BOUND
from proofs.plan import networks
from proofs.shared import module_process
from proofs.shared.results_table import Row, Show, last_json

SEED, TURNS, EPOCHS = 0, 4, 4
MEASURED = (1, 2)  # epochs between which memory is measured; time after them
MEMORY, MEMORY_WORST = 0.05, 0.10
TIME, TIME_WORST = 0.05, 0.15
LEAST = 5  # cases that are input-bound, and that are not


def rows(root: Path, folder: Path, show: Show) -> Iterator[Row]:
    """Yield the rows on memory and time."""
    found = _cases(root, folder, networks.FILE, TURNS, show)
    memory = {name: one["planned bytes"] / one["bytes"] - 1 for name, one in found.items()}
    seconds = {name: median(one["ratios"]) - 1 for name, one in found.items()}
    spread = [one["spread"] for one in found.values()]
    yield _row(
        "Memory that a step takes beyond what lies there before it, of 16 trainings on this CPU",
        memory, MEMORY, MEMORY_WORST, "",
    )  # fmt: skip
    yield _row(
        "Epochs of the same, by two probes that take turns with the trainings",
        seconds, TIME, TIME_WORST,
        f"; epochs of one case differ by {median(spread):.1%}, at most {max(spread):.1%}",
    )  # fmt: skip


def verdicts(root: Path, folder: Path, show: Show) -> Row:
    """Return the row on input. Files are larger, so that what decodes them is clearly too slow."""
    found = _cases(root, folder, networks.LARGE_FILE, 1, show)
    bound = {name: (one["planned bound"], one["bound"]) for name, one in found.items()}
    right = sum(planned == was for planned, was in bound.values())
    count = sum(was for _, was in bound.values())
    return Row(
        "Whether 16 trainings on this CPU are input-bound, as their progress lines say (10 %)",
        f"right for {len(bound)} of {len(bound)}, at least {LEAST} of each",
        f"{right} right; {count} input-bound, {len(bound) - count} not"
        + "".join(f"; {name} wrong" for name, (planned, was) in bound.items() if planned != was),
        right == len(bound) and LEAST <= count <= len(bound) - LEAST,
        seed=SEED,
    )


def _row(claim: str, errors: dict[str, float], middle: float, worst: float, more: str) -> Row:
    sizes = {name: abs(error) for name, error in errors.items()}
    furthest = max(sizes, key=lambda name: sizes[name])
    return Row(
        claim,
        f"median within {middle:.0%}, worst {worst:.0%}",
        f"median {median(sizes.values()):.1%}, worst {errors[furthest]:+.1%} ({furthest}){more}",
        median(sizes.values()) <= middle and sizes[furthest] <= worst,
        seed=SEED,
    )


def _cases(
    root: Path, folder: Path, size: tuple[int, int], turns: int, show: Show
) -> dict[str, dict[str, Any]]:
    """Return what was planned and what came of it, for each case by its name."""
    place = folder / f"files of {size[0]}"
    data = place / "data"
    data.mkdir(parents=True)
    networks.write_data(data, SEED, size)
    found = {}
    for case in product(networks.MODELS, networks.PRECISIONS, networks.FEEDS):
        found[" ".join(case)] = _case(root, place, data, case, turns)
        show(f"      {' '.join(case)}: {found[' '.join(case)]}")
    return found


def _case(
    root: Path, folder: Path, data: Path, case: tuple[str, str, str], turns: int
) -> dict[str, Any]:
    config = networks.write_config(folder, *case, EPOCHS)
    words = ("--config", config, "--for", "cpu", "--input", data, "--json")
    planned, ran, compiled = [], [], folder / "compiled"
    for turn in range(turns):
        text = module_process.output(root, "pipeline", "plan", *words, compiled=compiled)
        planned.append(last_json(text)["outlooks"][0])
        trained = __name__, config, data, folder / f"{config.stem}-{turn}"
        ran.append(last_json(module_process.output(root, *trained, compiled=compiled)))
    epochs = [seconds for one in ran for seconds in one["epochs"]]
    # Each plan beside the training after it: a machine is slower at one time than at another.
    pairs = zip((one["epoch"]["usual"] for one in planned), ran, strict=True)
    idle = median(one["idle"] for one in ran)
    return {
        "planned bytes": planned[0]["computing"] * networks.BATCH / planned[0]["share"],
        "bytes": median(one["bytes"] for one in ran),
        "ratios": [round(said / median(one["epochs"]), 4) for said, one in pairs],
        "spread": (max(epochs) - min(epochs)) / median(epochs),
        "planned bound": median(one["input"]["waits"] for one in planned) >= INPUT_BOUND,
        "bound": idle >= INPUT_BOUND,
        "idle": idle,
    }


def _train(config: str, data: Path, output: Path) -> dict[str, Any]:
    from pipeline import config as configs
    from pipeline.runtime import backend

    settings = configs.load(config)
    backend.use_every_core(settings.batch)
    import jax

    from pipeline.training import training

    before: list[int] = []
    most: list[int] = []

    def show(line: str) -> None:
        """Between two calls nothing is computed: what a step takes counts from there."""
        found = json.loads(line) if line.startswith("{") else {}
        epoch = found.get("epoch", 0.0)
        if not MEASURED[0] <= epoch < MEASURED[1]:  # until then programs are compiled
            return
        if before:
            most.append(_status("VmHWM") - before[-1])
        for array in jax.live_arrays():  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):  # given to the step that takes its place
                jax.block_until_ready(array)  # type: ignore[no-untyped-call]
        time.sleep(0.5)  # XLA's threads give back what they held
        gc.collect()
        before.append(_status("VmRSS"))
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again

    training.train(settings, data, output, show=show)
    table = (output / "history.csv").read_text().splitlines()
    ends = [float(line.rpartition(",")[2]) for line in table[1:]]
    lines = [json.loads(line) for line in (output / "progress.jsonl").read_text().splitlines()]
    return {
        "bytes": max(most),
        # Those after the one that waits above.
        "epochs": [later - sooner for sooner, later in pairwise(ends)][MEASURED[1] - 1 :],
        "idle": median(line["idle"] for line in lines if line["epoch"] > MEASURED[1]),
    }


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None  # noqa: S101 - Linux has both
    return int(found[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(_train(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
