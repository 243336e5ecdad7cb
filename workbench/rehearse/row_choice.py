"""Which labelled rows a rehearsal hides, and which it takes where it takes fewer.

Both choices follow from the config's seed, so that the scores of two rehearsals can be compared.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from pipeline.augment.streams import Stream
from pipeline.config import Config
from pipeline.data.dataset import Examples

SHARE = 0.2  # of the labelled rows that become the hidden test set
MOST_HIDDEN = 2000  # groups or rows: the standard error of an accuracy is then 1.1 % at most
STREAM = Stream.HIDDEN_ROWS
ANY = None  # what all rows have


class RowChoice:
    """Chooses among labelled rows, stratified by label, and leaves a session enough to split.

    Args:
        examples: the labelled rows. A row without a group is one of its own.
        config: of the run. Each label stays in `folds` groups, or two; with `group_column` there
            are as many groups as the session's split needs.
    """

    def __init__(self, examples: Examples, config: Config) -> None:
        self._target, self._labels = examples.target, examples.labels
        self._strata = examples.target.strata(examples.labels)
        self._groups = np.arange(len(examples)) if examples.groups is None else examples.groups
        self._seed = config.seed
        self._label_groups = least = max(config.folds or 0, 2)
        self._all_groups = least
        if config.data.group_column is not None and config.folds is None:
            self._all_groups = max(round(1 / config.data.validation_fraction), least)

    def hide(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows of a test set: whole groups, and about the same share of each stratum.

        Args:
            rows: int64 (n,), to choose from.

        Returns:
            int64 (m,), sorted. Empty if the session needs every row.
        """
        members: dict[int, list[int]] = defaultdict(list)
        for row, group in zip(rows.tolist(), self._groups[rows].tolist(), strict=True):
            members[group].append(row)
        left = Counter(tag for own in members.values() for tag in self._tags(own))
        number = min(SHARE, MOST_HIDDEN / max(len(members), 1)) * len(rows)
        wanted = self._shares(rows, number)
        hidden: list[int] = []
        for group in self._random().permutation(sorted(members)).tolist():
            if len(hidden) > number - 0.5:
                break
            own = members[group]
            counts, tags = Counter(self._strata[own].tolist()), self._tags(own)
            # How the squared distance from the wanted numbers would change.
            change = sum(n * (n - 2 * wanted[stratum]) for stratum, n in counts.items())
            if change < 0 and all(left[tag] > self._least(tag) for tag in tags):
                wanted.subtract(counts)
                left.subtract(tags)
                hidden += own
        return np.array(sorted(hidden), np.int64)

    def fewer(self, rows: np.ndarray, most: int | None, *, split: bool) -> np.ndarray:
        """Return about that many of the rows, stratified, in their order.

        Args:
            rows: int64 (n,), in any order.
            most: rows; None: all. What every label needs may be more.
            split: whether a session splits them.
        """
        if most is None or most >= len(rows):
            return rows
        order = self._random().permutation(np.sort(rows)).tolist()
        groups: dict[Hashable, set[int]] = defaultdict(set)
        kept = set()
        for row in order:
            group, tags = int(self._groups[row]), self._tags([row])
            if any(
                group not in groups[tag] and len(groups[tag]) < (self._least(tag) if split else 1)
                for tag in tags
            ):
                kept.add(row)
                for tag in tags:
                    groups[tag].add(group)
        wanted = self._shares(rows, most)
        wanted.subtract(self._strata[sorted(kept)].tolist())
        for row in order:
            stratum = int(self._strata[row])
            if row not in kept and wanted[stratum] > 0:
                kept.add(row)
                wanted[stratum] -= 1
        return rows[np.isin(rows, sorted(kept))]

    def _random(self) -> np.random.Generator:
        return np.random.default_rng((self._seed, STREAM))

    def _least(self, tag: Hashable) -> int:
        """Return how many groups must keep a label."""
        return self._all_groups if tag is ANY else self._label_groups

    def _tags(self, rows: Sequence[int]) -> list[Hashable]:
        """Return the labels that any of these rows has, and `ANY`."""
        if self._target.kind == "multilabel":
            return [ANY, *np.flatnonzero(self._labels[rows].any(axis=0)).tolist()]
        return [ANY, *set(self._strata[rows].tolist())]

    def _shares(self, rows: np.ndarray, number: float) -> Counter[int]:
        """Return how many rows of each stratum make that number together.

        Sums are rounded, not shares: of many small strata each share might be rounded to 0.
        """
        strata, counts = np.unique(self._strata[rows], return_counts=True)
        ends = np.rint(np.cumsum(counts) * (number / max(len(rows), 1))).astype(int)
        return Counter(dict(zip(strata.tolist(), np.diff(ends, prepend=0).tolist(), strict=True)))
