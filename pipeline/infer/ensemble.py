"""Ensemble: trained models whose predictions are averaged with weights, the members.

`python -m pipeline ensemble` finds the weights on rows that all members held out, and writes
ensemble.json, which pins each member by the sha256 of its weights. The same members are in the
bundle of an inference.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from formats import atomic_file, npz
from formats.checksums import opened, sealed
from pipeline import artifact
from pipeline.artifact import Artifact
from pipeline.config import Config, custom_code
from pipeline.data import csv_files
from pipeline.errors import ArtifactError, ConfigError, DataError, ReportError
from pipeline.evaluate import metrics
from pipeline.evaluate.metrics import Metric
from pipeline.runtime import mounts

FILE, ARRAYS = "ensemble.json", "validation.npz"
AGAIN = "Find the weights again:\npython -m pipeline ensemble OUT OUT --output DIR"
PULL_AGAIN = "Pull the run again, or train it again."
PINS = ("run_id", "weights_sha256")  # of a member
LEAST_ROWS = 20  # to find weights on
ROUNDS = 50  # of the hill climb: the smallest weight is 1/50

# The members of an inference


def read(path: Path) -> list[dict[str, Any]]:
    """Return the members in an ensemble.json that have a weight, as `search` describes them.

    Raises:
        ConfigError: if it is not what the command wrote.
    """
    try:
        members = opened(path.read_bytes())["members"]
        return [member for member in members if member["weight"] > 0]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{path} is no ensemble: {error}.\nExpected the file as it was written. {AGAIN}"
        ) from error


def mounted(inputs: Path, expect: Mapping[str, Any]) -> tuple[list[Artifact], list[float]]:
    """Return the artifacts that a bundle expects, found by run id and verified, and their weights.

    Args:
        inputs: /kaggle/input.
        expect: of the bundle: `PINS` of a single model, or "members" with `PINS` and a weight each.

    Raises:
        ArtifactError: if one is not mounted, or has other bytes.
    """
    members = expect.get("members", [{**expect, "weight": 1.0}])
    return _pinned(members, [mounts.artifact(inputs, each["run_id"]) for each in members])


def chosen(
    folders: Sequence[Path], members: Sequence[Mapping[str, Any]], config: Config
) -> tuple[list[Artifact], list[float] | None]:
    """Return the artifacts in folders, verified, and their weights, None without an ensemble.json.

    Args:
        members: of an ensemble.json, one for each folder, as `read` returns them; or none.
        config: of the inference. Without an ensemble.json one artifact has to be of that config.

    Raises:
        ConfigError: if it is of another config.
        ArtifactError: if one has other bytes.
    """
    if members:
        return _pinned(members, folders)
    artifacts = [artifact.load(folder) for folder in folders]
    trained = artifacts[0].config.name
    if len(artifacts) == 1 and trained != config.name:
        raise ConfigError(
            f"--config {config.name}: the artifact {artifacts[0].manifest['run_id']} was trained"
            f" with {trained}.\nGive --config {trained}, or another --artifact."
        )
    return artifacts, None


def _pinned(
    members: Sequence[Mapping[str, Any]], folders: Sequence[Path]
) -> tuple[list[Artifact], list[float]]:
    artifacts = [
        artifact.load(folder, {name: each[name] for name in PINS})
        for each, folder in zip(members, folders, strict=True)
    ]
    return artifacts, [each["weight"] for each in members]


def best_first(
    artifacts: Sequence[Artifact], weights: Sequence[float] | None
) -> list[tuple[Artifact, float]]:
    """Return members and weights, the best by its validation first, of equal ones the heaviest;
    those without a weight are left out.

    A weight does not say how good a member is: it depends on how far its predictions lie apart.

    Args:
        artifacts: of models with one target.
        weights: as many, of 0 or more; None: equal ones. They are divided by their sum.

    Raises:
        ConfigError: if these cannot be weights, one run is given twice, or the functions of a
            member are not here, or others than in training.
        ArtifactError: if two predict different things.
    """
    weights = [1.0] * len(artifacts) if weights is None else list(weights)
    runs, total = [each.manifest["run_id"] for each in artifacts], sum(weights)
    if not (len(set(runs)) == len(weights) == len(runs) and min(weights) >= 0 and total > 0):
        raise ConfigError(
            f"weights={weights} cannot work for the runs {', '.join(runs)}; expected each run once,"
            " and for each a number of 0 or more, one of them above 0.\nCorrect the artifacts or"
            " weights."
        )
    _refuse_differing(artifacts)
    for each in artifacts:
        custom_code.require(each.config, each.manifest["custom_code"])
    metric = _metric(artifacts[0])

    def rank(pair: tuple[Artifact, float]) -> tuple[float, float]:
        score = pair[0].manifest["metrics"].get(f"validation_{metric.name}")
        return (-math.inf if score is None else metric.sign * score), pair[1]

    pairs = zip(artifacts, (weight / total for weight in weights), strict=True)
    return sorted((pair for pair in pairs if pair[1]), key=rank, reverse=True)


def _metric(member: Artifact) -> Metric:
    return metrics.of(member.config, str(member.manifest["metric"]))


def _refuse_differing(artifacts: Sequence[Artifact]) -> None:
    """Raise `ArtifactError` unless all predict the same: competition, metric, kind and names."""
    meanings = {
        each.manifest["run_id"]: f"{each.config.competition}, {each.manifest['metric']},"
        f" {each.target.kind}, {each.target.names}"
        for each in artifacts
    }
    if len(set(meanings.values())) > 1:
        listed = "\n".join(f"{run}: {meaning[:300]}" for run, meaning in meanings.items())
        raise ArtifactError(
            f"The members predict different things (competition, metric, target, labels):\n{listed}"
            "\nExpected the same in all, in the same order. Leave one out, or train it again with"
            " the target, labels and metric of the others."
        )


# The search for weights


@dataclass(frozen=True)
class CommonRows:
    """What several runs predict for the rows that all of them hold out.

    Attributes:
        members: the artifact of each run.
        folders: of the artifacts.
        metric: the competition's.
        ids: n texts.
        truth: as the metric takes it, (n, …).
        predictions: of each member, float32 (m, n, …).
    """

    members: Sequence[Artifact]
    folders: Sequence[Path]
    metric: Metric
    ids: pd.Index
    truth: np.ndarray
    predictions: np.ndarray

    def score(self, weights: np.ndarray) -> float:
        """Return the metric of the weighted mean of the members that have a weight."""
        used = np.flatnonzero(weights)
        predictions = [self.predictions[place] for place in used]
        mean = self.members[0].target.mean(predictions, weights[used].tolist())
        return self.metric(self.truth, mean)

    def ranks(self, candidates: np.ndarray) -> np.ndarray:
        """Return the score of the weights in each row, float (m,), such that greater is better."""
        return np.array([self.metric.sign * self.score(weights) for weights in candidates])

    def part(self, rows: np.ndarray) -> "CommonRows":
        """Return some of the rows."""
        truth, predictions = self.truth[rows], self.predictions[:, rows]
        return replace(self, ids=self.ids[rows], truth=truth, predictions=predictions)


def find(outputs: Sequence[Path], output: Path, show: Callable[[str], None]) -> dict[str, Any]:
    """Find weights for the models of several runs, show one table, and write ensemble.json.

    Args:
        outputs: of the runs.
        output: gets ensemble.json.
        show: takes the lines of the table.

    Returns:
        What `search` returns.

    Raises:
        ConfigError, ArtifactError, ReportError: as `common_rows` does.
        DiskError: if it cannot be written.
    """
    value = search(common_rows(outputs, show))
    path = atomic_file.write(output / FILE, sealed(value))
    for line in (*_table(value), f"Wrote {path}"):
        show(line)
    return value


def search(rows: CommonRows) -> dict[str, Any]:
    """Return what ensemble.json holds: weights by a hill climb, and what each member adds.

    `alone` is the score of a member, `without` that of the others, with their weights. `other_half`
    has the scores of the ensemble and of the best member, each chosen on one half of the rows and
    scored on the other, and the mean of both ways; null if the metric has no value there.
    """
    weights, every = climb(rows), np.eye(len(rows.members))
    members = []
    for place in np.argsort(-weights, kind="stable"):
        others = weights * (1 - every[place])
        members.append(
            {
                **{name: rows.members[place].manifest[name] for name in PINS},
                "config": rows.members[place].config.name,
                "folder": str(rows.folders[place].resolve()),
                "weight": float(weights[place]),
                "alone": rows.score(every[place]),
                "without": rows.score(others) if others.any() else None,
            }
        )
    return {
        "members": members,
        "metric": rows.metric.name,
        "greater_is_better": rows.metric.greater_is_better,
        "rows": len(rows.ids),
        "score": rows.score(weights),
        "other_half": _other_half(rows),
    }


def climb(rows: CommonRows) -> np.ndarray:
    """Return a weight for each member, float (m,), which add up to 1 and score no less than the
    best member.

    Greedy selection with replacement, which starts with the best member (Caruana et al. 2004,
    Ensemble selection from libraries of models). Each round adds the member with which the mean
    scores best, even where that is worse than before; of equal ones that which is best alone, so
    that a member which adds nothing gets nothing. Of all rounds the one that scores best counts, of
    equal ones the last: it averages more.
    """
    every = np.eye(len(rows.members))
    alone = rows.ranks(every)
    counts = weights = every[alone.argmax()]
    best = alone.max()
    for number in range(2, ROUNDS + 1):
        candidates = (counts + every) / number
        ranks = rows.ranks(candidates)
        added = np.lexsort((alone, ranks))[-1]
        counts = counts + every[added]
        if ranks[added] >= best:
            weights, best = candidates[added], ranks[added]
    return np.asarray(weights)


def _other_half(rows: CommonRows) -> dict[str, float] | None:
    order = np.random.default_rng(len(rows.ids)).permutation(len(rows.ids))
    halves = [rows.part(np.sort(half)) for half in np.array_split(order, 2)]
    every, scores = np.eye(len(rows.members)), []
    try:
        for here, there in (halves, halves[::-1]):
            best = every[here.ranks(every).argmax()]
            scores.append([there.score(climb(here)), there.score(best)])
    except DataError:  # a half without one of two classes has no AUC
        return None
    ensemble, best_member = np.mean(scores, axis=0).tolist()
    return {"ensemble": ensemble, "best_member": best_member}


def _table(value: Mapping[str, Any]) -> list[str]:
    """Return ensemble.json as lines: a row per member, and the ensemble."""
    name, half, greater = value["metric"], value["other_half"], value["greater_is_better"]
    table = pd.DataFrame(value["members"])[["weight", "alone", "without", "run_id"]]
    lines = table.to_string(index=False, na_rep="", float_format="%.5f").splitlines()
    better = "higher" if greater else "lower"
    lines.append(f"The ensemble on these rows: {name} {value['score']:.5f} ({better} is better)")
    if half:
        ours, best = half["ensemble"], half["best_member"]
        scores = f"{name} {ours:.5f}; best member {best:.5f}"
        lines.append(f"On rows that weights were not found on: {scores}")
        if (ours < best) if greater else (ours > best):
            lines.append("Warning: there these weights are worse than the best member alone")
    return lines


# Out-of-fold predictions


def common_rows(outputs: Sequence[Path], show: Callable[[str], None]) -> CommonRows:
    """Return what several runs predict for the rows that all of them hold out, by run id.

    Args:
        outputs: of trainings, as `python -m pipeline train` and `invoke pull` leave them, or their
            artifacts' folders.
        show: takes a line about the rows.

    Raises:
        ConfigError: if there are too few such rows.
        ArtifactError: if a run is not complete, or two predict different things.
        ReportError: if a file is corrupt, or two have different labels for one id.
    """
    outputs = [each.parent if (each / artifact.MANIFEST).is_file() else each for each in outputs]
    runs = {output: artifact.load(output / "artifact") for output in outputs}
    outputs = sorted(runs, key=lambda output: str(runs[output].manifest["run_id"]))
    members = [runs[output] for output in outputs]
    if len(members) < 2:
        raise ConfigError(
            f"{len(members)} run is given; expected two or more.\n"
            "Give the output folder of each training."
        )
    best_first(members, None)  # refuses what does not belong together
    for member in members:
        if (member.manifest.get("init_from") or {}).get("may_have_seen_held_out"):
            show(
                f"Warning: run {member.manifest['run_id']} may have been trained on rows that it"
                " holds out (init_from); its score and its weight are then too good"
            )
    ids, truths, values = zip(*map(_read_rows, outputs), strict=True)
    common = ids[0][np.all([ids[0].isin(each) for each in ids], axis=0)]
    counts = ", ".join(str(len(each)) for each in ids)
    if len(common) < LEAST_ROWS:
        raise ConfigError(
            f"The runs hold out {counts} rows, {len(common)} of them in common; expected"
            f" {LEAST_ROWS} or more, to find weights on.\n"
            "Train each with folds: then every row is held out once."
        )
    show(f"Rows: {len(common):,} that all runs hold out (they hold out {counts})")
    places = [each.get_indexer(common) for each in ids]
    truth = truths[0][places[0]]
    for output, every, rows in zip(outputs, truths, places, strict=True):
        # Numbers are standardized in training, by all rows that could be read.
        if not np.allclose(every[rows], truth, rtol=1e-4, atol=1e-6, equal_nan=True):
            raise ReportError(
                f"{output / ARRAYS} has different labels than {outputs[0] / ARRAYS} for the same"
                " ids; expected runs of the same labels.\n"
                "Leave one of the two out, or train it again with the other's labels."
            )
    predictions = np.stack([each[rows] for each, rows in zip(values, places, strict=True)])
    folders = [output / "artifact" for output in outputs]
    return CommonRows(members, folders, _metric(members[0]), common, truth, predictions)


def _read_rows(output: Path) -> tuple[pd.Index, np.ndarray, np.ndarray]:
    """Return ids, truth and predictions of the held-out rows of a run."""
    table, path = output / "validation.csv", output / ARRAYS
    try:
        ids = pd.Index(csv_files.read(table, ReportError, PULL_AGAIN, {"id"})["id"], dtype=object)
        arrays = npz.read(path)
        truth, (values,) = arrays.pop("truth"), arrays.values()
        if not (ids.is_unique and len(ids) == len(truth) == len(values)):
            raise ValueError(
                f"validation.csv has {len(ids)} ids (or some twice), this {len(truth)} true and"
                f" {len(values)} predicted rows"
            )
    except (OSError, ValueError, LookupError, EOFError, BadZipFile) as error:
        raise ReportError(f"{path} cannot be read: {error}.\n{PULL_AGAIN}") from error
    return ids, truth, values
