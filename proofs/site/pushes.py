"""Pushes and watches on an unkind Kaggle: one row for each thing that was reported of the site.

The server, the client, the journal and the pushed notebooks are the real ones; what a notebook
writes is recorded. Each row starts a Kaggle that behaves as reported.
"""

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import CredentialError, NoQuota, Refused, RelayError, RunFailed, UsageError
from deploy.kernel import push_and_watch
from deploy.kernel.push_and_watch import Run
from deploy.relay import relay
from deploy.relay.last_runs import Pushes
from deploy.relay.relay import TRAIN, Project
from localkaggle.facts import Facts
from localkaggle.fault_kinds import instead
from localkaggle.sessions.session import Outcome
from proofs.shared.results_table import Row
from tests.faults.recorded_session import Recorded
from tests.faults.world import World, log_in, temporary

HANDLE = "rehearsal/digits-train-tpu"
# A version counts as new for four seconds, as only saved for two minutes.
PACE = Pace(first=0.02, most=2, patience=60)
TOKEN_SECONDS = 0.5
Measured = tuple[str, bool]
T = TypeVar("T")


def claimed(claim: str, target: str) -> Callable[[Callable[[], Measured]], Callable[[], Row]]:
    """Make a function that measures a figure, and whether it meets the target, one of the row."""

    def decorate(measure: Callable[[], Measured]) -> Callable[[], Row]:
        @functools.wraps(measure)
        def row() -> Row:
            try:
                figure, passed = measure()
            except RelayError as error:
                figure, passed = f"{type(error).__name__}: {str(error).splitlines()[0]}", False
            return Row(claim, target, figure, passed)

        return row

    return decorate


def without_quota(world: World) -> NoQuota:
    """Push where Kaggle does not say that the week's time is used up, and return its refusal.

    Afterwards there is time again.
    """
    world.local.faults.say("GetAcceleratorQuotaStatistics", [instead(200, {})])
    world.local.kernels.used_seconds["TPU"] = 1e9
    refused = raised(lambda: push(world))
    world.local.kernels.used_seconds["TPU"] = 0.0
    if not isinstance(refused, NoQuota):
        raise AssertionError(f"the push was not refused for its quota: {refused}")
    return refused


def connect() -> Kaggle:
    """Log in with the pace of these proofs."""
    return Kaggle.connect(pace=PACE, timeouts=(60, 60))


def push(world: World, kaggle: Kaggle | None = None, project: Project | None = None) -> Run:
    """Push the training."""
    show = world.shown.append
    return relay.push(kaggle or connect(), project or world.project, TRAIN, show=show)


def watch(world: World, run: Run, kaggle: Kaggle | None = None) -> str:
    """Watch a run to its end."""
    return relay.watch(kaggle or connect(), world.project, run, show=world.shown.append)


def raised(call: Callable[[], object]) -> RelayError | None:
    """Return the error that a call raises, or None."""
    try:
        call()
    except RelayError as error:
        return error
    return None


def calls(world: World, method: str, code: int = 200) -> int:
    """Return how many calls of this method were answered by this code."""
    return [(line[0], line[2]) for line in world.local.journal].count((method, code))


def after_its_end(call: Callable[[], T]) -> T:
    """Call once the access token has ended."""
    time.sleep(2 * TOKEN_SECONDS)
    return call()


@claimed(
    "1. Access tokens that end while one command pushes, watches, pulls and publishes",
    "each is renewed; 1 version of the notebook, 1 of the dataset",
)
def renewed_login() -> Measured:
    """Return the row of access tokens that end while a command runs."""
    with temporary(facts=Facts(token_seconds=TOKEN_SECONDS)) as world:
        log_in(world.local)
        kaggle, ours = connect(), world.project
        run = after_its_end(lambda: push(world, kaggle))
        status = after_its_end(lambda: watch(world, run, kaggle))
        folder = after_its_end(lambda: relay.pull(kaggle, ours, run))
        show = world.shown.append
        after_its_end(lambda: relay.publish(kaggle, ours, run, folder, show=show))
        tokens, counts = calls(world, "GenerateAccessToken"), world.counts()
        ended = sum(line[2] == 401 for line in world.local.journal)
    return (
        f"{tokens} tokens, {ended} calls answered by 401 and sent again; the run ended as"
        f" {status}; {counts[0]} version of the notebook, {counts[1]} of the dataset"
    ), (tokens > 4 and ended >= 4 and status == "COMPLETE" and counts == (1, 1, 0))


@claimed(
    "1. A login that is revoked while a command runs, or before one starts",
    "exit 3 and `kaggle auth login --force`, twice; nothing pushed",
)
def revoked_login() -> Measured:
    """Return the row of a login that ends while a command runs, and before one starts."""
    with temporary(facts=Facts(token_seconds=TOKEN_SECONDS)) as world:
        log_in(world.local)
        kaggle = connect()
        world.local.oauth.revoke(world.local.refresh_token)
        time.sleep(2 * TOKEN_SECONDS)
        meanwhile, before = raised(lambda: push(world, kaggle)), raised(connect)
        count = world.counts()[0]
    found = [error for error in (meanwhile, before) if isinstance(error, CredentialError)]
    advice = [str(error).splitlines()[-1] for error in found]
    return (
        f"exit {', '.join(str(error.exit_code) for error in found)}; {'; '.join(advice)};"
        f" {count} pushed"
    ), (advice == ["kaggle auth login --force"] * 2 and count == 0)


@claimed(
    "5. A first push that was refused, and left a notebook of which every call fails",
    "exit 4, with the notebook to delete and another address to take; not 300 s of retries",
)
def shell() -> Measured:
    """Return the row of a first push that leaves a notebook without a version."""
    with temporary(facts=Facts(refused_push="shell")) as world:
        refused = without_quota(world)
        began, sent = time.monotonic(), calls(world, "SaveKernel")
        error = raised(lambda: push(world))
        seconds, again = time.monotonic() - began, calls(world, "SaveKernel") - sent
        other = push(world, project=replace(world.project, slug="digits-2"))
        world.ended()
        del world.local.kernels.kernels[HANDLE]  # by hand, on its page
        first = push(world, project=replace(world.project, config="digits_sgd"))
    said = str(error or "")
    named = f"https://www.kaggle.com/code/{HANDLE}" in said and "[slugs]" in said
    return (
        f"exit {refused.exit_code}, then {error.exit_code if error else 0}, which"
        f" {'names' if named else 'does not name'} both, with {again} pushes sent"
        f" ({seconds:.1f} s); then {other} there, and after the deletion {first}"
    ), (isinstance(error, Refused) and named and again == 0 and first.version == 1)


@claimed(
    "6. A push that was refused, and stored its source as a version that never runs",
    "the next push runs it, and does not wait for that version",
)
def stored_source() -> Measured:
    """Return the row of a refused push whose source is stored as a version."""
    with temporary(facts=Facts(refused_push="source")) as world:
        refused = without_quota(world)
        run = push(world)
        status = watch(world, run) if run.version == 2 else "what never starts"
    return (f"exit {refused.exit_code}; then {run} is pushed and ends as {status}"), (
        (run.version, status) == (2, "COMPLETE")
    )


@claimed(
    "7. A version that says NEW_SCRIPT right after its push, or for ever",
    "waited for, and adopted by a push meanwhile; after ten minutes the run counts as not started",
)
def starting() -> Measured:
    """Return the row of a version that is called saved only right after its push."""
    with temporary(facts=Facts(new_script_seconds=3)) as world:
        run = push(world)
        again = push(world)
        first = watch(world, run)
        seen = any(line.endswith("NEW_SCRIPT") for line in world.shown)
    with temporary(facts=Facts(new_script_seconds=3600)) as world:
        kaggle = Kaggle.connect(pace=replace(PACE, patience=0.2))
        run = push(world, kaggle)
        error = raised(lambda: watch(world, run, kaggle))
    said = str(error or "").splitlines()[0] if error else ""
    return (f"{first}, adopted as {again}; for ever: {said.partition(';')[0]}"), (
        seen and first == "COMPLETE" and again == run and isinstance(error, RunFailed)
    )


@claimed(
    "8. A site that saves a push without running it, unless it is told to run it",
    "the run is COMPLETE",
)
def saved_by_default() -> Measured:
    """Return the row of a site that only saves a push which names no execution type."""
    with temporary(facts=Facts(default_execution="saved")) as world:
        run = push(world)
        asked = [line[1] for line in world.local.journal if line[0] == "SaveKernel"]
        status = watch(world, run)
    kind = asked[0].get("kernelExecutionType")
    return (f"{kind} is sent; {run} ends as {status}"), (status == "COMPLETE")


@claimed(
    '10. A new notebook whose address begins with a digit, which Kaggle calls "not found"',
    "refused before it is sent, with the line that helps; pushed with it",
)
def leading_digit() -> Measured:
    """Return the row of notebooks whose addresses would begin with a digit."""
    with temporary(facts=Facts(leading_digit=False)) as world:
        digit = replace(world.project, slug="2026-digits")
        error = raised(lambda: push(world, project=digit))
        sent = calls(world, "SaveKernel")
        run = push(world, project=replace(digit, slug="k-2026-digits"))
    return (f"exit {error.exit_code if error else 0}, {sent} sent; then {run}"), (
        isinstance(error, UsageError) and sent == 0 and run.version == 1
    )


@claimed(
    "11. A notebook that Kaggle puts at another address than was asked for",
    "watched and pulled there, said so; the next push goes there",
)
def other_address() -> Measured:
    """Return the row of a notebook that Kaggle puts elsewhere."""
    with temporary(facts=Facts(other_slug="-9")) as world:
        run = push(world)
        status = watch(world, run)
        folder = relay.pull(connect(), world.project, run)
        again = push(world)
        other = push(world, project=replace(world.project, config="digits_sgd"))
        last = Pushes(world.project).last_run(TRAIN)
        told = any(run.handle in line for line in world.shown)
    return (f"{run} ends as {status}, pulled to {folder.name}; again: {again}; changed: {other}"), (
        told and str(run) == f"{HANDLE}-9/1" and again == last == run and other.version == 2
    )


@claimed(
    "16. Sources that Kaggle names as datasets/…, code/… and competitions/…",
    "what was pushed is found and not pushed again",
)
def prefixed_sources() -> Measured:
    """Return the row of sources that Kaggle names in its own way."""
    with temporary("push-infer", facts=Facts(prefixes=True)) as world:
        ours, kaggle = world.project, connect()
        folder = Pushes(ours).last_artifact()
        built = [relay.build(ours, TRAIN, kaggle.username)]
        for handoff in ("dataset", "kernel"):
            theirs = replace(ours, handoff=handoff)
            built.append(relay.build(theirs, relay.INFER, kaggle.username, artifact=folder))
        runs = []
        for bundle in built:  # twice each, without a journal
            runs += [push_and_watch.push(kaggle, bundle, timeout_seconds=60) for _ in range(2)]
            world.ended()
        versions = world.counts()[0]
    return (
        f"{len(runs)} pushes of {len(built)} bundles, {len(set(runs))} runs, {versions} versions"
    ), (versions == len(set(runs)) == len(built))


@claimed(
    "17. Three hours left, on a site that refuses a session of nine",
    "a session of what is left is asked for, said before; the notebook knows how long it is",
)
def short_quota() -> Measured:
    """Return the row of a session that would reserve more than is left of the week's time."""
    with temporary(facts=Facts(reserves=True)) as world:
        world.local.kernels.used_seconds["TPU"] = 17 * 3600.0
        lines: list[str] = []
        run = relay.push(
            connect(),
            world.project,
            TRAIN,
            show=world.shown.append,
            agree=lambda preview: lines.extend(preview.lines()),
        )
        version = world.local.kernels.version(run.handle, run.version)
        asked = version.request.session_timeout_seconds if version else 0
        known = version is not None and f'\\"session_seconds\\": {asked}' in version.request.text
    told = next((line for line in lines if "hours are left" in line), "")
    figure = f"{asked / 3600:.1f} hours asked for; {told.partition('quota')[2].strip()}"
    return f"{figure}; the notebook {'knows' if known else 'does not know'}", (
        asked == 3 * 3600 and "asks for no more" in told and known
    )


@claimed(
    "18. A push whose answer is lost, and whose version no call knows for a while",
    "found within two minutes, 1 version",
)
def late_version() -> Measured:
    """Return the row of a push without an answer, whose version is seen later."""
    with temporary(facts=Facts(versions_seconds=1.0)) as world:
        world.local.faults.say("SaveKernel", ["reset after"])
        run = push(world)
        status = watch(world, run)
        versions = world.counts()[0]
    return (f"{run} is found and ends as {status}; {versions} version"), (
        (run.version, status, versions) == (1, "COMPLETE", 1)
    )


class Killed(Recorded):
    """A session whose first version is killed after three steps."""

    def run(self) -> Outcome:
        """Take three steps and be killed, or do as `Recorded` does."""
        if not self.working.parent.name.endswith("v1"):
            return super().run()
        self._log.start()
        (self.working / "progress.jsonl").write_text('{"step": 3, "steps": 12}\n')
        self._log.add("stdout", '{"step": 3, "steps": 12}\n')
        return Outcome("killed", "The session was killed (exit code 137)", 60.0)


@claimed(
    "18. A session that is killed, and of which Kaggle keeps no output",
    "what is lost is said, and the next session begins with what there is",
)
def lost_output() -> Measured:
    """Return the row of a killed session of which Kaggle keeps nothing."""
    with temporary(facts=Facts(killed_output=False), session=Killed) as world:
        first = push(world)
        error = raised(lambda: watch(world, first))
        second = push(world)
        status = watch(world, second)
    told = next((line for line in world.shown if "is lost" in line), "")
    return (f"{told}; {second} ends as {status}"), (
        isinstance(error, RunFailed) and "step 3 of 12" in told and status == "COMPLETE"
    )


ROWS = (
    renewed_login,
    revoked_login,
    shell,
    stored_source,
    starting,
    saved_by_default,
    leading_digit,
    other_address,
    prefixed_sources,
    short_quota,
    late_version,
    lost_output,
)


LONG = (renewed_login, starting, lost_output)  # seconds each


def rows(*, short: bool) -> Iterator[Row]:
    """Yield the rows; `short` leaves out the long ones."""
    for row in ROWS:
        if not short or row not in LONG:
            yield row()
