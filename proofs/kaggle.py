"""Kaggle: whatever the site answers, nothing is made twice, nothing is lost, and no success is said that is none."""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from localkaggle.faults import KINDS
from proofs import catalogue, environment, killing, machine, schedule, secrets
from proofs.schedule import DEADLINE_SECONDS, LATE_SECONDS, Faults, Verdict
from proofs.table import Row, Show
from proofs.world import TASKS

SEED = 20261121
WORKERS = 4  # the schedules wait more than they compute
SHORT = 60
CLIENTS = {"2.2.4": "0.1.37", "2.2.5": "0.1.38"}


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Iterator[Row]:
    """Yield the rows, each as soon as it is measured.

    Args:
        root: of the repository. short: a sample of each, for the normal tests. show: takes lines of progress.
        pictures: not used; there is nothing to look at.
    """
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        yield from _matrix(pool, short=short, show=show)
        yield from _generated(pool, short=short, show=show)
        yield from _stops(pool, short=short, show=show)
    if not short:
        yield from _catalogue(show)
        yield from _clients(root, show)
    with tempfile.TemporaryDirectory(prefix="prove-secrets-") as folder:
        show("      20 planted secrets")
        yield secrets.row(secrets.planted(root, Path(folder), seed=SEED), seed=SEED)


def _matrix(pool: ProcessPoolExecutor, *, short: bool, show: Show) -> Iterator[Row]:
    """Every kind of fault at every call of every task; short: a sample with every kind and every task in it."""
    steps = schedule.matrix()
    if short:
        random.Random(SEED).shuffle(steps)  # noqa: S311 - a sample, not a secret
        steps = _spread(steps)
    verdicts = _run(pool, steps, show)
    claim = f"{len(KINDS)} kinds of fault x {len(TASKS)} tasks x every call" + (" (a sample)" if short else "")
    yield from _judged(claim, verdicts, "≥ 20 kinds", len(KINDS) >= 20)


def _generated(pool: ProcessPoolExecutor, *, short: bool, show: Show) -> Iterator[Row]:
    """Schedules that Hypothesis generates: the chain's tasks in any order that makes sense, each with up to three faults."""
    count = SHORT // 10 if short else 500
    shares = [(SEED + place, -(-count // WORKERS)) for place in range(WORKERS)]
    show(f"      {sum(share for _, share in shares)} schedules of the whole chain")
    verdicts = [verdict for some in pool.map(machine.explore, *zip(*shares, strict=True)) for verdict in some]
    yield from _judged("Generated schedules of the whole chain", verdicts, f"≥ {count}", len(verdicts) >= count)


def _stops(pool: ProcessPoolExecutor, *, short: bool, show: Show) -> Iterator[Row]:
    """kill -9 and Ctrl-C at instants spread over the tasks that write, each in a process of its own."""
    for what, wanted, most in (("kills", 8 if short else 100, 0.0), ("interruptions", 4 if short else 50, 2.0)):
        chosen = killing.kills(wanted) if what == "kills" else killing.interruptions(wanted)
        show(f"      {len(chosen)} {what}")
        stops = list(pool.map(killing.stop, *zip(*chosen, strict=True)))
        good = sum(not stopped.verdict.wrong for stopped in stops)
        met = sum(stopped.code != 0 for stopped in stops)
        if what == "kills":
            yield Row(
                "kill -9 in push, pull, publish and submit, then the same command",
                f"{len(stops)} of {len(stops)} reconciled",
                f"{good} of {len(stops)}; {met} were killed before their end",
                good == len(stops) and met > 0,
                SEED,
            )
        else:
            slowest = max(stopped.seconds for stopped in stops)
            yield Row(
                "Ctrl-C returns, and the same command goes on",
                f"≤ {most:.0f} s, {len(stops)} of {len(stops)}",
                f"{slowest:.2f} s at most, {good} of {len(stops)}; {met} were interrupted before their end",
                good == len(stops) and slowest <= most and met > 0,
                SEED,
            )


def _catalogue(show: Show) -> Iterator[Row]:
    """Each known failure by its fixture, and the two that publish or mount the wrong bytes, many times."""
    show("      the catalogue of known failures")
    outcomes = catalogue.rows()
    missed = [outcome.id for outcome in outcomes if not outcome.passed]
    figure = f"{len(outcomes) - len(missed)} of {len(outcomes)}" + (f"; missed: {', '.join(missed)}" if missed else "")
    yield Row(
        "Known failures K01 to K50 end with their documented exit code",
        "all",
        figure,
        not missed and len(outcomes) >= 50,
    )
    yield catalogue.hybrid(100, SEED)
    yield catalogue.stale(100, SEED)


def _clients(root: Path, show: Show) -> Iterator[Row]:
    """Run the chain, and the tests of the calls, under each version of the client that installs."""
    for version, sdk in CLIENTS.items():
        with tempfile.TemporaryDirectory(prefix="prove-client-") as folder:
            checkout = environment.fresh(root, Path(folder), show)
            log = Path(folder) / "log.txt"
            # 2.2.5 asks for a certifi that some indexes lack, so it comes without its dependencies.
            exact = f"pip install --no-deps kaggle=={version} kagglesdk=={sdk}"
            checkout.run(f"pip install -e '.[test]' && {exact}", log=log)
            there = checkout.run(
                """python -c "from importlib.metadata import version; print(version('kaggle'))" """, log=log
            )
            done = checkout.run(
                "pytest -q tests/deploy/test_chain.py tests/deploy/test_steps.py tests/deploy/test_client.py", log=log
            )
            counts = done.output.strip().splitlines()[-1].strip("= ")
            found = there.output.strip()
            yield Row(
                f"The chain under kaggle {version}",
                "exit 0",
                f"{found}: exit {done.code}, {counts}",
                not done.code and found == version,
            )


def _run(pool: ProcessPoolExecutor, steps: Sequence[tuple[tuple[str, Faults], ...]], show: Show) -> list[Verdict]:
    began, done = time.monotonic(), []
    for verdict in pool.map(schedule.run, steps, chunksize=2):
        done.append(verdict)
        if len(done) % 100 == 0:
            left = (time.monotonic() - began) / len(done) * (len(steps) - len(done))
            show(f"      {len(done)} of {len(steps)}, about {left:.0f} s to go")
    return done


def _judged(claim: str, verdicts: Sequence[Verdict], target: str, enough: bool) -> Iterator[Row]:
    wrong = Counter(_kind(text) for verdict in verdicts for text in verdict.wrong)
    struck = sum(verdict.struck for verdict in verdicts)
    figure = f"{len(verdicts)} runs, {struck} faults struck: " + (
        ", ".join(f"{count} {kind}" for kind, count in wrong.items()) or "0 duplicates, 0 lost, 0 wrong successes"
    )
    if wrong:
        figure += f"; first: {schedule.worst(verdicts, 1)}"
    yield Row(
        claim,
        f"{target}; 0 duplicates, 0 lost outputs, 0 wrong successes",
        figure,
        enough and not wrong and struck > 0,
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
        ("never went", "stuck"),
        ("half", "half written"),
    ):
        if words in text:
            return kind
    return "undocumented ends"


def _spread(steps: Sequence[tuple[tuple[str, Faults], ...]]) -> list[tuple[tuple[str, Faults], ...]]:
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
