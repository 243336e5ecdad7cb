"""Check that this machine, the project and the Kaggle account are ready for `invoke relay`.

Nothing is changed or spent. Each `Check` is a row of the report. If a check is not possible, its
row states the reason, and the remaining checks still run. No row contains a secret.
"""

import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deploy import auth, bundle, competition, failures, init
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
# A placeholder model, so that the inference notebook can be built before anything is trained.
EXPECT = {"run_id": "doctor", "weights_sha256": "0" * 64}


@dataclass(frozen=True)
class Check:
    """A row of the report.

    Attributes:
        verdict: PASS, WARN, FAIL, or SKIP if it could not be checked.
        fix: how to fix it, or "" if nothing needs to be fixed.
        exit_code: exit code of a FAIL, as listed in docs/dev/design.md. All other rows have 0.
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
    """Return a single exit code that summarizes all rows.

    It is 0 if no row is FAIL. Otherwise, it is 3 for credentials or permissions, 6 if Kaggle did
    not respond, and 2 for everything else.

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
    """Run all checks, in the order in which problems should be fixed, and show each row at once.

    `project` is a function that returns the project. If it raises an error, a row shows the error.
    """
    state = _State(root, project, pace)
    for name, (needs, look) in ROWS.items():
        row, plain = _check(state, needs, look), failures.plain  # also redacts secrets
        state.rows[name] = replace(row, name=name, found=plain(row.found), fix=plain(row.fix))
        show(str(state.rows[name]))
    return list(state.rows.values())


@dataclass
class _State:
    """State shared by all checks. Attributes without a default are set by checks that pass."""

    root: Path
    open: Callable[[], Project]
    pace: Pace
    credentials: auth.Found = field(default_factory=auth.look)
    rows: dict[str, Check] = field(default_factory=dict)
    project: Project = field(init=False)
    kaggle: Kaggle = field(init=False)
    quota: Quota = field(init=False)


# What a check found and how to fix it. The second is "" for a PASS. An error means FAIL.
Row = tuple[str, str]


class _NotChecked(Exception):
    """The reason why a row could not be checked."""


def _check(state: _State, needs: Sequence[str], look: Callable[[_State], Row]) -> Check:
    rows = state.rows
    missing = next((need for need in needs if rows[need].verdict in (FAIL, SKIP)), "")
    silent = any(row.exit_code == Unreachable.exit_code for row in rows.values())
    try:
        if missing:
            raise _NotChecked(f"not checked; it requires the row {missing!r}")
        if silent and "login" in needs:
            raise _NotChecked("not checked; Kaggle did not respond in a row above")
        found, fix = look(state)
    except _NotChecked as error:
        return Check(SKIP, str(error))
    except Exception as error:
        code, text = getattr(error, "exit_code", None), str(error)
        if not isinstance(code, int):  # errors on the model side have an exit code, too
            code, text = 2, f"this check failed: {type(error).__name__}: {error}\nReport it."
        found, _, fix = text.partition("\n")
        return Check(FAIL, found, fix, code)
    return Check(WARN if fix else PASS, found, fix)


# This machine


def _client(state: _State) -> Row:
    where = "a local Kaggle" if auth.environment() == "LOCALHOST" else "kaggle.com"
    versions = {"Python": platform.python_version(), **auth.require_client()}
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{found}; connects to {where}; proxies: {auth.proxies()}", ""


def _credentials(state: _State) -> Row:
    sources = state.credentials.sources
    if not sources:
        raise auth.unusable(state.credentials)
    found = f"{sources[0].name} ({sources[0].kind})"
    if others := ", ".join(source.name for source in sources[1:]):
        found += f"; also found: {others}"
    problems = state.credentials.problems
    fixes = dict.fromkeys(fix for _, fix in problems)
    return "; ".join([found, *(what for what, _ in problems)]), "\n".join(fixes)


def _disk(state: _State) -> Row:
    runs = state.root / "runs"
    free = shutil.disk_usage(runs if runs.is_dir() else state.root).free
    found = f"{free / 1e9:.1f} GB are free for {runs}"
    if free < FREE_BYTES:
        least = f"{FREE_BYTES / 1e9:.0f} GB"
        raise DiskError(f"{found}, but at least {least} are required.\nFree some space.")
    return found, ""


# Kaggle and the account


def _login(state: _State) -> Row:
    first = state.credentials.sources[0]
    state.kaggle = Kaggle.connect(pace=state.pace, timeouts=init.TIMEOUTS)
    try:
        state.quota = state.kaggle.quota()  # the first call that verifies username and key
    except (Denied, Refused):
        state.quota = Quota(None, None)  # the login worked, but this call was refused
    by_key = state.kaggle.signed_by == "key"
    found = f"{state.kaggle.username}, with {'the key' if by_key else 'a token'}"
    if first.kind == "token" and by_key:
        found += f"; Kaggle rejects the token in {first.name}, which `kaggle` would use"
        return found, auth.without(first)
    return found, ""


def _quota(state: _State) -> Row:
    quota, hours, fix = state.quota, [], ""
    for name, left in (("TPU", quota.tpu_seconds), ("GPU", quota.gpu_seconds)):
        hours.append(f"{name} unknown" if left is None else f"{name} {left / 3600:.1f} hours")
        if left is not None and left < 60 and name not in quota.paid:
            fix = f"Wait until the quota resets before you push to the {name} again."
    paid = f"; Kaggle charges for more {' and '.join(quota.paid)} time" if quota.paid else ""
    return f"{', '.join(hours)} left this week{paid}", fix


def _competition(state: _State) -> Row:
    slug, events = state.project.competition, list[Event]()
    try:
        about = completed(competition.require(state.kaggle, slug), events.append)
    except (UsageError, Denied) as error:
        if state.project.config != init.REHEARSED or (state.root / init.FILE).exists():
            raise
        why = str(error).splitlines()[0]
        raise _NotChecked(f"no competition yet: invoke init --competition SLUG ({why})") from None
    found = f"{slug} exists, and its rules are accepted; it {competition.in_words(about)}"
    notes = [event.text.removesuffix(".") for event in events if isinstance(event, Note)]
    return ". ".join([found, *notes]), ""


# The project


def _config(state: _State) -> Row:
    ours = state.project = state.open()
    return f"{ours.config}: competition {ours.competition}, handoff {ours.handoff}", ""


def _notebooks(state: _State) -> Row:
    logged_in = state.rows["login"].verdict in (PASS, WARN)
    owner = (state.kaggle.username if logged_in else state.credentials.username) or "owner"
    found = []
    with tempfile.TemporaryDirectory(prefix="relay-doctor-") as folder:
        project = replace(state.project, builds=Path(folder))
        for kernel, expect in ((TRAIN, {}), (INFER, EXPECT)):
            code = bundle.read(project, kernel)
            handles = {kernel: Records(project).asked(owner, kernel)}
            built = bundle.build(project, code, bundle.Inputs(expect, handles=handles), owner)
            title, machine = built.metadata["title"], built.metadata["machine_shape"]
            found.append(f"{built.handle} ({title!r}, {machine})")
    return ", ".join(found), ""


# Rows in the order in which you would fix them, with the rows that they require and their checks.
ROWS: Mapping[str, tuple[Sequence[str], Callable[[_State], Row]]] = {
    "client": ((), _client),
    "credentials": ((), _credentials),
    "login": (("client", "credentials"), _login),
    "quota": (("login",), _quota),
    "config": ((), _config),
    "competition": (("login", "config"), _competition),
    "notebooks": (("config",), _notebooks),
    "disk": ((), _disk),
}
