"""Competitions: what the local Kaggle hosts. Each has files that everybody sees, a hidden test set,
and labels that only the server has.

All are made from what scikit-learn ships, when they are first asked for: nothing is downloaded, and
to import this is quick.
"""

from collections.abc import Callable, Mapping

from localkaggle.competitions.breast_tumours import breast_cancer
from localkaggle.competitions.competition import Columns, Competition, Files, ScoringError
from localkaggle.competitions.csv_digits import digits_csv
from localkaggle.competitions.diabetes_progression import diabetes
from localkaggle.competitions.metrics import accuracy, auc, rmse
from localkaggle.competitions.png_digits import digits

EMBEDDED: Mapping[str, Callable[[], Competition]] = {
    "digits": digits,
    "digits-csv": digits_csv,
    "diabetes": diabetes,
    "breast-cancer": breast_cancer,
}
NAMES = tuple(EMBEDDED)

__all__ = [
    "EMBEDDED",
    "NAMES",
    "Columns",
    "Competition",
    "Files",
    "ScoringError",
    "accuracy",
    "auc",
    "breast_cancer",
    "diabetes",
    "digits",
    "digits_csv",
    "rmse",
]
