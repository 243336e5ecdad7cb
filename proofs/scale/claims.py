"""Scale: where Adam's scaled rate holds, and training by more than one process."""

import tempfile
from functools import partial
from pathlib import Path

from proofs.scale import adam, shipped, two_processes
from proofs.scale.two_processes import Bench
from proofs.shared.results_table import Later, Row, Rows, Show

EPOCHS, SHORT = 30, 2
KILLED_EPOCHS = 400


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Rows:
    """Yield the rows; `short` has a few steps of two processes beside one."""
    with tempfile.TemporaryDirectory(prefix="prove-scale-") as scratch:
        folder = Path(scratch)
        yield shipped.row()
        if short:
            bench = Bench(root, folder / "moved", SHORT, here=True)
            bench.prepare()
            yield two_processes.beside_one(bench)
            return
        yield Later("Adam", partial(adam.rows, root, folder / "adam", show=show))
        yield Later("processes, compared and moved", partial(_compared, root, folder, show))
        yield Later("processes, killed", partial(_killed, root, folder, show))


def _compared(root: Path, folder: Path, show: Show) -> list[Row]:
    show("      two processes beside one, and moved")
    bench = Bench(root, folder / "moved", EPOCHS)
    bench.prepare()
    rows = [two_processes.beside_one(bench), two_processes.moved(bench)]
    return [*rows, two_processes.refused(bench)]


def _killed(root: Path, folder: Path, show: Show) -> Row:
    show(f"      two processes, killed {two_processes.KILLS} times")
    bench = Bench(root, folder / "killed", KILLED_EPOCHS)
    bench.prepare()
    return two_processes.judged(
        two_processes.killed(bench, two_processes.KILLS), two_processes.KILLS
    )
