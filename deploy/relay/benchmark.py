"""Benchmarks: what the next session takes of those before.

Reads  the journal's pushes, and what Kaggle says of their runs
Gives  the kernel whose output it mounts, and whether to push what was pushed before

Its cells lie in its output by config and devices, so one notebook serves every machine.
"""

from deploy.client.client import Kaggle
from deploy.journal import DONE
from deploy.project import BENCH
from deploy.relay.last_runs import Pushes, status_of


def earlier(kaggle: Kaggle, pushes: Pushes) -> tuple[str, bool]:
    """Return the benchmark's own address if an output of it can be mounted, else ""; and whether
    its last run is complete, so that the same push goes on with what is left.
    """
    handle = pushes.handle(kaggle.username, BENCH)
    rows = [row for row in pushes.matching(handle=handle, outcome=DONE) if row["version"]]
    ended = [status_of(kaggle, row) == "COMPLETE" for row in rows]
    return (handle if any(ended) else ""), bool(ended and ended[0])
