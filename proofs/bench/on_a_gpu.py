"""On an NVIDIA GPU: the benchmark's network of 103 million parameters, beside its plan."""

import shutil
import subprocess
import sys
from pathlib import Path

from pipeline import config as config_module
from pipeline.bench import images, measurement, predictions, timings
from pipeline.bench.cells import Cell
from proofs.shared import module_process
from proofs.shared.results_table import Row

SECONDS, NEAR = 13.0, 0.10
CLAIM = (
    "NVIDIA GPU: WideResNet, 103 million parameters, bfloat16, 50,000 images an epoch, batch 1024"
)
TARGET = f"≤ {SECONDS:g} s an epoch (stretch 9.2, limit of an H200 4.6); memory within {NEAR:.0%}"


def row(root: Path, folder: Path) -> Row:
    """Return the row; without a GPU nothing is run, and it says so."""
    if shutil.which("nvidia-smi") is None:
        return Row(CLAIM, TARGET, "not measured: there is no GPU", True)
    output = folder / "gpu"
    subprocess.run(
        [sys.executable, "-m", "proofs.bench.on_a_gpu", str(output)],
        cwd=root,
        env={**module_process.environment(root), "JAX_PLATFORMS": "cuda"},
        check=True,
    )
    trained = [timings.of(one) for one in timings.read([output]) if one.times]
    (ours,) = (one for one in trained if one.way == "ours")
    told = {one.what: one for one in predictions.by_plan([ours], print)}
    memory = told["GB of a core"]
    near = memory.actual is not None and abs(memory.predicted.usual / memory.actual - 1) <= NEAR
    assert ours.measured is not None  # noqa: S101 - it was trained here
    about = ours.measured.about
    return Row(
        CLAIM,
        TARGET,
        f"{ours.mean:.2f} s an epoch of {ours.images:,.0f} images; MFU"
        f" {predictions.in_percent(ours)} (nominal, in bounds); memory"
        f" {memory.actual or 0:.2f} GB, planned {memory.predicted.usual:.2f}; {ours.device},"
        f" {about['precision']}, {about['versions']}",
        ours.mean <= SECONDS and near and about["precision"] == "mixed_bfloat16",
    )


def measure(output: Path) -> None:
    """Train ours, then fit: what the devices have had at most is of all before, too."""
    config = config_module.load("cifar100_wrn")
    pair = Cell("ours", 1, "own", config.batch), Cell("fit", 1, "whole", config.batch)
    found = images.find(config, None, print)
    measurement.run(pair, config, found, output, epochs=4, show=print)


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
