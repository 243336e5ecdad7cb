"""Training: it can be killed anywhere, moved anywhere, and loses no time to what makes it so."""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pipeline.session import checkpoint
from proofs.shared.results_table import Row, Show, last_json
from proofs.training import chained_sessions, crash_safety, killed_runs, loop_overhead, scaled_rate

SEED = 20261121
WORKERS, RUNS, KILLS = 2, 18, 6
STARTS = 5  # cold and warm
KILLS_AT_LEAST, INSIDE_AT_LEAST = 200, 0.4


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Iterator[Row]:
    """Yield the rows, each as soon as it is measured.

    Args:
        root: of the repository. short: a sample, without times, for the normal tests. show: takes
            lines of progress.
        pictures: not used yet.
    """
    with tempfile.TemporaryDirectory(prefix="prove-training-") as scratch:
        folder = Path(scratch)
        yield from _killed(root, folder, short=short, show=show)
        yield from crash_safety.rows(short=short, show=show)
        yield from _elastic(root, folder, short=short, show=show)
        if not short:
            yield from _paced(root, folder, show)
            yield _by_hand(root, folder, show)
            yield from chained_sessions.rows(show=show)
            yield from scaled_rate.rows(root, folder / "scaling", short=False, show=show)


def _python(root: Path, *words: object, flags: str = "") -> str:
    """Return what a module of the project prints, run in a process of its own with these XLA flags."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "XLA_FLAGS": flags,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
    }
    run = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, words))} ended with {run.returncode}:\n{run.stderr[-3000:]}"
        )
    return run.stdout


def _devices(count: int) -> str:
    return f"--xla_force_host_platform_device_count={count}"


# -- killed


def _killed(root: Path, folder: Path, *, short: bool, show: Show) -> Iterator[Row]:
    workers, runs, kills = (1, 1, 5) if short else (WORKERS, RUNS, KILLS)
    show(f"      {workers * runs} runs that are killed {kills} times each, and {workers} unbroken")

    def work(number: int) -> list[killed_runs.Run]:
        words = (
            "proofs.training.killed_runs",
            folder / f"lives-{number}",
            runs,
            kills,
            SEED + number,
        )
        return [
            killed_runs.Run(**json.loads(line))
            for line in _python(root, *words, flags=_devices(2)).splitlines()
        ]

    with ThreadPoolExecutor(workers) as pool:
        found = [run for some in pool.map(work, range(workers)) for run in some]
    yield from judged(found, short=short)


def judged(found: list[killed_runs.Run], *, short: bool) -> Iterator[Row]:
    """Yield the rows that the runs give; those that nobody killed are what the others are compared
    with.
    """
    whole = [run for run in found if not run.kills]
    broken = [run for run in found if run.kills]
    steps = killed_runs.EPOCHS * killed_runs.IMAGES * 9 // 10 // killed_runs.BATCH
    same = [
        run
        for run in broken
        if run.weights
        and run.weights == whole[0].weights
        and run.batches == whole[0].batches
        and len(run.batches) == steps
    ]
    kills = [kill for run in broken for kill in run.kills]
    inside = sum(saving for _, saving in kills) / max(len(kills), 1)
    in_one = max((len(run.kills) for run in broken), default=0)
    epoch = steps // killed_runs.EPOCHS
    in_epoch = max(
        (max(Counter(step // epoch for step, _ in run.kills).values()) for run in broken), default=0
    )
    least = 4 if short else KILLS_AT_LEAST
    passed = (
        len(same) == len(broken)
        and len(kills) >= least
        and in_one >= (4 if short else 5)
        and (short or (inside >= INSIDE_AT_LEAST and in_epoch >= 3))
        and len({run.weights for run in whole}) == 1
        and len(whole[0].batches) == steps
    )
    yield Row(
        "kill -9 at random instants, then the same command: weights, optimizer, averages and every step's batch as in the unbroken run",
        f"≥ {least} kills{'' if short else ', ≥ 40 % inside a save, ≥ 5 in one run, ≥ 3 in one epoch'}; all bit-identical",
        f"{len(kills)} kills, {inside:.0%} inside a save, {in_one} in one run, {in_epoch} in one epoch; "
        f"{len(same)} of {len(broken)} runs bit-identical",
        passed,
        SEED,
    )
    lost, dead = (
        sum(run.lost for run in found),
        [text for run in found for text in run.unrecoverable],
    )
    yield Row(
        "After each kill: the run goes on, from the last committed checkpoint or a newer one",
        "0 unrecoverable, 0 lost",
        f"{len(dead)} unrecoverable, {lost} lost" + (f"; first: {dead[0]}" if dead else ""),
        not lost and not dead and bool(kills),
        SEED,
    )


# -- moved


def _elastic(root: Path, folder: Path, *, short: bool, show: Show) -> Iterator[Row]:
    show("      one batch on 1, 2, 4 and 8 devices")
    parts = ("order", "sgd") if short else ("order", "sgd", "adamw", "accumulated")
    found = last_json(
        _python(root, "proofs.training.replicas", folder / "elastic", *parts, flags=_devices(8))
    )
    order = found["order"]
    yield Row(
        f"Batches from every step of two epochs on {', '.join(map(str, order['devices']))} devices",
        "all sequences equal, from 1, 2, 4 and 8 devices",
        f"{order['compared']} sequences of up to {order['steps']} steps, {order['differing']} differ",
        not order["differing"]
        and order["compared"] == 4 * order["steps"]
        and order["devices"] == [1, 2, 4, 8],
        SEED,
    )
    sgd = found["sgd"]
    yield Row(
        "SGD, moved from 8 devices to 1 (and 4 micro-batches) in the middle of an epoch: weights 50 steps later",
        "within 1e-4, relative; the loss has fallen",
        f"{sgd['weights']:.1e}; loss at {sgd['fell_to']:.0%} of its beginning",
        sgd["weights"] <= 1e-4 and sgd["fell_to"] < 0.8 and sgd["micro_batches"] == 4,
        SEED,
    )
    if short:
        return
    adamw, summed = found["adamw"], found["accumulated"]
    yield Row(
        "AdamW, moved in the same way: each of the 50 losses",
        "within 1e-3, relative; the loss has fallen",
        f"{adamw['losses']:.1e}; loss at {adamw['fell_to']:.0%} of its beginning",
        adamw["losses"] <= 1e-3 and adamw["fell_to"] < 0.8,
        SEED,
    )
    yield Row(
        "One update by accumulation (4 and 8 micro-batches) against the whole batch's: float32, no BatchNorm",
        "within 1e-6, relative, and not 0",
        f"{summed['apart']:.1e}",
        0 < summed["apart"] <= 1e-6,
        SEED,
    )
    slower = max(summed["ratios"].values()) - 1
    times = ", ".join(f"{size}: {taken:.1f} ms" for size, taken in summed["milliseconds"].items())
    yield Row(
        "Time of a step by accumulation, by micro-batch, medians of 9",
        "< 5 % more than the whole batch",
        f"{slower:+.0%}; {times}",
        slower < 0.05,
    )


# -- paced


def _paced(root: Path, folder: Path, show: Show) -> Iterator[Row]:
    show("      the loop beside a bare one and beside fit")
    found = last_json(
        _python(
            root,
            "proofs.training.loop_overhead",
            "loop",
            folder / "loop",
            flags=loop_overhead.ONE_THREAD,
        )
    )
    for (name, sizes), most in zip(found.items(), (0.05, 0.01), strict=True):
        more, times = sizes["ratios"]["ours"] - 1, sizes["milliseconds"]
        at_once = loop_overhead.SIZES[name][0].get("steps_per_call", 1)
        yield Row(
            f"Our loop{f', {at_once} steps a call,' if at_once > 1 else ''} over a bare jitted loop of the same step, of about {name}, one a call; "
            "Keras' fit beside it; one core computes",
            f"≤ {most:.0%} more",
            f"{more:+.1%} (bare {times['bare']:.2f} ms, ours {times['ours']:.2f} ms, fit {times['fit']:.2f} ms = "
            f"{sizes['ratios']['fit'] - 1:+.0%}; medians of many turns)",
            more <= most,
        )
    show("      checkpoints of a run with a large state")
    saved = last_json(
        _python(
            root,
            "proofs.training.loop_overhead",
            "saves",
            folder / "saves",
            flags=loop_overhead.ONE_THREAD,
        )
    )
    share = saved["seconds"]["checkpoints"] / saved["wall"]
    yield Row(
        "Checkpoints at the cadence that follows from their cost, the last one included",
        "≤ 2 % of the time; no program compiled later but the evaluation",
        f"{share:.1%} of {saved['wall']:.0f} s; {saved['compiled_later']} compiled later",
        share <= 0.02 and saved["compiled_later"] == 1 and len(saved["written"]) == checkpoint.KEPT,
    )
    found = last_json(_python(root, "proofs.training.loop_overhead", "phases", folder / "phases"))
    programs = found["programs"]
    yield Row(
        "Programs that a whole run compiles for its batches: train, evaluate, predict",
        "one each",
        ", ".join(f"{name} {count}" for name, count in programs.items())
        + f"; beside {found['all'] - sum(programs.values())} others, as for the first weights",
        sorted(programs) == sorted(loop_overhead.PHASES) and set(programs.values()) == {1},
    )
    show("      cold and warm starts")
    colds, warms = [], []
    for number in range(STARTS):
        into = folder / f"start-{number}"
        colds.append(
            last_json(_python(root, "proofs.training.loop_overhead", "start", into))["seconds"]
        )
        warms.append(
            last_json(_python(root, "proofs.training.loop_overhead", "start", into))["seconds"]
        )
    share = statistics.median(warm / cold for warm, cold in zip(warms, colds, strict=True))
    yield Row(
        "A second process to the end of its first step, with the first one's executables; imports not counted",
        "≤ 20 % of the first one's time",
        f"{share:.0%} ({statistics.median(warms):.1f} s of {statistics.median(colds):.1f} s; medians of {STARTS})",
        share <= 0.2,
    )


def _by_hand(root: Path, folder: Path, show: Show) -> Row:
    """Kill `python -m pipeline train` twice, stop it once by --max-steps, and let it end by the
    same command.
    """
    show("      the command line, killed and given again")
    _python(root, "localkaggle", "export", "digits", folder / "digits")
    # Long enough to be killed twice in it, on any machine.
    own = (
        "from dataclasses import replace\nfrom pipeline.configs.digits import CONFIG as DIGITS\n\n"
    )
    own += 'CONFIG = replace(DIGITS, name="by_hand", epochs=240, checkpoint_seconds=1.0)\n'
    (folder / "by_hand.py").write_text(own)
    words = ["pipeline", "train", "--config", folder / "by_hand.py", "--input", folder / "digits"]
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "XLA_FLAGS": "",
        "JAX_PLATFORMS": "cpu",
    }
    ends: list[Any] = []
    for wait in (4.0, 4.0):
        child = subprocess.Popen(
            [sys.executable, "-m", *map(str, words), "--output", str(folder / "killed")],
            cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert child.stdout is not None  # noqa: S101 - a pipe was asked for
        next(line for line in child.stdout if line.startswith('{"step"'))
        time.sleep(wait)
        child.kill()
        child.communicate()
        ends.append(child.returncode)
    commands = [(*words, "--output", folder / "killed", "--json", "--max-steps", 1500)]
    commands += [(*words, "--output", folder / name, "--json") for name in ("killed", "unbroken")]
    ends += [last_json(_python(root, *command))["status"] for command in commands]
    sums = {
        name: json.loads((folder / name / "artifact" / "manifest.json").read_text())[
            "weights_sha256"
        ]
        for name in ("killed", "unbroken")
    }
    return Row(
        "`python -m pipeline train` killed twice, stopped by --max-steps, then the same command: its weights",
        "those of the unbroken run; -9, -9, partial, complete",
        f"{'equal' if sums['killed'] == sums['unbroken'] else 'different'}; {', '.join(map(str, ends))}",
        sums["killed"] == sums["unbroken"]
        and ends == [-signal.SIGKILL, -signal.SIGKILL, "partial", "complete", "complete"],
    )
