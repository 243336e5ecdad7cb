"""Competitions: other data needs another config and nothing else, is read fast, and always ends in a valid submission."""

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from localkaggle import competitions
from localkaggle.competitions import Competition
from proofs import environment, feeding, hostile, inferring, inspected, jpeg, mutated
from proofs.table import Row, Show, last_json

# What a first convolutional network reaches on scikit-learn's digits.
ACCURACY = 0.97
# A table of 292 patients is best served by a linear model: a network has to come near it.
RMSE_TIMES = 1.05
KINDS = {"digits": "PNG files", "digits_csv": "pixels in CSV columns", "diabetes": "tabular regression"}


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Iterator[Row]:
    """Yield the rows, each as soon as it is measured.

    Args:
        root: of the repository. short: a sample, without times and without notebooks, for the normal tests. show: takes lines of progress.
        pictures: not used yet.
    """
    with tempfile.TemporaryDirectory(prefix="prove-competitions-") as scratch:
        folder = Path(scratch)
        if not short:  # the tests of the relay make a dry run of their own
            for config, kind in KINDS.items():
                yield _dry_run(root, config, kind, folder, show)
        parts = (
            (inspected, mutated, hostile, inferring)
            if short
            else (inspected, feeding, jpeg, inferring, mutated, hostile)
        )
        for part in parts:
            into = folder / part.__name__.rpartition(".")[2]
            into.mkdir()
            yield from part.rows(root, into, short=short, show=show)


def _dry_run(root: Path, config: str, kind: str, folder: Path, show: Show) -> Row:
    """Run the whole chain of a config in the local Kaggle, and take the score that it got for the hidden set."""
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
        wanted, beside = f"accuracy ≥ {ACCURACY:g}", f"the commonest class {_commonest(competition):.3f}"
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
    return competition.score({column: dict.fromkeys(labels, max(set(values), key=values.count))}, competition.solution)


def _ridge(competition: Competition) -> float:
    """Return the score of scikit-learn's ridge regression on the tables as they are, gaps filled with the mean."""
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    ((column, labels),) = competition.solution.items()
    train, test = (
        pd.read_csv(io.BytesIO(files[name]))
        for files, name in ((competition.training, "train.csv"), (competition.hidden_test, "test.csv"))
    )
    key = test.columns[0]
    names = [name for name in test.columns if name != key]
    linear = make_pipeline(SimpleImputer(), StandardScaler(), RidgeCV(np.logspace(-2, 3, 20)))
    predicted = linear.fit(train[names], train[column]).predict(test[names])
    answers = {str(name): f"{value:.10g}" for name, value in zip(test[key], predicted, strict=True)}
    return competition.score({column: answers}, {column: labels})
