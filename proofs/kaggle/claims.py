"""Whatever the site answers, nothing is made twice, nothing is lost, and no failure is reported as
success.
"""

import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from localkaggle.fault_kinds import KINDS
from proofs.kaggle import (
    fault_schedules,
    kills,
    known_failures,
    planted_secrets,
    random_schedules,
    wrong_weights,
)
from proofs.kaggle.fault_schedules import DEADLINE_SECONDS, LATE_SECONDS, Faults, Verdict
from proofs.kaggle.kills import Stop
from proofs.shared import environment
from proofs.shared.results_table import Later, Row, Rows, Show
from tests.faults.world import TASKS

SEED = 20261121
WORKERS = 4  # the schedules wait more than they compute
SHORT = 36  # schedules of one fault in the short form
MINUTES = 25  # for the full form
INTERRUPTED_SECONDS, INTERRUPTED_SHORT = 2.0, 30.0  # the short form depends on no machine's speed
KINDS_AT_LEAST = 20  # have to strike in any proof; in the whole matrix all of them
PRELOADED = ["jupytext", "proofs.kaggle.kills", "proofs.kaggle.random_schedules"]
# Words of what is wrong, and how the rows count it.
WRONG = {
    "duplicate": "duplicates",
    "said success": "wrong successes",
    "lost": "lost outputs",
    "never went": "stuck",
    "half": "half written",
    "outside": "written outside",
}
CLIENTS = {"2.2.4": "0.1.37", "2.2.5": "0.1.38"}
CLIENT_TESTS = (
    "tests/deploy/relay/test_relay_with_the_client.py",
    "tests/deploy/relay/test_single_steps.py",
    "tests/deploy/client/test_client.py",
)
VERSIONS = (
    "from importlib.metadata import version as v; "
    "print('kaggle', v('kaggle') + ', kagglesdk', v('kagglesdk'))"
)


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Rows:
    """Yield the rows; `short` makes a sample of what the default tests do not run in full."""
    began = time.monotonic()
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with ProcessPoolExecutor(WORKERS, context) as pool:
        for claim, measure in {
            "tasks x every call": _matrix,
            "Generated schedules of the whole chain": _generated,
            "kill -9 in push, pull, publish and submit": _stops,
        }.items():
            yield Later(claim, partial(measure, pool, short=short, show=show))
        if not short:
            yield Later("An access token that ends", partial(_ended_tokens, pool, show))
    if not short:
        yield Later("Known failures K01 to K50", partial(_catalogue, show))
        yield Later("The chain under kaggle", partial(_clients, root, show))
        yield Later("planted secrets", partial(_secrets, root, show))
        minutes = (time.monotonic() - began) / 60
        target, figure = f"≤ {MINUTES} min", f"{minutes:.1f} min"
        yield Row("All of these rows, 2 cores", target, figure, minutes <= MINUTES)


def _matrix(pool: ProcessPoolExecutor, *, short: bool, show: Show) -> Iterator[Row]:
    """Every kind of fault at every call of every task; short: a sample with every kind and task."""
    operations = dict(zip(TASKS, pool.map(fault_schedules.calls, TASKS), strict=True))
    steps = fault_schedules.matrix(operations)
    if short:
        random.Random(SEED).shuffle(steps)  # noqa: S311 - a sample, not a secret
        steps = _spread(steps)
    verdicts = _run(pool, steps, show)
    sample = " (a sample)" if short else ""
    claim = f"{len(KINDS)} kinds of fault x {len(TASKS)} tasks x every call{sample}"
    yield from judged(claim, verdicts, len(steps), KINDS_AT_LEAST if short else len(KINDS))


def _generated(pool: ProcessPoolExecutor, *, short: bool, show: Show) -> Iterator[Row]:
    """Schedules that Hypothesis generates: the tasks of the chain in any possible order, each with
    up to three faults.
    """
    # The first schedule of each seed has no fault.
    count, kinds, workers = (4, 1, 2) if short else (500, KINDS_AT_LEAST, WORKERS)
    seeds, share = [SEED + place for place in range(workers)], -(-count // workers)
    show(f"      {share * workers} schedules of the whole chain")
    found = pool.map(random_schedules.explore, seeds, [share] * workers)
    verdicts = [verdict for some in found for verdict in some]
    yield from judged("Generated schedules of the whole chain", verdicts, count, kinds)


def _ended_tokens(pool: ProcessPoolExecutor, show: Show) -> Iterator[Row]:
    """A login whose access token ends at each call of each task in turn."""
    found = zip(TASKS, pool.map(fault_schedules.requests_of, TASKS), strict=True)
    given = [(name, place) for name, places in found for place in places]
    show(f"      {len(given)} access tokens that end")
    verdicts = list(pool.map(fault_schedules.ended_token, *zip(*given, strict=True)))
    lost = [verdict for verdict in verdicts if verdict.wrong]
    struck = sum(bool(verdict.struck) for verdict in verdicts)
    yield Row(
        "An access token that ends at each call of each task in turn",
        "0 tasks lost, nothing made twice",
        f"{len(verdicts)} runs, {struck} tokens ended: {len(lost)} lost"
        + (f"; first: {fault_schedules.worst(lost, 1)}" if lost else ""),
        struck >= 0.9 * len(verdicts) > 0 and not lost,
    )


def _stops(pool: ProcessPoolExecutor, *, short: bool, show: Show) -> Iterator[Row]:
    """kill -9 and Ctrl-C at instants spread over the tasks that write, each in its own process."""
    names = kills.NAMES * (1 if short else kills.TIMINGS)
    window = kills.windows(list(zip(names, pool.map(kills.length, names), strict=True)))
    show("      " + ", ".join(f"{name} takes {seconds:.2f} s" for name, seconds in window.items()))

    def give(stop: Callable[..., Stop], orders: Sequence[kills.Order]) -> list[Stop]:
        return list(pool.map(stop, *zip(*orders, strict=True)))

    seconds = INTERRUPTED_SHORT if short else INTERRUPTED_SECONDS
    for number, wanted in ((signal.SIGKILL, 100), (signal.SIGINT, 50)):
        wanted = 4 if short else wanted
        show(f"      {wanted} times {number.name} while a task runs")
        stops = kills.stops(wanted, number, window, give, SEED)
        yield stopped(stops, number, wanted, seconds)


def stopped(
    stops: Sequence[Stop], number: int, wanted: int, seconds: float = INTERRUPTED_SECONDS
) -> Row:
    """Return these stops as a row: all are reconciled, and enough struck a running task.

    Args:
        stops: the results.
        number: of the signal.
        wanted: how many have to strike.
        seconds: in which Ctrl-C must end a task.
    """
    good = sum(not stop.verdict.wrong for stop in stops)
    struck = kills.struck(stops)
    slowest = max(stop.seconds for stop in stops)
    each = ", ".join(f"{name} {count}" for name, count in struck.items())
    wrong = [f"; first: {stop.name}: {stop.verdict.wrong}" for stop in stops if stop.verdict.wrong]
    target = f"all reconciled; ≥ {wanted} struck a running task"
    figure = f"{good} of {len(stops)}; {sum(struck.values())} struck a running task ({each})"
    figure += "".join(wrong[:1])
    passed = good == len(stops) and kills.enough(stops, wanted)
    claim = "kill -9 in push, pull, publish and submit, then the same command"
    if number == signal.SIGINT:
        claim = "Ctrl-C returns, and the same command goes on"
        target, figure = f"≤ {seconds:.0f} s; {target}", f"{slowest:.2f} s at most; {figure}"
        passed = passed and slowest <= seconds
    return Row(claim, target, figure, passed, SEED)


def _catalogue(show: Show) -> Iterator[Row]:
    """Each known failure once, and the two that publish or mount wrong weights many times."""
    show("      the catalogue of known failures")
    outcomes = known_failures.rows()
    missed = [outcome.id for outcome in outcomes if not outcome.passed]
    figure = f"{len(outcomes) - len(missed)} of {len(outcomes)}"
    figure += f"; missed: {', '.join(missed)}" if missed else ""
    claim = "Known failures K01 to K50 end with their documented exit code"
    yield Row(claim, "all", figure, not missed and len(outcomes) >= 50)
    yield wrong_weights.hybrid(100, SEED)
    yield wrong_weights.stale(100, SEED)


def _clients(root: Path, show: Show) -> Iterator[Row]:
    """Run the chain, and the tests of the calls, with each version of the client that installs."""
    for version, sdk in CLIENTS.items():
        with tempfile.TemporaryDirectory(prefix="prove-client-") as folder:
            checkout = environment.fresh(root, Path(folder), show, above=True)
            log = Path(folder) / "log.txt"
            # 2.2.5 asks for a certifi that some indexes lack, so it is installed alone.
            command = f"pip install --no-deps kaggle=={version} kagglesdk=={sdk}"
            installed = checkout.run(command, log=log)
            there = checkout.run(f'python -c "{VERSIONS}"', log=log).output.strip()
            done = checkout.run(f"python -m pytest -q {' '.join(CLIENT_TESTS)}", log=log)
            counts = (done.output.strip().splitlines() or [""])[-1].strip("= ")
            wanted = f"kaggle {version}, kagglesdk {sdk}"
            figure = f"{there}: exit {done.code}, {counts}"
            yield Row(
                f"The chain under kaggle {version}",
                f"exit 0 with {wanted}",
                installed.output[-300:] if installed.code else figure,
                not installed.code and not done.code and there == wanted,
            )


def _secrets(root: Path, show: Show) -> Row:
    """Plant secrets, and look for them in all that is written."""
    with tempfile.TemporaryDirectory(prefix="prove-secrets-") as folder:
        show("      20 planted secrets")
        return planted_secrets.row(
            planted_secrets.planted(root, Path(folder), seed=SEED), seed=SEED
        )


def _run(
    pool: ProcessPoolExecutor, steps: Sequence[tuple[tuple[str, Faults], ...]], show: Show
) -> list[Verdict]:
    began, done = time.monotonic(), []
    for verdict in pool.map(fault_schedules.run, steps, chunksize=2):
        done.append(verdict)
        if len(done) % 100 == 0:
            left = (time.monotonic() - began) / len(done) * (len(steps) - len(done))
            show(f"      {len(done)} of {len(steps)}, about {left:.0f} s to go")
    return done


def judged(claim: str, verdicts: Sequence[Verdict], runs: int, kinds: int) -> Iterator[Row]:
    """Yield these schedules as rows: so many runs, so many kinds that struck, and nothing wrong."""
    wrong = Counter(_kind(text) for verdict in verdicts for text in verdict.wrong)
    struck = Counter(kind for verdict in verdicts for kind in verdict.struck)
    figure = f"{len(verdicts)} runs, {struck.total()} faults of {len(struck)} kinds struck: "
    figure += ", ".join(f"{count} {kind}" for kind, count in wrong.items())
    if not wrong:
        figure += "0 duplicates, 0 lost, 0 wrong successes"
    else:
        figure += f"; first: {fault_schedules.worst(verdicts, 1)}"
    yield Row(
        claim,
        f"≥ {runs} runs, ≥ {kinds} kinds; 0 duplicates, 0 lost outputs, 0 wrong successes",
        figure,
        len(verdicts) >= runs and len(struck) >= kinds and not wrong,
        SEED,
    )
    late = max((verdict.late for verdict in verdicts), default=0.0)
    yield Row(
        f"No task outlives its deadline ({claim})",
        f"≤ {LATE_SECONDS:.0f} s late",
        f"{max(late, 0):.2f} s late at most, deadline {DEADLINE_SECONDS:.0f} s",
        late <= LATE_SECONDS,
        SEED,
    )


def _kind(text: str) -> str:
    found = (kind for words, kind in WRONG.items() if words in text)
    return next(found, "undocumented ends")


def _spread(
    steps: Sequence[tuple[tuple[str, Faults], ...]],
) -> list[tuple[tuple[str, Faults], ...]]:
    """Return a sample that has each kind and, as far as SHORT allows, each task."""
    chosen: list[tuple[tuple[str, Faults], ...]] = []
    kinds, names = set(KINDS), set(TASKS)
    for step in steps:
        (name, ((_, kind),)) = step[0]
        if kind in kinds or name in names:
            chosen.append(step)
            kinds.discard(kind)
            names.discard(name)
    return chosen[:SHORT]
