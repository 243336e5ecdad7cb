"""Select the labelled rows that a rehearsal holds out, and a subset of the remaining rows.

The selection only depends on the config's seed, so the scores of two rehearsals can be compared.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from pipeline.augment.streams import Stream
from pipeline.config import Config
from pipeline.data import folds
from pipeline.data.dataset import Examples

SHARE = 0.2  # fraction of the labelled rows in the hidden test set
MOST_HIDDEN = 2000  # rows, for which the standard error of an accuracy is at most 1.1 %


class HoldOut:
    """Selects labelled rows, stratified by label, and leaves enough rows for a session to split.

    For each label, at least `folds` groups remain, and never fewer than two. If `group_column` is
    set, enough groups for the session's split remain. Without groups, each row is a group of its
    own.
    """

    def __init__(self, examples: Examples, config: Config) -> None:
        self._examples, self._config = examples, config
        groups = np.arange(len(examples)) if examples.groups is None else examples.groups
        strata = examples.target.strata(examples.labels)
        self._rows = pd.DataFrame({"label": strata, "group": groups})
        self._of_a_label = max(config.folds or 0, 2)
        self._of_all = self._of_a_label if config.data.group_column else 0
        if config.data.group_column and config.folds is None:
            self._of_all = max(round(1 / config.data.validation_fraction), self._of_a_label)

    def hide(self, rows: np.ndarray) -> np.ndarray:
        """Select whole groups of rows for a test set, including a similar fraction of each label.

        Returns:
            The selected rows in ascending order, int64 (m,). The array is empty if the session
            requires all rows.

        Raises:
            DataError: see `pipeline.data.folds.splits`.
        """
        examples, config = self._examples, self._config
        some = replace(
            examples,
            ids=tuple(examples.ids[row] for row in rows),
            inputs=examples.inputs[rows],
            labels=examples.labels[rows],
            groups=None if examples.groups is None else examples.groups[rows],
        )
        share = SHARE if config.data.group_column else min(SHARE, MOST_HIDDEN / len(rows))
        data = replace(config.data, validation_fraction=share)
        held = rows[folds.splits(some, replace(config, folds=None, data=data))[0][1]]
        chosen = self._rows.loc[rows]
        hidden = np.isin(rows, held)
        left = chosen[~hidden].groupby("label")["group"].nunique()
        rare = chosen["label"].map(left).fillna(0) < self._of_a_label
        given_back = set(chosen["group"][hidden & rare])
        lacking = self._of_all - chosen["group"][~hidden].nunique()
        given_back |= set(chosen["group"][hidden].unique()[: max(lacking, 0)])
        return rows[hidden & ~chosen["group"].isin(given_back).to_numpy()]

    def fewer(self, rows: np.ndarray, most: int | None) -> np.ndarray:
        """Select up to `most` rows, stratified by label, and return them in ascending order.

        More rows are selected if the labels require them.
        """
        if most is None or most >= len(rows):
            return rows
        random = np.random.default_rng((self._config.seed, Stream.HIDDEN_ROWS))
        table = self._rows.loc[random.permutation(np.sort(rows))]
        # Sort by position within the label, but put the first rows of required groups at the start.
        place = table.groupby("label").cumcount() / table.groupby("label")["group"].transform(
            "size"
        )
        firsts = table[~table.duplicated(["label", "group"])]
        needed = firsts[firsts.groupby("label").cumcount() < self._of_a_label].index
        needed = needed.union(table[~table.duplicated("group")].index[: self._of_all])
        place[needed] = -1.0
        kept = place.sort_values(kind="stable").index[: max(most, len(needed))]
        return np.sort(kept.to_numpy())
