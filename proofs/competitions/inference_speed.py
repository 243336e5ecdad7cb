"""Inference is as fast as its slower half, in memory that does not grow, and in time."""

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from proofs.competitions import inference_arms
from proofs.competitions.inference_arms import FOLDS, SEED, VIEWS
from proofs.shared import module_process
from proofs.shared.results_table import Row, Show, last_json

ROWS, RUNS, AGAINST, AGAIN = 20_000, 20, 4_000, 3
CORES = "one core computes, as an accelerator, and one decodes"
SIZES = (1_000, 10_000, 100_000)


def rows(root: Path, folder: Path, *, short: bool, show: Show) -> Iterator[Row]:
    """Yield the rows; `short` has one run with too little time, and does not judge its time."""
    if not short:
        yield from _flows(root, folder, show)
        yield _memory(root, folder, show)
        yield from _against(root, folder, show)
    yield _timely(root, folder, *((200, 1) if short else (ROWS, RUNS)), show, short=short)


def _flows(root: Path, folder: Path, show: Show) -> Iterator[Row]:
    flows = {
        "decoding": "photographs of 2000x1500, a small network: decoding binds",
        "computing": "8x8 PNGs, a large network: computing binds",
        "both": "photographs of 500x375: neither is small",
    }
    for name, what in flows.items():
        show(f"      inference beside its halves: {what}")
        found = _python(root, "flow", name, folder / name)
        share, number = found["share"], found["rows"]
        arms = found["seconds"].items()
        rates = ", ".join(f"{arm} {number / seconds:,.0f}/s" for arm, seconds in arms)
        yield Row(
            f"Inference: ≥ 95 % of max(decode-only, forward-only) throughput; {what}; {CORES}",
            "≥ 95 % of what the slower of the two alone allows (the larger of their times); "
            "the file's writing counted",
            f"{share:.1%} ({rates}; medians of {inference_arms.TURNS}, {number:,} rows, JAX)",
            share >= 0.95,
            SEED,
        )


def _memory(root: Path, folder: Path, show: Show) -> Row:
    found = []
    for size in SIZES:
        show(f"      memory of {size:,} rows")
        place = folder / f"memory-{size}"
        inference_arms.competition(place / "competition", size)
        found.append(_python(root, "memory", size, place))
    peaks = [one["peak"] for one in found]
    slope = float(np.polyfit(SIZES, peaks, 1)[0])
    grown, needed = peaks[-1] / peaks[0] - 1, found[-1]["needed"]
    shown = ", ".join(
        f"{size:,}: {peak / 2**20:,.0f} MiB" for size, peak in zip(SIZES, peaks, strict=True)
    )
    return Row(
        "memory flat from 1k to 100k rows",
        f"≤ 10 % in all; a row's id and prediction alone take {needed:.0f} B",
        f"{grown:+.1%}, {slope:.0f} B a row ({shown}; image files, JAX, largest resident size)",
        all(one["rows"] == one["asked"] for one in found) and grown <= 0.1,
        SEED,
    )


def _against(root: Path, folder: Path, show: Show) -> Iterator[Row]:
    for backend in ("jax", "tensorflow"):
        show(f"      beside model.predict on {backend}")
        place = folder / f"against-{backend}"
        _python(root, "make", AGAINST, place, backend=backend)
        taken: dict[str, list[float]] = {"ours": [], "32": [], "1024": [], "fed": []}
        for _ in range(AGAIN):
            for name, seconds in taken.items():
                seconds.append(_python(root, "arm", name, place, backend=backend)["seconds"])
        ours, theirs = place / "ours" / "submission.csv", place / "theirs-32.csv"
        same = ours.read_text() == theirs.read_text()
        medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
        ratio = min(medians["32"], medians["1024"]) / medians["ours"]
        yield Row(
            f"≥ 1.3x `model.predict` + CSV, compile counted in both; {backend}; {CORES}",
            "≥ 1.3x; the same file",
            f"{ratio:.2f}x (ours {medians['ours']:.2f} s with fallback file, golden check and "
            f"validation; model.predict at 32 {medians['32']:.2f} s, at 1024 "
            f"{medians['1024']:.2f} s, fed by a PyDataset that decodes meanwhile "
            f"{medians['fed']:.2f} s; {AGAINST:,} photographs of 500x375 by the same decoder; "
            f"medians of {AGAIN}; {'same' if same else 'another'} file)",
            ratio >= 1.3 and same,
            SEED,
        )


def _timely(root: Path, folder: Path, number: int, runs: int, show: Show, *, short: bool) -> Row:
    show(f"      {runs} runs with a third of their time")
    if short:  # in this process, which has the backend
        (folder / "timely").mkdir()
        found = inference_arms.timely(number, runs, folder / "timely")
    else:
        found = _python(root, "timely", number, runs, folder / "timely")
    ended: list[dict[str, Any]] = found["runs"]
    # In the tests something else may use the machine, and compiling for few rows alone takes more
    # than a third of the time.
    good = sum(one["valid"] and (short or one["in_time"]) for one in ended)
    left = [one["left_out"] for one in ended]
    return Row(
        "Deadline: with the clock sped up so that only a third fits, a valid submission is written "
        "in time, 20 of 20." + (f" ({runs} here, and the time is not judged)" if short else ""),
        f"{runs} of {runs}",
        f"{good} of {runs}; {max(one['spent'] for one in ended):.0%} of the time at most; "
        f"{number:,} rows, {VIEWS} views, {FOLDS} folds; "
        f"views left out {sum(one['views'] for one in ended)} times, "
        f"folds {sum(one['folds'] for one in ended)}; "
        f"mean kept by {min(left):,} to {max(left):,} rows",
        good == runs,
        SEED,
    )


def _python(root: Path, *words: object, backend: str = "jax") -> dict[str, Any]:
    """Return what a part of `proofs.competitions.inference_arms` prints."""
    arms = "proofs.competitions.inference_arms"
    return last_json(module_process.output(root, arms, *words, backend=backend))
