"""Form: how predictions are said in a submission, which follows from the target, the metric and the
columns of sample_submission.csv.

one label column, a metric of labels       the likeliest label; of several labels those above 1/2, with blanks between, or else the likeliest
one label column, a metric of scores       the probability of the class that it is called by, or the second of two; or the number
one label column, a metric of rankings     the k likeliest labels, the likeliest first, with blanks between
a column for each class or target          its probability or number; 1 or 0 of several labels for a metric of labels
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline import metrics
from pipeline.config import Config
from pipeline.data.labels import Target
from pipeline.errors import SubmissionError
from pipeline.storage import csv_text
from pipeline.submission import submission_csv

ROUNDING = 1e-6  # by which a mean of probabilities may be beyond 0 and 1


class Form:
    """What a submission to one competition looks like.

    Args:
        target: of the run. metric: the name of the competition's. sample: its
            sample_submission.csv.

    Raises:
        SubmissionError: if its columns are none of the above.
    """

    def __init__(self, target: Target, metric: str, sample: Path) -> None:
        self._target, self._metric, self._sample = target, metrics.find(metric, target.kind), sample
        self._columns = csv_text.header(
            sample, SubmissionError, "Set data.sample_submission in the config."
        )[1:]
        names, columns = target.names, self._columns
        one = len(columns) == 1 and (
            self._metric.takes != "scores"
            or target.kind == "regression"
            or (len(names) == 2 and target.kind != "multilabel")
        )
        each = len(columns) == len(names) and (
            set(columns) == set(names)
            or (target.kind == "regression" and not set(columns) & set(names))
        )
        if not (
            each if len(columns) > 1 or (target.kind == "regression" and len(names) > 1) else one
        ):
            raise SubmissionError(
                f"{sample} has the columns {', '.join(columns[:12])} beside the id; expected one, or one for each of {', '.join(names[:12])} "
                f"(target={target.kind!r}, metric={metric!r}).\nCorrect target, metric or label_column in the config, or write this form in "
                "pipeline/submission/prediction_format.py."
            )

    def check_labels(self) -> None:
        """Refuse labels that a submission may not hold before a model is trained on them: else they
        are as soon as one is predicted.

        Raises:
            SubmissionError: if there are some.
        """
        if self._metric.takes == "ranking":
            blank = [name for name in self._target.names if len(name.split()) != 1]
            if blank:
                raise SubmissionError(
                    f"The training table has {len(blank)} labels with blanks in them, for example {', '.join(map(repr, blank[:3]))}; metric="
                    f"{self._metric.name!r} puts blanks between labels, and expected none within.\n"
                    "Rename them in the training table, or write this competition's form in pipeline/submission/prediction_format.py."
                )
        if (
            len(self._columns) != 1
            or self._metric.takes != "classes"
            or self._target.kind == "regression"
        ):
            return
        wrong, kind = submission_csv.strange(self._sample, self._columns[0], self._target.names)
        if wrong:
            raise SubmissionError(
                f"The training table has {len(wrong)} labels that cannot be submitted, for example {', '.join(map(repr, wrong[:3]))}; expected "
                f"values that are {kind}, as those of {self._columns[0]!r} in {self._sample}.\n"
                "Rename them in the training table, or correct label_column, target or metric in the config."
            )

    def write(self, path: Path, ids: Sequence[str], values: np.ndarray) -> int:
        """Write the submission in one rename and return its number of rows; nothing is written if
        it would be refused.

        Args:
            values: float32 (n, k), as `Target.predictions` gives them, in the order of `ids`.

        Raises:
            SubmissionError: if a value is not finite, or is no probability where one is expected;
                and as `pipeline.submission.submission_csv.write` says.
        """
        wanted = len(ids), len(self._target.names)
        low, high = (
            (-np.inf, np.inf) if self._target.kind == "regression" else (-ROUNDING, 1 + ROUNDING)
        )
        good = np.isfinite(values) & (values >= low) & (values <= high)
        if values.shape != wanted or not good.all():
            # Of NaNs `argmax` makes a label like any other.
            expected = (
                "finite numbers"
                if self._target.kind == "regression"
                else "probabilities, from 0 to 1"
            )
            raise SubmissionError(
                f"{path} would hold {values.shape} predictions, {int((~good).sum())} of them not finite or out of range; expected {wanted} "
                f"{expected}.\nNothing was written. Infer again with --precision float32; if it stays so, train again."
            )
        # A mean of probabilities may be beyond 1 by rounding; what is written is not, as `bounds`
        # says.
        values = values if self._target.kind == "regression" else values.clip(0, 1)
        return submission_csv.write(
            path, self._sample, ids, self.texts(values), numbers=self._numbers
        )

    @property
    def _numbers(self) -> bool:
        return (
            self._target.kind == "regression"
            or len(self._columns) > 1
            or self._metric.takes == "scores"
        )

    def texts(self, values: np.ndarray) -> dict[str, list[str]]:
        """Return the texts of each column, by its name."""
        names, columns = self._target.names, self._columns
        if len(columns) > 1:
            if self._target.kind == "multilabel" and self._metric.takes == "classes":
                values = (values > 0.5).astype(np.float32)
            by_name = set(columns) == set(names)
            places = [
                names.index(column) if by_name else place for place, column in enumerate(columns)
            ]
            return {
                column: _shown(values[:, place])
                for column, place in zip(columns, places, strict=True)
            }
        if self._target.kind == "regression":
            return {columns[0]: _shown(values[:, 0])}
        if self._metric.takes == "ranking":
            k = int(self._metric.name.partition("@")[2])
            order = np.argsort(-values, axis=1, kind="stable")[:, :k]
            return {columns[0]: [" ".join(names[place] for place in row) for row in order]}
        if self._metric.takes == "scores" and self._target.kind != "multilabel":
            # A column that is called as one of the classes is about that one.
            return {
                columns[0]: _shown(values[:, names.index(columns[0]) if columns[0] in names else 1])
            }
        texts = self._target.best(values)
        if self._target.kind == "multilabel":
            # An empty text is no prediction to Kaggle; where no label is above 1/2, the likeliest
            # one stands alone.
            texts = [text or names[row.argmax()] for text, row in zip(texts, values, strict=True)]
        return {columns[0]: texts}


def of_numbers(config: Config) -> bool:
    """Return whether a submission for this config may hold any finite number, whatever the
    placeholders of the sample look like.
    """
    if config.target == "regression":
        return True
    return (
        metrics.find(config.metric or metrics.default(config.target), config.target).takes
        == "scores"
    )


def bounds(config: Config) -> tuple[float, float] | None:
    """Return between which numbers each value of a submission for this config lies, as
    probabilities do; None where any will do.
    """
    return (0.0, 1.0) if config.target != "regression" and of_numbers(config) else None


def _shown(values: np.ndarray) -> list[str]:
    return [f"{value:.9g}" for value in values]
