"""Competitions made from the medical tables in scikit-learn."""

from functools import cache

import numpy as np

from localkaggle.competitions.competition import Competition
from localkaggle.competitions.examples import Examples, split
from localkaggle.competitions.metrics import auc, rmse

# Fraction of values to remove from each column. Unlike real tables, the dataset is complete.
MISSING = {"sex": 0.02, "bp": 0.05, "s4": 0.03, "s6": 0.04}


@cache
def diabetes() -> Competition:
    """Return a competition that predicts the disease progression of patients (Efron et al. 2004).

    It has 442 rows: 292 training rows, 50 visible test rows and 100 hidden test rows. `sex` is a
    categorical column with the values 1 and 2, whose meaning is not documented in the dataset.
    """
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    names, measured = data.feature_names, data.data
    # Use RandomState because NumPy guarantees that its output never changes.
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
    """Return a competition that predicts whether a tumor is malignant (Wisconsin, UCI).

    It has 569 rows: 369 training rows, 50 visible test rows and 150 hidden test rows. Of the
    tumors, 37% are malignant.
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
    texts: np.ndarray = np.vectorize("{:.10g}".format, otypes=[object])(numbers)
    return texts
