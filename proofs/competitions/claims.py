"""Other data needs another config and nothing else, is read fast, and always ends in a valid
submission.
"""

import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd

from localkaggle import competitions
from localkaggle.competitions import Competition
from proofs.shared import environment, module_process, perturbed_start
from proofs.shared.results_table import Row, Show, last_json

# What a first convolutional network reaches on scikit-learn's digits.
ACCURACY = 0.97
# A linear model is best for a table of 292 patients. A network has to come near it.
RMSE_TIMES = 1.05
# The parts. The short form runs these groups, each in a process of its own, on one device.
GROUPS = (
    ("competitions.inspected",),
    ("competitions.feeding_speed",),
)
PARTS = (
    "competitions.inspected",
    "competitions.feeding_speed",
    "competitions.jpeg_speed",
    "competitions.inference_speed",
)
ROW = "row: "  # how the lines begin on which such a process prints its rows
KINDS = {
    "digits": "PNG files",
    "diabetes": "tabular regression",
}


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Iterator[Row]:
    """Yield the rows; `short` makes a sample, without times and without notebooks."""
    with tempfile.TemporaryDirectory(prefix="prove-competitions-") as scratch:
        folder = Path(scratch)
        if short:
            children = [_started(root, group, folder, short=True) for group in GROUPS]
            for group, child in zip(GROUPS, children, strict=True):
                yield from _finished(group, child, folder, show)
            return
        for config, kind in KINDS.items():
            yield _dry_run(root, config, kind, folder, show)
        for part in PARTS:
            child = _started(root, (part,), folder, short=False)
            yield from _finished((part,), child, folder, show)


def _started(
    root: Path, parts: Sequence[str], folder: Path, *, short: bool
) -> "subprocess.Popen[str]":
    """Start a process that prints the rows of these parts."""
    words = [sys.executable, "-m", "proofs.competitions.claims", ",".join(parts), str(folder)]
    # In the short form nothing is timed, so the parts share what they compile.
    flags, compiled = (module_process.UNOPTIMIZED, folder / "compiled") if short else ("", None)
    variables = module_process.environment(root, flags=flags, compiled=compiled)
    with (folder / f"{parts[0]}.log").open("w") as log:
        return subprocess.Popen(
            [*words, *(["short"] if short else [])],
            cwd=root,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def _finished(
    parts: Sequence[str], child: "subprocess.Popen[str]", folder: Path, show: Show
) -> Iterator[Row]:
    """Yield the rows that such a process prints, and show its other lines."""
    assert child.stdout is not None  # noqa: S101 - it is a pipe
    for line in child.stdout:
        if line.startswith(ROW):
            yield Row(**json.loads(line.removeprefix(ROW)))
        else:
            show(line.rstrip("\n"))
    if child.wait():
        errors = (folder / f"{parts[0]}.log").read_text()[-3000:]
        raise RuntimeError(f"{', '.join(parts)} ended with {child.returncode}:\n{errors}")


def _dry_run(root: Path, config: str, kind: str, folder: Path, show: Show) -> Row:
    """Run the whole chain of a config in the local Kaggle, and return the row of its score on the
    hidden set.
    """
    command = f"invoke dry-run --config {config} --json"
    show(f"      {command}")
    done = environment.current(root).run(command, log=folder / f"{config}.log")
    name = f"{kind}: `{command}`, one config file, scored on the hidden set"
    competition = competitions.EMBEDDED[config.replace("_", "-")]()
    if competition.lower_is_better:
        linear = _ridge(competition)
        wanted = f"RMSE at most {RMSE_TIMES:g} times a ridge regression's on the same files"
        beside = f"ridge {linear:.2f}"
    else:
        wanted = f"accuracy ≥ {ACCURACY:g}"
        beside = f"the commonest class {_commonest(competition):.3f}"
    if done.code:
        show(done.output[-3000:])
        return Row(name, wanted, f"exit {done.code}", False, seed=0)
    score = last_json(done.output)["score"]
    passed = score <= RMSE_TIMES * linear if competition.lower_is_better else score >= ACCURACY
    return Row(name, wanted, f"{score:.4g} ({beside}); {done.seconds:.0f} s", passed, seed=0)


def _commonest(competition: Competition) -> float:
    """Return the score of the most frequent hidden label for every row."""
    ((column, labels),) = competition.solution.items()
    values = list(labels.values())
    answers = dict.fromkeys(labels, max(set(values), key=values.count))
    return competition.score({column: answers}, competition.solution)


def _ridge(competition: Competition) -> float:
    """Return the score of ridge regression on the tables, with gaps filled by the mean."""
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    ((column, labels),) = competition.solution.items()
    train = pd.read_csv(io.BytesIO(competition.training["train.csv"]))
    test = pd.read_csv(io.BytesIO(competition.hidden_test["test.csv"]))
    key = test.columns[0]
    names = [name for name in test.columns if name != key]
    linear = make_pipeline(SimpleImputer(), StandardScaler(), RidgeCV(np.logspace(-2, 3, 20)))
    predicted = linear.fit(train[names], train[column]).predict(test[names])
    answers = {str(name): f"{value:.10g}" for name, value in zip(test[key], predicted, strict=True)}
    return competition.score({column: answers}, {column: labels})


def main(parts: str, folder: Path, *, short: bool) -> None:
    """Print the rows of these parts, each on a line."""
    show = partial(print, flush=True)
    for name in parts.split(","):
        into = folder / name
        into.mkdir()
        for row in import_module(f"proofs.{name}").rows(Path.cwd(), into, short=short, show=show):
            show(ROW + json.dumps(asdict(row)))


if __name__ == "__main__":
    perturbed_start.install()
    main(sys.argv[1], Path(sys.argv[2]), short=sys.argv[3:] == ["short"])
