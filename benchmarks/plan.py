"""Compare the predictions of `python -m workbench plan --for cpu` with actual training runs.

It uses four networks that are part of this project, with two precisions and two feeds. Plans and
training runs alternate. `python -m benchmarks.plan CONFIG DATA OUT` trains in a separate process.
"""

import gc
import json
import re
import sys
import tempfile
import time
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measure import Table, in_process, write
from pipeline import config as configs

SEED, TURNS, EPOCHS = 20261125, 2, 4
MODELS: dict[str, dict[str, Any]] = {
    "small_cnn": {"width": 24},
    "strided_resnet": {"width": 32},
    "mlp": {"width": 1024, "depth": 3},
    "wide_resnet": {"k": 1, "n": 1, "kernel_size": 3},
}
PRECISIONS, FEEDS = ("float32", "mixed_bfloat16"), ("host", "device")
NAMES = "trained", "planned"
IMAGES, SIDE, BATCH = 448, 64, 64


def main() -> None:
    begun = time.perf_counter()
    cases, found = list(product(MODELS, PRECISIONS, FEEDS)), []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_data(data)
        for case in cases:
            found.append(compared(Path(folder), data, *case))
            print(f"  {' '.join(case)}: {found[-1]}", file=sys.stderr, flush=True)
    order = f"The last column lists the cases in this order: {'; '.join(map(' '.join, cases))}."
    tables = [
        Table(title, unit, {name: [one[unit, name] for one in found] for name in NAMES}, order)
        for title, unit in (
            (f"Epochs of {len(cases)} training runs, {SIDE}x{SIDE}", "s"),
            ("Memory of a step, in addition to the memory in use before it", "MB"),
        )
    ]
    write("plan", "Plans for this CPU", tables, begun)


def compared(
    folder: Path, data: Path, model: str, precision: str, feed: str
) -> dict[tuple[str, str], float]:
    """Alternate between planning and training a case.

    Return the planned and measured values, keyed by the unit and "trained" or "planned".
    """
    config = write_config(folder, model, precision, feed)
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    planned, ran = [], []
    for turn in range(TURNS):
        plan = ("workbench", "plan", "--config", config, "--for", "cpu", "--input", data, "--json")
        planned.append(in_process(*plan, **kept)["outlooks"][0])
        output = config.with_name(f"{config.stem}-{turn}")
        ran.append(in_process("benchmarks.plan", config, data, output, **kept))
    return {
        ("s", "trained"): median(seconds for one in ran for seconds in one["epochs"]),
        ("s", "planned"): median(one["epoch"]["usual"] for one in planned),
        ("MB", "trained"): median(one["bytes"] for one in ran) / 1e6,
        ("MB", "planned"): planned[0]["computing"] * BATCH / planned[0]["share"] / 1e6,
    }


def train(config: str, data: Path, output: Path) -> dict[str, Any]:
    """Train, and return the memory of a step and the seconds of each epoch after the second one."""
    from pipeline.runtime import backend

    settings = configs.load(config)
    backend.use_every_core(settings.batch)
    import jax

    from pipeline.train import training

    before: list[int] = []
    most: list[int] = []

    def show(line: str) -> None:
        """Measure memory between calls in the second epoch, when everything has been compiled."""
        found = json.loads(line) if line.startswith("{") else {}
        if not 1 <= found.get("epoch", 0.0) < 2:
            return
        if before:
            most.append(status("VmHWM") - before[-1])
        for array in jax.live_arrays():  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):  # the array was donated to the next step
                jax.block_until_ready(array)  # type: ignore[no-untyped-call]
        time.sleep(0.5)  # wait until XLA's threads have freed their memory
        gc.collect()
        before.append(status("VmRSS"))
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM

    training.train(settings, data, output, show=show)
    table = (output / "history.csv").read_text().splitlines()
    ends = [float(line.rpartition(",")[2]) for line in table[1:]]
    return {"bytes": max(most), "epochs": [b - a for a, b in pairwise(ends)][1:]}


def status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise OSError(f"{name} not found in /proc/self/status.")
    return int(found[1]) * 1024


def write_config(folder: Path, model: str, precision: str, feed: str) -> Path:
    common = configs.load("digits").to_json()
    data = {"kind": "arrays", "height": SIDE, "width": SIDE, "channels": 3, "labelled": None}
    made = common | {
        "name": f"{model}_{precision}_{feed}",
        "competition": "plan-runs",
        "num_classes": 2,
        "model": model,
        "model_options": MODELS[model],
        "data": common["data"] | data,
        "optimizer": common["optimizer"] | {"base_batch": BATCH},
        "batch": BATCH,
        "epochs": EPOCHS,
        "warmup_epochs": 1,
        "precision": precision,
        "feed": feed,
        "progress_seconds": 0.2,
        "checkpoint_seconds": 32400,
    }
    path = folder / f"{made['name']}.py"
    path.write_text(f"from pipeline.config import from_json\nCONFIG = from_json({made!r})\n")
    return path


def write_data(folder: Path) -> None:
    draw = np.random.default_rng(SEED)
    labels = draw.integers(0, 2, IMAGES)
    pixels = draw.integers(0, 120, (IMAGES, SIDE, SIDE, 3)) + 100 * labels[:, None, None, None]
    for name in ("train", "test"):
        (folder / name).mkdir(parents=True)
    np.save(folder / "train.npy", pixels.astype(np.uint8))
    np.save(folder / "test.npy", pixels[:2].astype(np.uint8))
    rows = [f"r{number},{label}" for number, label in enumerate(labels)]
    (folder / "train.csv").write_text("\n".join(["id,label", *rows]) + "\n")
    (folder / "sample_submission.csv").write_text("id,label\nt0,0\nt1,0\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(train(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
    else:
        main()
