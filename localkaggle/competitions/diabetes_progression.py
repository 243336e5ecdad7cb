"""Diabetes: how far the disease of scikit-learn's 442 patients (Efron et al. 2004) progressed."""

from functools import cache

from localkaggle.competitions.competition import Competition
from localkaggle.competitions.metrics import rmse
from localkaggle.competitions.tables import of_table, split

# The share of a column that is empty. The data set itself is complete; real tables are not.
MISSING = {"sex": 0.02, "bp": 0.05, "s4": 0.03, "s6": 0.04}


@cache
def diabetes() -> Competition:
    """Return the competition: 292 patients to train, 50 visible and 100 hidden ones to test.

    `sex` is a category: the data set calls its groups 1 and 2 and does not say which is which.
    """
    import numpy as np
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    names, measured = data.feature_names, data.data
    # RandomState: numpy promises that its numbers never change.
    empty = np.random.RandomState(0).random_sample(measured.shape) < [
        MISSING.get(name, 0.0) for name in names
    ]
    return of_table(
        "diabetes",
        "Diabetes Progression",
        names=names,
        rows=np.where(empty, "", [[f"{value:.10g}" for value in row] for row in measured]).tolist(),
        target="progression",
        values=[f"{value:.10g}" for value in data.target],
        placeholder="0.0",
        parts=split(len(measured), visible=50, hidden=100),
        score=rmse,
        lower_is_better=True,
    )
