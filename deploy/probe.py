"""Probe: what Kaggle does where this project can only assume, seen on one's own account.

Reads  a connection, and the slug of a competition whose rules were accepted
Makes  private notebooks whose names begin with relay-live-, and deletes them at its end, also after
       Ctrl-C or an error
Gives  facts by the names that the local Kaggle has for them, in a file without names and keys

It spends no quota. What machine a push gets, the first cell of each notebook shows; when a dataset
is ready, the first publish.
"""

import json
import math
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
LISTED, UNLISTED = "LISTED", "UNLISTED"
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
    },
    "again": {"own_output": True},
    "killed": {"killed_output": True},
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
        made: the addresses of the notebooks that may be on Kaggle.
    """

    connect: Callable[[], Kaggle]
    competition: str
    show: Callable[[str], None]
    killed_seconds: float = 120.0
    name: str = field(default_factory=lambda: f"relay-live-k{uuid.uuid4().hex[:7]}")
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    made: set[str] = field(default_factory=set)

    def run(self, folder: Path) -> dict[str, Any]:
        """Take the steps, delete what they made, whatever ends them, and show what was seen.

        Args:
            folder: of the file, which is written after each step.

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
        self.show(f"It makes private notebooks, {self.name}…, and deletes them at its end.")
        try:
            for name in FACTS:
                step = getattr(self, name)
                self.show(f"{name}: {step.__doc__}")
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
        self.show(f"{'fact':20}{'assumed':12}seen")
        for name, assumed in ASSUMED.items():
            seen = str(self.facts.get(name, "-"))
            differs = "  differs" if seen not in ("-", str(assumed)) else ""
            self.show(f"{name:20}{str(assumed) or 'none':12}{seen or 'none'}{differs}")
        return {"file": str(file), **found, "left": left}

    # The steps

    def cpu(self) -> None:
        """Run a notebook, and read what it wrote."""
        site = auth.address()
        reach = f"{site}:443" if site == auth.SITE else site
        session = self._ran({"competition_sources": [self.competition]}, reach=reach)
        self.facts |= {
            "other_slug": session.handle[len(self._handle) :],
            "new_script_seconds": session.seconds.get(SAVED, 0.0),
            "versions_seconds": session.seconds.get(NOT_YET, 0.0),
            "queue_seconds": session.seconds.get("QUEUED", 0.0),
            "listing_seconds": session.seconds.get(UNLISTED, 0.0),
        }

    def again(self) -> None:
        """Mount the notebook's own output in it."""
        own = self._handle + self.facts.get("other_slug", "")
        session = self._ran({"kernel_sources": [own]})
        mounted = NOTEBOOK in session.found["markers"]
        self.facts["own_output"] = mounted and "kernel_sources" not in session.refused

    def killed(self) -> None:
        """Let a session be killed by its timeout, and look for its output."""
        seconds = self.killed_seconds
        session = self._ran({}, ends=ENDED[1:], seconds=seconds, hold=10 * seconds)
        self.facts["killed_output"] = MARKER in session.files

    # What the steps do

    @property
    def _handle(self) -> str:
        return f"{self.kaggle.username}/{self.name}"

    def _watch(self, look: Callable[[], str], *ends: str) -> dict[str, float]:
        """Look until the word is one of `ends`, or another for longer than Kaggle should need.

        Returns:
            {word: until how many seconds after the call it was seen}, the last one last.
        """
        pace, began = self.kaggle.pace, time.monotonic()
        late = {SAVED: pace.unstarted, UNLISTED: pace.unstarted, NOT_YET: pace.unseen}
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
        sources: Mapping[str, list[str]],
        *,
        ends: Collection[str] = ENDED[:1],
        seconds: float = SESSION_SECONDS,
        **does: Any,
    ) -> Session:
        """Push the notebook, wait for its end, and read its output.

        Args:
            sources: by kind, as "dataset_sources".
            ends: statuses with which it may end; by default it has to be complete.
            seconds: after which Kaggle ends the session.
            does: as `probe_notebook.run` takes it; a session that has to reach something asks for
                the internet.

        Raises:
            Refused, NoQuota, Denied: if Kaggle refuses it.
            RunFailed: if Kaggle gives no version, or another notebook than one of this probe; if it
                ends otherwise, does not start, or is complete and shows nothing.
        """
        code = Path(probe_notebook.__file__).read_text(encoding="utf-8") + f"\n\nrun(**{does})"
        about = {"enable_internet": "reach" in does, **machine(""), **sources}
        handle, saved = self._push(about, code, seconds)
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
        # A value of another type was not seen.
        self.facts |= {k: v for k, v in found.items() if type(v) is type(ASSUMED.get(k))}
        refused = [kind for kind, names in saved.invalid.items() if names]
        return Session(handle, refused, waited, files, found)

    def _push(self, about: Mapping[str, Any], code: str, seconds: float) -> tuple[str, Saved]:
        """Push a notebook of this code; return the address that it got, and Kaggle's answer."""
        handle = self._handle
        metadata = {
            "id": handle,
            "title": self.name.replace("-", " "),
            "language": "python",
            "kernel_type": "notebook",
            "is_private": True,
            **about,
        }
        kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
        cells = [v4.new_code_cell(code)]
        notebook = v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec})
        text = writes(notebook, split_lines=False)
        self.made.add(handle)
        try:
            saved = self.kaggle.save_kernel(metadata, text, timeout_seconds=round(seconds))
            if said := failures.plain(saved.error):
                raise failures.refusal(f"Kaggle refused to run {handle}: {said}", said)
        except REFUSALS:
            with suppress(*REFUSALS):  # where Kaggle does not tell, it may be there
                if self.kaggle.get_kernel(handle) is None:
                    self.made.discard(handle)
            raise
        given = saved.handle or handle
        if saved.version < 1 or not given.lower().startswith(handle.lower()):
            raise RunFailed(
                f"Kaggle answered the push of {handle} with version {saved.version} of {given};"
                " expected a version of that notebook.\nWhat it answered is not looked at."
            )
        self.made = self.made - {handle} | {given}
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
                for handle in sorted(self.made):
                    self.show(f"Deleting {handle}")
                    self._delete(handle)
        except RelayError as error:
            self.show(str(error).splitlines()[0])
        finally:
            left = [f"kaggle kernels delete {handle}" for handle in sorted(self.made)]
            for command in left:
                self.show(f"It may still be on Kaggle. To delete it: {command}")
        return left

    def _delete(self, handle: str) -> None:
        """Delete a notebook, which stays in `made` until Kaggle shows it no longer."""
        is_taken = False
        for _ in range(DELETES):
            try:
                self.kaggle.delete_kernel(handle)
                is_taken = True
            except (*REFUSALS, Ambiguous) as error:
                is_taken |= isinstance(error, Ambiguous)
                self.show(str(error).splitlines()[0])
            with suppress(*REFUSALS):  # as of a notebook without a version, which is there
                if is_taken and self.kaggle.get_kernel(handle) is None:
                    self.made.discard(handle)
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
