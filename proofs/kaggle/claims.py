"""Kaggle: whatever the site answers, nothing is made twice, nothing is lost, and no success is said
that is none.
"""

import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from localkaggle.faults import KINDS
from proofs.kaggle import fault_schedules, kills, known_failures, planted_secrets, random_schedules
from proofs.kaggle.fault_schedules import DEADLINE_SECONDS, LATE_SECONDS, Faults, Verdict
from proofs.kaggle.kills import Stop
from proofs.kaggle.world import TASKS
from proofs.shared import environment
from proofs.shared.results_table import Row, Show

SEED = 20261121
WORKERS = 4  # the schedules wait more than they compute
SHORT = 60
MINUTES = 15  # for all of it
INTERRUPTED_SECONDS = 2.0
KINDS_AT_LEAST = 20  # have to strike in any proof; in the whole matrix all of them
CLIENTS = {"2.2.4": "0.1.37", "2.2.5": "0.1.38"}
CLIENT_TESTS = (
    "tests/deploy/relay/test_relay_with_the_client.py",
    "tests/deploy/relay/test_single_steps.py",
    "tests/deploy/client/test_client.py",
)
VERSIONS = "from importlib.metadata import version as v; print('kaggle', v('kaggle') + ', kagglesdk', v('kagglesdk'))"


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Iterator[Row]:
    """Yield the rows, each as soon as it is measured.

    Args:
        root: of the repository. short: a sample, for the normal tests, of what they do not try
            whole themselves. show: takes lines of progress.
        pictures: not used; there is nothing to look at.
    """
    began = time.monotonic()
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        yield from _matrix(pool, short=short, show=show)
        yield from _generated(pool, short=short, show=show)
        yield from _stops(pool, short=short, show=show)
    if not short:
        yield from _catalogue(show)
        yield from _clients(root, show)
        with tempfile.TemporaryDirectory(prefix="prove-secrets-") as folder:
            show("      20 planted secrets")
            yield planted_secrets.row(
                planted_secrets.planted(root, Path(folder), seed=SEED), seed=SEED
            )
        minutes = (time.monotonic() - began) / 60
        yield Row(
            "All of these rows, 2 cores",
            f"≤ {MINUTES} min",
            f"{minutes:.1f} min",
            minutes <= MINUTES,
        )


def _matrix(pool: ProcessPoolExecutor, *, short: bool, show: Show) -> Iterator[Row]:
    """Every kind of fault at every call of every task; short: a sample with every kind and every
    task in it.
    """
    steps = fault_schedules.matrix()
    if short:
        random.Random(SEED).shuffle(steps)  # noqa: S311 - a sample, not a secret
        steps = _spread(steps)
    verdicts = _run(pool, steps, show)
    claim = f"{len(KINDS)} kinds of fault x {len(TASKS)} tasks x every call" + (
        " (a sample)" if short else ""
    )
    yield from judged(claim, verdicts, len(steps), KINDS_AT_LEAST if short else len(KINDS))


def _generated(pool: ProcessPoolExecutor, *, short: bool, show: Show) -> Iterator[Row]:
    """Schedules that Hypothesis generates: the chain's tasks in any order that makes sense, each
    with up to three faults.
    """
    count = SHORT // 10 if short else 500
    shares = [(SEED + place, -(-count // WORKERS)) for place in range(WORKERS)]
    show(f"      {sum(share for _, share in shares)} schedules of the whole chain")
    verdicts = [
        verdict
        for some in pool.map(random_schedules.explore, *zip(*shares, strict=True))
        for verdict in some
    ]
    yield from judged(
        "Generated schedules of the whole chain", verdicts, count, 1 if short else KINDS_AT_LEAST
    )


def _stops(pool: ProcessPoolExecutor, *, short: bool, show: Show) -> Iterator[Row]:
    """kill -9 and Ctrl-C at instants spread over the tasks that write, each in a process of its
    own.
    """
    names = kills.NAMES * (1 if short else kills.TIMINGS)
    window = kills.windows(list(zip(names, pool.map(kills.length, names), strict=True)))
    show("      " + ", ".join(f"{name} takes {seconds:.2f} s" for name, seconds in window.items()))

    def give(stop: Callable[..., Stop], orders: Sequence[kills.Order]) -> list[Stop]:
        return list(pool.map(stop, *zip(*orders, strict=True)))

    for number, wanted in (
        (signal.SIGKILL, 8 if short else 100),
        (signal.SIGINT, 4 if short else 50),
    ):
        show(f"      {wanted} times {number.name} while a task runs")
        yield stopped(kills.stops(wanted, number, window, give, SEED), number, wanted)


def stopped(stops: Sequence[Stop], number: int, wanted: int) -> Row:
    """Return what came of these stops as a row: all reconciled, and as many as wanted struck a
    running task.
    """
    good = sum(not stop.verdict.wrong for stop in stops)
    struck = kills.struck(stops)
    slowest = max(stop.seconds for stop in stops)
    met = f"{sum(struck.values())} struck a running task ({', '.join(f'{name} {n}' for name, n in struck.items())})"
    first = next(
        (f"; first: {stop.name}: {stop.verdict.wrong}" for stop in stops if stop.verdict.wrong), ""
    )
    passed = good == len(stops) and kills.enough(stops, wanted)
    if number == signal.SIGKILL:
        claim, target, figure = (
            "kill -9 in push, pull, publish and submit, then the same command",
            "",
            "",
        )
    else:
        claim, target, figure = (
            "Ctrl-C returns, and the same command goes on",
            "≤ 2 s; ",
            f"{slowest:.2f} s at most; ",
        )
        passed = passed and slowest <= INTERRUPTED_SECONDS
    return Row(
        claim,
        f"{target}all reconciled; ≥ {wanted} struck a running task",
        f"{figure}{good} of {len(stops)}; {met}{first}",
        passed,
        SEED,
    )


def _catalogue(show: Show) -> Iterator[Row]:
    """Each known failure by its fixture, and the two that publish or mount the wrong bytes, many
    times.
    """
    show("      the catalogue of known failures")
    outcomes = known_failures.rows()
    missed = [outcome.id for outcome in outcomes if not outcome.passed]
    figure = f"{len(outcomes) - len(missed)} of {len(outcomes)}" + (
        f"; missed: {', '.join(missed)}" if missed else ""
    )
    yield Row(
        "Known failures K01 to K50 end with their documented exit code",
        "all",
        figure,
        not missed and len(outcomes) >= 50,
    )
    yield known_failures.hybrid(100, SEED)
    yield known_failures.stale(100, SEED)


def _clients(root: Path, show: Show) -> Iterator[Row]:
    """Run the chain, and the tests of the calls, under each version of the client that installs."""
    for version, sdk in CLIENTS.items():
        with tempfile.TemporaryDirectory(prefix="prove-client-") as folder:
            checkout = environment.fresh(root, Path(folder), show, above=True)
            log = Path(folder) / "log.txt"
            # 2.2.5 asks for a certifi that some indexes lack, so it comes without its dependencies.
            installed = checkout.run(
                f"pip install --no-deps kaggle=={version} kagglesdk=={sdk}", log=log
            )
            there = checkout.run(f'python -c "{VERSIONS}"', log=log).output.strip()
            done = checkout.run(f"python -m pytest -q {' '.join(CLIENT_TESTS)}", log=log)
            counts = (done.output.strip().splitlines() or [""])[-1].strip("= ")
            yield Row(
                f"The chain under kaggle {version}",
                f"exit 0 with kaggle {version}, kagglesdk {sdk}",
                f"{there}: exit {done.code}, {counts}"
                if not installed.code
                else installed.output[-300:],
                not installed.code
                and not done.code
                and there == f"kaggle {version}, kagglesdk {sdk}",
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
    """Yield what came of these schedules as rows: so many runs, faults of so many kinds that
    struck, and nothing wrong.
    """
    wrong = Counter(_kind(text) for verdict in verdicts for text in verdict.wrong)
    struck = Counter(kind for verdict in verdicts for kind in verdict.struck)
    figure = f"{len(verdicts)} runs, {struck.total()} faults of {len(struck)} kinds struck: " + (
        ", ".join(f"{count} {kind}" for kind, count in wrong.items())
        or "0 duplicates, 0 lost, 0 wrong successes"
    )
    if wrong:
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
    for words, kind in (
        ("duplicate", "duplicates"),
        ("said success", "wrong successes"),
        ("lost", "lost outputs"),
        ("never went", "stuck"),
        ("half", "half written"),
        ("outside", "written outside"),
    ):
        if words in text:
            return kind
    return "undocumented ends"


def _spread(
    steps: Sequence[tuple[tuple[str, Faults], ...]],
) -> list[tuple[tuple[str, Faults], ...]]:
    """Return a sample that has each kind and each task at least once."""
    chosen: list[tuple[tuple[str, Faults], ...]] = []
    kinds, names = set(KINDS), set(TASKS)
    for step in steps:
        (name, ((_, kind),)) = step[0]
        if kind in kinds or name in names or len(chosen) < SHORT // 2:
            chosen.append(step)
            kinds.discard(kind)
            names.discard(name)
    return chosen[:SHORT]
