"""Training can be killed anywhere and moved anywhere, and loses no time to what makes that work."""

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.session import checkpoint
from proofs.shared import module_process
from proofs.shared.results_table import Later, Row, Rows, Show, last_json
from proofs.training import chained_sessions, crash_safety, killed_runs, scaled_rate

SEED = 20261121
WORKERS, RUNS, KILLS = 2, 18, 6
KILLS_SHORT = 2
STARTS = 5  # cold and warm
# Long enough to be killed twice, on any machine.
BY_HAND = """from dataclasses import replace
from pipeline.configs.digits import CONFIG as DIGITS

CONFIG = replace(DIGITS, name="by_hand", epochs=240, checkpoint_seconds=1.0)
"""
KILLS_AT_LEAST, INSIDE_AT_LEAST = 200, 0.4
ULPS = 10  # times the distance that one unit in the last place makes …
NEAR = 1e-4  # … which stays small, since the model has no corners
EPS = float(np.finfo(np.float32).eps)


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Rows:
    """Yield the rows; `short` makes a sample, and times nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="prove-training-") as scratch,
        ThreadPoolExecutor() as pool,
    ):
        folder = Path(scratch)
        if short:  # nothing is timed, so the processes share the machine
            killed = pool.submit(lambda: list(_killed(root, folder, short=True, show=show)))
            moved = pool.submit(_elastic, root, folder, short=True, show=show)
            yield from crash_safety.rows(short=True, show=show)
            yield from [*killed.result(), *moved.result()]
        else:
            yield Later("kills", partial(_killed, root, folder, short=False, show=show))
            yield Later("crash states", partial(crash_safety.rows, short=False, show=show))
            yield Later("moves", partial(_elastic, root, folder, short=False, show=show))
            yield Later("loop", partial(_loop, root, folder, show))
            yield Later("saves and starts", partial(_paced, root, folder, show))
            yield Later("by hand", partial(_by_hand, root, folder, show))
            yield Later("chain", partial(chained_sessions.rows, show=show))
            yield Later("scaling", partial(scaled_rate.rows, root, folder / "scaling", show=show))


def _devices(count: int, *, short: bool) -> str:
    """Return the flags for that many virtual devices."""
    flags = f"--xla_force_host_platform_device_count={count}"
    return f"{flags} {module_process.UNOPTIMIZED}" if short else flags


# -- killed


def _killed(root: Path, folder: Path, *, short: bool, show: Show) -> Iterator[Row]:
    workers, runs, kills = (1, 1, KILLS_SHORT) if short else (WORKERS, RUNS, KILLS)
    epochs = killed_runs.EPOCHS_SHORT if short else killed_runs.EPOCHS
    show(f"      {workers * runs} runs that are killed {kills} times each, and {workers} unbroken")

    def work(number: int) -> list[str]:
        words = (folder / f"lives-{number}", runs, kills, SEED + number, epochs)
        module = "proofs.training.killed_runs"
        # All lives share what is compiled, so that a life takes a second and not five.
        compiled = folder / f"compiled-{number}"
        return module_process.output(
            root, module, *words, flags=_devices(2, short=short), compiled=compiled
        ).splitlines()

    with ThreadPoolExecutor(workers) as pool:
        lines = [line for some in pool.map(work, range(workers)) for line in some]
    found = [killed_runs.Run(**json.loads(line)) for line in lines]
    yield from judged(found, short=short)


def judged(found: list[killed_runs.Run], *, short: bool) -> Iterator[Row]:
    """Yield the rows of the runs, compared with those that were not killed."""
    whole = [run for run in found if not run.kills]
    broken = [run for run in found if run.kills]
    epochs = killed_runs.EPOCHS_SHORT if short else killed_runs.EPOCHS
    steps = epochs * killed_runs.IMAGES * 9 // 10 // killed_runs.BATCH
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
    epoch = steps // epochs
    most = (max(Counter(step // epoch for step, _ in run.kills).values()) for run in broken)
    in_epoch = max(most, default=0)
    least = KILLS_SHORT if short else KILLS_AT_LEAST
    passed = (
        len(same) == len(broken)
        and len(kills) >= least
        and in_one >= (KILLS_SHORT if short else 5)
        and (short or (inside >= INSIDE_AT_LEAST and in_epoch >= 3))
        and len({run.weights for run in whole}) == 1
        and len(whole[0].batches) == steps
    )
    more = "" if short else ", ≥ 40 % inside a save, ≥ 5 in one run, ≥ 3 in one epoch"
    yield Row(
        "kill -9 at random instants, then the same command: weights, optimizer, averages and every "
        "step's batch as in the unbroken run",
        f"≥ {least} kills{more}; all bit-identical",
        f"{len(kills)} kills, {inside:.0%} inside a save, {in_one} in one run, {in_epoch} in one "
        f"epoch; {len(same)} of {len(broken)} runs bit-identical",
        passed,
        SEED,
    )
    lost = sum(run.lost for run in found)
    dead = [text for run in found for text in run.unrecoverable]
    yield Row(
        "After each kill: the run goes on, from the last committed checkpoint or a newer one",
        "0 unrecoverable, 0 lost",
        f"{len(dead)} unrecoverable, {lost} lost" + (f"; first: {dead[0]}" if dead else ""),
        not lost and not dead and bool(kills),
        SEED,
    )


# -- moved


def _elastic(root: Path, folder: Path, *, short: bool, show: Show) -> list[Row]:
    show("      one batch on 1, 2, 4 and 8 devices")
    parts = ("short",) if short else ("order", "sgd", "adamw", "accumulated")
    words = ("proofs.training.replicas", folder / "elastic", *parts)
    compiled = folder / "elastic-compiled"
    done = module_process.output(root, *words, flags=_devices(8, short=short), compiled=compiled)
    found = last_json(done)
    found = found["short"] if short else found
    order = found["order"]
    rows = [
        Row(
            f"Batches from every step of two epochs on {', '.join(map(str, order['devices']))} "
            "devices" + (" (a sample)" if short else ""),
            f"all sequences equal, from {_listed(order['wanted'])} devices",
            f"{order['compared']} sequences of up to {order['steps']} steps, "
            f"{order['differing']} differ",
            not order["differing"]
            and order["compared"] == len(order["wanted"]) * order["starts"]
            and order["devices"] == order["wanted"],
            SEED,
        ),
        moved(
            "SGD, moved from 8 devices to 1 (and 4 micro-batches) in the middle of an epoch: "
            "weights 50 steps later",
            found["sgd"],
            "weights",
        ),
    ]
    if short:
        return rows
    summed = found["accumulated"]
    most = EPS * summed["images"]
    rows += [
        moved("AdamW, moved in the same way: each of the 50 losses", found["adamw"], "losses"),
        Row(
            "One update by accumulation (4 and 8 micro-batches) against the whole batch's: "
            "float32, no BatchNorm",
            f"within {most:.1e}, relative: what float32 loses in a sum over the images; and not 0",
            f"{summed['apart']:.1e}",
            0 < summed["apart"] <= most,
            SEED,
        ),
    ]
    slower = max(summed["ratios"].values()) - 1
    times = ", ".join(f"{size}: {ms:.1f} ms" for size, ms in summed["milliseconds"].items())
    claim = "Time of a step by accumulation, by micro-batch, medians of 9"
    target = "< 5 % more than the whole batch"
    return [*rows, Row(claim, target, f"{slower:+.0%}; {times}", slower < 0.05)]


def _listed(numbers: list[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def moved(claim: str, found: Mapping[str, Any], key: str) -> Row:
    """Return the row of a run that moved: as near to the one that stayed as rounding allows.

    Args:
        claim: of the row.
        found: by `proofs.training.replicas.moved`.
        key: of the distance, "weights" or "losses".
    """
    apart, ulp = found["moved"][key], found["ulp"][key]
    return Row(
        claim,
        f"at most {ULPS} times what one unit in the last place of the weights makes instead, or an "
        f"eps of float32 if that is more; that is below {NEAR:g}; the loss has fallen",
        f"{apart:.1e}, one unit {ulp:.1e}; loss at {found['fell_to']:.0%} of its beginning",
        apart <= ULPS * max(ulp, EPS)
        and ulp < NEAR
        and found["fell_to"] < 0.8
        and found["micro_batches"] == 4,
        SEED,
    )


# -- paced


def _measured(root: Path, part: str, into: Path, flags: str = "") -> dict[str, Any]:
    words = ("proofs.training.loop_overhead", part, into)
    return last_json(module_process.output(root, *words, flags=flags))


def _loop(root: Path, folder: Path, show: Show) -> Iterator[Row]:
    from proofs.training import loop_overhead  # imports Keras; the short form does without

    show("      the loop beside a bare one and beside fit")
    found = _measured(root, "loop", folder / "loop", loop_overhead.ONE_THREAD)
    for (name, sizes), most in zip(found.items(), (0.05, 0.01), strict=True):
        more, times = sizes["ratios"]["ours"] - 1, sizes["milliseconds"]
        at_once = loop_overhead.SIZES[name][0].get("steps_per_call", 1)
        several = f", {at_once} steps a call," if at_once > 1 else ""
        yield Row(
            f"Our loop{several} over a bare jitted loop of the same step, of about {name}, one a "
            "call; Keras' fit beside it; one core computes",
            f"≤ {most:.0%} more",
            f"{more:+.1%} (bare {times['bare']:.2f} ms, ours {times['ours']:.2f} ms, "
            f"fit {times['fit']:.2f} ms = {sizes['ratios']['fit'] - 1:+.0%}; "
            "medians of many turns)",
            more <= most,
        )


def _paced(root: Path, folder: Path, show: Show) -> Iterator[Row]:
    from proofs.training import loop_overhead

    show("      checkpoints of a run with a large state")
    saved = _measured(root, "saves", folder / "saves", loop_overhead.ONE_THREAD)
    share = saved["seconds"]["checkpoints"] / saved["wall"]
    yield Row(
        "Checkpoints at the cadence that follows from their cost, the last one included",
        "≤ 2 % of the time; no program compiled later but the evaluation",
        f"{share:.1%} of {saved['wall']:.0f} s; {saved['compiled_later']} compiled later",
        share <= 0.02 and saved["compiled_later"] == 1 and len(saved["written"]) == checkpoint.KEPT,
    )
    found = _measured(root, "phases", folder / "phases")
    programs = found["programs"]
    yield Row(
        "Programs that a whole run compiles for its batches: train, evaluate, predict",
        "one each",
        ", ".join(f"{name} {count}" for name, count in programs.items())
        + f"; beside {found['all'] - sum(programs.values())} others, as for the first weights",
        sorted(programs) == sorted(loop_overhead.PHASES) and set(programs.values()) == {1},
    )
    show("      cold and warm starts")
    starts = [folder / f"start-{number}" for number in range(STARTS) for _ in ("cold", "warm")]
    seconds = [_measured(root, "start", into)["seconds"] for into in starts]
    colds, warms = seconds[::2], seconds[1::2]
    share = statistics.median(warm / cold for warm, cold in zip(warms, colds, strict=True))
    yield Row(
        "A second process to the end of its first step, with the first one's executables; imports "
        "not counted",
        "≤ 20 % of the first one's time",
        f"{share:.0%} ({statistics.median(warms):.1f} s of {statistics.median(colds):.1f} s; "
        f"medians of {STARTS})",
        share <= 0.2,
    )


def _by_hand(root: Path, folder: Path, show: Show) -> Row:
    """Kill `python -m pipeline train` twice, stop it once by --max-steps, and let it end."""
    show("      the command line, killed and given again")
    module_process.output(root, "localkaggle", "export", "digits", folder / "digits")
    (folder / "by_hand.py").write_text(BY_HAND)
    words = ["pipeline", "train", "--config", folder / "by_hand.py", "--input", folder / "digits"]
    environment = module_process.environment(root)
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
    ends += [last_json(module_process.output(root, *command))["status"] for command in commands]
    manifests = [folder / name / "artifact/manifest.json" for name in ("killed", "unbroken")]
    sums = [json.loads(manifest.read_text())["weights_sha256"] for manifest in manifests]
    same = sums[0] == sums[1]
    return Row(
        "`python -m pipeline train` killed twice, stopped by --max-steps, then the same command: "
        "its weights",
        "those of the unbroken run; -9, -9, partial, complete",
        f"{'equal' if same else 'different'}; {', '.join(map(str, ends))}",
        same and ends == [-signal.SIGKILL, -signal.SIGKILL, "partial", "complete", "complete"],
    )
