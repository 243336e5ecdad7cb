"""A run beside its floor: the held-out score by the competition's metric, and which is better."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from pipeline.config import Config
from pipeline.data.dataset import Examples
from pipeline.errors import DataError
from pipeline.evaluate import competition_metric, metrics


def differing(config: Config) -> str:
    """Return that the config's floor is in another metric, and how to renew it; "" if it is not.

    Two metrics' numbers cannot be compared.
    """
    metric = competition_metric.of(config).name
    if config.floor is None or config.floor.metric == metric:
        return ""
    return (
        f"The floor is in {config.floor.metric} and the config's metric is {metric}, so they are"
        " not compared. Renew the floor:\n"
        f"invoke inspect --input DIR --metric {metric} --write {config.name}"
    )


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
        with one in another metric, or where the metric has no value.
    """
    floor = config.floor
    if floor is None:
        return None
    if other := differing(config):
        show(other)
        return None
    metric = competition_metric.of(config)
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
        start = (
            f"Above the floor by {errors:.1f} standard errors{sure}"
            if ahead
            else "Equal to the floor"
        )
        show(
            f"{start}: {metric.name} {own};"
            f" {floor.model} has {floor.score:.4g} ± {floor.error:.2g}."
        )
    return {**asdict(floor), "network": score, "network_error": error, "below": ahead < 0}
