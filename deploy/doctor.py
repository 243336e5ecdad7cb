"""Whether everything is in place for a relay, row by row, before anything is spent.

Reads  this machine, the project, and what Kaggle answers to questions; changes nothing there
Gives  one `Check` a row: what was found, and the edit that fixes it

A row that cannot be checked says why, and hides no other. No row holds a secret.
"""

import json
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploy import auth, bundle, competition, datasets, failures, init, output
from deploy.auth import Problem
from deploy.bundle import Bundle
from deploy.calls import Quota
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.errors import CredentialError, Denied, Refused, Unreachable, UsageError
from deploy.events import Event, Note, completed
from deploy.journal import PUSH
from deploy.project import INFER, TRAIN, Project
from deploy.records import Records
from deploy.runs import accelerator
from formats.errors import DiskError

PASS, WARN, FAIL, SKIP = "PASS", "WARN", "FAIL", "SKIP"
# The rows, in the order in which one would fix them, and the rows that each of them needs.
ROWS = {
    "python": (),
    "environment": (),
    "client": ("environment",),
    "proxy": (),
    "credentials": (),
    "permissions": (),
    "login": ("environment", "client", "credentials"),
    "clock": ("login",),
    "quota": ("login",),
    "config": (),
    "competition": ("login", "config"),
    "rules": ("competition",),
    "submissions": ("competition", "rules"),
    "notebooks": ("config",),
    "sources": ("login", "notebooks"),
    "commit": ("notebooks",),
    "kaggle": ("login", "config"),
    "images": (),
    "disk": (),
}
PACE = Pace(first=1, most=5, patience=15)
TIMEOUTS = (5.0, 20.0)  # seconds to connect, and between two bytes
TESTED = {"kaggle": ("2.2.4", "2.2.5"), "kagglesdk": ("0.1.37", "0.1.38")}
FREE_BYTES = 2 * 10**9
SKEW_SECONDS = 300  # signed addresses and logins depend on the clock
# What an inference would accept, so that its notebook can be built before there is a training.
EXPECT = {"run_id": "doctor", "weights_sha256": "0" * 64}
# In a file of constraints/: as of when it is, and its versions, that of Python in the first line.
# What is for a CPU alone, or for a machine without a screen, counts as the same package.
DAY, PYTHON = re.compile(r".* as of (20\d\d-[\d-]+)"), re.compile(r"Python (3\.\d+)")
PIN = re.compile(r"^([A-Za-z][\w.-]*)==([^\s;]+)", re.MULTILINE)
VARIANT = re.compile(r"-(cpu|headless)$")
# As a notebook prints them in its first cell (`pipeline.runtime.provenance`).
PRINTED = re.compile(r'^Versions: (\{"python": .*\})$', re.MULTILINE)


@dataclass(frozen=True)
class Check:
    """One row.

    Attributes:
        verdict: PASS, WARN, FAIL, or SKIP if it could not be checked.
        found: what there is.
        fix: the edit; "" if none is needed.
        exit_code: of a FAIL, as in docs/dev/design.md; 0 for all others.
    """

    verdict: str
    found: str
    fix: str = ""
    exit_code: int = 0
    name: str = ""

    def __str__(self) -> str:
        fix = "".join(f"\n{'':19}{line}" for line in self.fix.splitlines())
        return f"{self.verdict}  {self.name:13}{self.found}{fix}"


def exit_code(rows: Sequence[Check]) -> int:
    """Return the exit code of all rows.

    It is 0 without a FAIL; else 3 for credentials or permission, 6 for no answer, 2 for the rest.

    >>> exit_code([Check(FAIL, "full", "", 8), Check(FAIL, "not accepted", "", 3)])
    3
    """
    codes = {row.exit_code for row in rows if row.verdict == FAIL}
    return next((code for code in (3, 6) if code in codes), 2 if codes else 0)


def examine(
    root: Path,
    project: Callable[[], Project],
    *,
    show: Callable[[str], None] = lambda line: None,
    pace: Pace = PACE,
) -> list[Check]:
    """Return all rows, in the order in which one would fix them; show each as soon as it is there.

    Args:
        root: of the repository.
        project: returns the project; an error that it raises becomes a row.
        pace: how patiently Kaggle is asked.
    """
    state = _Examination(root, project, pace)
    for name, needs in ROWS.items():
        row = _guarded(state, name, needs)
        plain = failures.plain  # without secrets, too
        state.rows[name] = replace(row, name=name, found=plain(row.found), fix=plain(row.fix))
        show(str(state.rows[name]))
    return list(state.rows.values())


def _guarded(state: "_Examination", name: str, needs: Sequence[str]) -> Check:
    """Return a row, and let nothing that goes wrong in it reach the next one."""
    for need in needs:
        if state.rows[need].verdict in (FAIL, SKIP):
            return Check(SKIP, f"not checked; it needs the row {need!r}")
    silent = any(row.exit_code == Unreachable.exit_code for row in state.rows.values())
    if silent and "login" in needs:
        return Check(SKIP, "not checked; Kaggle did not answer in a row above")
    try:
        row: Check = getattr(state, f"_{name}")()
        return row
    except _NotChecked as error:
        return Check(SKIP, str(error))
    except Exception as error:
        code, text = getattr(error, "exit_code", None), str(error)
        if not isinstance(code, int):  # the model side's errors have one, too
            code, text = 2, f"this check failed: {type(error).__name__}: {error}\nReport it."
        found, _, fix = text.partition("\n")
        return Check(FAIL, found, fix, code)


class _NotChecked(Exception):
    """Why a row says nothing."""


def _checked(found: str, problems: Sequence[Problem]) -> Check:
    """Return a row with every problem; without one it is a PASS."""
    listed = "".join(f"; {what}" for what, _ in problems)
    return _row(f"{found}{listed}", "\n".join(dict.fromkeys(fix for _, fix in problems)))


def _row(found: str, fix: str = "") -> Check:
    """Return a WARN if there is something to fix, or else a PASS."""
    return Check(WARN if fix else PASS, found, fix)


@dataclass
class _Examination:
    """The checks, and what they hand on to each other: what one of them sets is there if its row
    passed.
    """

    root: Path
    open: Callable[[], Project]
    pace: Pace
    found: auth.Found = field(default_factory=auth.look)
    rows: dict[str, Check] = field(default_factory=dict)
    bundles: list[Bundle] = field(default_factory=list)
    project: Project = field(init=False)
    records: Records | None = None
    kaggle: Kaggle = field(init=False)
    quota: Quota = field(init=False)
    files: list[str] = field(init=False)

    # This machine

    def _python(self) -> Check:
        there = platform.python_version()
        try:
            text = (self.root / "pyproject.toml").read_text(encoding="utf-8")
            wanted = tomllib.loads(text)["project"]["requires-python"].replace(" ", "")
            ((least, below),) = re.findall(r"^>=3\.(\d+),<3\.(\d+)$", wanted)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise _NotChecked(f"{there}; pyproject.toml has no range >=3.X,<3.Y") from None
        if int(least) <= sys.version_info.minor < int(below):
            return _row(there)
        raise UsageError(
            f"{there}; expected {wanted}\n"
            f"Make an environment with Python 3.{least} to 3.{int(below) - 1}."
        )

    def _environment(self) -> Check:
        place = auth.environment()
        where = "a Kaggle on this machine (LOCALHOST)" if place == "LOCALHOST" else "kaggle.com"
        return _checked(f"the client talks to {where}", auth.settings())

    def _client(self) -> Check:
        there = auth.require_client()
        found = ", ".join(f"{name} {version}" for name, version in there.items())
        if all(there.get(name) in tested for name, tested in TESTED.items()):
            return _row(found)
        told = "; ".join(f"{name} {' and '.join(tested)}" for name, tested in TESTED.items())
        fix = f"Tested: {told}. If a call fails, install these:\n{auth.INSTALL}"
        return _row(f"{found}: not tested with these versions", fix)

    def _proxy(self) -> Check:
        local = os.environ.get("KAGGLE_API_ENVIRONMENT") == "LOCALHOST"
        return _checked(*auth.proxies(local))

    def _credentials(self) -> Check:
        if not self.found.sources:
            told = "; ".join(
                ["no credentials were found", *(what for what, _ in self.found.problems)]
            )
            fixes = "\n".join([*(fix for _, fix in self.found.problems), auth.HOW])
            raise CredentialError(f"{told}\n{fixes}")
        first, *others = self.found.sources
        found = f"{first.name} ({first.kind})"
        if others:
            names = ", ".join(source.name for source in others)
            found += f"; also there, and not used: {names}"
        return _checked(found, self.found.problems)

    def _permissions(self) -> Check:
        files = self.found.files
        if not files or os.name == "nt":
            why = "Windows has other permissions" if files else "no file holds credentials"
            raise _NotChecked(why)
        public = [str(path) for path in files if path.stat().st_mode & 0o077]
        if public:
            found = f"other users of this machine may read {' '.join(public)}"
            return _row(found, f"chmod 600 {shlex.join(public)}")
        return _row(f"{', '.join(map(str, files))}: only you can read them")

    def _disk(self) -> Check:
        runs = self.project.runs if self.rows["config"].verdict == PASS else self.root / "runs"
        there = next(folder for folder in (runs, *runs.parents) if folder.is_dir())
        free = shutil.disk_usage(there).free
        found = f"{free / 1e9:.1f} GB are free for {runs}"
        if free < FREE_BYTES:
            raise DiskError(f"{found}; expected {FREE_BYTES / 1e9:.0f} GB\nFree some space.")
        if not os.access(there, os.W_OK):
            raise DiskError(f"{there} cannot be written\nCorrect its permissions.")
        return _row(found)

    # Kaggle and this account

    def _login(self) -> Check:
        first = self.found.sources[0]
        self.kaggle = Kaggle.connect(pace=self.pace, timeouts=TIMEOUTS)
        try:
            self.quota = self.kaggle.quota()  # until now nobody has checked the name and key
        except (Denied, Refused):
            self.quota = Quota(None, None)  # logged in; only this question is refused
        by_key = self.kaggle.signed_by == "key"
        found = f"{self.kaggle.username}, by {'the key' if by_key else 'a token'}"
        if first.kind == "token" and by_key:
            found += f": Kaggle does not know the token in {first.name}, which `kaggle` would send"
            return _row(found, f"{auth.without(first)}.")
        return _row(found)

    def _clock(self) -> Check:
        ahead = self.kaggle.ahead_seconds
        if ahead is None:
            raise _NotChecked("Kaggle's answers have no date")
        fix = "Set the clock: timedatectl set-ntp true" if abs(ahead) > SKEW_SECONDS else ""
        side = "ahead of" if ahead > 0 else "behind"
        return _row(f"this clock is {abs(ahead):.0f} seconds {side} Kaggle's", fix)

    def _quota(self) -> Check:
        told, gone, fix = [], [], ""
        for name, left in (("TPU", self.quota.tpu_seconds), ("GPU", self.quota.gpu_seconds)):
            if left is None:
                told.append(f"{name} unknown")
                fix = "See https://www.kaggle.com/settings for the quota of this account."
                continue
            told.append(f"{name} {left / 3600:.1f} hours")
            if left < 60 and name not in self.quota.paid:
                gone.append(name)
        found = f"{', '.join(told)} left this week"
        if self.quota.paid:
            found += f"; beyond it Kaggle charges this account ({' and '.join(self.quota.paid)})"
        if gone:
            fix = f"Wait: nothing can be pushed to the {' or '.join(gone)} until the week's end."
        return _row(found, fix)

    def _competition(self) -> Check:
        try:
            self.files = competition.files(self.kaggle, self.project.competition)
        except (UsageError, Denied) as error:
            if self.project.config != init.REHEARSED or (self.root / init.FILE).exists():
                raise
            said = str(error).splitlines()[0]
            why = f"no competition was begun: invoke init --competition SLUG ({said})"
            raise _NotChecked(why) from None
        names = ", ".join(self.files[:3]) or "no file"
        return _row(f"{self.project.competition} is there, with {names}")

    def _rules(self) -> Check:
        slug = self.project.competition
        about = competition.look(self.kaggle, slug)
        name = competition.require_rules(self.kaggle, slug, self.files)
        if not name:
            fix = f"Look at {competition.rules_address(slug)}"
            return _row("not known: there is no file to ask for", fix)
        words = competition.in_words(about)
        return _row(f"accepted: Kaggle gives {name}; the competition {words}")

    def _submissions(self) -> Check:
        limits = self.kaggle.submission_limits(self.project.competition)
        if (limits.today, limits.total, limits.allowed_now) == (0, 0, 0):
            fix = f"Accept the rules at {competition.rules_address(self.project.competition)}"
            return _row("Kaggle knows no team of yours in this competition", fix)
        found = f"{limits.allowed_now} left now; {limits.today} made today, {limits.total} in all"
        return _row(found, "" if limits.allowed_now > 0 else limits.next)

    def _kaggle(self) -> Check:
        owner, slug = self.kaggle.username, self.project.competition
        kernels = [self.address(owner, kernel) for kernel in (TRAIN, INFER)]
        there: dict[str, Any] = {handle: self.kaggle.get_kernel(handle) for handle in kernels}
        dataset = bundle.dataset_handle(owner, slug)
        there[dataset] = self.kaggle.dataset(dataset)
        found = [
            f"{handle} {f'version {thing.version}' if thing else 'not yet'}"
            for handle, thing in there.items()
        ]
        rows = self.records.journal.requests(PUSH, config=self.project.name) if self.records else []
        last = next((row for row in rows if row.is_made), None)
        before = last.handle.partition("/")[0] if last else owner
        if before == owner:
            return _row(", ".join(found))
        fix = f"Log in as {before} to resume those runs; a push as {owner} starts over."
        found.append(f"but the last push was {before}'s, and you are {owner}")
        return _row(", ".join(found), fix)

    def address(self, owner: str, kernel: str) -> str:
        """Return the address that a kernel has."""
        if self.records is not None:
            return self.records.handle(owner, kernel)
        asked = self.project.slug or self.project.competition
        return bundle.kernel_handle(owner, asked, kernel)

    # The project

    def _config(self) -> Check:
        self.project = ours = self.open()
        if (ours.runs / "journal.sqlite").is_file():  # else nothing is written for want of it
            self.records = Records(ours)
        return _row(f"{ours.config}: competition {ours.competition}, handoff {ours.handoff}")

    def _notebooks(self) -> Check:
        ours, self.bundles = self.project, []
        logged_in = self.rows["login"].verdict in (PASS, WARN)
        owner = (self.kaggle.username if logged_in else self.found.username) or "owner"
        with tempfile.TemporaryDirectory(prefix="relay-doctor-") as folder:
            for kernel in (TRAIN, INFER):
                project = replace(ours, builds=Path(folder))
                expect = EXPECT if kernel == INFER else {}
                handles = {kernel: self.address(owner, kernel)}
                code = bundle.read(project, kernel)
                inputs = bundle.Inputs(expect, handles=handles)
                built = bundle.build(project, code, inputs, owner)
                self.bundles.append(built)
        found = (
            f"{built.handle} ({built.metadata['title']!r}, {built.metadata['machine_shape']})"
            for built in self.bundles
        )
        return _row(", ".join(found))

    def _sources(self) -> Check:
        untold: list[str] = []

        def tell(event: Event) -> None:
            if isinstance(event, Note):
                untold.append(event.text)

        listed = [
            name
            for kernel in (TRAIN, INFER)
            for name in completed(datasets.require_shared(self.kaggle, self.project, kernel), tell)
        ]
        if untold:
            return _row("; ".join(untold), "Look at its page on kaggle.com.")
        return _row(", ".join(dict.fromkeys(listed)) or "the notebooks list no other dataset")

    def _commit(self) -> Check:
        commit = self.bundles[0].code.git_commit
        if not commit:
            fix = "A run names its commit. Make one:\ngit init && git add -A && git commit"
            return _row("there is no commit", fix)
        if any(built.code.git_dirty for built in self.bundles):
            found = f"{commit[:12]}, and what would be pushed differs from it"
            return _row(found, "Commit first, so that the run can be reproduced.")
        return _row(f"{commit[:12]}, and what would be pushed is in it")

    def _images(self) -> Check:
        """Compare what the newest runs printed with what constraints/ pins."""
        pinned = {
            path.stem: path.read_text(encoding="utf-8")
            for path in sorted((self.root / "constraints").glob("*.txt"))
        }
        held = [
            f"{name} as of {day[1]}" for name, text in pinned.items() if (day := DAY.match(text))
        ]
        if not held:
            raise _NotChecked("no first line in constraints/ says as of when its image is")
        found, problems = f"constraints/ holds {', '.join(held)}", []
        for kind, run in sorted(_printed(self.root / "runs").items()):
            files = [text for name, text in pinned.items() if name.startswith(kind.lower())]
            differing = min(map(run.differing, files), key=len, default={})
            words = " ".join(f"{name}=={version}" for name, version in differing.items())
            found += f"; {run.name} had {words or 'these'} on the {kind}"
            if differing:
                fix = "Write a file with these into constraints/, and rehearse with it."
                problems.append((f"no file of constraints/ is what {run.name} had", fix))
        return _checked(found, problems)


@dataclass(frozen=True)
class _Printed:
    """The versions that the first cell of a run printed, by package.

    Attributes:
        at: when it was pulled.
        name: owner/slug/version.
    """

    at: str
    name: str
    versions: Mapping[str, str]

    def differing(self, text: str) -> dict[str, str]:
        """Return those that a file of constraints/ pins to others."""
        pins = {VARIANT.sub("", name): version for name, version in PIN.findall(text)}
        had = {VARIANT.sub("", name): version for name, version in self.versions.items()}
        if python := PYTHON.search(text):  # two of its three parts
            pins["python"], had["python"] = python[1], had["python"].rpartition(".")[0]
        return {name: had[name] for name in pins if had.get(name, pins[name]) != pins[name]}


def _printed(runs: Path) -> dict[str, _Printed]:
    """Return what the newest pulled run on each kind of machine printed, by "TPU" and "GPU"."""
    newest: dict[str, _Printed] = {}
    for log in runs.glob("*/*.log"):
        note = output.noted(log.parent)
        lines = PRINTED.findall(log.read_text(encoding="utf-8", errors="replace"))
        if note is not None and note.server == auth.address() and lines:
            kind = accelerator(log.stem, output.of_bundle(log.parent, "machine_shape"))
            run = _Printed(note.at, note.run, json.loads(lines[-1]))
            newest[kind] = max(newest.get(kind, run), run, key=lambda one: one.at)
    return newest
