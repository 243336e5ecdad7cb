"""Whether everything is in place for a relay, row by row, before anything is spent.

Reads  this machine, the project, and what Kaggle answers to questions; changes nothing there
Gives  one `Check` a row: what was found, and the edit that fixes it

A row that cannot be checked says why, and hides no other. No row holds a secret.
"""

import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.requirements import Requirement

from deploy import auth, bundle, competition, datasets, failures, init
from deploy.calls import Quota
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.errors import Denied, Refused, Unreachable, UsageError
from deploy.events import Event, Note, completed
from deploy.project import INFER, TRAIN, Project
from deploy.records import Records
from formats.errors import DiskError

PASS, WARN, FAIL, SKIP = "PASS", "WARN", "FAIL", "SKIP"
FREE_BYTES = 2 * 10**9
SKEW_SECONDS = 300  # signed addresses and logins depend on the clock
# What an inference would accept, so that its notebook can be built before there is a training.
EXPECT = {"run_id": "doctor", "weights_sha256": "0" * 64}


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
    pace: Pace = init.PACE,
) -> list[Check]:
    """Return all rows, in the order in which one would fix them; show each as soon as it is there.

    Args:
        root: of the repository.
        project: returns the project; an error that it raises becomes a row.
        pace: how patiently Kaggle is asked.
    """
    state = _State(root, project, pace)
    for name, (needs, look) in ROWS.items():
        row, plain = _check(state, needs, look), failures.plain  # without secrets, too
        state.rows[name] = replace(row, name=name, found=plain(row.found), fix=plain(row.fix))
        show(str(state.rows[name]))
    return list(state.rows.values())


@dataclass
class _State:
    """What rows hand on to each other: what one of them sets is there if its row passed."""

    root: Path
    open: Callable[[], Project]
    pace: Pace
    credentials: auth.Found = field(default_factory=auth.look)
    rows: dict[str, Check] = field(default_factory=dict)
    project: Project = field(init=False)
    kaggle: Kaggle = field(init=False)
    quota: Quota = field(init=False)


# What was found, and how to fix it: "" makes the row a PASS. An error makes it a FAIL.
Row = tuple[str, str]


class _NotChecked(Exception):
    """Why a row says nothing."""


def _check(state: _State, needs: Sequence[str], look: Callable[[_State], Row]) -> Check:
    """Return a row, and let nothing that goes wrong in it reach the next one."""
    rows = state.rows
    missing = next((need for need in needs if rows[need].verdict in (FAIL, SKIP)), "")
    silent = any(row.exit_code == Unreachable.exit_code for row in rows.values())
    try:
        if missing:
            raise _NotChecked(f"not checked; it needs the row {missing!r}")
        if silent and "login" in needs:
            raise _NotChecked("not checked; Kaggle did not answer in a row above")
        found, fix = look(state)
    except _NotChecked as error:
        return Check(SKIP, str(error))
    except Exception as error:
        code, text = getattr(error, "exit_code", None), str(error)
        if not isinstance(code, int):  # the model side's errors have one, too
            code, text = 2, f"this check failed: {type(error).__name__}: {error}\nReport it."
        found, _, fix = text.partition("\n")
        return Check(FAIL, found, fix, code)
    return Check(WARN if fix else PASS, found, fix)


def _with(found: str, problems: Sequence[auth.Problem]) -> Row:
    """Return a row with every problem."""
    fixes = dict.fromkeys(fix for _, fix in problems)
    return "; ".join([found, *(what for what, _ in problems)]), "\n".join(fixes)


# This machine


def _environment(state: _State) -> Row:
    local = auth.environment() == "LOCALHOST"
    where = "a Kaggle on this machine (LOCALHOST)" if local else "kaggle.com"
    proxies, problems = auth.proxies(local)
    return _with(f"the client talks to {where}; proxies: {proxies}", problems)


def _client(state: _State) -> Row:
    there = auth.require_client()
    versions = {"Python": platform.python_version(), **there}
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    if all(there[need.name] in need.specifier for need in map(Requirement, auth.TESTED)):
        return found, ""
    return f"{found}: not tested", f"If a call fails, install what was tested:\n{auth.INSTALL}"


def _credentials(state: _State) -> Row:
    sources, problems = state.credentials.sources, [*state.credentials.problems]
    if not sources:
        raise auth.unusable(state.credentials)
    found = f"{sources[0].name} ({sources[0].kind})"
    if others := ", ".join(source.name for source in sources[1:]):
        found += f"; also there: {others}"
    files = state.credentials.files if os.name != "nt" else []  # Windows has other permissions
    if public := [str(path) for path in files if path.stat().st_mode & 0o077]:
        what = f"other users of this machine may read {' '.join(public)}"
        problems.append((what, f"chmod 600 {shlex.join(public)}"))
    return _with(found, problems)


def _disk(state: _State) -> Row:
    runs = state.root / "runs"
    free = shutil.disk_usage(runs if runs.is_dir() else state.root).free
    found = f"{free / 1e9:.1f} GB are free for {runs}"
    if free < FREE_BYTES:
        raise DiskError(f"{found}; expected {FREE_BYTES / 1e9:.0f} GB\nFree some space.")
    return found, ""


# Kaggle and this account


def _login(state: _State) -> Row:
    first = state.credentials.sources[0]
    state.kaggle = Kaggle.connect(pace=state.pace, timeouts=init.TIMEOUTS)
    try:
        state.quota = state.kaggle.quota()  # until now nobody has checked the name and key
    except (Denied, Refused):
        state.quota = Quota(None, None)  # logged in; only this question is refused
    by_key, ahead, problems = state.kaggle.signed_by == "key", state.kaggle.ahead_seconds, []
    found = f"{state.kaggle.username}, by {'the key' if by_key else 'a token'}"
    if first.kind == "token" and by_key:
        what = f"Kaggle does not know the token in {first.name}, which `kaggle` would send"
        problems.append((what, auth.without(first)))
    if ahead is not None and abs(ahead) > SKEW_SECONDS:
        side = "ahead of" if ahead > 0 else "behind"
        what = f"this clock is {abs(ahead):.0f} seconds {side} Kaggle's"
        problems.append((what, "Set the clock: timedatectl set-ntp true"))
    return _with(found, problems)


def _quota(state: _State) -> Row:
    quota, told, fixes = state.quota, [], []
    for name, left in (("TPU", quota.tpu_seconds), ("GPU", quota.gpu_seconds)):
        told.append(f"{name} unknown" if left is None else f"{name} {left / 3600:.1f} hours")
        if left is None:
            fixes.append(f"See https://www.kaggle.com/settings for the {name} quota.")
        elif left < 60 and name not in quota.paid:
            fixes.append(f"Wait: nothing can be pushed to the {name} until the week's end.")
    found = f"{', '.join(told)} left this week"
    if quota.paid:
        found += f"; beyond it Kaggle charges this account ({' and '.join(quota.paid)})"
    return found, "\n".join(fixes)


def _competition(state: _State) -> Row:
    slug, told = state.project.competition, list[Event]()
    try:
        about = completed(competition.require(state.kaggle, slug), told.append)
    except (UsageError, Denied) as error:
        if state.project.config != init.REHEARSED or (state.root / init.FILE).exists():
            raise
        said = str(error).splitlines()[0]
        why = f"no competition was begun: invoke init --competition SLUG ({said})"
        raise _NotChecked(why) from None
    found = f"{slug} is there, and its rules are accepted; it {competition.in_words(about)}"
    notes = [event.text.removesuffix(".") for event in told if isinstance(event, Note)]
    limits, fix = state.kaggle.submission_limits(slug), ""
    if (limits.today, limits.total, limits.allowed_now) == (0, 0, 0):
        notes.append("Kaggle knows no team of yours there")
        fix = f"Accept the rules at {competition.rules_address(slug)}"
    else:
        made = f"{limits.today} made today, {limits.total} in all"
        notes.append(f"Submissions: {limits.allowed_now} left now; {made}")
        fix = "" if limits.allowed_now > 0 else limits.next
    return ". ".join([found, *notes]), fix


# The project


def _config(state: _State) -> Row:
    ours = state.project = state.open()
    return f"{ours.config}: competition {ours.competition}, handoff {ours.handoff}", ""


def _notebooks(state: _State) -> Row:
    logged_in = state.rows["login"].verdict in (PASS, WARN)
    owner = (state.kaggle.username if logged_in else state.credentials.username) or "owner"
    records, found, problems = Records(state.project), [], list[auth.Problem]()
    # To look into a new journal would write it.
    has_journal = (state.project.runs / "journal.sqlite").is_file()
    address = records.handle if has_journal else records.asked
    with tempfile.TemporaryDirectory(prefix="relay-doctor-") as folder:
        project = replace(state.project, builds=Path(folder))
        for kernel, expect in ((TRAIN, {}), (INFER, EXPECT)):
            code = bundle.read(project, kernel)
            inputs = bundle.Inputs(expect, handles={kernel: address(owner, kernel)})
            built = bundle.build(project, code, inputs, owner)
            title, machine = built.metadata["title"], built.metadata["machine_shape"]
            found.append(f"{built.handle} ({title!r}, {machine})")
            if not code.git_commit:
                fix = "A run names its commit. Make one:\ngit init && git add -A && git commit"
                problems = [("there is no commit", fix)]
            elif code.git_dirty:
                fix = "Commit first, so that the run can be reproduced."
                problems = [(f"they differ from the commit {code.git_commit[:12]}", fix)]
    return _with(", ".join(found), problems)


def _sources(state: _State) -> Row:
    names, told = list[str](), list[Event]()
    for kernel in (TRAIN, INFER):
        looked = datasets.require_shared(state.kaggle, state.project, kernel)
        names += completed(looked, told.append)
    if unknown := [event.text for event in told if isinstance(event, Note)]:
        return "; ".join(unknown), "Look at its page on kaggle.com."
    return ", ".join(dict.fromkeys(names)) or "the notebooks list no other dataset", ""


# In the order in which one would fix them: the rows that each of them needs, and what looks.
ROWS: Mapping[str, tuple[Sequence[str], Callable[[_State], Row]]] = {
    "environment": ((), _environment),
    "client": (("environment",), _client),
    "credentials": ((), _credentials),
    "login": (("environment", "client", "credentials"), _login),
    "quota": (("login",), _quota),
    "config": ((), _config),
    "competition": (("login", "config"), _competition),
    "notebooks": (("config",), _notebooks),
    "sources": (("login", "notebooks"), _sources),
    "disk": ((), _disk),
}
