"""How a submission writes predictions: by target, metric and columns of the sample submission.

columns             metric     what is written
one label column    labels     the likeliest label; of several labels those above 1/2, separated as
                               in the sample, or else the likeliest
one label column    scores     the probability of the class that names the column, or of the second
                               of two; or the number
one label column    rankings   the k likeliest labels, the likeliest first, with blanks between
one for each class             its probability or number; 1 or 0 of several labels for a metric of
or target                      labels
"""

import numbers
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import Config, own_code
from pipeline.data import csv_files
from pipeline.data.labels import Target
from pipeline.errors import SubmissionError
from pipeline.evaluate import competition_metric, metrics
from pipeline.evaluate.metrics import Metric
from pipeline.infer import submission_csv

Writer = Callable[[Sequence[str], np.ndarray, Sequence[str] | None], dict[str, list[str]]]
ROUNDING = 1e-6  # by which a mean of probabilities may be outside 0 to 1
ADVICE = "Set data.sample_submission in the config."
SEPARATORS = ("|", ", ", ",", "; ", ";", " ")  # between several labels in one text


class Form:
    """The format of a submission to one competition.

    Args:
        target: of the run.
        metric: the competition's, or its name.
        sample: its sample_submission.csv.
        positive: the config's `data.positive_label`.
        writer: the config's own `write_submission`, as `writer_of` returns it.

    Raises:
        SubmissionError: if its columns are none of the above, or `positive` is no label.
    """

    def __init__(
        self,
        target: Target,
        metric: Metric | str,
        sample: Path,
        positive: str | None = None,
        writer: Writer | None = None,
    ) -> None:
        metric = metrics.find(metric, target.kind) if isinstance(metric, str) else metric
        self._target, self._metric, self._sample = target, metric, sample
        self._columns = csv_files.header(sample, SubmissionError, ADVICE)[1:]
        self._positive, self._writer = positive, writer
        self._regression = target.kind == "regression"
        if writer:
            return
        if positive is not None and positive not in target.names:
            raise SubmissionError(
                f"data.positive_label={positive!r} is no label of the training table; expected one"
                f" of {', '.join(map(repr, target.names[:12]))}.\nCorrect it in the config."
            )
        names, columns = target.names, self._columns
        if len(columns) > 1 or (self._regression and len(names) > 1):
            same = set(columns) == set(names)
            good = same or (self._regression and not set(columns) & set(names))
            good = good and len(columns) == len(names)
        else:
            two = len(names) == 2 and target.kind != "multilabel"
            good = len(columns) == 1
            good = good and (self._metric.takes != "scores" or self._regression or two)
        if not good:
            raise SubmissionError(
                f"{sample} has the columns {', '.join(columns[:12])} beside the id; expected one, "
                f"or one for each of {', '.join(names[:12])} (target={target.kind!r}, "
                f"metric={metric.name!r}).\nCorrect target, metric or label_column in the config,"
                " or write this format in pipeline/infer/prediction_format.py."
            )

    def check_labels(self) -> None:
        """Raise `SubmissionError` for labels that a submission may not hold.

        This runs before a training, not when such a label is first predicted.
        """
        takes, names = self._metric.takes, self._target.names
        if self._writer:
            return
        if takes == "ranking":
            blank = [name for name in names if len(name.split()) != 1]
            if blank:
                raise SubmissionError(
                    f"The training table has {len(blank)} labels with blanks in them, for example "
                    f"{', '.join(map(repr, blank[:3]))}; metric={self._metric.name!r} puts blanks "
                    "between labels, and expected none within.\nRename them in the training table, "
                    "or write this format in pipeline/infer/prediction_format.py."
                )
        if len(self._columns) != 1 or takes != "classes" or self._regression:
            return
        wrong, kind = submission_csv.unsubmittable(self._sample, self._columns[0], names)
        if wrong:
            raise SubmissionError(
                f"The training table has {len(wrong)} labels that cannot be submitted, for example "
                f"{', '.join(map(repr, wrong[:3]))}; expected values that are {kind}, as those of "
                f"{self._columns[0]!r} in {self._sample}.\nRename them in the training table, or "
                "correct label_column, target or metric in the config."
            )

    def write(self, path: Path, ids: Sequence[str], values: np.ndarray) -> int:
        """Write the submission in one rename and return its number of rows.

        Nothing is written if Kaggle would refuse it.

        Args:
            values: float32 (n, k), as `Target.predictions` returns them, in the order of `ids`; of
                target="own" (n, …).

        Raises:
            SubmissionError: if a value is not finite, or not a probability where one is expected;
                and as `pipeline.infer.submission_csv.write` says.
        """
        own = self._target.kind == "own"
        wanted = (len(ids), *(values.shape[1:] if own else (len(self._target.names),)))
        free, good = self._regression or own, np.isfinite(values)
        if not free:
            good &= (values >= -ROUNDING) & (values <= 1 + ROUNDING)
        if values.shape != wanted or not good.all():
            # `argmax` would make a label of NaNs.
            expected = "finite numbers" if free else "probabilities, from 0 to 1"
            raise SubmissionError(
                f"{path} would hold {values.shape} predictions, {int((~good).sum())} of them not "
                f"finite or out of range; expected {wanted} {expected}.\nNothing was written. "
                "Infer again with --precision float32; if that does not help, train again."
            )
        # What is written is within `bounds`, also where a mean of probabilities was rounded.
        values = values if free else values.clip(0, 1)
        if self._writer:
            given = self._writer(ids, values, self._columns)
            return submission_csv.write(path, self._sample, ids, given, numbers=True)
        any_number = self._regression or len(self._columns) > 1 or self._metric.takes == "scores"
        return submission_csv.write(path, self._sample, ids, self.texts(values), numbers=any_number)

    def texts(self, values: np.ndarray) -> dict[str, list[str]]:
        """Return the texts of each column, by its name."""
        names, columns, takes = self._target.names, self._columns, self._metric.takes
        several = self._target.kind == "multilabel"
        if len(columns) > 1:
            if several and takes == "classes":
                values = (values > 0.5).astype(np.float32)
            by_name = set(columns) == set(names)
            return {
                column: _shown(values[:, names.index(column) if by_name else place])
                for place, column in enumerate(columns)
            }
        if self._regression:
            texts = _shown(values[:, 0])
        elif takes == "ranking":
            k = int(self._metric.name.partition("@")[2])
            order = np.argsort(-values, axis=1, kind="stable")[:, :k]
            texts = [" ".join(names[place] for place in row) for row in order]
        elif takes == "scores" and not several:
            texts = _shown(values[:, positive_code(names, columns[0], self._positive)])
        elif several:  # Kaggle accepts no empty text: the likeliest label replaces it
            column = columns[0]
            shown = csv_files.read(self._sample, SubmissionError, ADVICE, {column})[column]
            between = separator(self._target, set(shown))
            texts = replace(self._target, separator=between).best(values)
            best = values.argmax(axis=1)
            texts = [text or names[place] for text, place in zip(texts, best, strict=True)]
        else:
            texts = self._target.best(values)
        return {columns[0]: texts}


def writer_of(config: Config) -> Writer | None:
    """Return the config's own `write_submission`, checked: of ids, predictions (n, …) and the
    sample's columns beside the id (None: any) it returns the texts of each.
    """
    write: Any = own_code.function(config, "write_submission")
    if write is None:
        return None

    def told(
        ids: Sequence[str], values: np.ndarray, columns: Sequence[str] | None
    ) -> dict[str, list[str]]:
        with own_code.telling(config, "write_submission"):
            return _texts_of(config, write(tuple(ids), values), ids, columns)

    return told


def _texts_of(
    config: Config, given: Any, ids: Sequence[str], columns: Sequence[str] | None
) -> dict[str, list[str]]:
    """Return what an own `write_submission` gives, as texts, in the order of the columns.

    Args:
        columns: of the sample beside the id; None: any.

    Raises:
        SubmissionError: if it gives something else.
    """
    told = own_code.described(config, "write_submission")
    found = dict(given) if isinstance(given, Mapping) else {}
    wanted = list(found) if columns is None else list(columns)
    same = bool(found) and set(found) == set(wanted)
    if not same or any(len(found[name]) != len(ids) for name in wanted):
        has = ", ".join(f"{name} ({len(texts)})" for name, texts in found.items())
        raise SubmissionError(
            f"{told} returns {has or type(given).__name__}; expected a dict with"
            f" {', '.join(wanted) or 'column: texts'}, as the sample submission beside the id, and"
            f" {len(ids)} texts or numbers in each.\nReturn {{column: [one for each of the ids]}}."
        )
    for name in wanted:
        for key, value in zip(ids, found[name], strict=True):
            if not isinstance(value, str | numbers.Real) or value != value:
                raise SubmissionError(
                    f"{told} returns {str(value)[:60]!r} for {key!r} in {name!r}; expected a text"
                    " or a number in each row.\nReturn one, and no missing value."
                )
    return {name: [str(value) for value in found[name]] for name in wanted}


def positive_code(names: Sequence[str], column: str, chosen: str | None) -> int:
    """Return which of two labels a single column of probabilities is about.

    >>> positive_code(("dead", "recovered"), "has_died", "dead")
    0
    >>> positive_code(("cat", "dog"), "cat", None), positive_code(("no", "yes"), "sold", None)
    (0, 1)
    """
    named = chosen if chosen is not None else column
    return names.index(named) if named in names else 1


def separator(target: Target, shown: Collection[str]) -> str:
    """Return what a sample has between known labels; where it shows none, the training table's
    separator.

    Args:
        target: of several labels.
        shown: texts of the sample's column.

    >>> separator(Target("multilabel", ("big cat", "dog")), ["big cat|dog"])
    '|'
    """
    names = set(target.names)
    for found in (target.separator, *SEPARATORS):
        if any(found in text and names.issuperset(text.split(found)) for text in shown):
            return found
    return target.separator


def takes_any_number(config: Config) -> bool:
    """Return whether a submission may hold any finite number, whatever the sample's values are."""
    if config.target in ("regression", "own") or config.write_submission:
        return True
    return competition_metric.of(config).takes == "scores"


def bounds(config: Config) -> tuple[float, float] | None:
    """Return the least and largest value of a submission, as of a probability; None: any."""
    if config.target in ("regression", "own") or config.write_submission:
        return None
    return (0.0, 1.0) if takes_any_number(config) else None


def _shown(values: np.ndarray) -> list[str]:
    return [f"{value:.9g}" for value in values]
