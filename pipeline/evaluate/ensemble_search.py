"""Ensemble search: weights found on out-of-fold predictions, what each member adds, and the file
that pins them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from formats import atomic_file
from formats.checksums import opened, sealed
from formats.errors import writing
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import hill_climb, out_of_fold
from pipeline.evaluate.out_of_fold import Rows
from pipeline.infer.ensemble import FILE


@dataclass(frozen=True)
class Found:
    """An ensemble on its rows.

    Attributes:
        weights: of each member, adding up to 1.
        score: of the weighted mean, by the metric, on the rows that the weights were found on.
        alone: the score of each member.
        without: the score of the others, with their weights; None if there are none.
        honest: (score of the ensemble, score of the best member), each chosen on one half of the
            rows and scored on the other, and the mean of both ways; None if the metric has no
            value there.
    """

    weights: list[float]
    score: float
    alone: list[float]
    without: list[float | None]
    honest: tuple[float, float] | None


def search(rows: Rows, seed: int) -> Found:
    """Return the ensemble that a hill climb finds, with what each member adds."""
    sign = 1 if rows.metric.greater_is_better else -1

    def score(values: np.ndarray) -> float:
        return rows.metric(rows.truth, values)

    mean = rows.members[0][0].target.mean
    weights = hill_climb.climb(rows.predictions, lambda values: sign * score(values), seed, mean)
    without: list[float | None] = []
    for place in range(len(weights)):
        others = [0.0 if place == other else weight for other, weight in enumerate(weights)]
        left = hill_climb.weighted(rows.predictions, others, mean) if any(others) else None
        without.append(None if left is None else score(left))
    whole = score(hill_climb.weighted(rows.predictions, weights, mean))
    alone = [score(each) for each in rows.predictions]
    return Found(weights, whole, alone, without, _honest(rows, seed))


def halves(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two halves of the rows, chosen by the seed, each sorted: int64."""
    order = np.random.default_rng((seed, rows)).permutation(rows)
    first, second = np.array_split(order, 2)
    return np.sort(first), np.sort(second)


def on_half(rows: Rows, half: np.ndarray, seed: int) -> list[float]:
    """Return the weights that are found on some of the rows."""
    sign = 1 if rows.metric.greater_is_better else -1
    return hill_climb.climb(
        [each[half] for each in rows.predictions],
        lambda values: sign * rows.metric(rows.truth[half], values),
        seed,
        rows.members[0][0].target.mean,
    )


def _honest(rows: Rows, seed: int) -> tuple[float, float] | None:
    best = np.argmax if rows.metric.greater_is_better else np.argmin
    halved, scores = halves(len(rows.ids), seed), []
    mean = rows.members[0][0].target.mean
    try:
        for here, there in (halved, halved[::-1]):
            weights = on_half(rows, here, seed)
            alone = [rows.metric(rows.truth[here], each[here]) for each in rows.predictions]
            of_rows = partial(rows.metric, rows.truth[there])
            other = [each[there] for each in rows.predictions]
            together = hill_climb.weighted(other, weights, mean)
            scores.append((of_rows(together), of_rows(other[int(best(alone))])))
    except DataError:  # a half without one of two classes has no AUC
        return None
    ours, theirs = np.mean(scores, axis=0).tolist()
    return ours, theirs


def run(
    outputs: Sequence[Path], output: Path, *, seed: int, show: Callable[[str], None]
) -> dict[str, Any]:
    """Find weights for the models of several runs, show one table, and write ensemble.json.

    Args:
        outputs: of the runs.
        output: gets ensemble.json.
        seed: of the choice between equals, and of the halves.
        show: takes the lines of the table.

    Returns:
        What the file holds.

    Raises:
        ConfigError, ArtifactError, ReportError: as `out_of_fold.read` does.
        DiskError: if it cannot be written.
    """
    if len(outputs) < 2 or not 0 <= seed < 2**32:
        raise ConfigError(
            f"{len(outputs)} run, --seed {seed}: expected two runs or more, and a seed from 0 to"
            " 4294967295.\nGive the output folder of each training."
        )
    rows = out_of_fold.read(outputs, show)
    found = search(rows, seed)
    order = sorted(range(len(found.weights)), key=lambda place: -found.weights[place])
    members = [
        {
            "run_id": rows.members[place][0].manifest["run_id"],
            "weights_sha256": rows.members[place][0].manifest["weights_sha256"],
            "config": rows.members[place][0].config.name,
            "folder": str(rows.members[place][1].resolve()),
            "weight": found.weights[place],
            "alone": found.alone[place],
            "without": found.without[place],
        }
        for place in order
    ]
    value = {
        "members": members,
        "seed": seed,
        "metric": rows.metric.name,
        "greater_is_better": rows.metric.greater_is_better,
        "rows": len(rows.ids),
        "score": found.score,
        "other_half": None
        if found.honest is None
        else {"ensemble": found.honest[0], "best_member": found.honest[1]},
    }
    content = sealed(value)
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    atomic_file.write(output / FILE, content)
    for line in table(value):
        show(line)
    show(f"Wrote {output / FILE}")
    return opened(content)


def table(value: dict[str, Any]) -> list[str]:
    """Return what an ensemble.json says, as lines: a row a member, and the ensemble."""
    name = value["metric"]
    better = "higher" if value["greater_is_better"] else "lower"
    lines = [f"{'weight':>6}  {'alone':>9}  {'without':>9}  {name}, {better} is better"]
    for member in value["members"]:
        without = "" if member["without"] is None else f"{member['without']:.5f}"
        lines.append(
            f"{member['weight']:6.2f}  {member['alone']:9.5f}  {without:>9}  {member['run_id']}"
        )
    lines.append(f"{'':6}  {value['score']:9.5f}  {'':9}  the ensemble, on these rows")
    if half := value["other_half"]:
        lines.append(
            f"{'':6}  {half['ensemble']:9.5f}  {'':9}  on rows that weights were not found on;"
            f" best member {half['best_member']:.5f}"
        )
        lost = half["ensemble"] - half["best_member"]
        if lost < 0 if value["greater_is_better"] else lost > 0:
            lines.append(
                "Warning: on rows that they were not found on, these weights are worse than the"
                " best member alone"
            )
    else:
        lines.append(f"No score on other rows: {name} has no value on one half of these")
    return lines
