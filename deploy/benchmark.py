"""Benchmarks: what the next session takes of those before.

Reads  the journal's pushes, and what Kaggle says of their runs and their files
Gives  the next session's bundle, and whether to push it even if a version holds it

Its cells lie in its output by config and devices, so one notebook serves every machine.
"""

from collections.abc import Callable

from deploy import continuation, listing
from deploy.bundle import Bundle
from deploy.client import Kaggle
from deploy.journal import DONE
from deploy.last_runs import Pushes, run_of, status_of
from deploy.project import BENCH
from deploy.push_and_watch import Show

COMPLETE = "complete.json"  # in the output of a session that left no cell


def next_session(
    kaggle: Kaggle, pushes: Pushes, build: Callable[[str], Bundle], again: bool, show: Show
) -> tuple[Bundle, bool]:
    """Return the bundle of the next session, and whether to push it even if a version holds it,
    because it goes on with what is left.

    It mounts the benchmark's own output, where there is one. While a session of this config and
    machine is active, and once one has left nothing, the bundle is the one that it has.

    Args:
        build: returns the bundle that mounts the output of a kernel; "": of none.
        again: push in any case.
    """
    project, handle = pushes.project, pushes.handle(kaggle.username, BENCH)
    rows = [row for row in pushes.matching(handle=handle, outcome=DONE) if row["version"]]
    here = [row for row in rows if (row["machine_shape"] or "") == project.machine_shape]
    own = next((row for row in here if project.ours.items() <= row.items()), None)
    status = status_of(kaggle, own, again=again, show=show) if own is not None else None
    goes_on = again
    if own is not None and status and not again:
        run, active = run_of(own), status not in continuation.ENDED
        if status == "COMPLETE":
            goes_on = COMPLETE not in listing.output(kaggle, run, show)[0]
        if active or (status == "COMPLETE" and not goes_on):
            for mounted in ("", handle):
                if (same := build(mounted)).sha256 == run.bundle_sha256:
                    return same, False
    there = status == "COMPLETE" or any(
        status_of(kaggle, row, again=again) == "COMPLETE" for row in rows
    )
    return build(handle if there else ""), goes_on
