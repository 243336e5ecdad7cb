"""Competitions: other data needs another config and nothing else, is read fast, and always ends in
a valid submission.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd

from localkaggle import competitions
from localkaggle.competitions import Competition
from proofs.competitions import feeding_speed, inference_speed, inspected, jpeg_speed
from proofs.shared import environment
from proofs.shared.results_table import Row, Show, last_json

# What a first convolutional network reaches on scikit-learn's digits.
ACCURACY = 0.97
# A table of 292 patients is best served by a linear model: a network has to come near it.
RMSE_TIMES = 1.05
# Parts in a process of their own, and how the lines begin on which it tells its rows.
APART, ROW = ("spoiled_inputs", "hostile"), "row: "
KINDS = {
    "digits": "PNG files",
    "digits_csv": "pixels in CSV columns",
    "diabetes": "tabular regression",
}


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Iterator[Row]:
    """Yield the rows, each as soon as it is measured.

    Args:
        root: of the repository. short: a sample, without times and without notebooks, for the
            normal tests. show: takes lines of progress.
        pictures: not used yet.
    """
    with tempfile.TemporaryDirectory(prefix="prove-competitions-") as scratch:
        folder = Path(scratch)
        if not short:  # the tests of the relay make a dry run of their own
            for config, kind in KINDS.items():
                yield _dry_run(root, config, kind, folder, show)
        for part in (inspected, feeding_speed, jpeg_speed, inference_speed):
            into = folder / part.__name__.rpartition(".")[2]
            into.mkdir()
            yield from part.rows(root, into, short=short, show=show)
        for name in APART:
            yield from _apart(root, name, folder / name, short=short, show=show)


def _apart(root: Path, name: str, folder: Path, *, short: bool, show: Show) -> Iterator[Row]:
    """Yield the rows of a part that trains and infers within its process, which therefore begins
    with Keras on JAX on the CPU.
    """
    folder.mkdir()
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    words = [
        sys.executable,
        "-m",
        "proofs.competitions.claims",
        name,
        str(folder),
        *(["short"] if short else []),
    ]
    with (folder.with_suffix(".log")).open("w+") as log:
        child = subprocess.Popen(
            words, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert child.stdout is not None  # noqa: S101 - a pipe was asked for
        for line in child.stdout:
            if line.startswith(ROW):
                yield Row(**json.loads(line.removeprefix(ROW)))
            else:
                show(line.rstrip("\n"))
        if child.wait():
            log.seek(0)
            raise RuntimeError(
                f"{' '.join(words)} ended with {child.returncode}:\n{log.read()[-3000:]}"
            )


def _dry_run(root: Path, config: str, kind: str, folder: Path, show: Show) -> Row:
    """Run the whole chain of a config in the local Kaggle, and take the score that it got for the
    hidden set.
    """
    command = f"invoke dry-run --config {config} --json"
    show(f"      {command}")
    done = environment.current(root).run(command, log=folder / f"{config}.log")
    name = f"{kind}: `{command}`, one config file, scored on the hidden set"
    competition = competitions.EMBEDDED[config.replace("_", "-")]()
    if competition.lower_is_better:
        linear = _ridge(competition)
        wanted, beside = (
            f"RMSE at most {RMSE_TIMES:g} times a ridge regression's on the same files",
            f"ridge {linear:.2f}",
        )
    else:
        wanted, beside = (
            f"accuracy ≥ {ACCURACY:g}",
            f"the commonest class {_commonest(competition):.3f}",
        )
    if done.code:
        show(done.output[-3000:])
        return Row(name, wanted, f"exit {done.code}", False, seed=0)
    score = last_json(done.output)["score"]
    passed = score <= RMSE_TIMES * linear if competition.lower_is_better else score >= ACCURACY
    return Row(name, wanted, f"{score:.4g} ({beside}); {done.seconds:.0f} s", passed, seed=0)


def _commonest(competition: Competition) -> float:
    """Return the score of the hidden labels' commonest one for every row."""
    ((column, labels),) = competition.solution.items()
    values = list(labels.values())
    return competition.score(
        {column: dict.fromkeys(labels, max(set(values), key=values.count))}, competition.solution
    )


def _ridge(competition: Competition) -> float:
    """Return the score of scikit-learn's ridge regression on the tables as they are, gaps filled
    with the mean.
    """
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    ((column, labels),) = competition.solution.items()
    train, test = (
        pd.read_csv(io.BytesIO(files[name]))
        for files, name in (
            (competition.training, "train.csv"),
            (competition.hidden_test, "test.csv"),
        )
    )
    key = test.columns[0]
    names = [name for name in test.columns if name != key]
    linear = make_pipeline(SimpleImputer(), StandardScaler(), RidgeCV(np.logspace(-2, 3, 20)))
    predicted = linear.fit(train[names], train[column]).predict(test[names])
    answers = {str(name): f"{value:.10g}" for name, value in zip(test[key], predicted, strict=True)}
    return competition.score({column: answers}, {column: labels})


def main(name: str, folder: Path, *, short: bool) -> None:
    """Print the rows of a part, each on a line."""
    part = import_module(f"proofs.{name}.claims")
    for row in part.rows(
        Path.cwd(), folder, short=short, show=lambda line: print(line, flush=True)
    ):
        print(ROW + json.dumps(asdict(row)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), short=sys.argv[3:] == ["short"])
