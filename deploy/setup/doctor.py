"""Doctor: whether everything is in place for a relay, row by row, before anything is spent.

Reads  this machine, the project, and what Kaggle answers to questions; changes nothing there
Gives  one `Check` a row: what was found, and the edit that mends it

A row that cannot be looked at says why, and hides no other. No row holds a secret.
"""

import os
import platform
import re
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from deploy.bundle import bundle
from deploy.bundle.bundle import Bundle
from deploy.client import credential_lookup, credentials, failure_messages
from deploy.client.client import Kaggle
from deploy.client.responses import Quota
from deploy.client.retries import Pace
from deploy.errors import Denied, Refused, RelayError, Unreachable
from deploy.journal import DONE
from deploy.relay import competition_rules, relay
from deploy.relay.relay import Project
from deploy.setup import kaggle_images

PASS, WARN, FAIL, SKIP = "PASS", "WARN", "FAIL", "SKIP"
PACE = Pace(first=1, most=5, patience=15)
TIMEOUTS = (5.0, 20.0)  # seconds to connect, and between two bytes
TESTED = ("2.2.4", "2.2.5")  # of the client
FREE_BYTES = 2 * 10**9
SKEW_SECONDS = 300  # signed addresses and logins live by the clock
IMAGE_DAYS = 90
# What an inference would be told to accept, so that its notebook can be built before there is a
# training.
EXPECT = {"run_id": "doctor", "weights_sha256": "0" * 64}
Show = Callable[[str], None]


@dataclass(frozen=True)
class Check:
    """One row.

    Attributes:
        verdict: PASS, WARN, FAIL, or SKIP where it could not be looked at.
        found: what there is. fix: the edit, empty where none is needed.
        exit_code: of a FAIL, as in docs/design.md; 0 for all others.
    """

    name: str
    verdict: str
    found: str
    fix: str = ""
    exit_code: int = 0

    def __str__(self) -> str:
        fix = "".join(f"\n{'':19}{line}" for line in self.fix.splitlines())
        return f"{self.verdict}  {self.name:13}{self.found}{fix}"

    def to_json(self) -> dict[str, Any]:
        """Return it as what `json.dumps` takes."""
        return asdict(self)


def exit_code(rows: Sequence[Check]) -> int:
    """Return the exit code of the whole: 0 without a FAIL; else 3 for credentials or permission, 6
    for no answer, 2.

    >>> exit_code([Check("disk", FAIL, "full", "", 8), Check("rules", FAIL, "not accepted", "", 3)])
    3
    """
    codes = {row.exit_code for row in rows if row.verdict == FAIL}
    return next((code for code in (3, 6) if code in codes), 2 if codes else 0)


def examine(
    root: Path,
    project: Callable[[], Project],
    *,
    show: Show = lambda line: None,
    pace: Pace = PACE,
    timeouts: tuple[float, float] = TIMEOUTS,
    today: date | None = None,
) -> list[Check]:
    """Return all rows, in the order in which one would mend them; each is shown as soon as it is
    there.

    Args:
        root: of the repository.
        project: gives the project; an error that it raises becomes a row.
        pace, timeouts: how patiently Kaggle is asked.
        today: default: this day.
    """
    return _Examination(
        root, project, show, pace, timeouts, today or datetime.now(UTC).date()
    ).rows()


class _Examination:
    """The rows, and what they hand on to each other: each of these is there where its row passed."""

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
        """Look at everything."""
        self._row("python", self._python)
        self._row("environment", self._environment)
        self._row("client", self._client, "environment")
        self._row("proxy", self._proxy)
        self._row("credentials", self._credentials)
        self._row("permissions", self._permissions)
        self._row("sign-in", self._sign_in, "environment", "client", "credentials")
        self._row("clock", self._clock, "sign-in")
        self._row("quota", self._quota, "sign-in")
        self._row("config", self._config)
        self._row("competition", self._competition, "sign-in", "config")
        self._row("rules", self._rules, "competition")
        self._row("submissions", self._submissions, "competition", "rules")
        self._row("notebooks", self._notebooks, "config")
        self._row("commit", self._commit, "notebooks")
        self._row("kaggle", self._things, "sign-in", "config")
        self._row("images", self._images)
        self._row("disk", self._disk)
        return list(self._rows.values())

    def _row(self, name: str, look: Callable[[], Check], *needs: str) -> None:
        """Look, and let nothing that goes wrong reach the next row."""
        lacking = next((need for need in needs if self._rows[need].verdict in (FAIL, SKIP)), None)
        silent = "sign-in" in needs and any(
            row.exit_code == Unreachable.exit_code for row in self._rows.values()
        )
        try:
            if lacking or silent:
                why = f"the row {lacking!r}" if lacking else "Kaggle's silence in a row above"
                row = Check(name, SKIP, f"not looked at, because of {why}")
            else:
                row = look()
        except RelayError as error:
            row = _failed(name, str(error), error.exit_code)
        except Exception as error:
            known = getattr(error, "exit_code", None)  # the model side's errors carry one too
            if isinstance(known, int):
                row = _failed(name, str(error), known)
            else:
                row = Check(
                    name,
                    FAIL,
                    f"this row fell over: {type(error).__name__}: {error}",
                    "Report it.",
                    2,
                )
        self._rows[name] = shown = replace(
            row, name=name, found=_clean(row.found), fix=_clean(row.fix)
        )
        self._show(str(shown))

    # This machine

    def _python(self) -> Check:
        there = platform.python_version()
        try:
            wanted = tomllib.loads((self._root / "pyproject.toml").read_text(encoding="utf-8"))[
                "project"
            ]
            bounds = re.fullmatch(
                r">=(\d+)\.(\d+),<(\d+)\.(\d+)", wanted["requires-python"].replace(" ", "")
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            bounds = None
        if bounds is None:
            return Check("", SKIP, f"{there}; pyproject.toml tells no range >=X.Y,<X.Y")
        least, below = (int(bounds[1]), int(bounds[2])), (int(bounds[3]), int(bounds[4]))
        major, minor = (int(part) for part in there.split(".")[:2])
        if least <= (major, minor) < below:
            return Check("", PASS, there)
        fix = f"Make an environment with Python {least[0]}.{least[1]} to {below[0]}.{below[1] - 1}."
        return Check("", FAIL, f"{there}; expected {bounds[0]}", fix, 2)

    def _environment(self) -> Check:
        place = credentials.environment()
        where = "a Kaggle on this machine (LOCALHOST)" if place == "LOCALHOST" else "kaggle.com"
        return _warned(f"the client talks to {where}", credential_lookup.settings())

    def _client(self) -> Check:
        there = credentials.versions(self._timeouts)
        found = ", ".join(f"{name} {version}" for name, version in there.items())
        if there.get("kaggle") in TESTED:
            return Check("", PASS, found)
        fix = f"Tested: {' and '.join(TESTED)}. If a call fails: pip install 'kaggle=={TESTED[-1]}' or 'kaggle=={TESTED[0]}'"
        return Check("", WARN, f"{found}: not tested with this version", fix)

    def _proxy(self) -> Check:
        return _warned(
            *credential_lookup.proxies(os.environ.get("KAGGLE_API_ENVIRONMENT") == "LOCALHOST")
        )

    def _credentials(self) -> Check:
        if not self._found.sources:
            problems = "".join(f"; {what}" for what, _ in self._found.problems)
            fixes = "".join(f"{fix}\n" for _, fix in self._found.problems)
            return Check(
                "", FAIL, f"no credentials were found{problems}", f"{fixes}{credentials.HOW}", 3
            )
        first, *others = self._found.sources
        also = (
            f"; also there, and not used: {', '.join(source.name for source in others)}"
            if others
            else ""
        )
        return _warned(f"{first.name} ({first.kind}){also}", self._found.problems)

    def _permissions(self) -> Check:
        files = self._found.files
        if not files or os.name == "nt":
            return Check(
                "",
                SKIP,
                "no file holds credentials" if not files else "Windows has other permissions",
            )
        unread = [path for path in files if not os.access(path, os.R_OK)]
        if unread:
            listed = " ".join(map(str, unread))
            return Check(
                "",
                FAIL,
                f"this user may not read {listed}",
                f"Make them yours, then: chmod 600 {listed}",
                3,
            )
        open_to_others = [path for path in files if path.stat().st_mode & 0o077]
        if open_to_others:
            listed = " ".join(map(str, open_to_others))
            return Check(
                "", WARN, f"other users of this machine may read {listed}", f"chmod 600 {listed}"
            )
        return Check("", PASS, f"{', '.join(str(path) for path in files)}: yours alone")

    def _disk(self) -> Check:
        row = self._rows["config"]
        runs = self.project.runs if row.verdict == PASS else self._root / "runs"
        there = next(folder for folder in (runs, *runs.parents) if folder.is_dir())
        free = shutil.disk_usage(there).free
        found = f"{free / 1e9:.1f} GB are free for {runs}"
        if free < FREE_BYTES:
            return Check(
                "", FAIL, f"{found}; expected {FREE_BYTES / 1e9:.0f} GB", "Free some space.", 8
            )
        if not os.access(there, os.W_OK):
            return Check("", FAIL, f"{there} cannot be written", "Correct its permissions.", 8)
        return Check("", PASS, found)

    # Kaggle and this account

    def _sign_in(self) -> Check:
        first = self._found.sources[0]
        self.kaggle = Kaggle.connect(pace=self._pace, timeouts=self._timeouts)
        try:
            self.quota = self.kaggle.quota()  # a name and a key are only believed so far
        except (Denied, Refused):
            self.quota = Quota(None, None)  # signed in, and that alone is not answered
        found = f"{self.kaggle.username}, by {'the key' if self.kaggle.signed_by == 'key' else 'a token'}"
        if first.kind == "token" and self.kaggle.signed_by == "key":
            return Check(
                "",
                WARN,
                f"{found}: Kaggle does not know the token in {first.name}, which `kaggle` would send in its place",
                f"{credentials.without(first)}.",
            )
        return Check("", PASS, found)

    def _clock(self) -> Check:
        ahead = self.kaggle.ahead_seconds
        if ahead is None:
            return Check("", SKIP, "Kaggle's answers have no date")
        found = f"this clock is {abs(ahead):.0f} seconds {'ahead of' if ahead > 0 else 'behind'} Kaggle's"
        if abs(ahead) > SKEW_SECONDS:
            return Check("", WARN, found, "Set the clock: timedatectl set-ntp true")
        return Check("", PASS, found)

    def _quota(self) -> Check:
        left = {"TPU": self.quota.tpu_seconds, "GPU": self.quota.gpu_seconds}
        found = ", ".join(
            f"{name} unknown" if seconds is None else f"{name} {seconds / 3600:.1f} hours"
            for name, seconds in left.items()
        )
        found += " left this week"
        gone = [name for name, seconds in left.items() if seconds is not None and seconds < 60]
        if gone:
            return Check(
                "",
                WARN,
                found,
                f"Nothing can be pushed to the {' or '.join(gone)} until the week's end.",
            )
        if None in left.values():
            return Check(
                "",
                WARN,
                found,
                "See https://www.kaggle.com/settings for the quota of this account.",
            )
        return Check("", PASS, found)

    def _competition(self) -> Check:
        self.files = competition_rules.files(self.kaggle, self.project.competition)
        return Check(
            "",
            PASS,
            f"{self.project.competition} is there, with {', '.join(self.files[:3]) or 'no file'}",
        )

    def _rules(self) -> Check:
        slug = self.project.competition
        name = competition_rules.require_rules(self.kaggle, slug, self.files)
        if name:
            return Check("", PASS, f"accepted: Kaggle gives {name}")
        return Check(
            "",
            WARN,
            "not known: there is no file to ask for",
            f"Look at {competition_rules.rules_address(slug)}",
        )

    def _submissions(self) -> Check:
        limits = self.kaggle.submission_limits(self.project.competition)
        if (limits.today, limits.total, limits.allowed_now) == (0, 0, 0):
            fix = f"Accept the rules at {competition_rules.rules_address(self.project.competition)}"
            return Check("", WARN, "Kaggle knows no team of yours in this competition", fix)
        found = f"{limits.allowed_now} left now; {limits.today} made today, {limits.total} in all"
        return Check(
            "",
            PASS if limits.allowed_now > 0 else WARN,
            found,
            "" if limits.allowed_now > 0 else "Wait.",
        )

    def _things(self) -> Check:
        owner, slug, found = self.kaggle.username, self.project.competition, []
        for kernel in (relay.TRAIN, relay.INFER):
            handle = bundle.kernel_handle(owner, slug, kernel)
            source = self.kaggle.get_kernel(handle)
            found.append(f"{handle} {f'version {source.version}' if source else 'not yet'}")
        handle = bundle.dataset_handle(owner, slug)
        dataset = self.kaggle.dataset(handle)
        found.append(f"{handle} {f'version {dataset.version}' if dataset else 'not yet'}")
        problems = []
        if (self.project.runs / "journal.sqlite").is_file():
            last = self.project.journal().last("pushes", config=self.project.name, outcome=DONE)
            before = last["handle"].partition("/")[0] if last else owner
            if before != owner:
                fix = (
                    f"Sign in as {before} to go on with those runs; a push as {owner} starts anew."
                )
                problems.append((f"the last push was {before}'s, and you are {owner}", fix))
        return _warned(", ".join(found), problems)

    # The project

    def _config(self) -> Check:
        self.project = self._open()
        ours = self.project
        return Check(
            "", PASS, f"{ours.config}: competition {ours.competition}, handoff {ours.handoff}"
        )

    def _notebooks(self) -> Check:
        ours, self.bundles = self.project, []
        row = self._rows["sign-in"]
        owner = self.kaggle.username if row.verdict in (PASS, WARN) else self._found.username
        with tempfile.TemporaryDirectory(prefix="relay-doctor-") as folder:
            for kernel in (relay.TRAIN, relay.INFER):
                built = bundle.build(
                    kernel,
                    config=ours.config,
                    competition=ours.competition,
                    owner=owner or "owner",
                    out=Path(folder),
                    root=ours.root,
                    handoff=ours.handoff,
                    expect=EXPECT if kernel == relay.INFER else None,
                    kernels=ours.kernels,
                    needs=ours.needs,
                )
                self.bundles.append(built)
        found = (
            f"{b.handle} ({b.metadata['title']!r}, {b.metadata['machine_shape']})"
            for b in self.bundles
        )
        return Check("", PASS, ", ".join(found))

    def _commit(self) -> Check:
        commit = self.bundles[0].git_commit
        if not commit:
            return Check(
                "",
                WARN,
                "there is no commit",
                "git init && git add -A && git commit: a run names its commit.",
            )
        if any(built.git_dirty for built in self.bundles):
            found = f"{commit[:12]}, and what would be pushed differs from it"
            return Check("", WARN, found, "Commit first: what runs can then be made again.")
        return Check("", PASS, f"{commit[:12]}, and what would be pushed is in it")

    def _images(self) -> Check:
        """Show which versions Kaggle's images had when somebody last looked."""
        pinned, day = kaggle_images.pins(self._root), kaggle_images.seen(self._root)
        if not pinned or day is None:
            return Check(
                "",
                SKIP,
                f"{pinned or 'constraints/ holds nothing'}; docs/facts.md does not date the images",
            )
        age = (self._today - day).days
        if age > IMAGE_DAYS:
            fix = "Compare with the versions that a run prints, and correct constraints/ and docs/facts.md."
            return Check("", WARN, f"as of {day}, {age} days ago: {pinned}", fix)
        return Check("", PASS, f"as of {day}: {pinned}")


def _clean(text: str) -> str:
    return failure_messages.plain(text)  # and without secrets


def _failed(name: str, message: str, code: int) -> Check:
    found, _, fix = message.partition("\n")
    return Check(name, FAIL, found, fix, code)


def _warned(found: str, problems: Sequence[credential_lookup.Problem]) -> Check:
    """Return a PASS, or a WARN that names every problem."""
    if not problems:
        return Check("", PASS, found)
    listed = "; ".join(what for what, _ in problems)
    return Check(
        "", WARN, f"{found}; {listed}", "\n".join(dict.fromkeys(fix for _, fix in problems))
    )
