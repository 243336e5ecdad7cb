"""Small forests, few resamples: how many a floor has is no fact that a test is about."""

import pytest

from pipeline.evaluate import metrics
from workbench.inspect import floor_model


@pytest.fixture(autouse=True)
def small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit a floor in a fraction of the time."""
    monkeypatch.setattr(floor_model, "TREES", 10)
    monkeypatch.setattr(metrics, "MOST_RESAMPLES", 200)
