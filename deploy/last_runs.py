"""The runs that were pushed from here: the journal's pushes, read once and handed on.

Reads  the journal's pushes to this Kaggle, and the folders in `runs`
Gives  `Pushes`: the rows, newest first; a `Run` by version; a folder only if that run wrote it

Whoever holds `Pushes` decides by one state of the journal. It misses what another process writes
later, so a push reads it again after its slow steps, right before it decides whether to send.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deploy import bundle, output, push_and_watch
from deploy.client import Kaggle
from deploy.errors import UNTOLD, NotFound, Renamed, Unknown, UsageError
from deploy.journal import DONE, NOT_MADE, Outcome
from deploy.project import PUSHED_BY, TRAIN, Project
from deploy.push_and_watch import Run
from deploy.secrets import redact

EVERY_ROW = -1  # SQLite's word for no limit
NOT_MOUNTED = "ERROR, a source was not mounted"  # the status of a run that never began
# Outcomes of a push that Kaggle refused to run.
REFUSED_RUN = (Outcome.NO_QUOTA, Outcome.NO_SLOT, Outcome.REFUSED)
Row = dict[str, Any]


class Pushes:
    """The journal's pushes to this Kaggle, as they were when this was made.

    Attributes:
        project: whose journal this is.
        journal: the journal itself, for what is written.
        rows: one a push, of every kernel and config, newest first.
    """

    def __init__(self, project: Project) -> None:
        self.project, self.journal = project, project.journal()
        self.rows = self.journal.recent("pushes", EVERY_ROW)

    def matching(self, **values: Any) -> list[Row]:
        """Return the rows with these values, newest first."""
        kept = {name: _as_kept(value) for name, value in values.items()}
        return [row for row in self.rows if kept.items() <= row.items()]

    def last(self, **values: Any) -> Row | None:
        """Return the newest row with these values, or None."""
        return next(iter(self.matching(**values)), None)

    def command_on(self, run: str, task: str) -> str:
        """Return the command that runs a task on a run, which another config may have pushed."""
        handle, _, version = run.rpartition("/")
        row = self.last(handle=handle, version=int(version))
        name = row["config"] if row is not None else self.project.name
        # One that was given as a path cannot be named by what the journal keeps of it.
        named = (self.project.root / "pipeline" / "configs" / f"{name}.py").is_file()
        other = named and name != self.project.name
        project = replace(self.project, config=name) if other else self.project
        return project.command(f"{task} --run {run}")

    def note(self, row: Row, **values: Any) -> None:
        """Change columns of a row, in the journal and here."""
        self.journal.note("pushes", row["id"], **values)
        row.update({name: _as_kept(value) for name, value in values.items()})

    def asked(self, owner: str, kernel: str) -> str:
        """Return the address that a new kernel should have."""
        return bundle.kernel_handle(owner, self.project.slug or self.project.competition, kernel)

    def handle(self, owner: str, kernel: str) -> str:
        """Return the address that a kernel has: Kaggle may have given another one."""
        asked = self.asked(owner, kernel)
        given = self.last(asked=asked, outcome=DONE)
        return str(given["handle"]) if given else asked

    def may_have_made(self, handle: str) -> bool:
        """Return whether a push from here made a version of this kernel, or may have."""
        return any(row["outcome"] not in NOT_MADE for row in self.matching(handle=handle))

    def newest_version(self, handle: str) -> int:
        """Return the newest version that the journal knows of this kernel, or 0."""
        done = self.matching(handle=handle, outcome=DONE)
        return max((int(row["version"] or 0) for row in done), default=0)

    def refused_after(self, handle: str, **bundle: str) -> int | None:
        """Return the version before the last pushes that Kaggle refused to run; None: it ran them.

        Kaggle may have stored what was pushed all the same, as a version after that one.

        Args:
            bundle: bundle_sha256, for the pushes of this bundle alone.
        """
        refused = []
        for row in self.matching(handle=handle, **bundle):
            if row["outcome"] == DONE:
                break
            if row["outcome"] in REFUSED_RUN and row["before"] is not None:
                refused.append(int(row["before"]))
        return min(refused, default=None)

    def unclear(self) -> list[Row]:
        """Return the last push of each kernel if nobody knows whether it made a version."""
        last = [self.last(kernel=kernel, **self.project.ours) for kernel in PUSHED_BY]
        return [row for row in last if row is not None and row["outcome"] not in (DONE, *NOT_MADE)]

    def last_run(self, kernel: str, instead: str = "") -> Run:
        """Return the last run of this kernel and config that was pushed from here.

        Args:
            instead: what else the command takes.

        Raises:
            UsageError: if there is no push, or if the newest one made no version: an older run is
                not what the user means.
        """
        row = self.last(kernel=kernel, **self.project.ours)
        push = self.project.command(PUSHED_BY[kernel])
        if row is None:
            raise UsageError(
                f"The journal in {self.project.runs} knows no push of {kernel} with the config"
                f" {self.project.name} for the competition {self.project.competition}; a rehearsal"
                " is none.\n"
                f"Push it with the command below{instead}.\n"
                f"{push}"
            )
        if row["outcome"] == Outcome.SOURCES_REFUSED and row["version"]:
            raise UsageError(
                f"The last push of {kernel} became {row['handle']}/{row['version']}, which lacks"
                " one of its sources: its result is worthless.\n"
                "Correct dataset_sources in its kernel-metadata.json, or have the source shared"
                f" with you. Then push it again{instead}.\n"
                f"{push}"
            )
        if row["outcome"] != DONE:
            raise UsageError(
                f"The last push of {kernel} made no version that we know of: it ended as"
                f" {row['outcome']}.\n"
                f"Push it again with the command below{instead}.\n"
                f"{push}"
            )
        return run_of(row)

    def find_run(self, named: str, kernel: str) -> Run:
        """Return the run named `owner/slug/version`, with what the journal knows of it.

        Args:
            named: "": the last run of `kernel`.
            kernel: one of `PUSHED_BY`.

        Raises:
            UsageError: if the name is no run, or if there is no such kernel or no run of it.
        """
        if named:
            run = push_and_watch.parse(named)
            row = self.last(handle=run.handle, version=run.version)
            return run_of(row) if row else run
        if kernel not in PUSHED_BY:
            raise UsageError(
                f"--kernel {kernel[:80]!r}: there is no such notebook; expected"
                f" {', '.join(PUSHED_BY)}.\nCorrect it, or name a run: --run owner/slug/version"
            )
        return self.last_run(kernel, ", or name a run: --run owner/slug/version")

    def pulled_folder(self, run: Run) -> Path:
        """Return the folder that this run was pulled to.

        Raises:
            UsageError: if the run was not pulled, or if the folder is gone or another run's.
        """
        folder = self.project.runs / output.folder_name(run)
        pull = self.project.command(f"pull --run {run}")
        again = f"Pull the run again, which sets that folder aside:\n{pull}"
        if not folder.is_dir():
            raise UsageError(f"{run} has not been pulled; expected its output in {folder}.\n{pull}")
        held = output.of_bundle(folder, "bundle_sha256")
        if run.bundle_sha256 and held != run.bundle_sha256:
            raise UsageError(
                f"{folder} was written by bundle {held[:12] or 'none'}; {run} has"
                f" {run.bundle_sha256[:12]}: it is another run's.\n{again}"
            )
        note, server = output.noted(folder), self.journal.server
        if note is not None and (note.run, note.server) != (str(run), server):
            raise UsageError(
                f"{folder} was pulled from {note.run} at {note.server}; expected {run} at"
                f" {server}.\n{again}"
            )
        if note is not None and note.at < self._pushed_at(run):
            raise UsageError(
                f"{folder} was pulled before {run} was pushed: that Kaggle was restarted since."
                f" Expected this run's output.\n{again}"
            )
        return folder

    def last_artifact(self) -> Path:
        """Return the artifact of the last training, as `pulled_folder` finds it."""
        return self.pulled_folder(self.last_run(TRAIN)) / output.ARTIFACT

    def _pushed_at(self, run: Run) -> str:
        """Return when we made this version; "" if somebody else did, or nobody knows."""
        rows = self.matching(handle=run.handle, version=run.version)
        made = (row for row in rows if row["before"] is not None and row["before"] < run.version)
        return max((str(row["at"]) for row in made), default="")


def training(pushes: Pushes, named: str) -> tuple[Path, str]:
    """Return the output of a pulled training, and the run.

    Args:
        named: owner/slug/version; "": the last one that was pushed, or, if none ever was, the last
            one that was rehearsed, whose run is "".
    """
    project = pushes.project
    if not named and pushes.last(kernel=TRAIN, **project.ours) is None:
        folder = rehearsed(project)
        if folder is not None:
            return folder, ""
    run = pushes.find_run(named, TRAIN)
    return pushes.pulled_folder(run), str(run)


def rehearsed(project: Project) -> Path | None:
    """Return the output of the last training of this config that was rehearsed, or None.

    A rehearsal pulls into a folder of its own below `runs`.
    """
    ours = {"kernel": TRAIN, **project.ours}
    found: dict[Path, str] = {}
    for path in project.runs.glob(f"*/*/{output.NOTE}"):
        folder, note = path.parent, output.noted(path.parent)
        if note and ours.items() <= output.json_object(folder / output.BUNDLE).items():
            found[folder] = note.at
    return max(found, key=lambda folder: found[folder], default=None)


def run_of(row: Row) -> Run:
    """Return the run that a row is about."""
    shape = row["machine_shape"] or ""
    url, kernel_id = row["url"] or "", row["kernel_id"] or 0
    return Run(row["handle"], row["version"], url, row["bundle_sha256"], shape, kernel_id)


def require_address(kaggle: Kaggle, run: Run) -> None:
    """Find a run that is not found, by the number of its notebook, in the list of what is ours.

    A rename is not followed: submissions and bundles name the address.

    Raises:
        Renamed: if the notebook has another address.
        Unknown: if that list does not answer: the notebook may have one.
    """
    if not run.kernel_id:
        return
    try:
        own = kaggle.own_kernels()
        now = next((one.handle for one in own if one.kernel_id == run.kernel_id), run.handle)
    except UNTOLD as error:
        page = push_and_watch.page(run.url or f"https://www.kaggle.com/code/{run.handle}")
        why = str(error).partition("\n")[0]
        raise Unknown(
            f"Kaggle does not find {run}, and does not show whether its notebook was renamed:"
            f" {why}\nNothing was sent, and no record was changed. Look at {page}",
            page,
            None,
        ) from error
    if now.lower() != run.handle.lower():
        raise Renamed(
            f"The notebook of {run} was renamed on Kaggle: its address is {now} now. Expected"
            f" {run.handle}, which its submissions and what mounts it are known by.\n"
            "Nothing was sent. Give it back the title that makes that address, at"
            f" https://www.kaggle.com/code/{now} and run the same command again."
        )


@contextmanager
def following(kaggle: Kaggle, run: Run) -> Iterator[None]:
    """Raise `Renamed` where a run is not found whose notebook was renamed."""
    try:
        yield
    except NotFound:
        with suppress(Unknown):
            require_address(kaggle, run)
        raise


def age(row: Row) -> float:
    """Return the seconds since a row was written."""
    return (datetime.now(UTC) - datetime.fromisoformat(row["at"])).total_seconds()


def started(kaggle: Kaggle, row: Row, status: str) -> str:
    """Return the status of a row's version; QUEUED where it may only not be queued yet."""
    new = status == push_and_watch.SAVED and age(row) < kaggle.pace.unstarted
    return "QUEUED" if new else status


def status_of(
    kaggle: Kaggle, row: Row, *, again: bool = False, show: Callable[[str], None] | None = None
) -> str | None:
    """Return the status of our own version; None if Kaggle does not have it.

    A new version is not found for some seconds, and a 403 may pass, so Kaggle is asked again for
    that long.

    Args:
        again: return "" where Kaggle does not tell: whoever says --again pushes all the same.
        show: is given a line then.

    Raises:
        Unknown: if Kaggle does not tell: the version may be there.
        Renamed: as `require_address`.
    """
    end = 0.0
    while True:
        try:
            return started(kaggle, row, kaggle.kernel_status(row["handle"], row["version"]).name)
        except (NotFound, Unknown) as error:
            patience = 0.0 if again and isinstance(error, Unknown) else kaggle.pace.most
            end = end or time.monotonic() + max(patience, kaggle.pace.unseen - age(row))
            if time.monotonic() >= end:
                try:
                    if not isinstance(error, NotFound):
                        raise
                    require_address(kaggle, run_of(row))
                    return None
                except (Renamed, Unknown) as untold:
                    if not again:
                        raise
                    if show is not None:
                        why = str(untold).splitlines()[0]
                        show(f"{why}\n--again: {run_of(row)} does not count.")
                    return ""
            time.sleep(kaggle.pace.first)


def _as_kept(value: Any) -> Any:
    """Return a value as the journal keeps it: without secrets."""
    return redact(value) if isinstance(value, str) else value
