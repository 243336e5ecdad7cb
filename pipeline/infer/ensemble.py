"""Average the predictions of several trained models, which are the members of an ensemble.

`python -m pipeline ensemble` finds the members' weights on rows that all of them held out, and
writes them to ensemble.json. This file and the bundle for inference identify each member by the
SHA-256 of its weights.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
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
from pipeline.data.labels import codes
from pipeline.errors import ArtifactError, ConfigError, DataError, ReportError
from pipeline.evaluate import metrics, postprocess, thresholds
from pipeline.evaluate.metrics import Metric
from pipeline.evaluate.postprocess import Postprocess
from pipeline.evaluate.thresholds import Found
from pipeline.infer import csv_members
from pipeline.infer.csv_members import CsvMember
from pipeline.runtime import mounts

FILE, ARRAYS = "ensemble.json", "validation.npz"
AGAIN = "Find the weights again:\npython -m pipeline ensemble OUT OUT --output DIR"
PULL_AGAIN = "Pull the run again, or train it again."
PINS = ("run_id", "weights_sha256")  # the fields that identify a member
LEAST_ROWS = 20  # minimum number of rows to find weights
ROUNDS = 50  # rounds of hill climbing, so the smallest weight is 1/50

# Members of an inference


def read(path: Path) -> dict[str, Any]:
    """Return the contents of an ensemble.json (see `search`), without members of weight 0."""
    try:
        value = opened(path.read_bytes())
        return {**value, "members": [each for each in value["members"] if each["weight"] > 0]}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{path} is not an ensemble: {error}.\nExpected an unmodified ensemble.json. {AGAIN}"
        ) from error


def mounted(inputs: Path, expect: Mapping[str, Any]) -> tuple[list[Artifact], list[float]]:
    """Find the artifacts that a bundle expects by their run ids, then load and verify them.

    `expect` contains the fields in `PINS` for a single model, or a list "members", in which each
    entry has these fields and a weight.
    """
    members = expect.get("members", [{**expect, "weight": 1.0}])
    return _pinned(members, [mounts.artifact(inputs, each["run_id"]) for each in members])


def chosen(
    folders: Sequence[Path], members: Sequence[Mapping[str, Any]], config: Config
) -> tuple[list[Artifact], list[float] | None]:
    """Return the verified artifacts in these folders, and their weights if they form an ensemble.

    `members` is the result of `read`. It has one entry per folder, or is empty if there is no
    ensemble.json. A single artifact must have been trained with `config`.
    """
    if members:
        return _pinned(members, folders)
    artifacts = [_load(folder) for folder in folders]
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
        _load(folder, {name: each[name] for name in PINS})
        for each, folder in zip(members, folders, strict=True)
    ]
    return artifacts, [each["weight"] for each in members]


def _load(folder: Path, expect: Mapping[str, str] | None = None) -> Artifact:
    is_csv = (folder / csv_members.TEST).is_file()
    return csv_members.load(folder, expect) if is_csv else artifact.load(folder, expect)


def best_first(
    artifacts: Sequence[Artifact], weights: Sequence[float] | None
) -> list[tuple[Artifact, float]]:
    """Return all members with a weight above 0, sorted by validation score and then by weight.

    A weight alone does not show how good a member is, because it also depends on how much the
    predictions differ. `ConfigError` or `ArtifactError` is raised if the members are incompatible,
    a run occurs twice, or a member's custom code is missing or has changed since training.

    Args:
        weights: weights of 0 or more, which are divided by their sum; None for equal weights.
    """
    weights = [1.0] * len(artifacts) if weights is None else list(weights)
    runs, total = [each.manifest["run_id"] for each in artifacts], sum(weights)
    if len(set(runs)) < len(runs):
        raise ConfigError(
            f"The runs are {', '.join(runs)}. Each run can be listed only once.\n"
            "Remove the duplicates."
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
            f"The members differ in their competition, metric, target or labels:\n{listed}"
            "\nAll members must have the same ones, with the labels in the same order. Remove a"
            " member, or train it again with the target, labels and metric of the others."
        )


# Finding weights


@dataclass(frozen=True)
class CommonRows:
    """Predictions of several runs for the rows that all of them held out.

    Attributes:
        truth: true values for the metric, (n, …).
        predictions: predictions of each member, float32 (m, n, …).
        changed: the members' `postprocess`.
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
        """Apply `changed` to the weighted mean of the members, and return it, float32 (n, …)."""
        used = np.flatnonzero(weights)
        predictions = [self.predictions[place] for place in used]
        mean = self.members[0].target.mean(predictions, weights[used].tolist())
        return self.changed(self.ids.tolist(), mean)

    def decided(self, weights: np.ndarray) -> np.ndarray:
        return thresholds.apply(self.found, self.mean(weights))

    def score(self, weights: np.ndarray) -> float:
        return self.metric(self.truth, self.decided(weights))

    def fitted(self, weights: np.ndarray) -> Found | None:
        """Return thresholds for the mean and their scores, or None if `searched` is False."""
        if not self.searched:
            return None
        every, kind = np.arange(len(self.ids)), self.members[0].target.kind
        parts = thresholds.random_parts(0 * every, every, len(every))
        return thresholds.fit(self.metric, kind, self.truth, self.mean(weights), parts)[0]

    def nested(self, weights: np.ndarray) -> float:
        """Return the score of the mean. If thresholds are searched and used, the thresholds for
        each row are found on other rows.
        """
        found = self.fitted(weights)
        return found["nested"] if found and found["used"] else self.score(weights)

    def gain(self, first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
        """Return how much better the first predictions are, and the standard error of the gain."""
        if np.array_equal(first, second):
            return 0.0, 0.0
        gain = self.metric(self.truth, first) - self.metric(self.truth, second)
        seed, most = len(self.ids), metrics.LEAST_RESAMPLES
        error = metrics.standard_error(self.metric, self.truth, first, seed, most, second)
        return self.metric.sign * gain, error

    def ranks(self, candidates: np.ndarray) -> np.ndarray:
        """Return the score of each row of weights, float (m,), negated if lower is better."""
        return np.array([self.metric.sign * self.score(weights) for weights in candidates])

    def part(self, rows: np.ndarray) -> "CommonRows":
        truth, predictions = self.truth[rows], self.predictions[:, rows]
        return replace(self, ids=self.ids[rows], truth=truth, predictions=predictions)


Choose = Callable[[CommonRows], np.ndarray]  # returns weights that sum to 1


def find(
    outputs: Sequence[Path],
    output: Path,
    show: Callable[[str], None],
    csv: Sequence[csv_members.Files] = (),
    folder: Path | None = None,
) -> dict[str, Any]:
    """Find weights for the models of several runs, show them as a table, and write ensemble.json.

    Args:
        output: folder for ensemble.json, and for a subfolder csv-NAME for each member in `csv`.
        folder: the competition folder, for a `postprocess` that reads it.
    """
    rows = common_rows(outputs, show, {output / f"csv-{each.name}": each for each in csv})
    configs = [member.config for member in rows.members]
    changed, searched = postprocess.of(configs, folder), any(each.thresholds for each in configs)
    value = search(replace(rows, changed=changed, searched=searched))
    for member, place in zip(rows.members, rows.folders, strict=True):
        if isinstance(member, CsvMember):
            csv_members.write(place, member)
    path = atomic_file.write(output / FILE, sealed(value))
    for line in (*table(value), f"Wrote {path}"):
        show(line)
    return value


def search(rows: CommonRows, choose: Choose | None = None) -> dict[str, Any]:
    """Find weights by hill climbing or with `choose`, and return the contents of ensemble.json.

    For each member, `alone` is its own score, and `without` is the score of the other members with
    unchanged weights. These scores and the ensemble's `score` come from `CommonRows.nested`.
    `_other_half` computes `other_half`, and `adds` and `adds_error` for each member.
    """
    choose, every, members = choose or climb, np.eye(len(rows.members)), []
    weights = choose(replace(rows, found=rows.fitted(every.sum(axis=0))))
    found = rows.fitted(weights)
    half = _other_half(replace(rows, searched=bool(found and found["used"])), choose)
    adds = (half.pop("adds") if half else None) or [(None, None)] * len(weights)
    for place in np.argsort(-weights, kind="stable"):
        others = weights * (1 - every[place])
        manifest, (added, error) = rows.members[place].manifest, adds[place]
        members.append(
            {
                **{name: manifest[name] for name in (*PINS, "oof_sha256") if name in manifest},
                "config": rows.members[place].config.name,
                "folder": str(rows.folders[place].resolve()),
                "weight": float(weights[place]),
                "alone": rows.nested(every[place]),
                "without": rows.nested(others) if others.any() else None,
                "adds": added,
                "adds_error": error,
            }
        )
    return {
        "members": members,
        "metric": rows.metric.name,
        "greater_is_better": rows.metric.greater_is_better,
        "rows": len(rows.ids),
        "score": rows.nested(weights),
        "other_half": half,
        **({"thresholds": found} if found else {}),
    }


def climb(rows: CommonRows) -> np.ndarray:
    """Return the weight of each member, float (m,), with a sum of 1. On these rows, the ensemble
    scores at least as well as its best member.

    This is greedy selection with replacement, starting from the best member (Caruana et al. 2004,
    Ensemble selection from libraries of models). Each round adds the member that results in the
    best mean, even if the score decreases. If members tie, the one with the best score on its own
    is added, so a useless member never gets a weight. The weights come from the round with the best
    score. If several rounds are equally good, the last round is used, because it averages more
    members.
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


def _other_half(rows: CommonRows, choose: Choose = climb) -> dict[str, Any] | None:
    """Find weights on one half of the rows and score them on the other half. Then swap the halves,
    and average the two results.

    "adds" contains (gain, error) for each member. This is the gain over the weights that hill
    climbing finds without the member. Return None if the metric is undefined for one half.
    """
    order = np.random.default_rng(len(rows.ids)).permutation(len(rows.ids))
    halves = [rows.part(np.sort(half)) for half in np.array_split(order, 2)]
    every, scores, gains = np.eye(len(rows.members)), [], []
    try:
        for here, there in (halves, halves[::-1]):
            begun = replace(here, found=here.fitted(every.sum(axis=0)))
            weights, best = choose(begun), every[begun.ranks(every).argmax()]
            others = [best]  # and the weights without each member
            for place, weight in enumerate(weights) if choose is climb else ():
                others.append(_weights_without(begun, place) if weight else weights)
            # Thresholds come from the same half as the weights.
            ours, *theirs = (
                replace(there, found=here.fitted(each)).decided(each) for each in (weights, *others)
            )
            scores.append([there.metric(there.truth, each) for each in (ours, theirs[0])])
            gains.append([there.gain(ours, each) for each in theirs])
    except DataError:  # for example, the AUC of a half with a single class
        return None
    ensemble, best_member = np.mean(scores, axis=0).tolist()
    values, errors = np.moveaxis(np.array(gains), 2, 0)
    means, spreads = values.mean(axis=0).tolist(), (np.linalg.norm(errors, axis=0) / 2).tolist()
    (gain, error), *adds = zip(means, spreads, strict=True)
    found = {"ensemble": ensemble, "best_member": best_member, "gain": gain, "error": error}
    return found | {"adds": adds}


def _weights_without(rows: CommonRows, place: int) -> np.ndarray:
    members = [*rows.members[:place], *rows.members[place + 1 :]]
    others = replace(rows, members=members, predictions=np.delete(rows.predictions, place, axis=0))
    return np.insert(climb(others), place, 0.0)


def table(value: Mapping[str, Any], what: str = "ensemble") -> list[str]:
    name, half, greater = value["metric"], value["other_half"], value["greater_is_better"]
    columns = ["weight", "alone", "without", "adds", "adds_error", "run_id"]
    if what == "soup":
        columns = [each for each in columns if not each.startswith("adds")]
    members = pd.DataFrame(value["members"])[columns]
    members = members.astype({each: float for each in columns if each.startswith("adds")})
    lines = members.to_string(index=False, na_rep="", float_format="%.5f").splitlines()
    better = "higher" if greater else "lower"
    lines.append(
        f"{what.capitalize()} score on these rows: {name} {value['score']:.5f} ({better} is better)"
    )
    if "thresholds" in value:
        lines.append(thresholds.line(value["thresholds"], name))
    gain = 0.0
    if half:
        ours, best = half["ensemble"], half["best_member"]
        scores = f"{name} {ours:.5f}; best member {best:.5f}"
        scores += f"; gain {half['gain']:.5f} ± {half['error']:.5f}"
        lines.append(f"On rows not used to find weights: {scores}")
        gain = ours - best if greater else best - ours
    if gain < 0 or (what == "soup" and (not gain or members["weight"].max() == 1)):
        place = members["alone"].argmax() if greater else members["alone"].argmin()
        run = members["run_id"][place]
        lines.append(f"Warning: the {what} is not better than its best member on new rows: {run}")
    return lines


# Out-of-fold predictions


def common_rows(
    outputs: Sequence[Path],
    show: Callable[[str], None],
    csv: Mapping[Path, csv_members.Files] = MappingProxyType({}),
) -> CommonRows:
    """Return several runs' predictions, sorted by run id, for the rows that all of them held out.

    Args:
        outputs: output folders of training runs, or the folders of their artifacts.
        csv: predictions of other models, by the folder that is written for each model later.
    """
    outputs = [each.parent if (each / artifact.MANIFEST).is_file() else each for each in outputs]
    runs = {output: artifact.load(output / "artifact") for output in outputs}
    outputs = sorted(runs, key=lambda output: str(runs[output].manifest["run_id"]))
    members = [runs[output] for output in outputs]
    if len(members) + len(csv) < 2:
        raise ConfigError(
            f"Found {len(members)} run; expected two or more.\n"
            "Pass the output folder of each training run, or --csv NAME=OOF,TEST."
        )
    rows = [_read_rows(output) for output in outputs]
    given = [csv_members.read(each, members[0], *rows[0][:2]) for each in csv.values()]
    members += given
    best_first(members, None)  # checks that they are compatible
    for member in members:
        if member.may_have_seen_held_out:
            show(
                f"Warning: run {member.manifest['run_id']} may have been trained on rows that it"
                " holds out (init_from), so its score and weight are too high"
            )
    ids, truths, values = map(list, zip(*rows, strict=True))
    if any(each.ndim == 1 for each in truths):  # then use the classes of soft labels, too
        truths = list(map(codes, truths))
    ids += [each.oof.ids for each in given]
    values += [each.oof.values for each in given]
    common = ids[0][np.all([ids[0].isin(each) for each in ids], axis=0)]
    counts = ", ".join(str(len(each)) for each in ids)
    if len(common) < LEAST_ROWS:
        raise ConfigError(
            f"The runs hold out {counts} rows, but have only {len(common)} in common. Finding"
            f" weights requires at least {LEAST_ROWS} common rows.\n"
            "Train each run with folds, so that every row is held out once."
        )
    show(f"Using {len(common):,} rows that all runs hold out (they hold out {counts})")
    places = [each.get_indexer(common) for each in ids]
    truth = truths[0][places[0]]
    for output, every, rows in zip(outputs, truths, places[: len(outputs)], strict=True):
        # Numbers can differ slightly, since training standardizes them over all readable rows.
        if not np.allclose(every[rows], truth, rtol=1e-4, atol=1e-6, equal_nan=True):
            raise ReportError(
                f"{output / ARRAYS} and {outputs[0] / ARRAYS} have different labels for the same"
                " ids. The labels must be the same in both.\n"
                "Remove one of the two, or train it again with the other's labels."
            )
    predictions = np.stack([each[rows] for each, rows in zip(values, places, strict=True)])
    folders = [*(output / "artifact" for output in outputs), *csv]
    return CommonRows(members, folders, _metric(members[0]), common, truth, predictions)


def _read_rows(output: Path) -> tuple[pd.Index, np.ndarray, np.ndarray]:
    table, path = output / "validation.csv", output / ARRAYS
    try:
        ids = pd.Index(csv_files.read(table, ReportError, PULL_AGAIN, {"id"})["id"], dtype=object)
        arrays = npz.read(path)
        truth, (values,) = arrays.pop("truth"), arrays.values()
        if not (ids.is_unique and len(ids) == len(truth) == len(values)):
            raise ValueError(
                "expected unique ids in validation.csv, and the same number of true values and"
                f" predictions; found {len(ids)}, {len(truth)} and {len(values)}"
            )
    except (OSError, ValueError, LookupError, EOFError, BadZipFile) as error:
        raise ReportError(f"{path} cannot be read: {error}.\n{PULL_AGAIN}") from error
    return ids, truth, values
