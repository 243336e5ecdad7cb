"""Find out what came of a push without an answer, before anything is repeated.

Reads  the journal's pushes, and the versions that Kaggle has
Gives  pushes of which the last of each kernel is done, was not made, or is gone
"""

from collections.abc import Iterator
from contextlib import contextmanager

from deploy import bundle_versions, push_and_watch
from deploy.bundle import Bundle
from deploy.client import Kaggle
from deploy.errors import Renamed, Unknown
from deploy.journal import ABSENT, DONE, GONE, NOT_MADE
from deploy.last_runs import REFUSED_RUN, Pushes, Row, age, run_of, status_of
from deploy.project import PUSHED_BY
from deploy.push_and_watch import ENDED_BADLY, Run, Show


@contextmanager
def naming_again(pushes: Pushes, kernel: str) -> Iterator[None]:
    """Name the command that pushes all the same, where Kaggle does not tell of our notebook."""
    try:
        yield
    except Renamed as error:
        command = pushes.project.command(f"{PUSHED_BY[kernel]} --again")
        error.args = (f"{error} To leave it, and push a new notebook:\n{command}",)
        raise
    except Unknown as error:
        command = pushes.project.command(f"{PUSHED_BY[kernel]} --again")
        if command in str(error) or "/code/" not in error.page:
            raise
        error.args = (
            f"{error}\nThen run the same command again. To push it once more, whatever runs there:"
            f"\n{command}",
        )
        raise


def resolve(kaggle: Kaggle, pushes: Pushes, *, show: Show, again: bool = False) -> None:
    """Look at Kaggle for the version that holds the bundle of each unclear push, and record it.

    Args:
        again: leave a push unclear of which Kaggle does not tell, and say so.

    Raises:
        Unknown: if Kaggle does not tell.
    """
    for row in pushes.unclear():
        try:
            with naming_again(pushes, row["kernel"]):
                _resolve(kaggle, pushes, row, show)
        except Unknown as error:
            if not again:
                raise
            show(
                f"{str(error).splitlines()[0]}\n--again: what the last push of {row['kernel']} made"
                " does not count."
            )


def _resolve(kaggle: Kaggle, pushes: Pushes, row: Row, show: Show) -> None:
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


def existing_run(
    kaggle: Kaggle, pushes: Pushes, built: Bundle, *, show: Show
) -> tuple[Run, str] | None:
    """Return the run that the journal knows of this bundle, and its status, unless it failed or is
    gone.
    """
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
            " its notebook was renamed, or that Kaggle was restarted. It no longer counts."
        )
        pushes.note(row, outcome=GONE)
    return None if status is None or status in ENDED_BADLY else (run, status)
