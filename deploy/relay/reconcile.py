"""Find out what came of a push without an answer, before anything is repeated.

Reads  the journal's pushes, and the versions that Kaggle has
Gives  pushes of which the last of each kernel is done, was not made, or is gone
"""

from deploy.bundle.bundle import Bundle
from deploy.client.client import Kaggle
from deploy.journal import ABSENT, DONE, GONE, NOT_MADE
from deploy.kernel import bundle_versions, push_and_watch
from deploy.kernel.push_and_watch import ENDED_BADLY, Run, Show
from deploy.relay.last_runs import REFUSED_RUN, Pushes, age, run_of, status_of


def resolve(kaggle: Kaggle, pushes: Pushes, *, show: Show) -> None:
    """Look at Kaggle for the version that holds the bundle of each unclear push, and record it."""
    for row in pushes.unclear():
        before = row["before"]
        if before is None:
            earlier = pushes.last(handle=row["handle"], outcome=DONE)
            before = earlier["version"] if earlier else 0
        found = bundle_versions.find_patiently(
            kaggle, row["handle"], row["bundle_sha256"], before, kaggle.pace.unseen - age(row)
        )
        if found is None:
            show(
                f"The last push of {row['kernel']} had no answer, and no version of"
                f" {row['handle']} holds its bundle."
            )
            pushes.note(row, outcome=ABSENT)
        else:
            url = push_and_watch.page(f"https://www.kaggle.com/code/{row['handle']}")
            pushes.note(row, outcome=DONE, version=found.version, url=url)
            show(
                f"The last push of {row['kernel']} had no answer; it became"
                f" {row['handle']}/{found.version}."
            )


def existing_run(kaggle: Kaggle, pushes: Pushes, built: Bundle, *, show: Show) -> Run | None:
    """Return the run that the journal knows of this bundle, unless it failed or is gone."""
    rows = pushes.matching(handle=built.handle, bundle_sha256=built.sha256)
    row = next((row for row in rows if row["outcome"] not in REFUSED_RUN), None)
    if row is not None and row["outcome"] not in (DONE, *NOT_MADE):
        resolve(kaggle, pushes, show=lambda line: None)
    if row is None or row["outcome"] != DONE:
        return None
    run = run_of(row)
    status = status_of(kaggle, row)
    if status is None:
        show(
            f"The journal has {run}, and {pushes.journal.server} does not: the version was deleted,"
            " or that Kaggle was restarted. It no longer counts."
        )
        pushes.note(row, outcome=GONE)
    return None if status is None or status in ENDED_BADLY else run
