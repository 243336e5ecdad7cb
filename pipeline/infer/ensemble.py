"""Ensemble: trained models whose predictions are averaged with weights, the members.

`python -m pipeline ensemble` finds the weights on rows that all members held out, and writes
ensemble.json, which pins each member by the sha256 of its weights. The same members are in the
bundle of an inference.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from formats import atomic_file, npz
from formats.checksums import opened, sealed
from formats.errors import writing
from pipeline import artifact
from pipeline.artifact import Artifact
from pipeline.config import Config, custom_code
from pipeline.data import csv_files
from pipeline.errors import ArtifactError, ConfigError, DataError, ReportError, reading
from pipeline.evaluate import competition_metric
from pipeline.evaluate.metrics import Metric
from pipeline.runtime import mounts

FILE = "ensemble.json"
AGAIN = "Find the weights again:\npython -m pipeline ensemble OUT OUT --output DIR"
PULL_AGAIN = "Pull the run again, or train it again."
ARRAYS = "validation.npz"
PINNED = ("run_id", "weights_sha256")
LEAST_ROWS = 20  # to find weights on
ROUNDS = 50  # of the hill climb: the smallest weight is 1/50

# The members of an inference


@dataclass(frozen=True)
class Member:
    """A trained model with its weight.

    Attributes:
        run_id, weights_sha256: of its artifact.
        config: the name of its config.
        weight: above 0; the weights of an ensemble add up to 1.
        folder: where the artifact was when the weights were found; "" in a bundle.
    """

    run_id: str
    weights_sha256: str
    config: str
    weight: float
    folder: str = ""


def read(path: Path) -> list[Member]:
    """Return the members in an ensemble.json that have a weight.

    Raises:
        ConfigError: if it is not what the command wrote.
    """
    with reading(path, ConfigError, AGAIN):
        content = path.read_bytes()
    try:
        return pinned(opened(content))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is no ensemble: {error}.\nExpected the file as it was written. {AGAIN}"
        ) from error


def pinned(expect: Mapping[str, Any]) -> list[Member]:
    """Return the members that a bundle or an ensemble.json names; one of a single model."""
    listed = expect.get("members", [{"config": "", "weight": 1.0, **expect}])
    names = Member.__dataclass_fields__
    members = [
        Member(**{name: value for name, value in each.items() if name in names})
        for each in listed
        if each["weight"]
    ]
    if not members or not all(math.isfinite(each.weight) and each.weight > 0 for each in members):
        raise ValueError(f"its weights are {[each['weight'] for each in listed]}")
    return members


def mounted(inputs: Path, expect: Mapping[str, Any]) -> tuple[list[Artifact], list[float]]:
    """Return the artifacts that a bundle expects, found by run id and verified, and their weights.

    Args:
        inputs: /kaggle/input.
        expect: of the bundle.

    Raises:
        ArtifactError: if one is not mounted, or has other bytes.
    """
    members = pinned(expect)
    artifacts = [
        artifact.load(
            mounts.artifact(inputs, member.run_id), {name: getattr(member, name) for name in PINNED}
        )
        for member in members
    ]
    return artifacts, [member.weight for member in members]


def folders(artifacts: Sequence[Path], path: Path | None) -> list[Path]:
    """Return the folders of the artifacts: these, or else those that an ensemble.json names.

    Raises:
        ConfigError: if there are none.
    """
    if artifacts:
        return list(artifacts)
    if path is None:
        raise ConfigError(
            "Neither --artifact nor --ensemble is given; expected the model to infer with.\n"
            "Give --artifact DIR, or --ensemble FILE."
        )
    return [Path(member.folder) for member in read(path)]


def chosen(
    folders: Sequence[Path], path: Path | None, config: Config
) -> tuple[list[Artifact], list[float] | None]:
    """Return the artifacts in folders, verified, and their weights, None without an ensemble.json.

    Args:
        path: of an ensemble.json, which names these artifacts and no others.
        config: of the inference. Without an ensemble.json one artifact has to be of that config.

    Raises:
        ConfigError: if the folders are not those of the members, or of another model than that of
            the config.
        ArtifactError: if one has other bytes.
    """
    artifacts = [artifact.load(folder) for folder in folders]
    if path is not None:
        members = {(member.run_id, member.weights_sha256): member.weight for member in read(path)}
        pins = [tuple(each.manifest[name] for name in PINNED) for each in artifacts]
        if sorted(pins) != sorted(members):
            raise ConfigError(
                f"{path} names {_listed(members)}; the artifacts are {_listed(pins)}.\n"
                "Expected the artifact of each, once, with the weights that were averaged. Correct"
                f" --artifact, or restore the folders. {AGAIN}"
            )
        return artifacts, [members[pin] for pin in pins]
    trained = artifacts[0].config.name
    if len(artifacts) == 1 and trained != config.name:
        raise ConfigError(
            f"--config {config.name}: the artifact {artifacts[0].manifest['run_id']} was trained"
            f" with {trained}.\nGive --config {trained}, or another --artifact."
        )
    return artifacts, None


def _listed(pins: Iterable[tuple[str, ...]]) -> str:
    return ", ".join(f"{run_id} ({digest[:12]})" for run_id, digest in sorted(pins)) or "none"


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
        ConfigError: if these are no weights, or one run is given twice.
        ArtifactError: if two predict different things.
    """
    weights = [1.0] * len(artifacts) if weights is None else list(weights)
    total = sum(weights)
    if len(weights) != len(artifacts) or not total > 0 or min(weights) < 0:
        raise ConfigError(
            f"weights={weights} cannot work for {len(artifacts)} artifacts; expected a number of 0"
            " or more for each, and one above 0.\nCorrect weights."
        )
    runs = [str(each.manifest["run_id"]) for each in artifacts]
    if len(set(runs)) < len(runs):
        raise ConfigError(
            f"The runs {', '.join(runs)} are not all different; expected each once.\n"
            "Give each artifact once; a weight says how much it counts."
        )
    _refuse_differing(artifacts)
    for each, weight in zip(artifacts, weights, strict=True):
        if weight and each.config.metric:  # which may be custom
            custom_code.require(each.config, each.manifest["custom_code"])
    metric = _metric(artifacts[0])

    def rank(pair: tuple[Artifact, float]) -> tuple[float, float]:
        score = pair[0].manifest["metrics"].get(f"validation_{metric.name}")
        return (-math.inf if score is None else metric.sign * score), pair[1]

    pairs = zip(artifacts, (weight / total for weight in weights), strict=True)
    return sorted((pair for pair in pairs if pair[1]), key=rank, reverse=True)


def _metric(member: Artifact) -> Metric:
    return competition_metric.of(member.config, str(member.manifest["metric"]))


def _refuse_differing(artifacts: Sequence[Artifact]) -> None:
    """Raise `ArtifactError` unless all predict the same: competition, kind, names and metric."""

    def meaning(member: Artifact) -> dict[str, Any]:
        return {
            "competition": member.config.competition,
            "target": member.target.kind,
            "classes or columns": member.target.names,
            "metric": member.manifest["metric"],
        }

    first = meaning(artifacts[0])
    for other in artifacts[1:]:
        for what, value in meaning(other).items():
            if value != first[what]:
                raise ArtifactError(
                    f"Two members predict different things: {what} {str(first[what])[:200]} in run"
                    f" {artifacts[0].manifest['run_id']}, {str(value)[:200]} in run"
                    f" {other.manifest['run_id']}.\n"
                    "Expected the same in all, in the same order. Leave one out, or train it again"
                    " with the other's target, labels and metric."
                )


def lineage(
    members: Sequence[Artifact], weights: Sequence[float], used: Sequence[float]
) -> list[dict[str, Any]]:
    """Return members.json: each member, with the weight that it should have, and the one that was
    used, 0 if it was left out.
    """
    return [
        {
            **{name: member.manifest[name] for name in PINNED},
            "config": member.config.name,
            "weight": weight,
            "used": share,
        }
        for member, weight, share in zip(members, weights, used, strict=True)
    ]


# The search for weights


@dataclass(frozen=True)
class HeldOut:
    """What several runs predict for the rows that all of them hold out.

    Attributes:
        members: the artifact of each run.
        folders: of the artifacts.
        metric: the competition's.
        ids: n texts.
        truth: as the metric takes it, (n, …).
        predictions: of each member, float32 (n, …).
    """

    members: Sequence[Artifact]
    folders: Sequence[Path]
    metric: Metric
    ids: Sequence[str]
    truth: np.ndarray
    predictions: Sequence[np.ndarray]

    def mean(self, weights: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the weighted mean of the members that have a weight, float32 (n, …)."""
        pairs = [pair for pair in zip(self.predictions, weights, strict=True) if pair[1]]
        mean = self.members[0].target.mean
        return mean([values for values, _ in pairs], [float(weight) for _, weight in pairs])

    def score(self, weights: Sequence[float] | np.ndarray) -> float:
        """Return the metric of the weighted mean."""
        return self.metric(self.truth, self.mean(weights))

    def ranks(self, candidates: np.ndarray) -> np.ndarray:
        """Return the score of the weights in each row, float (m,), such that greater is better."""
        return np.array([self.metric.sign * self.score(weights) for weights in candidates])

    def part(self, rows: np.ndarray) -> "HeldOut":
        """Return some of the rows."""
        ids = [self.ids[row] for row in rows]
        predictions = [values[rows] for values in self.predictions]
        return replace(self, ids=ids, truth=self.truth[rows], predictions=predictions)


def find(
    outputs: Sequence[Path], output: Path, *, seed: int, show: Callable[[str], None]
) -> dict[str, Any]:
    """Find weights for the models of several runs, show one table, and write ensemble.json.

    Args:
        outputs: of the runs.
        output: gets ensemble.json.
        seed: of the choice between equals, and of the halves.
        show: takes the lines of the table.

    Returns:
        The content of the file.

    Raises:
        ConfigError, ArtifactError, ReportError: as `held_out` does.
        DiskError: if it cannot be written.
    """
    if len(outputs) < 2 or not 0 <= seed < 2**32:
        raise ConfigError(
            f"{len(outputs)} run, --seed {seed}: expected two runs or more, and a seed from 0 to"
            " 4294967295.\nGive the output folder of each training."
        )
    content = sealed(search(held_out(outputs, show), seed))
    value = opened(content)
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    atomic_file.write(output / FILE, content)
    for line in _table(value):
        show(line)
    show(f"Wrote {output / FILE}")
    return value


def search(rows: HeldOut, seed: int) -> dict[str, Any]:
    """Return what ensemble.json holds: weights by a hill climb, and what each member adds.

    `alone` is the score of a member, `without` that of the others, with their weights. `other_half`
    has the scores of the ensemble and of the best member, each chosen on one half of the rows and
    scored on the other, and the mean of both ways; null if the metric has no value there.
    """
    weights = climb(rows, seed)
    every = np.eye(len(weights))
    members = []
    for place in sorted(range(len(weights)), key=lambda place: -weights[place]):
        others = np.array(weights) * (1 - every[place])
        members.append(
            {
                **{name: rows.members[place].manifest[name] for name in PINNED},
                "config": rows.members[place].config.name,
                "folder": str(rows.folders[place].resolve()),
                "weight": weights[place],
                "alone": rows.score(every[place]),
                "without": rows.score(others) if others.any() else None,
            }
        )
    return {
        "members": members,
        "seed": seed,
        "metric": rows.metric.name,
        "greater_is_better": rows.metric.greater_is_better,
        "rows": len(rows.ids),
        "score": rows.score(weights),
        "other_half": _other_half(rows, seed),
    }


def climb(rows: HeldOut, seed: int) -> list[float]:
    """Return a weight for each member, which add up to 1 and score no less than the best member.

    Greedy selection with replacement, which starts with the best member (Caruana et al. 2004,
    Ensemble selection from libraries of models). Each round adds the member with which the mean
    scores best, even where that is worse than before; of equal ones that which is best alone, so
    that a member which adds nothing gets nothing; of those the seed chooses. Of all rounds the one
    that scores best counts, of equal ones the last: it averages more.
    """
    random, every = np.random.default_rng(seed), np.eye(len(rows.predictions))
    alone = rows.ranks(every)
    counts = best_counts = every[alone.argmax()]
    best = alone.max()
    for _ in range(2, ROUNDS + 1):
        # As the members are averaged later, so that the score is the one of the result.
        ranks = rows.ranks(counts + every)
        equal = np.flatnonzero(ranks == ranks.max())
        added = random.choice(equal[alone[equal] == alone[equal].max()])
        counts = counts + every[added]
        if ranks[added] >= best:
            best_counts, best = counts, ranks[added]
    weights = best_counts / best_counts.sum()
    if rows.ranks(weights[None])[0] < alone.max():  # by a rounding
        weights = every[alone.argmax()]
    return [float(weight) for weight in weights]


def _other_half(rows: HeldOut, seed: int) -> dict[str, float] | None:
    order = np.random.default_rng((seed, len(rows.ids))).permutation(len(rows.ids))
    halves = [rows.part(np.sort(half)) for half in np.array_split(order, 2)]
    every, scores = np.eye(len(rows.predictions)), []
    try:
        for here, there in (halves, halves[::-1]):
            best = every[here.ranks(every).argmax()]
            scores.append([there.score(climb(here, seed)), there.score(best)])
    except DataError:  # a half without one of two classes has no AUC
        return None
    ensemble, best_member = np.mean(scores, axis=0).tolist()
    return {"ensemble": ensemble, "best_member": best_member}


def _table(value: Mapping[str, Any]) -> list[str]:
    """Return ensemble.json as lines: a row per member, and the ensemble."""
    name, sign = value["metric"], 1 if value["greater_is_better"] else -1

    def row(weight: str, alone: str, without: str, text: str) -> str:
        return f"{weight:>6}  {alone:>9}  {without:>9}  {text}"

    better = "higher" if sign > 0 else "lower"
    lines = [row("weight", "alone", "without", f"{name}, {better} is better")]
    for member in value["members"]:
        without = "" if member["without"] is None else f"{member['without']:.5f}"
        weight, alone = f"{member['weight']:.2f}", f"{member['alone']:.5f}"
        lines.append(row(weight, alone, without, member["run_id"]))
    lines.append(row("", f"{value['score']:.5f}", "", "the ensemble, on these rows"))
    if not (half := value["other_half"]):
        return [*lines, f"No score on other rows: {name} has no value on one half of these"]
    best = f"on rows that weights were not found on; best member {half['best_member']:.5f}"
    lines.append(row("", f"{half['ensemble']:.5f}", "", best))
    if sign * (half["ensemble"] - half["best_member"]) < 0:
        lines.append(
            "Warning: on rows that they were not found on, these weights are worse than the best"
            " member alone"
        )
    return lines


# Out-of-fold predictions


def held_out(outputs: Sequence[Path], show: Callable[[str], None]) -> HeldOut:
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
    runs = [(artifact.load(output / "artifact"), output) for output in outputs]
    runs.sort(key=lambda run: str(run[0].manifest["run_id"]))
    best_first([member for member, _ in runs], None)  # refuses what does not belong together
    for member, _ in runs:
        if (member.manifest.get("init_from") or {}).get("may_have_seen_held_out"):
            show(
                f"Warning: run {member.manifest['run_id']} may have been trained on rows that it"
                " holds out (init_from); its score and its weight are then too good"
            )
    ids, truths, values = zip(*(_read_rows(output) for _, output in runs), strict=True)
    _refuse_other_rows(runs, ids)
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
    truths = [truth[rows] for truth, rows in zip(truths, places, strict=True)]
    for (_, output), truth in zip(runs, truths, strict=True):
        same = truth.shape == truths[0].shape
        # Numbers are standardized in training, by all rows that could be read.
        if not same or not np.allclose(truth, truths[0], rtol=1e-4, atol=1e-6, equal_nan=True):
            raise ReportError(
                f"{output / ARRAYS} has different labels than {runs[0][1] / ARRAYS} for the same"
                " ids; expected runs of the same labels.\n"
                "Leave one of the two out, or train it again with the other's labels."
            )
    return HeldOut(
        [member for member, _ in runs],
        [output / "artifact" for _, output in runs],
        _metric(runs[0][0]),
        list(common),
        truths[0],
        [each[rows] for each, rows in zip(values, places, strict=True)],
    )


def _read_rows(output: Path) -> tuple[pd.Index, np.ndarray, np.ndarray]:
    """Return ids, truth and predictions of the held-out rows of a run."""
    table = csv_files.read(output / "validation.csv", ReportError, PULL_AGAIN, {"id"})
    ids, path = pd.Index(table.get("id", []), dtype=object), output / ARRAYS
    with reading(path, ReportError, PULL_AGAIN):
        try:
            arrays = npz.read(path)
            truth, (values,) = arrays.pop("truth"), arrays.values()
            if not (ids.is_unique and len(ids) == len(truth) == len(values)):
                raise ValueError(
                    f"validation.csv has {len(ids)} ids (or some twice), this {len(truth)} true and"
                    f" {len(values)} predicted rows"
                )
            if not np.isfinite(values).all():
                raise ValueError("a prediction is not finite")
        except OSError:
            raise
        except Exception as error:  # of a corrupt file numpy and zipfile raise a dozen kinds
            raise ReportError(f"{path} cannot be read: {error}.\n{PULL_AGAIN}") from error
    return ids, truth, values


def _refuse_other_rows(runs: Sequence[tuple[Artifact, Path]], ids: Sequence[pd.Index]) -> None:
    """Raise `ConfigError` if two runs without folds hold out different rows."""
    single = [
        (output, set(each))
        for (member, output), each in zip(runs, ids, strict=True)
        if member.config.folds is None
    ]
    for output, names in single[1:]:
        first, others = single[0]
        if names != others:
            raise ConfigError(
                f"{first} and {output} have no folds and hold out different rows:"
                f" {len(others):,} and {len(names):,}, {len(names & others):,} of them in common."
                "\nExpected the same rows, which follow from seed and data.validation_fraction."
                " Train them with folds: then seeds may differ."
            )
