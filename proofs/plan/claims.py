"""Plan: what it says of published runs, of our own, and of what the compilers refuse."""

import os
import tempfile
from functools import partial
from pathlib import Path

from proofs.plan import (
    compiled_plans,
    large_images,
    prediction,
    prepared_runs,
    published_runs,
    runs_here,
    what_is_lacking,
)
from proofs.shared.results_table import Later, Rows, Show


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Rows:
    """Yield the rows; `short` has those that nothing has to be compiled for."""
    if short:
        yield published_runs.law_row()
        yield published_runs.prices()
        return
    with tempfile.TemporaryDirectory(prefix="prove-plan-") as scratch:
        folder = Path(scratch)
        os.environ["XDG_CACHE_HOME"] = scratch  # nothing is known from before
        yield published_runs.law_row()
        yield published_runs.prices()
        yield Later("16 trainings", partial(runs_here.rows, root, folder, show))
        yield Later("are input-bound", partial(runs_here.verdicts, root, folder, show))
        yield Later("large images", partial(large_images.row, root, folder))
        yield Later("beside its plan", partial(prediction.row, root, folder))
        yield Later("lacking", partial(what_is_lacking.row, root, folder))
        yield Later("prepared images", partial(prepared_runs.rows, show))
        yield Later("fit, TPU v2-8", partial(compiled_plans.fits, root, show))
        yield Later("largest batch", partial(compiled_plans.largest, root, show))
        yield Later("beside one compilation", partial(compiled_plans.overhead, root, show))
