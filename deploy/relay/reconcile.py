"""Settlement: what came of a push that nobody has heard of again, found out before anything is
repeated.

Reads  the journal, and the versions that Kaggle has
Gives  a journal in which the last push of each kernel is done, was not made, or is gone
"""

import time
from typing import Any

from deploy.bundle.bundle import Bundle
from deploy.client.client import Kaggle
from deploy.errors import Denied, NotFound
from deploy.journal import ABSENT, DONE, GONE, NOT_MADE
from deploy.kernel import push_and_watch
from deploy.kernel.push_and_watch import Run, Show
from deploy.project import INFER, TRAIN, Project


def pushed(
    kaggle: Kaggle, project: Project, built: Bundle, *, show: Show = lambda line: None
) -> Run | None:
    """Return the run that the journal knows of this bundle, unless it failed or is gone; after a
    push without an answer, look for it.
    """
    journal = project.journal()
    last = journal.last("pushes", handle=built.handle, bundle_sha256=built.sha256)
    if last is not None and last["outcome"] not in (DONE, *NOT_MADE):
        settle(kaggle, project, show=lambda line: None)
        last = journal.last("pushes", handle=built.handle, bundle_sha256=built.sha256)
    if last is None or last["outcome"] != DONE:
        return None
    found = status(kaggle, built.handle, last["version"])
    if found is None:
        show(
            f"The journal has {built.handle}/{last['version']}, and {journal.server} has not: it was deleted, or that Kaggle"
            " began anew. It is not counted on any more."
        )
        journal.note("pushes", last["id"], outcome=GONE)
        return None
    return (
        None
        if found in push_and_watch.ENDED_BADLY
        else Run(built.handle, last["version"], last["url"] or "", built.sha256)
    )


def status(kaggle: Kaggle, handle: str, version: int) -> str | None:
    """Return the state of our own version; None if it is not there, once a new one would have been
    seen.
    """
    end = time.monotonic() + kaggle.pace.most
    while True:
        try:
            return kaggle.kernel_status(handle, version).name
        except (NotFound, Denied):
            if time.monotonic() >= end:
                return None
            time.sleep(kaggle.pace.first)


def unclear(project: Project) -> list[dict[str, Any]]:
    """Return the last push of each kernel of which nobody knows what came."""
    journal = project.journal()
    last = [journal.last("pushes", kernel=kernel, config=project.name) for kernel in (TRAIN, INFER)]
    return [
        entry for entry in last if entry is not None and entry["outcome"] not in (DONE, *NOT_MADE)
    ]


def settle(kaggle: Kaggle, project: Project, *, show: Show) -> None:
    """Find out what came of such a push: the version that holds its bundle, or none."""
    journal = project.journal()
    for entry in unclear(project):
        before = entry["before"]
        if before is None:
            earlier = journal.last("pushes", handle=entry["handle"], outcome=DONE)
            before = earlier["version"] if earlier else 0
        found = None
        for look in range(push_and_watch.LOOKS):
            time.sleep(kaggle.pace.first if look else 0)
            found = push_and_watch.find(kaggle, entry["handle"], entry["bundle_sha256"], before)
            if found is not None:
                break
        if found is None:
            show(
                f"The last push of {entry['kernel']} had no answer, and no version of {entry['handle']} holds its bundle."
            )
            journal.note("pushes", entry["id"], outcome=ABSENT)
        else:
            url = push_and_watch.page(f"https://www.kaggle.com/code/{entry['handle']}")
            journal.note("pushes", entry["id"], outcome=DONE, version=found.version, url=url)
            show(
                f"The last push of {entry['kernel']} had no answer; it became {entry['handle']}/{found.version}."
            )
