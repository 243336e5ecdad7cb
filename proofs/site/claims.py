"""Site: what the real Kaggle may do, and what the relay then does."""

from functools import partial
from pathlib import Path

from proofs.shared.results_table import Later, Rows, Show
from proofs.site import by_hand, clients_own_tests


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Rows:
    """Yield the rows; `short` has none: each runs notebooks."""
    if not short:
        yield Later("The chain by Kaggle's own client", partial(by_hand.row, root))
        yield Later(clients_own_tests.CLAIM, partial(clients_own_tests.row, root, show))
