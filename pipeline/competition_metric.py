"""The competition's metric: one of `pipeline.metrics`, or a function of the config's own file.

An own metric is `score` of a `Metric`, called as `score(truth, …)`. The name of its second
parameter says what it gets: labels, ranking, probabilities or numbers. Whether greater is better
it need not say, since the truth itself scores best.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline import metrics
from pipeline.config import Config, own_code
from pipeline.errors import ConfigError, PipelineError, place
from pipeline.metrics import Metric

TAKES = {
    "labels": "classes",
    "ranking": "ranking",
    "probabilities": "scores",
    "numbers": "scores",
}


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

    Their form is that of `pipeline.metrics`.
    """
    width, rows = max(config.num_classes, 1), 2 * max(config.num_classes, 8)
    if config.target in metrics.CLASSES:
        truth = np.arange(rows) % width
        return [(truth, np.eye(width)[(truth + apart) % width]) for apart in (0, 1)]
    numbers = np.add.outer(np.arange(rows), np.arange(max(config.outputs, 1))).astype(np.float64)
    if config.target == "multilabel":
        return [(numbers % 2, numbers % 2), (numbers % 2, 1 - numbers % 2)]
    return [(numbers + 1, numbers + 1), (numbers + 1, numbers[::-1] + 1)]


def _own(score: Callable[..., float], config: Config) -> Metric:
    names = list(inspect.signature(score).parameters)
    if len(names) != 2 or names[1] not in TAKES:
        raise ConfigError(
            f"{own_code.described(config, 'metric')} takes ({', '.join(names)}); expected (truth,"
            f" {'), (truth, '.join(TAKES)}).\nName the second parameter after what it gets."
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
    right, wrong = (metric(*each) for each in extremes(config))
    if right == wrong:
        raise ConfigError(
            f"{own_code.described(config, 'metric')} gives {right:g} to the truth and {wrong:g} to"
            " the worst predictions; expected two values.\nLet it compare truth and predictions."
        )
    return replace(metric, greater_is_better=right > wrong)
