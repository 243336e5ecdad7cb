"""Average the predictions of several trained models, which are the members of an ensemble.

`python -m pipeline ensemble` finds the members' weights on rows that all of them held out, and
writes them to ensemble.json. This file and the bundle for inference identify each member by the
SHA-256 of its weights.
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
from pipeline.evaluate import metrics, postprocess, thresholds
from pipeline.evaluate.metrics import Metric
from pipeline.evaluate.postprocess import Postprocess
from pipeline.evaluate.thresholds import Found
from pipeline.runtime import mounts

FILE, ARRAYS = "ensemble.json", "validation.npz"
AGAIN = "Find the weights again:\npython -m pipeline ensemble OUT OUT --output DIR"
PULL_AGAIN = "Pull the run again, or train it again."
PINS = ("run_id", "weights_sha256")  # the fields that identify a member
LEAST_ROWS = 20  # minimum number of rows to find weights
ROUNDS = 50  # rounds of hill climbing, so the smallest weight is 1/50

# Members of an inference


def read(path: Path) -> dict[str, Any]:
    """Return the contents of an ensemble.json (see `search`), without members of weight 0.

    Raises:
        ConfigError: if the file is not an unmodified ensemble.json.
    """
    try:
        value = opened(path.read_bytes())
        return {**value, "members": [each for each in value["members"] if each["weight"] > 0]}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{path} is not an ensemble: {error}.\nExpected an unmodified ensemble.json. {AGAIN}"
        ) from error


def mounted(inputs: Path, expect: Mapping[str, Any]) -> tuple[list[Artifact], list[float]]:
    """Find the artifacts that a bundle expects by their run ids, and load and verify them.

    Args:
        inputs: /kaggle/input.
        expect: `PINS` of a single model, or "members" with `PINS` and a weight each.

    Returns:
        The artifacts and their weights.

    Raises:
        ArtifactError: if an artifact is not mounted, or its content is not as expected.
    """
    members = expect.get("members", [{**expect, "weight": 1.0}])
    return _pinned(members, [mounts.artifact(inputs, each["run_id"]) for each in members])


def chosen(
    folders: Sequence[Path], members: Sequence[Mapping[str, Any]], config: Config
) -> tuple[list[Artifact], list[float] | None]:
    """Return the verified artifacts in these folders, and their weights in an ensemble, if any.

    Args:
        members: members from `read`, one for each folder, or none without an ensemble.json.
        config: config for inference. A single artifact must have been trained with this config.

    Raises:
        ConfigError: if a single artifact was trained with another config.
        ArtifactError: if the content of an artifact is not as expected.
    """
    if members:
        return _pinned(members, folders)
    artifacts = [artifact.load(folder) for folder in folders]
    trained = artifacts[0].config.name
    if len(artifacts) == 1 and trained != config.name:
        raise ConfigError(
            f"--config {config.name}: the artifact {artifacts[0].manifest['run_id']} was trained"
            f" with {trained}.\nPass --config {trained}, or a different --artifact."
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
    """Return all members with a weight above 0, sorted by validation score and then by weight.

    A weight alone does not show how good a member is, because it also depends on how much the
    predictions differ.

    Args:
        artifacts: artifacts of models with the same target.
        weights: weights of 0 or more, divided by their sum; None weights all equally.

    Raises:
        ConfigError: if a run occurs twice, or a member's custom code is missing or not the same as
            in training.
        ArtifactError: if two members have different competitions, metrics, targets or labels.
    """
    weights = [1.0] * len(artifacts) if weights is None else list(weights)
    runs, total = [each.manifest["run_id"] for each in artifacts], sum(weights)
    if len(set(runs)) < len(runs):
        raise ConfigError(
            f"The runs are {', '.join(runs)}; expected each run once.\nRemove the duplicates."
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
    meanings = {
        each.manifest["run_id"]: f"{each.config.competition}, {each.manifest['metric']},"
        f" {each.target.kind}, {each.target.names}"
        for each in artifacts
    }
    if len(set(meanings.values())) > 1:
        listed = "\n".join(f"{run}: {meaning[:300]}" for run, meaning in meanings.items())
        raise ArtifactError(
            f"The members predict different things (competition, metric, target, labels):\n{listed}"
            "\nExpected the same for all, in the same order. Remove a member, or train it again"
            " with the target, labels and metric of the others."
        )


# Finding weights


@dataclass(frozen=True)
class CommonRows:
    """Predictions of several runs for the rows that all of them held out.

    Attributes:
        members: artifact of each run.
        folders: folders of the artifacts.
        metric: the competition's metric.
        ids: ids of n rows.
        truth: true values for the metric, (n, …).
        predictions: predictions of each member, float32 (m, n, …).
        changed: the members' `postprocess`.
        searched: whether to search thresholds for each mean.
        found: thresholds that are used by `score`.
    """

    members: Sequence[Artifact]
    folders: Sequence[Path]
    metric: Metric
    ids: pd.Index
    truth: np.ndarray
    predictions: np.ndarray
    changed: Postprocess = postprocess.unchanged
    searched: bool = False
    found: Found | None = None

    def mean(self, weights: np.ndarray) -> np.ndarray:
        """Return the weighted mean of the members after `changed`, float32 (n, …)."""
        used = np.flatnonzero(weights)
        predictions = [self.predictions[place] for place in used]
        mean = self.members[0].target.mean(predictions, weights[used].tolist())
        return self.changed(self.ids.tolist(), mean)

    def score(self, weights: np.ndarray) -> float:
        """Score the weighted mean of the members with the metric."""
        return self.metric(self.truth, thresholds.apply(self.found, self.mean(weights)))

    def fitted(self, weights: np.ndarray) -> Found | None:
        """Return thresholds for a mean and their scores, or None if they are not searched."""
        if not self.searched:
            return None
        every, kind = np.arange(len(self.ids)), self.members[0].target.kind
        parts = thresholds.random_parts(0 * every, every, len(every))
        return thresholds.fit(self.metric, kind, self.truth, self.mean(weights), parts)[0]

    def nested(self, weights: np.ndarray) -> float:
        """Score a mean, with thresholds from other rows if they are searched and used."""
        found = self.fitted(weights)
        return found["nested"] if found and found["used"] else self.score(weights)

    def ranks(self, candidates: np.ndarray) -> np.ndarray:
        """Score each row of weights, float (m,). If lower is better, scores are negated."""
        return np.array([self.metric.sign * self.score(weights) for weights in candidates])

    def part(self, rows: np.ndarray) -> "CommonRows":
        """Return some of the rows."""
        truth, predictions = self.truth[rows], self.predictions[:, rows]
        return replace(self, ids=self.ids[rows], truth=truth, predictions=predictions)


def find(
    outputs: Sequence[Path], output: Path, folder: Path | None, show: Callable[[str], None]
) -> dict[str, Any]:
    """Find weights for the models of several runs, show them as a table, and write ensemble.json.

    Args:
        outputs: output folders of the runs.
        output: folder for ensemble.json.
        folder: the competition folder, for a `postprocess` that reads it.
        show: callback for the lines of the table.

    Returns:
        The contents of ensemble.json (see `search`).

    Raises:
        ConfigError, ArtifactError, ReportError: see `common_rows`.
        DiskError: if the file cannot be written.
    """
    rows = common_rows(outputs, show)
    configs = [member.config for member in rows.members]
    changed, searched = postprocess.of(configs, folder), any(each.thresholds for each in configs)
    value = search(replace(rows, changed=changed, searched=searched))
    path = atomic_file.write(output / FILE, sealed(value))
    for line in (*_table(value), f"Wrote {path}"):
        show(line)
    return value


def search(rows: CommonRows) -> dict[str, Any]:
    """Find weights by hill climbing, and return the contents of ensemble.json.

    `alone` is a member's score, and `without` is the score of all others with their weights.
    `other_half` contains the scores of the ensemble and the best member, chosen on one half of the
    rows and scored on the other, averaged over both directions. It is null if the metric is
    undefined on one of the halves. If thresholds are searched, the other
    scores are nested.
    """
    every, members = np.eye(len(rows.members)), []
    weights = climb(replace(rows, found=rows.fitted(every.sum(axis=0))))
    found = rows.fitted(weights)
    for place in np.argsort(-weights, kind="stable"):
        others = weights * (1 - every[place])
        members.append(
            {
                **{name: rows.members[place].manifest[name] for name in PINS},
                "config": rows.members[place].config.name,
                "folder": str(rows.folders[place].resolve()),
                "weight": float(weights[place]),
                "alone": rows.nested(every[place]),
                "without": rows.nested(others) if others.any() else None,
            }
        )
    return {
        "members": members,
        "metric": rows.metric.name,
        "greater_is_better": rows.metric.greater_is_better,
        "rows": len(rows.ids),
        "score": rows.nested(weights),
        "other_half": _other_half(replace(rows, searched=bool(found and found["used"]))),
        **({"thresholds": found} if found else {}),
    }


def climb(rows: CommonRows) -> np.ndarray:
    """Return the weight of each member, float (m,). The weights sum to 1, and the ensemble scores
    at least as well as its best member.

    This is greedy selection with replacement, starting from the best member (Caruana et al. 2004,
    Ensemble selection from libraries of models). Each round adds the member that results in the
    best mean, even if this is worse than before. Ties are resolved in favour of the member that is
    better on its own, so a useless member gets no weight. The result is the round with the best
    score or, if several are equal, the last one, because it averages more members.
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
            begun = replace(here, found=here.fitted(every.sum(axis=0)))
            both = climb(begun), every[begun.ranks(every).argmax()]
            scores.append([replace(there, found=here.fitted(one)).score(one) for one in both])
    except DataError:  # for example, the AUC of a half with a single class
        return None
    ensemble, best_member = np.mean(scores, axis=0).tolist()
    return {"ensemble": ensemble, "best_member": best_member}


def _table(value: Mapping[str, Any]) -> list[str]:
    """Format ensemble.json as a table with a row per member, followed by the ensemble."""
    name, half, greater = value["metric"], value["other_half"], value["greater_is_better"]
    table = pd.DataFrame(value["members"])[["weight", "alone", "without", "run_id"]]
    lines = table.to_string(index=False, na_rep="", float_format="%.5f").splitlines()
    better = "higher" if greater else "lower"
    lines.append(f"Ensemble score on these rows: {name} {value['score']:.5f} ({better} is better)")
    if "thresholds" in value:
        lines.append(thresholds.line(value["thresholds"], name))
    if half:
        ours, best = half["ensemble"], half["best_member"]
        scores = f"{name} {ours:.5f}; best member {best:.5f}"
        lines.append(f"On rows that were not used to find weights: {scores}")
        if (ours < best) if greater else (ours > best):
            lines.append("Warning: on these rows, the ensemble is worse than its best member")
    return lines


# Out-of-fold predictions


def common_rows(outputs: Sequence[Path], show: Callable[[str], None]) -> CommonRows:
    """Return several runs' predictions, sorted by run id, for the rows that all of them held out.

    Args:
        outputs: folders of training runs, from `python -m pipeline train` or `invoke pull`, or of
            their artifacts.
        show: callback for a message about the rows.

    Raises:
        ConfigError: if there are too few common rows.
        ArtifactError: if a run is not complete, or two runs have different competitions, metrics,
            targets or labels.
        ReportError: if a file is corrupt, or two files have different labels for the same id.
    """
    outputs = [each.parent if (each / artifact.MANIFEST).is_file() else each for each in outputs]
    runs = {output: artifact.load(output / "artifact") for output in outputs}
    outputs = sorted(runs, key=lambda output: str(runs[output].manifest["run_id"]))
    members = [runs[output] for output in outputs]
    if len(members) < 2:
        raise ConfigError(
            f"Found {len(members)} run; expected two or more.\n"
            "Pass the output folder of each training run."
        )
    best_first(members, None)  # checks that they are compatible
    for member in members:
        if (member.manifest.get("init_from") or {}).get("may_have_seen_held_out"):
            show(
                f"Warning: run {member.manifest['run_id']} may have been trained on rows that it"
                " holds out (init_from), so its score and weight are too high"
            )
    ids, truths, values = zip(*map(_read_rows, outputs), strict=True)
    common = ids[0][np.all([ids[0].isin(each) for each in ids], axis=0)]
    counts = ", ".join(str(len(each)) for each in ids)
    if len(common) < LEAST_ROWS:
        raise ConfigError(
            f"The runs hold out {counts} rows, but have only {len(common)} in common; expected"
            f" at least {LEAST_ROWS} to find weights.\n"
            "Train each run with folds, so that every row is held out once."
        )
    show(f"Using {len(common):,} rows that all runs hold out (they hold out {counts})")
    places = [each.get_indexer(common) for each in ids]
    truth = truths[0][places[0]]
    for output, every, rows in zip(outputs, truths, places, strict=True):
        # Numbers can differ slightly, since training standardizes them over all readable rows.
        if not np.allclose(every[rows], truth, rtol=1e-4, atol=1e-6, equal_nan=True):
            raise ReportError(
                f"{output / ARRAYS} and {outputs[0] / ARRAYS} have different labels for the same"
                " ids; expected the same labels.\n"
                "Remove one of the two, or train it again with the other's labels."
            )
    predictions = np.stack([each[rows] for each, rows in zip(values, places, strict=True)])
    folders = [output / "artifact" for output in outputs]
    return CommonRows(members, folders, _metric(members[0]), common, truth, predictions)


def _read_rows(output: Path) -> tuple[pd.Index, np.ndarray, np.ndarray]:
    table, path = output / "validation.csv", output / ARRAYS
    try:
        ids = pd.Index(csv_files.read(table, ReportError, PULL_AGAIN, {"id"})["id"], dtype=object)
        arrays = npz.read(path)
        truth, (values,) = arrays.pop("truth"), arrays.values()
        if not (ids.is_unique and len(ids) == len(truth) == len(values)):
            raise ValueError(
                f"validation.csv has {len(ids)} ids (or duplicates), but this file has"
                f" {len(truth)} true and {len(values)} predicted rows"
            )
    except (OSError, ValueError, LookupError, EOFError, BadZipFile) as error:
        raise ReportError(f"{path} cannot be read: {error}.\n{PULL_AGAIN}") from error
    return ids, truth, values
