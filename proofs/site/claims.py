"""Site: what the real Kaggle may do, mode by mode, and what the relay then does."""

from functools import partial
from pathlib import Path

from proofs.shared.results_table import Later, Rows, Show
from proofs.site import (
    by_hand,
    competitions,
    live_rehearsal,
    outputs,
    pushes,
    screens,
)


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Rows:
    """Yield the rows; `short` has those without a training or a rehearsal of minutes."""
    yield from pushes.rows(short=short)
    yield from competitions.rows(root, short=short, show=show)
    yield from outputs.rows(short=short, show=show)
    if short:
        return
    yield Later("`invoke watch`", partial(screens.rows, root, show))
    yield from live_rehearsal.rows(show)
    yield Later("The chain by Kaggle's own client", partial(by_hand.row, root))
