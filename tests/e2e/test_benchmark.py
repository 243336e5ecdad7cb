"""The benchmark's notebook on the local Kaggle, on a TPU and on two GPUs."""

from pathlib import Path

import pytest

from localkaggle.server import LocalKaggle
from tests.e2e.project import copied, given
from tests.shipped import there

GRID = ("--pattern", "1", "--batch", "64", "--epochs", "2")


@pytest.mark.slow
def test_one_page_has_the_cells_of_both_machines_and_none_is_measured_twice(tmp_path):
    there("kernels/bench/notebook.py")
    project = copied(tmp_path)
    with LocalKaggle(tmp_path / "kaggle", competitions=["digits"], offline=True) as local:

        def cells(machine):
            """Push, watch and pull; return the folder, and the bytes of each cell in it."""
            words = ("--for", machine, *GRID, "--yes")
            pushed = given(project, "commands", "push-bench", *words, **local.environment)["run"]
            for command in ("watch", "pull"):
                words = (command, "--kernel", "bench", "--run", pushed)
                found = given(project, "invoke", *words, **local.environment)
            folder = Path(found["folder"])
            names = folder.glob("cells/*/*.json")
            return folder, {path.relative_to(folder): path.read_bytes() for path in names}

        (_, tpu), (both, cells_of_both) = cells("tpu-v5e-8"), cells("gpu-t4x2")
    words = ("bench-report", both, "--output", tmp_path / "page")
    page = given(project, "workbench", *words)["page"]

    assert len(cells_of_both) == 2 * len(tpu) > 0
    assert tpu.items() <= cells_of_both.items()
    shown = Path(page).read_text()
    assert "8 x" in shown and "2 x" in shown
