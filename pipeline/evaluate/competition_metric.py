"""The competition's metric: one of `pipeline.evaluate.metrics`, or one of the config's own file.

A custom metric is the `score` of a `Metric`, called as `score(truth, …)`. The name of its second
parameter says what it gets: labels, probabilities or numbers. Whether greater is better follows
from what it gives to the truth itself. With target="own" it gets labels and the model's outputs,
and says so: `def dice(truth, numbers, greater_is_better=True)`.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline.config import Config, custom_code
from pipeline.errors import ConfigError
from pipeline.evaluate import metrics
from pipeline.evaluate.metrics import Metric

TAKES = {"labels": "classes", "probabilities": "scores", "numbers": "scores"}
# What every epoch measures, beside a metric of the competition.
MEASURES = {"accuracy", "loss", "absolute_error", "mean_output"}
SURE = 1e-3  # apart from 0 and 1, of made-up probabilities: their logarithms are finite


def of(config: Config, name: str = "") -> Metric:
    """Return the metric of a config, or of that name.

    Raises:
        ConfigError: if there is none, or it cannot work.
    """
    name = name or config.metric or metrics.DEFAULTS.get(config.target, "")
    custom = custom_code.function(config, "metric") if name == config.metric else None
    return metrics.find(name, config.target) if custom is None else _custom(custom, config)


def extremes(config: Config) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (truth, predictions) twice, for 16 rows or more: the best predictions, and the worst.

    Their form is that of `pipeline.evaluate.metrics`.
    """
    width, rows = max(config.num_classes, 1), 2 * max(config.num_classes, 8)
    if config.target in metrics.CLASSES:
        codes = np.arange(rows) % width
        return [(codes, best(config, (codes + apart) % width)) for apart in (0, 1)]
    numbers = np.add.outer(np.arange(rows), np.arange(max(config.outputs, 1))).astype(np.float64)
    if config.target == "multilabel":
        truth = numbers % 2
        return [(truth, best(config, each)) for each in (truth, 1 - truth)]
    return [(numbers + 1, numbers + 1), (numbers + 1, 3 * numbers[::-1] + 5)]


def best(config: Config, truth: np.ndarray) -> np.ndarray:
    """Return the best predictions of a truth, in the forms of `pipeline.evaluate.metrics`."""
    if config.target in metrics.CLASSES:
        width = config.num_classes
        sure: np.ndarray = (np.eye(width) * (1 - SURE) + SURE / width)[truth]
        return sure
    return truth.clip(SURE, 1 - SURE) if config.target == "multilabel" else truth


def _custom(score: Callable[..., float], config: Config) -> Metric:
    described = custom_code.described(config, "metric")
    parameters = inspect.signature(score).parameters
    second = [*parameters, "", ""][1]
    greater = getattr(parameters.get("greater_is_better"), "default", None)
    forms = "labels), (truth, probabilities) or (truth, numbers)"
    good = second in TAKES
    if config.target == "own":  # outputs do not tell which score is better
        forms = "numbers, greater_is_better=True) or False, with target='own'"
        good = second == "numbers" and isinstance(greater, bool)
    if not good or config.metric in MEASURES:
        gets = "labels" if config.target in metrics.CLASSES else "numbers"
        raise ConfigError(
            f"{described} takes ({', '.join(parameters)}); expected (truth, {forms}, and a name"
            f" beside {', '.join(sorted(MEASURES))}, which every epoch measures.\nName the second"
            " parameter after what it gets. A function of a package wants a wrapper: def"
            f" my_{config.metric}(truth, {gets}): return {config.metric}(truth, {gets}), and"
            f" metric='my_{config.metric}'."
        )

    def scored(truth: np.ndarray, predicted: np.ndarray) -> float:
        with custom_code.telling(config, "metric"):
            return float(score(truth, predicted))

    metric = Metric(config.metric, scored, True, TAKES[second], frozenset(metrics.DEFAULTS))
    if config.target == "own":
        return replace(metric, greater_is_better=bool(greater), targets=metrics.OWN)
    right, wrong = (metric(*each) for each in extremes(config))
    if right == wrong:
        raise ConfigError(
            f"{described} gives {right:g} to the truth and {wrong:g} to the worst predictions;"
            " expected two values.\nLet it compare truth and predictions."
        )
    return replace(metric, greater_is_better=right > wrong)
