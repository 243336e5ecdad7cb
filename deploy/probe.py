"""Probe: what Kaggle does where this project can only assume, seen on one's own account.

Reads  a connection, and the slug of a competition whose rules were accepted
Makes  private notebooks and a private dataset whose names begin with relay-live-, and deletes them
       at its end, also after Ctrl-C or an error
Gives  facts by the names that the local Kaggle has for them, in a file without names and keys
"""

import json
import math
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nbformat import v4, writes

from deploy import auth, deadline, failures, probe_notebook, secrets
from deploy.calls import Saved
from deploy.client import Kaggle
from deploy.decoding import MALFORMED, log_lines
from deploy.errors import Ambiguous, Denied, NoQuota, NotFound, Refused, RelayError, RunFailed
from deploy.events import ENDED
from deploy.gate import machine
from deploy.probe_notebook import FINDINGS, MARKER, NOTEBOOK
from deploy.runs import SAVED
from deploy.watch import NOT_YET
from formats import atomic_file

REFUSALS = (Refused, NoQuota, Denied)
SESSION_SECONDS = 900.0  # of a session that ends by itself within some minutes
DELETING_SECONDS = 600.0
DELETES = 3  # tries
# Words of ours for what is looked at, beside Kaggle's statuses.
READY, UNREADY, LISTED, UNLISTED = "READY", "UNREADY", "LISTED", "UNLISTED"
# What steps spend that are asked for, each by the option of its name. The others take some minutes
# of a CPU, of which there is no quota.
SPENDS = {"tpu": "3 TPU minutes", "gpu": "3 GPU minutes"}
# What this project assumes of Kaggle, by the step that shows it.
FACTS: dict[str, dict[str, Any]] = {
    "cpu": {
        "other_slug": "",
        "new_script_seconds": 0.0,
        "versions_seconds": 0.0,
        "queue_seconds": 0.3,
        "layout": "2026",
        "internet": True,
        "listing_seconds": 0.0,
        "hidden_files": True,
        "empty_files": True,
    },
    "dataset": {"ready_seconds": 1.0},
    "sources": {"mount_seconds": 0.0, "own_output": True},
    "killed": {"killed_output": True},
    "tpu": {"verified": True},
    "gpu": {"gpus": 2},
}
ASSUMED = {name: value for facts in FACTS.values() for name, value in facts.items()}


class Session(NamedTuple):
    """One run of a notebook that has ended, and what was seen of it.

    Attributes:
        handle: of the notebook.
        refused: the kinds of sources of which Kaggle did not take one.
        seconds: {status: for how many seconds after the push it was seen}; and with UNLISTED, for
            how many after its end its output was seen empty.
        files: {name: signed address} of its output.
        found: what the notebook printed.
    """

    handle: str
    refused: Collection[str]
    seconds: Mapping[str, float]
    files: Mapping[str, str]
    found: Mapping[str, Any]


@dataclass
class Probe:
    """The steps, and what they found out.

    Attributes:
        connect: returns a connection, whose pace says how long each wait may take.
        competition: slug of one whose rules were accepted.
        show: is given one line each.
        killed_seconds: timeout of the session that is killed.
        name: with which the name of all that is made begins.
        facts: {name: value} of those that were seen.
        notes: what else was seen.
        made: {handle: "kernels" or "datasets"} of what may be on Kaggle.
    """

    connect: Callable[[], Kaggle]
    competition: str
    show: Callable[[str], None]
    killed_seconds: float = 120.0
    name: str = field(default_factory=lambda: f"relay-live-k{uuid.uuid4().hex[:7]}")
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)

    def run(
        self, folder: Path, wanted: Collection[str], agree: Callable[[str], bool]
    ) -> dict[str, Any]:
        """Take the steps, delete what they made, whatever ends them, and show what was seen.

        Args:
            folder: of the file, which is written after each step.
            wanted: steps of `SPENDS` that may be taken.
            agree: is asked, before such a step, whether to spend what it spends.

        Returns:
            {"file": its path, "facts": those that were seen, "assumed": all of them, "notes":
            sentences, "left": the commands that delete what could not be deleted}.

        Raises:
            RelayError: the probe is unfinished; as Unreachable, CredentialError, DiskError.
        """
        self.kaggle = self.connect()
        found = {"facts": self.facts, "assumed": ASSUMED, "notes": self.notes}
        file = folder / f"facts-{self.name.rpartition('-')[2]}.json"
        self.show("This takes about half an hour, and CPU sessions of minutes: they cost no quota.")
        self.show(f"It makes private things, called {self.name}…, and deletes them at its end.")
        try:
            for name in FACTS:
                if name in SPENDS and name not in wanted:
                    continue
                step, spends = getattr(self, name), SPENDS.get(name, "no quota")
                self.show(f"{name}: {step.__doc__} It spends {spends}.")
                if name in SPENDS and not agree(spends):
                    continue
                try:
                    step()
                except (*REFUSALS, Ambiguous, RunFailed) as error:
                    self.show(f"{name}: {str(error).splitlines()[0]}")
                    # Without Kaggle's own words, which may name somebody.
                    self.notes.append(f"{name} ended as {type(error).__name__}")
                finally:
                    plain = json.loads(secrets.to_json(found))
                    atomic_file.write(file, f"{json.dumps(plain, indent=1)}\n".encode())
        finally:
            left = self._delete_all()
        self._show_facts()
        return {"file": str(file), **found, "left": left}

    def _show_facts(self) -> None:
        self.show(f"{'fact':20}{'assumed':12}seen")
        for step, facts in FACTS.items():
            for name, assumed in facts.items():
                seen = str(self.facts.get(name, f"- ({step})"))
                differs = "  differs" if name in self.facts and seen != str(assumed) else ""
                self.show(f"{name:20}{str(assumed) or 'none':12}{seen or 'none'}{differs}")

    # The steps that cost nothing

    def cpu(self) -> None:
        """Run a notebook, and read what it wrote."""
        site = auth.address()
        reach = f"{site}:443" if site == auth.SITE else site
        mounted = {"competition_sources": [self.competition]}
        session = self._ran(sources=mounted, reach=reach)
        self.facts |= {
            "other_slug": session.handle[len(self._handle()) :],
            "new_script_seconds": session.seconds.get(SAVED, 0.0),
            "versions_seconds": session.seconds.get(NOT_YET, 0.0),
            "queue_seconds": session.seconds.get("QUEUED", 0.0),
            "listing_seconds": session.seconds.get(UNLISTED, 0.0),
            "hidden_files": ".hidden" in session.files,
            "empty_files": "empty.txt" in session.files,
        }

    def dataset(self) -> None:
        """Make a dataset of two versions."""
        self.facts["ready_seconds"] = self._publish(1)
        self._publish(2)

    def _publish(self, version: int) -> float:
        """Make a version of the dataset; return for how many seconds it was not ready."""
        handle = self._handle("data")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, MARKER)
            path.write_text(f"dataset {version}", encoding="utf-8")
            tokens = [self.kaggle.upload(path)]
        if version == 1:
            about = {"title": f"{self.name} data", "description": "doctor --live"}
            self.made[handle] = "datasets"
            try:
                self.kaggle.create_dataset(handle, **about, tokens=tokens)
            except REFUSALS:
                del self.made[handle]
                raise
        else:
            self.kaggle.create_dataset_version(handle, notes="doctor --live", tokens=tokens)

        def look() -> str:
            there, status = self.kaggle.dataset(handle), self.kaggle.dataset_status(handle)
            is_new = there is not None and there.version >= version
            return READY if is_new and status == READY else UNREADY

        seconds = self._watch(look, READY)
        if READY not in seconds:
            raise RunFailed(f"Version {version} of the dataset {handle} does not get ready.")
        return max(seconds.get(UNREADY, 0.0), seconds.get(NOT_YET, 0.0))

    def sources(self) -> None:
        """Mount the newest version of it, and a notebook's own output, in a notebook."""
        own = next((name for name, kind in self.made.items() if kind == "kernels"), self._handle())
        mounted = {"dataset_sources": [self._handle("data")], "kernel_sources": [own]}
        session = self._ran(sources=mounted)
        markers = session.found["markers"]
        self.facts["own_output"] = NOTEBOOK in markers and "kernel_sources" not in session.refused
        if "dataset 2" in markers:
            self.facts["mount_seconds"] = 0.0
        else:
            self.notes.append("the newest version of the dataset was not mounted at once")

    def killed(self) -> None:
        """Let a session be killed by its timeout, and look for its output."""
        seconds = self.killed_seconds
        session = self._ran(ends=ENDED[1:], seconds=seconds, hold=10 * seconds)
        self.facts["killed_output"] = MARKER in session.files

    # The steps that are asked for

    def tpu(self) -> None:
        """Run a notebook on a TPU."""
        self._ran("tpu", shape="TpuV5E8")

    def gpu(self) -> None:
        """Run a notebook on two T4."""
        self._ran("gpu", shape="NvidiaTeslaT4")

    # What the steps do

    def _handle(self, part: str = "") -> str:
        return f"{self.kaggle.username}/{self.name}{part and '-'}{part}"

    def _watch(self, look: Callable[[], str], *ends: str) -> dict[str, float]:
        """Look until the word is one of `ends`, or another for longer than Kaggle should need.

        Returns:
            {word: until how many seconds after the call it was seen}, the last one last.
        """
        pace, began = self.kaggle.pace, time.monotonic()
        late = dict.fromkeys((SAVED, UNREADY, UNLISTED), pace.unstarted)
        late[NOT_YET] = pace.unseen
        seconds: dict[str, float] = {}
        while True:
            try:
                word = look()
            except (NotFound, Denied):
                word = NOT_YET
            waited = round(time.monotonic() - began, 1)
            seconds.pop(word, None)
            seconds[word] = waited
            if word in ends or waited > late.get(word, math.inf):
                return seconds
            time.sleep(pace.first / 5 if waited < pace.unseen else pace.first)

    def _ran(
        self,
        part: str = "",
        *,
        ends: Collection[str] = ENDED[:1],
        seconds: float = SESSION_SECONDS,
        shape: str = "",
        sources: Mapping[str, list[str]] | None = None,
        **does: Any,
    ) -> Session:
        """Push a notebook, wait for its end, and read its output.

        Args:
            part: of its name.
            ends: statuses with which it may end; by default it has to be complete.
            seconds: after which Kaggle ends the session.
            shape: Kaggle's name of the machine; "": a CPU.
            sources: by kind, as "dataset_sources".
            does: as `probe_notebook.run` takes it; a session that has to reach something asks for
                the internet.

        Raises:
            Refused, NoQuota, Denied: if Kaggle refuses it.
            RunFailed: if Kaggle gives no version, or another notebook than one of this probe; if it
                ends otherwise, does not start, or is complete and shows nothing.
        """
        about = {"enable_internet": "reach" in does, **machine(shape), **(sources or {})}
        code = Path(probe_notebook.__file__).read_text(encoding="utf-8")
        code += f"\n\nrun({shape!r}, **{does})"
        handle, saved = self._push(self._handle(part), about, code, seconds)
        ask_status = partial(self.kaggle.kernel_status, handle, saved.version)
        waited = self._watch(lambda: ask_status().name, *ENDED)
        *_, status = waited
        if status not in ends:
            raise RunFailed(f"{handle} is {status}; expected {' or '.join(ends)}.")
        ask = partial(self.kaggle.kernel_output, handle, saved.version)
        waited |= self._watch(lambda: LISTED if ask()[0] else UNLISTED, LISTED)
        time.sleep(self.kaggle.pace.stable)  # until all files are listed
        files, log = ask()
        found = _printed(log)
        if "COMPLETE" in ends and not (files and found):
            raise RunFailed(f"Kaggle shows no file of {handle}, or not what it printed.")
        for name, value in found.items():
            if type(value) is type(ASSUMED.get(name)):  # any other was not seen
                self.facts[name] = value
        refused = [kind for kind, names in saved.invalid.items() if names]
        return Session(handle, refused, waited, files, found)

    def _push(
        self, handle: str, about: Mapping[str, Any], code: str, seconds: float
    ) -> tuple[str, Saved]:
        """Push a notebook of this code; return the address that it got, and Kaggle's answer."""
        metadata = {
            "id": handle,
            "title": handle.partition("/")[2].replace("-", " "),
            "language": "python",
            "kernel_type": "notebook",
            "is_private": True,
            **about,
        }
        kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
        cells = [v4.new_code_cell(code)]
        notebook = v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec})
        text = writes(notebook, split_lines=False)
        self.made[handle] = "kernels"
        try:
            saved = self.kaggle.save_kernel(metadata, text, timeout_seconds=round(seconds))
            if said := failures.plain(saved.error):
                raise failures.refusal(f"Kaggle refused to run {handle}: {said}", said)
        except REFUSALS:
            with suppress(*REFUSALS):  # where Kaggle does not tell, it may be there
                if self.kaggle.get_kernel(handle) is None:
                    del self.made[handle]
            raise
        given = saved.handle or handle
        if saved.version < 1 or not given.lower().startswith(handle.lower()):
            raise RunFailed(
                f"Kaggle answered the push of {handle} with version {saved.version} of {given};"
                " expected a version of that notebook.\nWhat it answered is not looked at."
            )
        self.made[given] = self.made.pop(handle)
        return given, saved

    # The end

    def _delete_all(self) -> list[str]:
        """Delete what was made; show and return the commands that delete what is left."""
        try:
            # With a time of its own, after Ctrl-C and the deadline, too, and a connection of its
            # own: an interruption may lock the other one for ever.
            with deadline.limit(DELETING_SECONDS, "Deleting took too long."):
                if self.made:
                    self.kaggle = self.connect()
                for handle, kind in list(self.made.items()):
                    self.show(f"Deleting {handle}")
                    self._delete(handle, kind)
        except RelayError as error:
            self.show(str(error).splitlines()[0])
        finally:
            left = [f"kaggle {kind} delete {handle}" for handle, kind in self.made.items()]
            for command in left:
                self.show(f"It may still be on Kaggle. To delete it: {command}")
        return left

    def _delete(self, handle: str, kind: str) -> None:
        """Delete a thing. It stays in `made` unless Kaggle took the call and shows it no longer."""
        is_kernel, is_taken = kind == "kernels", False
        delete = self.kaggle.delete_kernel if is_kernel else self.kaggle.delete_dataset
        look: Callable[[str], object] = self.kaggle.get_kernel if is_kernel else self.kaggle.dataset
        for _ in range(DELETES):
            try:
                delete(handle)
                is_taken = True
            except (*REFUSALS, Ambiguous) as error:
                is_taken |= isinstance(error, Ambiguous)
                self.show(str(error).splitlines()[0])
            with suppress(*REFUSALS):  # as of a notebook without a version, which is there
                if is_taken and look(handle) is None:
                    del self.made[handle]
                    return
            time.sleep(self.kaggle.pace.first)


def _printed(log: str) -> dict[str, Any]:
    """Return what a notebook printed; {} if its log, as Kaggle stores it, lacks that."""
    for line in log_lines(log):
        with suppress(*MALFORMED, RecursionError):  # Kaggle may cut a log anywhere
            found = json.loads(line)[FINDINGS]
            if isinstance(found["markers"], list):
                return dict(found)
    return {}
