"""Medical tables that scikit-learn ships: one row per patient or tumour."""

from functools import cache

import numpy as np

from localkaggle.competitions.competition import Competition
from localkaggle.competitions.examples import Examples, split
from localkaggle.competitions.metrics import auc, rmse

# The share of a column that is empty. The data set itself is complete; real tables are not.
MISSING = {"sex": 0.02, "bp": 0.05, "s4": 0.03, "s6": 0.04}


@cache
def diabetes() -> Competition:
    """How far the disease of 442 patients (Efron et al. 2004) progressed.

    292 training rows, 50 visible and 100 hidden test rows. `sex` is a category: the data set names
    its groups 1 and 2 without explaining them.
    """
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    names, measured = data.feature_names, data.data
    # RandomState: numpy promises that its numbers never change.
    shares = [MISSING.get(name, 0.0) for name in names]
    empty = np.random.RandomState(0).random_sample(measured.shape) < shares
    columns = np.where(empty, "", _texts(measured)).T.tolist()
    values = _texts(data.target).tolist()
    return Examples("progression", values, dict(zip(names, columns, strict=True))).competition(
        "diabetes",
        "Diabetes Progression",
        split(len(measured), visible=50, hidden=100),
        placeholder="0.0",
        score=rmse,
    )


@cache
def breast_cancer() -> Competition:
    """The probability that each of 569 tumours (Wisconsin, UCI) is malignant; 37 % are.

    369 training rows, 50 visible and 150 hidden test rows.
    """
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    malignant = data.target == list(data.target_names).index("malignant")
    columns = dict(zip(data.feature_names.tolist(), _texts(data.data).T.tolist(), strict=True))
    values = [str(int(value)) for value in malignant]
    return Examples("malignant", values, columns).competition(
        "breast-cancer",
        "Breast Cancer",
        split(len(malignant), visible=50, hidden=150, labels=malignant),
        placeholder="0.5",
        score=auc,
    )


def _texts(numbers: np.ndarray) -> np.ndarray:
    """Return numbers as a file has them."""
    texts: np.ndarray = np.vectorize("{:.10g}".format, otypes=[object])(numbers)
    return texts
