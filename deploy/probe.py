"""Use your own account to check whether this project's assumptions about Kaggle are correct.

The probe creates private notebooks whose names start with relay-live-, and deletes them at the end,
even after Ctrl-C or an error. It does not use any quota. The observed facts are written to a file,
under the same names as in the local Kaggle. This file does not contain names or keys.

The probe does not check which machine a push gets, because the first cell of each notebook shows
it. Nor does it check when a dataset is ready, because the first dataset that you publish shows it.
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
SESSION_SECONDS = 900.0  # limit for sessions that should end within a few minutes
DELETING_SECONDS = 600.0
DELETES = 3  # attempts
# Names for states that are not among Kaggle's statuses.
LISTED, UNLISTED = "LISTED", "UNLISTED"
# Assumptions about Kaggle, grouped by the step that checks them.
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
    """Observations of a notebook run that has ended.

    Attributes:
        refused: kinds of sources for which Kaggle rejected at least one source.
        seconds: {status: when it was last observed, in seconds after the push}. UNLISTED is the
            number of seconds after the end during which Kaggle did not list any output.
        files: {name: signed URL} of its output.
        found: findings printed by the notebook.
    """

    handle: str
    refused: Collection[str]
    seconds: Mapping[str, float]
    files: Mapping[str, str]
    found: Mapping[str, Any]


@dataclass
class Probe:
    """A probe with its steps and findings.

    Attributes:
        connect: returns a connection, whose pace limits each wait.
        competition: slug of a competition whose rules have been accepted.
        killed_seconds: timeout of the session that will be killed.
        name: prefix for the names of everything that is created.
        facts: {name: value} of the facts that were observed.
        notes: other observations.
        made: handles of the notebooks that may be on Kaggle.
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
        """Run all steps, show the findings, and always delete everything that was created.

        After each step, a file in `folder` is updated. It contains the observed "facts", the
        "assumed" facts and "notes". In the result, "left" contains one command for each notebook
        that may still be on Kaggle. The command deletes that notebook.
        """
        self.kaggle = self.connect()
        found = {"facts": self.facts, "assumed": ASSUMED, "notes": self.notes}
        file = folder / f"facts-{self.name.rpartition('-')[2]}.json"
        self.show("This takes about half an hour. It uses a few minutes of CPU time, but no quota.")
        self.show(f"It creates private notebooks named {self.name}… and deletes them at the end.")
        try:
            for name in FACTS:
                step = getattr(self, name)
                self.show(f"{name}: {step.__doc__}")
                try:
                    step()
                except (*REFUSALS, Ambiguous, RunFailed) as error:
                    self.show(f"{name}: {str(error).splitlines()[0]}")
                    # Leave out Kaggle's message, which may contain names.
                    self.notes.append(f"{name} raised {type(error).__name__}")
                finally:
                    plain = json.loads(secrets.to_json(found))
                    atomic_file.write(file, f"{json.dumps(plain, indent=1)}\n".encode())
        finally:
            left = self._delete_all()
        self.show(f"{'fact':20}{'assumed':12}observed")
        for name, assumed in ASSUMED.items():
            seen = str(self.facts.get(name, "-"))
            differs = "  differs" if seen not in ("-", str(assumed)) else ""
            self.show(f"{name:20}{str(assumed) or 'none':12}{seen or 'none'}{differs}")
        return {"file": str(file), **found, "left": left}

    # The steps

    def cpu(self) -> None:
        """Run a notebook, and read its output."""
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
        """Mount the notebook's own output."""
        own = self._handle + self.facts.get("other_slug", "")
        session = self._ran({"kernel_sources": [own]})
        mounted = NOTEBOOK in session.found["markers"]
        self.facts["own_output"] = mounted and "kernel_sources" not in session.refused

    def killed(self) -> None:
        """Let a session exceed its timeout, and look for its output."""
        seconds = self.killed_seconds
        session = self._ran({}, ends=ENDED[1:], seconds=seconds, hold=10 * seconds)
        self.facts["killed_output"] = MARKER in session.files

    # Helpers

    @property
    def _handle(self) -> str:
        return f"{self.kaggle.username}/{self.name}"

    def _watch(self, look: Callable[[], str], *ends: str) -> dict[str, float]:
        """Poll until the state is one of those in `ends`, or a different state lasts too long.

        Returns:
            {state: when it was last observed, in seconds after the call}, with the last state last.
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
        """Push the notebook, wait until it ends, and read its output.

        Kaggle stops the session after `seconds`. The remaining arguments, `does`, are passed to
        `probe_notebook.run`. If they include `reach`, the session requests internet access.

        Raises:
            Refused, NoQuota, Denied: if Kaggle refuses it.
            RunFailed: if Kaggle returns no version or a notebook that is not part of this probe, or
                if the run ends with a status that is not in `ends`, does not start, or is complete
                without any findings.
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
        time.sleep(self.kaggle.pace.stable)  # wait until all files are listed
        files, log = ask()
        found = _printed(log)
        if "COMPLETE" in ends and not (files and found):
            raise RunFailed(f"Kaggle lists no files or no findings of {handle}.")
        # Values of another type are ignored.
        self.facts |= {k: v for k, v in found.items() if type(v) is type(ASSUMED.get(k))}
        refused = [kind for kind, names in saved.invalid.items() if names]
        return Session(handle, refused, waited, files, found)

    def _push(self, about: Mapping[str, Any], code: str, seconds: float) -> tuple[str, Saved]:
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
            with suppress(*REFUSALS):  # if this call fails, the notebook may exist
                if self.kaggle.get_kernel(handle) is None:
                    self.made.discard(handle)
            raise
        given = saved.handle or handle
        if saved.version < 1 or not given.lower().startswith(handle.lower()):
            raise RunFailed(
                f"In response to the push of {handle}, Kaggle returned version {saved.version} of"
                f" {given}, which is not a version of the pushed notebook.\nThe response is"
                " ignored."
            )
        self.made = self.made - {handle} | {given}
        return given, saved

    # Clean-up

    def _delete_all(self) -> list[str]:
        try:
            # Use a separate time limit, which also applies after Ctrl-C and after the deadline. Use
            # a new connection, too, because an interrupt may lock the old one forever.
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
        # Its handle stays in `made` until Kaggle no longer has it.
        is_taken = False
        for _ in range(DELETES):
            try:
                self.kaggle.delete_kernel(handle)
                is_taken = True
            except (*REFUSALS, Ambiguous) as error:
                is_taken |= isinstance(error, Ambiguous)
                self.show(str(error).splitlines()[0])
            with suppress(*REFUSALS):  # for example, the notebook exists but has no versions
                if is_taken and self.kaggle.get_kernel(handle) is None:
                    self.made.discard(handle)
                    return
            time.sleep(self.kaggle.pace.first)


def _printed(log: str) -> dict[str, Any]:
    for line in log_lines(log):
        with suppress(*MALFORMED, RecursionError):  # Kaggle may truncate a log anywhere
            found = json.loads(line)[FINDINGS]
            if isinstance(found["markers"], list):
                return dict(found)
    return {}
