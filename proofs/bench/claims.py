"""Bench: what the benchmark measures, counts, resumes and compares."""

import os
import tempfile
from functools import partial
from pathlib import Path

from pipeline.runtime import devices
from proofs.bench import grids, on_a_gpu, on_kaggle, published
from proofs.shared.results_table import Later, Rows, Show


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Rows:
    """Yield the rows; `short` has those that nothing is trained for."""
    if not short:
        devices.use_cores(16)  # as the command does, before anything is computed
    yield published.headlines()
    yield published.totals()
    yield published.law()
    if short:
        return
    with tempfile.TemporaryDirectory(prefix="prove-bench-") as scratch:
        os.environ["XDG_CACHE_HOME"] = scratch  # no plan is known from before
        folder = Path(scratch)
        yield Later("Every combination of pattern and feed", partial(grids.rows, folder, show))
        yield Later("kill -9 in the middle of the grid", partial(grids.killed, root, folder))
        yield Later("Our feed beside that of 2018", partial(grids.feeds, folder, show))
        yield Later("The reduced grid of `invoke bench`", partial(grids.reduced, root, folder))
        yield Later("`invoke push-bench`, TPU and GPU", partial(on_kaggle.row, folder, show))
        yield Later("NVIDIA GPU: WideResNet, 103 million", partial(on_a_gpu.row, root, folder))
