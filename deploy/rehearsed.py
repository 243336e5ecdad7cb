"""Which notebooks went through a rehearsal, by the code and the config that they run."""

import json
from pathlib import Path

from deploy.bundle import Bundle
from formats.errors import writing

FILE = "rehearsed.json"


def remember(runs: Path, code_sha256: str, how: str) -> None:
    """Note that a bundle went through a rehearsal.

    Args:
        runs: folder of the journal.
        code_sha256: of the bundle that ran; the files it was built from may have changed since.
        how: in words: when, and what it left out.

    Raises:
        DiskError: if it cannot be written.
    """
    path = runs / FILE
    with writing(path):
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(_known(runs) | {code_sha256: how}, indent=1), "utf-8")
        fresh.replace(path)


def how(runs: Path, bundle: Bundle) -> str:
    """Return how a bundle was rehearsed; "" if it was not, as it stands."""
    return _known(runs).get(bundle.code_sha256, "")


def _known(runs: Path) -> dict[str, str]:
    path = runs / FILE
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}
