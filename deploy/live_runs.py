"""Runs: push notebooks of the smoke test, follow them, read their output; make dataset versions.

Each push has a marker in its text, and each dataset version in its notes. After a lost answer, or
in a command that was killed, what holds the marker is taken, and nothing is made twice.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploy import failure_messages, live_notebook
from deploy.client import Kaggle
from deploy.errors import (
    Ambiguous,
    BadAnswer,
    DeadlinePassed,
    Denied,
    NoQuota,
    NotFound,
    Refused,
    RelayError,
    RunFailed,
)
from deploy.evidence import NOT_THERE
from deploy.look import ENDED
from deploy.made_things import MadeThings
from deploy.push_and_watch import SAVED
from deploy.raw_answers import RawAnswers
from formats import checksums

REFUSALS = (Refused, NoQuota, Denied)


class Runs:
    """The notebooks and the dataset of one smoke test.

    Args:
        kaggle: a connection.
        made: what was made so far.
        answers: gets what is found out here.

    Attributes:
        pace: of the connection.
        poll: seconds between two looks at something that changes soon.
        dataset: handle of the dataset.
    """

    def __init__(self, kaggle: Kaggle, made: MadeThings, answers: RawAnswers) -> None:
        self.kaggle, self._made, self._answers = kaggle, made, answers
        self.pace, self.poll = kaggle.pace, kaggle.pace.first / 5
        self.dataset = f"{kaggle.username}/relay-live-{made.suffix}-data"

    # Notebooks

    def handle(self, before: str = "", after: str = "") -> str:
        """Return the handle of the kernel with these words around its name."""
        return f"{self.kaggle.username}/{self._title(before, after).replace(' ', '-').lower()}"

    def push(
        self,
        name: str,
        part: str,
        *,
        seconds: float,
        before: str = "",
        after: str = "",
        execution: str = "",
        internet: bool = True,
        shape: str = "",
        sources: dict[str, list[str]] | None = None,
        **arguments: Any,
    ) -> tuple[str, int]:
        """Push a notebook, once; return the handle and the version that Kaggle gave it.

        Args:
            name: of the push, another for each.
            part: as `probe.run` takes it.
            seconds: after which Kaggle ends the session.
            before, after: words around the kernel's name.
            execution: as `save_kernel` takes it.
            internet, shape: what the session asks for.
            sources: by kind, as "dataset_sources".
            arguments: more of `probe.run`.

        Raises:
            Refused, NoQuota, Denied: if Kaggle refuses it; again, if it did so before.
            BadAnswer: if Kaggle gives no version, or a notebook of somebody else.
        """
        known = self._made.call(name)
        if known and "version" in known:
            return known["kernel"], known["version"]
        if known and "refused" in known:
            raise Refused(known["refused"])
        handle, marker = self.handle(before, after), f"{self._made.suffix}-{name}"
        metadata = {
            "id": handle,
            "title": self._title(before, after),
            "language": "python",
            "kernel_type": "notebook",
            "is_private": True,
            "enable_gpu": shape.startswith("Nvidia"),
            "enable_tpu": shape.startswith("Tpu"),
            "enable_internet": internet,
            "machine_shape": shape,
            **(sources or {}),
        }
        if known is not None and (number := self._find(handle, marker)):
            return self._adopt(name, handle, number, sources, execution)
        text = live_notebook.text(part, marker, **arguments)
        self._made.note(name, kernel=handle)
        try:
            saved = self.kaggle.save_kernel(
                metadata, text, timeout_seconds=round(seconds), execution=execution
            )
            if said := failure_messages.plain(saved.error):
                raise failure_messages.refusal(f"Kaggle refused to run {handle}: {said}", said)
        except Ambiguous:
            number = self._find(handle, marker)
            if not number:
                raise
            return self._adopt(name, handle, number, sources, execution)
        except REFUSALS as error:
            self._made.note(name, refused=str(error).partition("\n")[0])
            raise
        if saved.version < 1:
            raise BadAnswer(
                f"Kaggle accepted the push of {handle} but gave no version number; expected 1 or"
                " more.\nGive the same command again."
            )
        given = saved.handle or handle
        if given.partition("/")[0].lower() != self.kaggle.username.lower():
            raise BadAnswer(
                f"Kaggle answered the push of {handle} with {given}, a notebook of somebody else;"
                f" expected one of {self.kaggle.username}.\nIt is not looked at, and not deleted."
            )
        self._made.note(name, kernel=given, version=saved.version)
        return given, saved.version

    def wait(self, handle: str, version: int, *words: str) -> str:
        """Wait until a version has ended, or has a status of these words; return its status.

        It may also be "NEW_SCRIPT", of a version that is saved and does not start.

        Raises:
            NotFound: if Kaggle does not know the version.
        """
        began = time.monotonic()
        while True:
            try:
                status = self.kaggle.kernel_status(handle, version).name
            except (NotFound, Denied):
                status = NOT_THERE
            waited = time.monotonic() - began
            if status in (*ENDED, *words) or (status == SAVED and waited > self.pace.unstarted):
                return status
            if status == NOT_THERE and waited > self.pace.unseen:
                raise NotFound(f"Kaggle does not know version {version} of {handle}.")
            time.sleep(self.poll if waited < self.pace.unseen else self.pace.first)

    def output(self, handle: str, version: int, seconds: float) -> tuple[dict[str, str], str]:
        """Return the files that a version has, and its log, once two looks show the same files.

        Args:
            handle, version: of a run that has ended.
            seconds: to wait for the first file.
        """
        began, before = time.monotonic(), None
        while True:
            files, log = self.kaggle.kernel_output(handle, version)
            if files and files.keys() == before:
                return files, log
            if not files and time.monotonic() - began > seconds:
                return files, log
            before = files.keys()
            time.sleep(self.poll)

    def compare(self, name: str, download: Callable[[Path], None]) -> None:
        """Download a file, and note its sha256 among the answers."""
        with tempfile.TemporaryDirectory(prefix="relay-live-") as folder:
            path = Path(folder, "file")
            download(path)
            self._answers.note("downloaded", name=name, sha256=checksums.sha256(path))

    def exists(self, handle: str) -> bool:
        """Return whether there is a kernel, be it one without a version."""
        try:
            return self.kaggle.get_kernel(handle) is not None
        except REFUSALS:
            return True

    # The dataset

    def make_dataset_version(self, number: int) -> str:
        """Make the first or second version, once, wait for it, and return what its marker says."""
        marker = f"{self._made.suffix}-dataset-{number}"
        name = f"dataset {number}"
        known = self._made.call(name)
        if known is None or "made" not in known:
            if known is None or not self._has_dataset(number):
                self._made.note(name, dataset=self.dataset)
                self._send_dataset(number, marker, again=known is not None)
            self._made.note(name, made=True)
        self._wait_for_dataset(number)
        return marker

    def _send_dataset(self, number: int, marker: str, *, again: bool) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="relay-live-") as folder:
                tokens = []
                for file, text in (("marker.txt", marker), ("table.csv", f"id\n{number}")):
                    path = Path(folder, file)
                    path.write_text(f"{text}\n", encoding="utf-8")
                    tokens.append(self.kaggle.upload(path))
            if number > 1:
                self.kaggle.create_dataset_version(self.dataset, notes=marker, tokens=tokens)
                return
            title = self._title("", "data")
            self.kaggle.create_dataset(self.dataset, title=title, description=marker, tokens=tokens)
        except Ambiguous:
            if not self._has_dataset(number):
                raise
        except REFUSALS:
            # Made by a command that was killed, and shown only now: nobody else has its name.
            if number > 1 or not again or not self._has_dataset(number):
                raise

    def _has_dataset(self, number: int) -> bool:
        """Return whether there is such a version; it may not be shown for a while."""
        end = time.monotonic() + self.pace.unseen
        while True:
            there = self.kaggle.dataset(self.dataset)
            if there is not None and (number == 1 or there.version >= number):
                return True
            # What is processed still shows the version before.
            ended = there is None or self.kaggle.dataset_status(self.dataset) == "READY"
            if ended and time.monotonic() > end:
                return False
            time.sleep(self.poll)

    def _wait_for_dataset(self, number: int) -> None:
        began = time.monotonic()
        while True:
            waited = time.monotonic() - began
            try:
                status = self.kaggle.dataset_status(self.dataset)
                there = self.kaggle.dataset(self.dataset)
            except (NotFound, Denied):
                status, there = NOT_THERE, None
            if status == "READY" and there is not None and there.version >= number:
                return
            if status in ("FAILED", "DELETED"):
                raise RunFailed(f"Version {number} of the dataset {self.dataset} is {status}.")
            if waited > self.pace.unstarted:
                raise DeadlinePassed(
                    f"Version {number} of the dataset {self.dataset} is {status} after"
                    f" {waited:.0f} s; expected READY.\nGive the same command again."
                )
            time.sleep(self.poll)

    def _title(self, before: str, after: str) -> str:
        return f"{before} Relay Live {self._made.suffix} {after}".strip()

    def _find(self, handle: str, marker: str) -> int:
        """Return the version of a kernel that holds a marker; 0: none, for as long as it may take.

        Args:
            handle: of a kernel that may not exist.
            marker: of one push.
        """
        end = time.monotonic() + self.pace.unseen
        while True:
            try:
                newest = self.kaggle.get_kernel(handle)
                for number in range(newest.version if newest else 0, 0, -1):
                    source = self.kaggle.get_kernel(handle, number)
                    if source is not None and f"'{marker}'" in source.text:
                        return number
            except RelayError as error:
                if not isinstance(error, REFUSALS):
                    raise
            if time.monotonic() > end:
                return 0
            time.sleep(self.poll)

    def _adopt(
        self,
        name: str,
        handle: str,
        version: int,
        sources: dict[str, list[str]] | None,
        execution: str,
    ) -> tuple[str, int]:
        """Take a version that an earlier push made, and note what that push was."""
        asked: dict[str, Any] = {"slug": handle, "kernelExecutionType": execution}
        for kind, names in (sources or {}).items():
            asked[f"{kind.removesuffix('_sources')}DataSources"] = names
        self._answers.note("adopted", asked, ref=f"/code/{handle}", versionNumber=version)
        self._made.note(name, kernel=handle, version=version)
        return handle, version
