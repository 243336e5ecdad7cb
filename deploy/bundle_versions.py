"""Which version of a kernel holds a bundle, and which of the bundle's sources that one lacks.

Reads  versions of a kernel, as Kaggle shows them
Gives  a version, or an error that names the sources that Kaggle did not accept
"""

import time
from collections.abc import Mapping

from deploy import failure_messages
from deploy.bundle import Bundle
from deploy.client import Kaggle
from deploy.errors import SourcesRefused, Unknown
from deploy.kernel_calls import SOURCES
from deploy.responses import Source

OTHERS_AT_MOST = 10  # versions that others may have pushed after ours


def missing(bundle: Bundle, source: Source) -> dict[str, tuple[str, ...]]:
    """Return the sources of the bundle that the version lacks, by kind."""
    lacking = {
        kind: tuple(sorted(set(bundle.metadata.get(kind, [])) - set(source.asks.get(kind) or ())))
        for kind in SOURCES
    }
    return {kind: names for kind, names in lacking.items() if names}


def require_sources(bundle: Bundle, version: int, wrong: Mapping[str, tuple[str, ...]]) -> None:
    """Raise `SourcesRefused` if Kaggle did not accept a source of the bundle."""
    wrong = {kind: names for kind, names in wrong.items() if names}
    if wrong:
        named = "; ".join(
            f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in wrong.items()
        )
        runs = f"Version {version} runs without it, so its result is worthless. " if version else ""
        raise SourcesRefused(
            f"Kaggle did not accept all sources of {bundle.handle}"
            f" ({failure_messages.plain(named)}).\n"
            f"{runs}Expected all of them. Check on kaggle.com that they exist and are shared"
            " with you, and that you joined the competition.",
            version,
            tuple(wrong),
        )


def find(kaggle: Kaggle, handle: str, sha256: str, before: int) -> Source | None:
    """Return the newest version after `before` that holds this bundle, or None."""
    newest = kaggle.get_kernel(handle)
    if newest is None:
        return None
    for version in range(newest.version, max(before, newest.version - OTHERS_AT_MOST), -1):
        source = newest if version == newest.version else kaggle.get_kernel(handle, version)
        if source is not None and sha256 in source.text:
            return source
    return None


def find_patiently(
    kaggle: Kaggle, handle: str, sha256: str, before: int, seconds: float
) -> Source | None:
    """Do as `find` until it finds one, for at most so many seconds; look once at least.

    Raises:
        Unknown: if Kaggle does not tell at the end.
    """
    end, pause = time.monotonic() + seconds, kaggle.pace.first
    while True:
        over = time.monotonic() + pause > end
        try:
            found = find(kaggle, handle, sha256, before)
        except Unknown:  # a new kernel may be hidden for some seconds
            if over:
                raise
            found = None
        if found is not None or over:
            return found
        time.sleep(pause)
        pause = min(pause * 1.5, kaggle.pace.most)
