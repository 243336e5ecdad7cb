"""The floor of a competition: what a simple model scores, so what a network has to beat."""

from dataclasses import dataclass

from pipeline.config.field_checks import text, whole, within

# Images, and rows of a table, that a floor is fitted on at most: of more, a random sample.
MOST_IMAGES, MOST_ROWS = 6_000, 20_000


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The out-of-fold score of a simple model, as `invoke inspect` measured it.

    It stands in the config, since the config alone reaches the notebook, the checkpoint and the
    manifest. It names its own metric: where a config's `metric` is corrected later, the two are not
    compared until `invoke inspect --metric NAME --write CONFIG` has renewed the floor.

    Attributes:
        model: in words.
        metric: a name in pipeline.evaluate.metrics.
        score: by that metric.
        error: its standard error, over other rows of the same kind.
        rows: labelled rows that were predicted, each by a model that had not seen it: all, or a
            sample of `MOST_IMAGES` or `MOST_ROWS`.
    """

    model: str
    metric: str
    score: float
    error: float
    rows: int

    def __post_init__(self) -> None:
        text("floor.model", self.model)
        text("floor.metric", self.metric)
        within("floor.score", self.score, -1e300, 1e300)
        within("floor.error", self.error, 0, 1e300)
        whole("floor.rows", self.rows, 1, 10**9)

    def __str__(self) -> str:
        shown = f"{self.metric} {self.score:.4g} ± {self.error:.2g}"
        return f"{shown}, out of fold on {self.rows:,} rows, by {self.model}"
