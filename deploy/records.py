"""Look up the runs that were pushed from this project, and their pulled folders.

Runs are looked up in the journal, among the pushes to the current Kaggle server. A folder in `runs`
is only accepted as the output of a run if that run wrote it.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from deploy import bundle, output
from deploy.errors import UsageError
from deploy.journal import PUSH, Journal, Request, State
from deploy.project import KERNELS, TRAIN, Project
from deploy.runs import Run, parse


def run_of(row: Request) -> Run:
    return Run(row.handle, row.number, row.url, row.bundle_sha256, row.machine_shape)


@dataclass(frozen=True)
class Records:
    """A project's journal and the pushes it records."""

    project: Project

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.project.runs / "journal.sqlite")

    def asked(self, owner: str, kernel: str) -> str:
        return bundle.address(owner, self.project.slug or self.project.competition, kernel)

    def handle(self, owner: str, kernel: str) -> str:
        # Kaggle may have changed the handle.
        asked = self.asked(owner, kernel)
        return next((row.handle for row in self.made(asked=asked)), asked)

    def made(self, **where: Any) -> list[Request]:
        return [row for row in self.journal.requests(PUSH, **where) if row.is_made]

    def kernel_of(self, run: Run) -> str:
        owner = run.handle.partition("/")[0]
        return next((name for name in KERNELS if self.handle(owner, name) == run.handle), "")

    def push_of(self, run: Run) -> Request | None:
        rows = self.journal.requests(PUSH, handle=run.handle, number=run.version)
        return next((row for row in rows if row.is_made), next(iter(rows), None))

    def newest_version(self, handle: str) -> int:
        return max((row.number for row in self.made(handle=handle)), default=0)

    def stored_by_refusal(self, handle: str, status: str) -> bool:
        """Return whether a refused push may have left behind a version with this status.

        Such versions stay QUEUED forever.
        """
        rows = self.journal.requests(PUSH, handle=handle)
        since = takewhile(lambda row: not row.is_made, rows)
        return status == "QUEUED" and any(row.state == State.REFUSED for row in since)

    def unclear(self, kernels: Iterable[str] = KERNELS) -> list[Request]:
        ours = self.project.ours
        last = (self.journal.last(PUSH, kernel=kernel, **ours) for kernel in kernels)
        return [row for row in last if row is not None and row.is_open]

    def last_run(self, kernel: str, instead: str = "") -> Run:
        """Return the last run of a kernel that was pushed from this project with this config.

        `UsageError` is raised if nothing was pushed, or if the last push did not create a version.
        Older runs are not used, because they are not what the user expects. `instead` describes an
        alternative, which the error message suggests.
        """
        row = self.journal.last(PUSH, kernel=kernel, **self.project.ours)
        push = self.project.command(KERNELS[kernel].task)
        if row is None:
            raise UsageError(
                f"The journal in {self.project.runs} does not contain a push of {kernel} that used"
                f" the config {self.project.name} and the competition {self.project.competition}."
                f" Rehearsals are not included.\nPush it with the command below{instead}.\n{push}"
            )
        if not row.is_made:
            why = row.why or "its process ended before the response"
            came = f"created no known version: it ended as {row.state} ({why})"
            if row.state == State.INCOMPLETE and row.number:
                came = f"created {run_of(row)}, but one of its sources is missing. Correct the"
                came += " sources in kernel-metadata.json or pretrained in the config, get access"
                came += " to them, or accept the model's licence"
            raise UsageError(
                f"The last push of {kernel} {came}.\n"
                f"Push it again with the command below{instead}.\n{push}"
            )
        return run_of(row)

    def find_run(self, named: str, kernel: str) -> Run:
        """Return a run, including its details from the journal.

        `named` is owner/slug/version, or "" for the last run of `kernel`.
        """
        if named:
            row = self.push_of(parse(named))
            return run_of(row) if row else parse(named)
        if kernel not in KERNELS:
            raise UsageError(
                f"--kernel {kernel[:80]!r} does not exist; expected one of"
                f" {', '.join(KERNELS)}.\nCorrect it, or specify a run: --run owner/slug/version"
            )
        return self.last_run(kernel, ", or specify a run: --run owner/slug/version")

    def pulled_folder(self, run: Run) -> Path:
        folder = self.project.runs / output.folder_name(run)
        pull = self.project.command(f"pull --run {run}")
        if not folder.is_dir():
            raise UsageError(f"{run} has not been pulled; expected its output in {folder}.\n{pull}")
        held, note = output.of_bundle(folder, "bundle_sha256"), output.noted(folder)
        server, wrong = self.journal.server, ""
        if run.bundle_sha256 and held != run.bundle_sha256:
            wrong = f"was written by bundle {held[:12] or 'none'}, but {run} has"
            wrong += f" {run.bundle_sha256[:12]}, so it is from a different run"
        elif note is not None and (note.run, note.server) != (str(run), server):
            wrong = f"was pulled from {note.run} at {note.server}; expected {run} at {server}"
        elif note is not None and note.at < self._pushed_at(run):
            wrong = f"was pulled before {run} was pushed, so it is from an older run with the same"
            wrong += " number. The notebook was deleted, or that Kaggle server was restarted"
        if wrong:
            raise UsageError(
                f"{folder} {wrong}.\nPull the run again, which moves that folder aside:\n{pull}"
            )
        return folder

    def last_artifact(self) -> Path:
        return self.pulled_folder(self.last_run(TRAIN)) / output.ARTIFACT

    def training(self, named: str) -> tuple[Path, str]:
        """Return the output folder of a pulled training run, and the run.

        `named` is owner/slug/version, or "" for the last pushed training run. If no training run
        was ever pushed, the last rehearsal is used, and the returned run is "".
        """
        ours = self.project.ours
        if not named and self.journal.last(PUSH, kernel=TRAIN, **ours) is None:
            with suppress(ValueError):
                return self._rehearsed(), ""
        run = self.find_run(named, TRAIN)
        return self.pulled_folder(run), str(run)

    def _rehearsed(self) -> Path:
        """Return the output folder of this config's last rehearsed training run.

        Each rehearsal has its own folder in `runs`. Raises `ValueError` if nothing was rehearsed.
        """
        ours = {"kernel": TRAIN, **self.project.ours}.items()
        folders = [path.parent for path in self.project.runs.glob(f"*/*/{output.NOTE}")]
        mine = (one for one in folders if ours <= output.json_object(one / output.BUNDLE).items())
        notes = ((note.at, folder) for folder in mine if (note := output.noted(folder)))
        return max(notes)[1]

    def _pushed_at(self, run: Run) -> str:
        made = self.made(handle=run.handle, number=run.version)
        return next((row.at for row in made if row.is_ours), "")
