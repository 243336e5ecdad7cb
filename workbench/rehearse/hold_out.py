"""Chooses the labelled rows that a rehearsal hides, and those that it keeps if it keeps fewer.

Both follow from the config's seed, so scores of two rehearsals can be compared.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from pipeline.augment.streams import Stream
from pipeline.config import Config
from pipeline.data import folds
from pipeline.data.dataset import Examples

SHARE = 0.2  # of the labelled rows become the hidden test set
MOST_HIDDEN = 2000  # rows: then an accuracy's standard error is at most 1.1 %


class HoldOut:
    """Chooses labelled rows, stratified by label, and leaves enough for a session to split.

    Args:
        examples: the labelled rows. A row without a group is its own group.
        config: of the run. Each label keeps `folds` groups, or two; with `group_column` there stay
            as many groups as the session's split needs.
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
        """Return sorted rows for a test set: whole groups, and the same share of each label.

        Args:
            rows: int64 (n,), sorted, to choose from.

        Returns:
            int64 (m,). Empty if the session needs every row.

        Raises:
            DataError: as in `pipeline.data.folds.splits`.
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
        """Return about that many rows, stratified and sorted.

        Args:
            rows: int64 (n,).
            most: number of rows, unless labels need more; None: all.
        """
        if most is None or most >= len(rows):
            return rows
        random = np.random.default_rng((self._config.seed, Stream.HIDDEN_ROWS))
        table = self._rows.loc[random.permutation(np.sort(rows))]
        # A row's place within its label; the first rows of needed groups come before all others.
        place = table.groupby("label").cumcount() / table.groupby("label")["group"].transform(
            "size"
        )
        firsts = table[~table.duplicated(["label", "group"])]
        needed = firsts[firsts.groupby("label").cumcount() < self._of_a_label].index
        needed = needed.union(table[~table.duplicated("group")].index[: self._of_all])
        place[needed] = -1.0
        kept = place.sort_values(kind="stable").index[: max(most, len(needed))]
        return np.sort(kept.to_numpy())
