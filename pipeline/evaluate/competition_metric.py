"""The competition's metric: one of `pipeline.evaluate.metrics`, or one of the config's own file.

An own metric is `score` of a `Metric`, called as `score(truth, …)`. The name of its second
parameter says what it gets: labels, probabilities or numbers. Whether greater is better
it need not say, since the truth itself scores best. With target="own" it gets labels and the
model's outputs, and says so: `def dice(truth, numbers, greater_is_better=True)`.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline.config import Config, own_code
from pipeline.errors import ConfigError, DataError, PipelineError, place
from pipeline.evaluate import metrics
from pipeline.evaluate.metrics import Metric

TAKES = {
    "labels": "classes",
    "probabilities": "scores",
    "numbers": "scores",
}

# What every epoch measures, beside a metric of the competition.
TAKEN = {"accuracy", "loss", "absolute_error", "mean_output"}
SURE = 1e-3  # apart from 0 and 1, of made-up probabilities: their logarithms are finite


class _OfOutputs(Metric):
    """A metric of target="own": it gets labels and outputs as they are, of any shape."""

    def __call__(self, truth: np.ndarray, predicted: np.ndarray) -> float:
        if len(truth) != len(predicted) or not np.isfinite(predicted).all():
            raise DataError(
                f"{self.name} was given {len(truth)} labels and {len(predicted)} outputs, finite:"
                f" {bool(np.isfinite(predicted).all())}; expected a finite output for each label.\n"
                "Look at the run that made them."
            )
        value = self.score(truth, predicted)
        if not math.isfinite(value):
            raise DataError(
                f"{self.name} has no value for these {len(truth)} rows: it came out as {value}.\n"
                "Let it return a finite number for any rows."
            )
        return value


def of(config: Config, name: str = "") -> Metric:
    """Return the metric of a config, or of that name.

    Raises:
        ConfigError: if there is none, or it cannot work.
    """
    name = name or config.metric or metrics.default(config.target)
    own = own_code.function(config, "metric") if name == config.metric else None
    return metrics.find(name, config.target) if own is None else _own(own, config)


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


def _own(score: Callable[..., float], config: Config) -> Metric:
    parameters = list(inspect.signature(score).parameters.values())
    names = [one.name for one in parameters]
    more = [
        one for one in parameters[2:] if one.default is one.empty and one.kind < one.VAR_POSITIONAL
    ]
    if len(names) < 2 or names[1] not in TAKES or more:
        gets = "labels" if config.target in metrics.CLASSES else "numbers"
        raise ConfigError(
            f"{own_code.described(config, 'metric')} takes ({', '.join(names)}); expected (truth,"
            f" {'), (truth, '.join(TAKES)}).\nName the second parameter after what it gets. A"
            f" function of a package wants a wrapper: def my_{config.metric}(truth, {gets}): return"
            f" {config.metric}(truth, {gets}), and metric='my_{config.metric}'."
        )

    if config.metric in TAKEN:
        raise ConfigError(
            f"{own_code.described(config, 'metric')} has the name of another measure; expected none"
            f" of {', '.join(sorted(TAKEN))}.\nRename the function and the field."
        )

    def told(truth: np.ndarray, predicted: np.ndarray) -> float:
        try:
            return float(score(truth, predicted))
        except PipelineError:
            raise
        except Exception as error:
            raise ConfigError(
                f"{own_code.described(config, 'metric')}{place(error, own_code.file(config))} ended"
                f" with {type(error).__name__}: {error}, for {len(truth)} rows.\nCorrect that line."
            ) from error

    metric = Metric(config.metric, told, True, TAKES[names[1]], frozenset(metrics.DEFAULTS))
    if config.target == "own":
        greater = getattr(
            inspect.signature(score).parameters.get("greater_is_better"), "default", None
        )
        if names[1] != "numbers" or not isinstance(greater, bool):
            raise ConfigError(
                f"{own_code.described(config, 'metric')} takes ({', '.join(names)}); expected"
                " (truth, numbers, greater_is_better=True) or False, with target='own'.\n"
                "Write so: outputs do not tell which score is better."
            )
        return _OfOutputs(config.metric, told, greater, "scores", frozenset({"own"}))
    right, wrong = (metric(*each) for each in extremes(config))
    if right == wrong:
        raise ConfigError(
            f"{own_code.described(config, 'metric')} gives {right:g} to the truth and {wrong:g} to"
            " the worst predictions; expected two values.\nLet it compare truth and predictions."
        )
    return replace(metric, greater_is_better=right > wrong)
