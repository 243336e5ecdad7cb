"""Breast cancer: how probably each of scikit-learn's 569 tumours (Wisconsin, UCI) is malignant."""

from functools import cache

from localkaggle.competitions.competition import Competition
from localkaggle.competitions.metrics import auc
from localkaggle.competitions.tables import of_table, split


@cache
def breast_cancer() -> Competition:
    """Return the competition: 369 tumours to train, 50 visible and 150 hidden ones to test.

    37 % are malignant.
    """
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    malignant = data.target == list(data.target_names).index("malignant")
    return of_table(
        "breast-cancer",
        "Breast Cancer",
        names=list(data.feature_names),
        rows=[[f"{value:.10g}" for value in row] for row in data.data],
        target="malignant",
        values=[str(int(value)) for value in malignant],
        placeholder="0.5",
        parts=split(len(malignant), visible=50, hidden=150, labels=malignant),
        score=auc,
    )
