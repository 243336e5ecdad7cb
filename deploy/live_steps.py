"""The steps of the smoke test. One that was interrupted is taken again, and makes nothing twice."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from deploy import evidence, responses, server_address
from deploy.errors import Ambiguous, RunFailed, Unreachable
from deploy.kernel_calls import RUN, SAVE
from deploy.live_runs import REFUSALS, Runs
from deploy.made_things import MadeThings
from deploy.push_and_watch import SAVED
from deploy.raw_answers import RawAnswers
from deploy.retries import UNREADABLE

SESSION_SECONDS = 900.0  # of a session that ends by itself within some minutes
MOUNTS_AT_MOST = 4  # sessions, until one mounts the newest version of the dataset
SITES = ("api.kaggle.com:443", "storage.googleapis.com:443", "pypi.org:443")


class LiveSteps:
    """What each step does; what it finds out is among the answers.

    Args:
        runs: makes notebooks and dataset versions.
        made: what was made so far.
        answers: of Kaggle.
        competition: slug of one whose rules were accepted.
        sample: the competition's file that shows what a submission looks like.
        killed_seconds: timeout of the session that is killed.
    """

    def __init__(
        self,
        runs: Runs,
        made: MadeThings,
        answers: RawAnswers,
        competition: str,
        sample: str,
        killed_seconds: float,
    ) -> None:
        self._runs, self._made, self._answers = runs, made, answers
        self._kaggle, self._competition, self._sample = runs.kaggle, competition, sample
        self._killed_seconds = killed_seconds
        address = server_address.address()
        self._reach = SITES if address == server_address.SITE else (address,)

    # The steps that cost nothing

    def reads(self) -> None:
        """Ask about the account, the competition, and names that do not exist."""
        kaggle, absent = self._kaggle, self._runs.handle(after="absent")
        questions: tuple[Callable[[], Any], ...] = (
            self._token,
            kaggle.quota,
            lambda: kaggle.competition_files(self._competition),
            lambda: kaggle.submission_limits(self._competition),
            lambda: kaggle.get_kernel(absent),
            lambda: kaggle.kernel_status(absent, 1),
            lambda: kaggle.dataset(absent),
            lambda: kaggle.dataset_status(absent),
        )
        for ask in questions:
            with suppress(*REFUSALS):  # a refusal is an answer, and recorded as one
                ask()

    def _token(self) -> None:
        seconds = self._kaggle.token_seconds()
        if seconds is not None:
            self._answers.note("token", left=round(seconds))

    def cpu(self) -> None:
        """Run a notebook, and read what it wrote."""
        runs = self._runs
        with suppress(*REFUSALS):  # recorded, and one of the facts
            runs.push("digit", "files", seconds=SESSION_SECONDS, before="0", execution=SAVE)
        sources = {"competition_sources": [self._competition]}
        handle, version, status = "", 0, ""
        for name, execution in (("cpu", ""), ("cpu-run", RUN)):
            handle, version = runs.push(
                name,
                "files",
                seconds=SESSION_SECONDS,
                execution=execution,
                sources=sources,
                reach=self._reach,
            )
            status = runs.wait(handle, version)
            if status != SAVED:
                break
        self._kaggle.get_kernel(handle)
        files, log = runs.output(handle, version, runs.pace.unstarted)
        wanted = _written(log)
        for name in wanted:
            if name in files:
                runs.compare(name, partial(self._kaggle.download, files[name]))
        self._compare_logs(handle, version, log)
        _require(status, handle)

    def _compare_logs(self, handle: str, version: int, log: str) -> None:
        """Note whether a log that is followed has what the output's list says."""
        listed = "".join(text for _, text in responses.log_pieces(log))
        try:
            followed = "".join(text for _, text in self._kaggle.follow_log(handle, version))
        except UNREADABLE as error:
            self._answers.note("log stream", same=False, failed=type(error).__name__)
            return
        self._answers.note("log stream", same=followed == listed)

    def dataset(self) -> None:
        """Make a dataset of two versions, and read it."""
        for number in (1, 2):
            self._runs.make_dataset_version(number)
        handle = self._runs.dataset
        self._kaggle.dataset_files(handle, 2)
        self._runs.compare(
            "marker.txt",
            lambda path: self._kaggle.download_dataset_file(handle, 2, "marker.txt", path),
        )

    def sources(self) -> None:
        """Mount the dataset and the notebook's own output, until the newest version is mounted."""
        runs = self._runs
        newest = f"{self._made.suffix}-dataset-2"
        known = self._made.call("cpu-run") or self._made.call("cpu") or {}
        own = str(known.get("kernel") or runs.handle())
        sources = {"dataset_sources": [runs.dataset], "kernel_sources": [own]}
        for number in range(1, MOUNTS_AT_MOST + 1):
            handle, version = runs.push(
                f"sources-{number}",
                "sources",
                seconds=SESSION_SECONDS,
                execution=RUN,
                sources=sources,
            )
            status = runs.wait(handle, version)
            self._kaggle.get_kernel(handle)
            _, log = runs.output(handle, version, runs.pace.unstarted)
            _require(status, handle)
            if newest in log:
                return
            time.sleep(runs.pace.unseen)

    def killed(self) -> None:
        """Let a session be killed by its timeout, and look for its output."""
        runs, seconds = self._runs, self._killed_seconds
        handle, version = runs.push(
            "killed", "killed", seconds=seconds, execution=RUN, hold=10 * seconds
        )
        runs.wait(handle, version)
        runs.output(handle, version, runs.pace.unseen)

    # The steps that are asked for

    def tpu(self) -> None:
        """Run a notebook on a TPU, and push two more meanwhile."""
        runs, kaggle = self._runs, self._kaggle
        asked: dict[str, Any] = {"seconds": SESSION_SECONDS, "execution": RUN, "shape": "TpuV5E8"}
        hold = 30 * kaggle.pace.first
        handle, version = runs.push("tpu", "tpu", after="tpu", hold=hold, **asked)
        if runs.wait(handle, version, "RUNNING") == "RUNNING":
            kaggle.quota()
            for name, after in (("tpu-other", "tpu-other"), ("tpu-again", "tpu")):
                try:
                    other = runs.push(name, "tpu", after=after, **asked)
                except REFUSALS:
                    self._look(runs.handle(after=after))
                else:
                    runs.wait(*other)
        status = runs.wait(handle, version)
        runs.output(handle, version, runs.pace.unstarted)
        with suppress(*REFUSALS):  # what a refusal left may refuse each later push
            runs.push("tpu-later", "files", seconds=60, after="tpu-other", execution=SAVE)
        _require(status, handle)

    def _look(self, handle: str) -> None:
        """Ask for a kernel and its status, whatever comes of it."""
        for ask in (
            lambda: self._kaggle.get_kernel(handle),
            lambda: self._kaggle.kernel_status(handle, 1),
        ):
            try:
                ask()
            except (*REFUSALS, Unreachable) as error:
                if isinstance(error, Ambiguous):
                    raise
                continue  # recorded

    def gpu(self) -> None:
        """Run a notebook on two T4, without the internet."""
        runs = self._runs
        handle, version = runs.push(
            "gpu",
            "gpu",
            seconds=SESSION_SECONDS,
            after="gpu",
            execution=RUN,
            internet=False,
            shape="NvidiaTeslaT4",
            reach=self._reach,
        )
        status = runs.wait(handle, version)
        runs.output(handle, version, runs.pace.unstarted)
        _require(status, handle)

    def submit(self) -> None:
        """Submit the competition's own sample, and wait for its score."""
        runs, kaggle = self._runs, self._kaggle
        handle, version = runs.push(
            "submit",
            "submit",
            seconds=SESSION_SECONDS,
            after="submit",
            execution=RUN,
            internet=False,
            sources={"competition_sources": [self._competition]},
            sample=self._sample,
        )
        status = runs.wait(handle, version)
        runs.output(handle, version, runs.pace.unstarted)
        _require(status, handle)
        ref = self._submission(handle, version)
        began = time.monotonic()
        while True:
            scored = kaggle.get_submission(ref)
            shown = scored.public_score or time.monotonic() - began > runs.pace.unstarted
            if scored.status == "ERROR" or (scored.status == "COMPLETE" and shown):
                return
            time.sleep(runs.poll)

    def _submission(self, handle: str, version: int) -> int:
        """Submit, once, and return the submission's number."""
        known, marker = self._made.call("submission"), f"{self._made.suffix}-submission"
        if known and "ref" in known:
            return int(known["ref"])
        if known is None:
            time.sleep(self._kaggle.pace.patience)  # one at once was lost, by public reports
            self._made.note("submission", sent=True)
            try:
                ref = self._kaggle.submit_code(
                    self._competition,
                    handle,
                    version,
                    file_name="submission.csv",
                    description=marker,
                )
            except Ambiguous:
                ref = self._submitted(marker)
        else:
            ref = self._submitted(marker)
        self._made.note("submission", ref=ref)
        return ref

    def _submitted(self, marker: str) -> int:
        """Return the number of the submission with this description.

        It is never sent again: it is worth more than the fact.
        """
        end = time.monotonic() + self._runs.pace.unseen
        while True:
            found = self._kaggle.list_submissions(self._competition)
            ref = next((item.ref for item in found if item.description == marker), 0)
            if ref:
                return ref
            if time.monotonic() > end:
                raise RunFailed("The answer to the submission was lost, and Kaggle lists none.")
            time.sleep(self._runs.poll)


def _require(status: str, handle: str) -> None:
    """Raise `RunFailed` unless a run is complete."""
    if status != "COMPLETE":
        raise RunFailed(f"{handle} ended as {status}; expected COMPLETE.")


def _written(log: str) -> list[str]:
    """Return the names of the files of which a session printed the sha256."""
    return list((evidence.said(log, "files") or {}).get("files", {}))
