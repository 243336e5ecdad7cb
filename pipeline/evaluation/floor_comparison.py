"""A run beside its floor: the held-out score by the floor's own metric, and which is better."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from pipeline import metrics
from pipeline.config import Config
from pipeline.data.dataset import Examples
from pipeline.errors import ConfigError, DataError


def refuse(config: Config) -> None:
    """Raise `ConfigError` if the config's floor was measured by a metric of another target."""
    floor = config.floor
    if floor is None:
        return
    try:
        metrics.find(floor.metric, config.target)
    except ConfigError as error:
        raise ConfigError(
            f"floor.metric={floor.metric!r} cannot work with target={config.target!r}; expected a"
            " floor that was measured for this target.\n"
            f"Remove floor= from pipeline/configs/{config.name}.py, or inspect the folder again:\n"
            "invoke inspect --input DIR"
        ) from error


def compare(
    config: Config,
    examples: Examples,
    held: np.ndarray,
    found: np.ndarray,
    show: Callable[[str], None],
    *,
    few_rows: bool = False,
) -> dict[str, Any] | None:
    """Return the manifest's "floor", and show in one line how the run compares.

    Args:
        config: with the floor that `invoke inspect` measured, or without.
        held: the held-out rows.
        found: float32 (n, k), a prediction for each example.
        show: takes the line.
        few_rows: whether few rows carry the error: a longer training mends nothing then.

    Returns:
        The floor's own fields; `network` and `network_error`: score and standard error of the run
        by the same metric; `below`: whether the run is the worse one. None without a floor, or
        where the metric has no value.
    """
    floor = config.floor
    if floor is None:
        return None
    metric = metrics.find(floor.metric, config.target)
    truth = examples.target.truth(examples.labels[held])
    try:
        score = metric(truth, found[held])
        error = metrics.standard_error(metric, truth, found[held], config.seed)
    except DataError as problem:
        why = str(problem).splitlines()[0]
        show(f"Warning: the run cannot be compared with its floor ({floor}): {why}")
        return None
    ahead = (score - floor.score) * (1 if metric.greater_is_better else -1)
    own = f"{score:.4g} ± {error:.2g} on {len(held):,} held-out rows"
    if ahead < 0:
        advice = (
            "Train longer, or take another model: `invoke inspect --budget` proposes one for the"
            " time that you have."
        )
        if few_rows:
            advice = "Look at the rows that carry the error first."
        show(
            f"Warning: below the floor. This run has {metric.name} {own}; {floor.model} has"
            f" {floor.score:.4g} ± {floor.error:.2g}. {advice}"
        )
    else:
        errors = ahead / (math.hypot(error, floor.error) or math.inf)
        sure = "" if errors >= 2 else ", which may be chance"
        show(
            f"Above the floor by {errors:.1f} standard errors{sure}: {metric.name} {own};"
            f" {floor.model} has {floor.score:.4g} ± {floor.error:.2g}."
        )
    return {**asdict(floor), "network": score, "network_error": error, "below": ahead < 0}
