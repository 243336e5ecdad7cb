"""Competitions embedded in the local Kaggle.

Each competition has public files and a hidden test set, whose labels only the server can read.
Nothing is downloaded, because the data is either included in scikit-learn or generated from a seed.
Competitions are built when they are first used, so importing this package is fast.
"""

from collections.abc import Callable, Mapping

from localkaggle.competitions.cell_masks import cells
from localkaggle.competitions.competition import Competition, ScoringError
from localkaggle.competitions.handwritten_digits import digits, digits_csv, orders
from localkaggle.competitions.hotel_reviews import reviews
from localkaggle.competitions.medical_tables import breast_cancer, diabetes
from localkaggle.competitions.metrics import accuracy, auc, rmse

EMBEDDED: Mapping[str, Callable[[], Competition]] = {
    "digits": digits,
    "digits-csv": digits_csv,
    "diabetes": diabetes,
    "breast-cancer": breast_cancer,
    "cells": cells,
    "reviews": reviews,
    "orders": orders,
}
NAMES = tuple(EMBEDDED)
__all__ = ["EMBEDDED", "NAMES", "Competition", "ScoringError"]
__all__ += ["accuracy", "auc", "digits", "rmse"]
