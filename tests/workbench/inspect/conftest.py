"""Small forests and few resamples, for speed."""

import pytest

from pipeline.evaluate import metrics
from workbench.inspect import baseline


@pytest.fixture(autouse=True)
def small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit a baseline in a fraction of the time."""
    monkeypatch.setattr(baseline, "TREES", 10)
    monkeypatch.setattr(metrics, "MOST_RESAMPLES", 200)
