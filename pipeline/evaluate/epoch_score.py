"""Epoch score: what the competition's metric says of a model after an epoch, on its held-out rows.

`Config.keep="best"` and `Config.patience` follow it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.data.labels import Target
from pipeline.errors import PipelineError
from pipeline.evaluate.metrics import Metric


@dataclass(frozen=True)
class EpochScore:
    """Scores outputs for the held-out rows.

    Attributes:
        metric: of the competition.
        target: what the labels mean.
        labels: of the held-out rows, as `pipeline.data.labels.read` returns them.
        show: takes a warning where the metric has no value.
    """

    metric: Metric
    target: Target
    labels: np.ndarray
    show: Callable[[str], None]

    def of(self, outputs: np.ndarray) -> dict[str, float]:
        """Return {"validation_<metric>": its value}, or nothing if it has none.

        Args:
            outputs: of the model for these rows, float32 (n, outputs).
        """
        try:
            truth, found = self.target.truth(self.labels), self.target.predictions(outputs)
            return {self.name: self.metric(truth, found)}
        except PipelineError as error:
            self.show(
                f"Warning: {self.metric.name} has no value for {len(outputs)} validation rows after"
                f" this epoch, so its loss decides: {str(error).splitlines()[0]}"
            )
            return {}

    def order(self, metrics: Mapping[str, float]) -> tuple[bool, float, float]:
        """Return what is greater for the better of two epochs: by the metric, of equals by the
        validation loss. An epoch without a value comes after all that have one.

        Args:
            metrics: of an epoch: validation_loss, and what `of` returns.
        """
        value, sign = metrics.get(self.name), 1 if self.metric.greater_is_better else -1
        loss = -metrics["validation_loss"]
        return (False, 0.0, loss) if value is None else (True, sign * value, loss)

    @property
    def name(self) -> str:
        """What an epoch's score is called in history.csv."""
        return f"validation_{self.metric.name}"
