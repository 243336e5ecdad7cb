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
    its last run of this config and machine is complete, so that the same push goes on with what is
    left.
    """
    project, handle = pushes.project, pushes.handle(kaggle.username, BENCH)
    rows = [row for row in pushes.matching(handle=handle, outcome=DONE) if row["version"]]
    this = project.name, project.machine_shape
    own = [row for row in rows if (row["config"], row["machine_shape"] or "") == this]
    goes_on = bool(own) and status_of(kaggle, own[0]) == "COMPLETE"
    there = goes_on or any(status_of(kaggle, row) == "COMPLETE" for row in rows)
    return (handle if there else ""), goes_on
