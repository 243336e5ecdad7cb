"""Whether everything is in place for a relay, row by row, before anything is spent.

Reads  this machine, the project, and what Kaggle answers to questions; changes nothing there
Gives  one `Check` a row: what was found, and the edit that fixes it

A row that cannot be checked says why, and hides no other. No row holds a secret.
"""

import os
import platform
import re
import shlex
import shutil
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from deploy import (
    bundle,
    competition_rules,
    credential_lookup,
    credentials,
    failure_messages,
    init,
    kaggle_images,
    published,
    server_address,
)
from deploy.bundle import Bundle
from deploy.check import (
    FAIL,
    PASS,
    SKIP,
    WARN,
    Check,
    failed,
    passed,
    skipped,
    warned,
    warned_of,
)
from deploy.client import Kaggle
from deploy.errors import Denied, Refused, Unreachable, UsageError
from deploy.journal import DONE
from deploy.last_runs import Pushes
from deploy.project import INFER, TRAIN, Project
from deploy.push_and_watch import Show
from deploy.responses import Quota
from deploy.retries import Pace

PACE = Pace(first=1, most=5, patience=15)
TIMEOUTS = (5.0, 20.0)  # seconds to connect, and between two bytes
TESTED = {"kaggle": ("2.2.4", "2.2.5"), "kagglesdk": ("0.1.37", "0.1.38")}
FREE_BYTES = 2 * 10**9
SKEW_SECONDS = 300  # signed addresses and logins depend on the clock
IMAGE_DAYS = 90
# What an inference would accept, so that its notebook can be built before there is a training.
EXPECT = {"run_id": "doctor", "weights_sha256": "0" * 64}


def examine(
    root: Path,
    project: Callable[[], Project],
    *,
    show: Show = lambda line: None,
    pace: Pace = PACE,
    timeouts: tuple[float, float] = TIMEOUTS,
    today: date | None = None,
) -> list[Check]:
    """Return all rows, in the order in which one would fix them; show each as soon as it is there.

    Args:
        root: of the repository.
        project: returns the project; an error that it raises becomes a row.
        pace, timeouts: how patiently Kaggle is asked.
        today: default: this day.
    """
    day = today or datetime.now(UTC).date()
    return _Examination(root, project, show, pace, timeouts, day).rows()


class _Examination:
    """The rows, and what they hand on to each other: each of these is there if its row passed."""

    project: Project
    kaggle: Kaggle
    quota: Quota
    files: list[str]
    bundles: list[Bundle]

    def __init__(
        self,
        root: Path,
        project: Callable[[], Project],
        show: Show,
        pace: Pace,
        timeouts: tuple[float, float],
        today: date,
    ) -> None:
        self._root, self._open, self._show = root, project, show
        self._pace, self._timeouts, self._today = pace, timeouts, today
        self._found = credential_lookup.look()
        self._rows: dict[str, Check] = {}

    def rows(self) -> list[Check]:
        """Check everything."""
        self._row("python", self._python)
        self._row("environment", self._environment)
        self._row("client", self._client, "environment")
        self._row("proxy", self._proxy)
        self._row("credentials", self._credentials)
        self._row("permissions", self._permissions)
        self._row("login", self._login, "environment", "client", "credentials")
        self._row("clock", self._clock, "login")
        self._row("quota", self._quota, "login")
        self._row("config", self._config)
        self._row("competition", self._competition, "login", "config")
        self._row("rules", self._rules, "competition")
        self._row("submissions", self._submissions, "competition", "rules")
        self._row("notebooks", self._notebooks, "config")
        self._row("sources", self._sources, "login", "notebooks")
        self._row("commit", self._commit, "notebooks")
        self._row("kaggle", self._handles, "login", "config")
        self._row("images", self._images)
        self._row("disk", self._disk)
        return list(self._rows.values())

    def _row(self, name: str, check: Callable[[], Check], *needs: str) -> None:
        """Add a row, and let nothing that goes wrong in it reach the next one."""
        lacking = next((need for need in needs if self._rows[need].verdict in (FAIL, SKIP)), None)
        silent = "login" in needs and any(
            row.exit_code == Unreachable.exit_code for row in self._rows.values()
        )
        try:
            if lacking:
                row = skipped(f"not checked; it needs the row {lacking!r}")
            elif silent:
                row = skipped("not checked; Kaggle did not answer in a row above")
            else:
                row = check()
        except Exception as error:
            code = getattr(error, "exit_code", None)  # the model side's errors have one too
            if isinstance(code, int):
                found, _, fix = str(error).partition("\n")
                row = failed(found, fix, code)
            else:
                found = f"this check failed: {type(error).__name__}: {error}"
                row = failed(found, "Report it.", 2)
        plain = failure_messages.plain  # without secrets, too
        self._rows[name] = replace(row, name=name, found=plain(row.found), fix=plain(row.fix))
        self._show(str(self._rows[name]))

    # This machine

    def _python(self) -> Check:
        there = platform.python_version()
        try:
            text = (self._root / "pyproject.toml").read_text(encoding="utf-8")
            wanted = tomllib.loads(text)["project"]["requires-python"].replace(" ", "")
            bounds = re.fullmatch(r">=(\d+)\.(\d+),<(\d+)\.(\d+)", wanted)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            bounds = None
        if bounds is None:
            return skipped(f"{there}; pyproject.toml has no range >=X.Y,<X.Y")
        least, below = (int(bounds[1]), int(bounds[2])), (int(bounds[3]), int(bounds[4]))
        major, minor = (int(part) for part in there.split(".")[:2])
        if least <= (major, minor) < below:
            return passed(there)
        fix = f"Make an environment with Python {least[0]}.{least[1]} to {below[0]}.{below[1] - 1}."
        return failed(f"{there}; expected {bounds[0]}", fix, 2)

    def _environment(self) -> Check:
        place = credentials.environment()
        where = "a Kaggle on this machine (LOCALHOST)" if place == "LOCALHOST" else "kaggle.com"
        return warned_of(f"the client talks to {where}", credential_lookup.settings())

    def _client(self) -> Check:
        there = credentials.versions(self._timeouts)
        found = ", ".join(f"{name} {version}" for name, version in there.items())
        if all(there.get(name) in tested for name, tested in TESTED.items()):
            return passed(found)
        told = "; ".join(f"{name} {' and '.join(tested)}" for name, tested in TESTED.items())
        fix = f"Tested: {told}. If a call fails, install these:\n{credentials.INSTALL}"
        return warned(f"{found}: not tested with these versions", fix)

    def _proxy(self) -> Check:
        local = os.environ.get("KAGGLE_API_ENVIRONMENT") == "LOCALHOST"
        return warned_of(*credential_lookup.proxies(local))

    def _credentials(self) -> Check:
        if not self._found.sources:
            problems = "".join(f"; {what}" for what, _ in self._found.problems)
            fixes = "".join(f"{fix}\n" for _, fix in self._found.problems)
            found = f"no credentials were found{problems}"
            return failed(found, f"{fixes}{credentials.HOW}", 3)
        first, *others = self._found.sources
        found = f"{first.name} ({first.kind})"
        if others:
            names = ", ".join(source.name for source in others)
            found += f"; also there, and not used: {names}"
        return warned_of(found, self._found.problems)

    def _permissions(self) -> Check:
        files = self._found.files
        if not files:
            return skipped("no file holds credentials")
        if os.name == "nt":
            return skipped("Windows has other permissions")
        unread = [str(path) for path in files if not os.access(path, os.R_OK)]
        if unread:
            fix = f"Make them yours, then: chmod 600 {shlex.join(unread)}"
            return failed(f"this user may not read {' '.join(unread)}", fix, 3)
        public = [str(path) for path in files if path.stat().st_mode & 0o077]
        if public:
            found = f"other users of this machine may read {' '.join(public)}"
            return warned(found, f"chmod 600 {shlex.join(public)}")
        return passed(f"{', '.join(map(str, files))}: only you can read them")

    def _disk(self) -> Check:
        row = self._rows["config"]
        runs = self.project.runs if row.verdict == PASS else self._root / "runs"
        there = next(folder for folder in (runs, *runs.parents) if folder.is_dir())
        free = shutil.disk_usage(there).free
        found = f"{free / 1e9:.1f} GB are free for {runs}"
        if free < FREE_BYTES:
            return failed(f"{found}; expected {FREE_BYTES / 1e9:.0f} GB", "Free some space.", 8)
        if not os.access(there, os.W_OK):
            return failed(f"{there} cannot be written", "Correct its permissions.", 8)
        return passed(found)

    # Kaggle and this account

    def _login(self) -> Check:
        first = self._found.sources[0]
        self.kaggle = Kaggle.connect(pace=self._pace, timeouts=self._timeouts)
        try:
            self.quota = self.kaggle.quota()  # until now nobody has checked the name and key
        except (Denied, Refused):
            self.quota = Quota(None, None)  # logged in; only this question is refused
        by_key = self.kaggle.signed_by == "key"
        found = f"{self.kaggle.username}, by {'the key' if by_key else 'a token'}"
        if first.kind == "token" and by_key:
            found += f": Kaggle does not know the token in {first.name}, which `kaggle` would send"
            return warned(found, f"{credentials.without(first)}.")
        return passed(found)

    def _clock(self) -> Check:
        ahead = self.kaggle.ahead_seconds
        if ahead is None:
            return skipped("Kaggle's answers have no date")
        side = "ahead of" if ahead > 0 else "behind"
        found = f"this clock is {abs(ahead):.0f} seconds {side} Kaggle's"
        if abs(ahead) > SKEW_SECONDS:
            return warned(found, "Set the clock: timedatectl set-ntp true")
        return passed(found)

    def _quota(self) -> Check:
        left = {"TPU": self.quota.tpu_seconds, "GPU": self.quota.gpu_seconds}
        found = ", ".join(
            f"{name} unknown" if seconds is None else f"{name} {seconds / 3600:.1f} hours"
            for name, seconds in left.items()
        )
        found += " left this week"
        if self.quota.paid:
            found += f"; beyond it Kaggle charges this account ({' and '.join(self.quota.paid)})"
        gone = [
            name
            for name, seconds in left.items()
            if seconds is not None and seconds < 60 and name not in self.quota.paid
        ]
        if gone:
            fix = f"Wait: nothing can be pushed to the {' or '.join(gone)} until the week's end."
            return warned(found, fix)
        if None in left.values():
            fix = "See https://www.kaggle.com/settings for the quota of this account."
            return warned(found, fix)
        return passed(found)

    def _competition(self) -> Check:
        try:
            self.files = competition_rules.files(self.kaggle, self.project.competition)
        except (UsageError, Denied) as error:
            if self.project.config != init.REHEARSED or (self._root / init.FILE).exists():
                raise
            said = str(error).splitlines()[0]
            return skipped(f"no competition was begun: invoke init --competition SLUG ({said})")
        names = ", ".join(self.files[:3]) or "no file"
        return passed(f"{self.project.competition} is there, with {names}")

    def _rules(self) -> Check:
        slug = self.project.competition
        about = competition_rules.look(self.kaggle, slug)
        name = competition_rules.require_rules(self.kaggle, slug, self.files)
        if name:
            words = competition_rules.in_words(about)
            return passed(f"accepted: Kaggle gives {name}; the competition {words}")
        fix = f"Look at {competition_rules.rules_address(slug)}"
        return warned("not known: there is no file to ask for", fix)

    def _submissions(self) -> Check:
        limits = self.kaggle.submission_limits(self.project.competition)
        if (limits.today, limits.total, limits.allowed_now) == (0, 0, 0):
            fix = f"Accept the rules at {competition_rules.rules_address(self.project.competition)}"
            return warned("Kaggle knows no team of yours in this competition", fix)
        found = f"{limits.allowed_now} left now; {limits.today} made today, {limits.total} in all"
        if limits.allowed_now > 0:
            return passed(found)
        return warned(found, limits.next)

    @property
    def _journaled(self) -> bool:
        return (self.project.runs / "journal.sqlite").is_file()

    def _address(self, owner: str, kernel: str) -> str:
        """Return the address that a kernel has; nothing is written for want of a journal."""
        if not self._journaled:
            asked = self.project.slug or self.project.competition
            return bundle.kernel_handle(owner, asked, kernel)
        return Pushes(self.project).handle(owner, kernel)

    def _handles(self) -> Check:
        owner, slug = self.kaggle.username, self.project.competition
        kernels = [self._address(owner, kernel) for kernel in (TRAIN, INFER)]
        there: dict[str, Any] = {handle: self.kaggle.get_kernel(handle) for handle in kernels}
        dataset = bundle.dataset_handle(owner, slug)
        there[dataset] = self.kaggle.dataset(dataset)
        found = [
            f"{handle} {f'version {thing.version}' if thing else 'not yet'}"
            for handle, thing in there.items()
        ]
        problems = []
        if self._journaled:
            last = self.project.journal().last("pushes", config=self.project.name, outcome=DONE)
            before = last["handle"].partition("/")[0] if last else owner
            if before != owner:
                fix = f"Log in as {before} to resume those runs; a push as {owner} starts over."
                problems.append((f"the last push was {before}'s, and you are {owner}", fix))
        return warned_of(", ".join(found), problems)

    # The project

    def _config(self) -> Check:
        self.project = self._open()
        ours = self.project
        return passed(f"{ours.config}: competition {ours.competition}, handoff {ours.handoff}")

    def _notebooks(self) -> Check:
        ours, self.bundles = self.project, []
        logged_in = self._rows["login"].verdict in (PASS, WARN)
        owner = (self.kaggle.username if logged_in else self._found.username) or "owner"
        with tempfile.TemporaryDirectory(prefix="relay-doctor-") as folder:
            for kernel in (TRAIN, INFER):
                built = bundle.build(
                    kernel,
                    config=ours.config,
                    competition=ours.competition,
                    owner=owner,
                    out=Path(folder),
                    root=ours.root,
                    handoff=ours.handoff,
                    expect=EXPECT if kernel == INFER else None,
                    kernels=ours.kernels,
                    needs=ours.needs,
                    first_stage=ours.first_stage,
                    handles={kernel: self._address(owner, kernel)},
                )
                self.bundles.append(built)
        found = (
            f"{built.handle} ({built.metadata['title']!r}, {built.metadata['machine_shape']})"
            for built in self.bundles
        )
        return passed(", ".join(found))

    def _sources(self) -> Check:
        untold: list[str] = []
        listed = [
            name
            for kernel in (TRAIN, INFER)
            for name in published.require_shared(self.kaggle, self.project, kernel, untold.append)
        ]
        if untold:
            return warned("; ".join(untold), "Look at its page on kaggle.com.")
        return passed(", ".join(dict.fromkeys(listed)) or "the notebooks list no other dataset")

    def _commit(self) -> Check:
        commit = self.bundles[0].git_commit
        if not commit:
            fix = "A run names its commit. Make one:\ngit init && git add -A && git commit"
            return warned("there is no commit", fix)
        if any(built.git_dirty for built in self.bundles):
            found = f"{commit[:12]}, and what would be pushed differs from it"
            return warned(found, "Commit first, so that the run can be reproduced.")
        return passed(f"{commit[:12]}, and what would be pushed is in it")

    def _images(self) -> Check:
        """Show which versions Kaggle's images had when somebody last looked, or a run printed."""
        pinned = kaggle_images.images(self._root)
        if not any(image.day for image in pinned):
            found = ", ".join(map(str, pinned)) or "nothing"
            return skipped(f"constraints/ holds {found}; no first line there says as of when")
        ran = kaggle_images.printed(self._root / "runs", server_address.address())
        found, problems = f"constraints/ holds {', '.join(map(str, pinned))}", []
        for kind in dict.fromkeys(image.accelerator for image in pinned):
            ours = [image for image in pinned if image.accelerator == kind]
            if kind in ran:
                run = ran[kind]
                differing = min((image.differing(run.versions) for image in ours), key=len)
                words = " ".join(f"{name}=={version}" for name, version in differing.items())
                found += f"; {run.run} had {words or 'these'} on the {kind}"
                if differing:
                    fix = "Write a file with these into constraints/, and rehearse with it."
                    problems.append((f"no file of constraints/ is what {run.run} had", fix))
                continue
            day = max((image.day for image in ours if image.day), default=self._today)
            if (age := (self._today - day).days) > IMAGE_DAYS:
                fix = "Pull a run, whose first cell prints its versions; this row compares them."
                problems.append((f"the {kind} image was looked at {age} days ago", fix))
        return warned_of(found, problems)
